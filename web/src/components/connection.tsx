/** The status of the connection to the server. */

import { connection, reconnect, nextReconnectAt } from "../state/app_state";
import { useStore } from "../state/store";
import { Icon } from "./icon";
import { now } from "./time";

/** The connection status in the sidebar. */
export function ConnectionStatus() {
  const { state, wasOpen } = useStore(connection);
  const seconds = useStore(now, (ms) => Math.max(0, Math.ceil(((nextReconnectAt() ?? ms) - ms) / 1000)));
  const label = {
    open: "Live", connecting: wasOpen ? "Reconnecting…" : "Connecting…", offline: "Offline", signed_out: "Signed out",
    lost: seconds > 1 ? `Retrying in ${seconds} s` : "Reconnecting…",
  }[state];
  return (
    <div class={`connection ${state}`} role="status" aria-live="polite">
      <span class="dot" aria-hidden="true" />
      <span aria-hidden={state === "lost" || undefined}>{label}</span>
      {state === "lost" && <button type="button" class="text-button" onClick={reconnect}>Now</button>}
    </div>
  );
}

/** The connection status of narrow pages, whose sidebar shows only a dot. */
export function OfflineBanner() {
  const { state, wasOpen } = useStore(connection);
  const seconds = useStore(now, (ms) => Math.max(0, Math.ceil(((nextReconnectAt() ?? ms) - ms) / 1000)));
  if (!wasOpen || state === "open" || state === "signed_out") return null;
  return (
    <div class="offline-banner">
      <Icon name="warn" size={16} />
      <span>{state === "offline" ? "You are offline" : "Server unreachable"}</span>
      {state === "lost" && seconds > 1
        ? <button type="button" class="text-button" onClick={reconnect}>Retry now <small class="numbers">({seconds} s)</small></button>
        : <span class="hint">{state === "offline" ? "" : "Reconnecting…"}</span>}
    </div>
  );
}
