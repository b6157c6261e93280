/** The live region through which screen readers read the announcements. */

import { announcements } from "../state/announcements";
import { useStore } from "../state/store";

/** The live region of the announcements. */
export function Announcer() {
  const entries = useStore(announcements);
  return <div class="sr-only announcer" role="log" aria-live="polite" aria-label="Announcements">{entries.map(({ id, text }) => <p key={id}>{text}</p>)}</div>;
}
