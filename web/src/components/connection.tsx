/** Whether what is shown is what is. */

import { connection, reconnect, retryAt } from "../state/app_state";
import { useStore } from "../state/store";
import { Icon } from "./icon";
import { now } from "./time";

export function ConnectionState() {
  const { state, wasOpen } = useStore(connection);
  const seconds = useStore(now, (ms) => Math.max(0, Math.ceil(((retryAt() ?? ms) - ms) / 1000)));
  const said = {
    open: "Live", connecting: wasOpen ? "Reconnecting…" : "Connecting…", offline: "Offline", signed_out: "Signed out",
    lost: seconds > 1 ? `Server away; ${seconds} s` : "Reconnecting…",
  }[state];
  return (
    <div class={`connection ${state}`} role="status" aria-live="polite">
      <span class="dot" aria-hidden="true" />
      <span aria-hidden={state === "lost" || undefined}>{said}</span>
      {state === "lost" && <button type="button" class="text-button" onClick={reconnect}>Now</button>}
    </div>
  );
}

/** The same for narrow pages, where the way between rooms has room for a dot. */
export function OfflineBanner() {
  const { state, wasOpen } = useStore(connection);
  const seconds = useStore(now, (ms) => Math.max(0, Math.ceil(((retryAt() ?? ms) - ms) / 1000)));
  if (!wasOpen || state === "open" || state === "signed_out") return null;
  return (
    <div class="away">
      <Icon name="warn" size={16} />
      <span>{state === "offline" ? "You are offline" : "The server is away"}</span>
      {state === "lost" && seconds > 1
        ? <button type="button" class="text-button" onClick={reconnect}>Try now <small class="numbers">({seconds} s)</small></button>
        : <span class="hint">{state === "offline" ? "" : "Trying…"}</span>}
    </div>
  );
}
