/** Whether what is shown is what is. */

import { connection, reconnect, retryAt } from "../state/live";
import { useStore } from "../state/store";
import { now } from "./time";

export function ConnectionState() {
  const { state, wasOpen } = useStore(connection);
  const seconds = useStore(now, (ms) => Math.max(0, Math.ceil(((retryAt() ?? ms) - ms) / 1000)));
  const said = {
    open: "Live", connecting: wasOpen ? "Reconnecting…" : "Connecting…", offline: "Offline", signed_out: "Signed out",
    lost: seconds > 1 ? `Lost; again in ${seconds} s` : "Reconnecting…",
  }[state];
  return (
    <div class={`connection ${state}`} role="status" aria-live="polite">
      <span class="dot" aria-hidden="true" />
      <span aria-hidden={state === "lost" || undefined}>{said}</span>
      {state === "lost" && <button type="button" class="text-button" onClick={reconnect}>Now</button>}
    </div>
  );
}
