/** What a user allows their sessions at most. */

import { client } from "../../api/client";
import { useLoad } from "../../components/use_load";
import { me } from "../../state/app_state";

/** Their level; null until it is known. Without a user it is one's own. */
export function useCeiling(user_id?: string): number | null {
  const whose = user_id && user_id !== me.get()?.user_id ? user_id : undefined;
  return useLoad(() => client.settings(whose), [whose]).value?.autonomy_level ?? null;
}
