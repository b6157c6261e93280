/** What a user allows their sessions at most. */

import { client } from "../../api/client";
import { useLoad } from "../../components/use_load";
import { currentUser } from "../../state/app_state";

/** Their level; null until it is known. Without a user it is one's own. */
export function useAutonomyCeiling(user_id?: string): number | null {
  const otherUser = user_id && user_id !== currentUser.get()?.user_id ? user_id : undefined;
  return useLoad(() => client.getSettings(otherUser), [otherUser]).value?.autonomy_level ?? null;
}
