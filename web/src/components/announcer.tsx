/** Says aloud, through screen readers, what was announced. */

import { announcements } from "../state/announcements";
import { useStore } from "../state/store";

export function Announcer() {
  const entries = useStore(announcements);
  return <div class="sr-only announcer" role="log" aria-live="polite" aria-label="Announcements">{entries.map(({ id, text }) => <p key={id}>{text}</p>)}</div>;
}
