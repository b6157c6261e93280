/** What a user allows their sessions at most. */

import { client } from "../../api/client";
import { useLoaded } from "../../parts/use_loaded";
import { me } from "../../state/live";

/** Their level; null until it is known. Without a user it is one's own. */
export function useCeiling(user_id?: string): number | null {
  const whose = user_id && user_id !== me.get()?.user_id ? user_id : undefined;
  return useLoaded(() => client.settings(whose), [whose]).value?.autonomy_level ?? null;
}
