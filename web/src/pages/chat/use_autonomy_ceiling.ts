/** The highest autonomy level that a user's settings and the ceilings allow. */

import { client } from "../../api/client";
import { useLoad } from "../../components/use_load";
import { currentUser } from "../../state/app_state";

/**
 * Returns the autonomy level in the effective settings of a user, or of the current user. Null until
 * it is loaded.
 */
export function useAutonomyCeiling(user_id?: string): number | null {
  const otherUser = user_id && user_id !== currentUser.get()?.user_id ? user_id : undefined;
  return useLoad(() => client.getSettings(otherUser), [otherUser]).value?.effective.autonomy_level ?? null;
}
