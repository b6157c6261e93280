/** The grants of a session: approvals for later calls of a tool. Each can be revoked. */

import { useEffect, useRef, useState } from "preact/hooks";
import { client } from "../../api/client";
import { type Problem, toProblem } from "../../api/http";
import type { Grant } from "../../api/types";
import { RelativeTime } from "../../components/time";
import { Button, Dialog, ErrorNotice, Loading } from "../../components/ui";
import { useRestoreFocus } from "../../components/use_focus";
import { EscapedText } from "../../components/escaped_text";

/** The dialog that lists and revokes the grants of a session. */
export function GrantsDialog({ session_id, onClose }: { session_id: string; onClose: () => void }) {
  const [grants, setGrants] = useState<Grant[] | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const load = () => client.listGrants(session_id).then((response) => setGrants(response.grants), (error) => setProblem(toProblem(error)));
  useEffect(() => void load(), [session_id]);
  const container = useRef<HTMLDivElement>(null);
  useRestoreFocus(container, "button, [tabindex]", grants);
  const revoke = (grant: Grant) =>
    client.revokeGrant(session_id, grant.grant_id).then(load, (error) => setProblem(toProblem(error)));
  return (
    <Dialog title="Grants" onClose={onClose}>
      <div ref={container}>
        {problem && <ErrorNotice problem={problem} />}
        {!grants && !problem && <Loading subject="grants" />}
        {grants && !grants.length && <p class="hint" tabIndex={-1}>No grants. Select “Approve for this session” when you approve a call; later calls of that tool then run without approval.</p>}
        <ul class="plain-list">
          {grants?.map((grant) => (
            <li key={grant.grant_id}>
              <div><code class="tool-name"><EscapedText text={grant.tool} /></code>{grant.where && <> where <code><EscapedText text={grant.where} /></code></>}
                <p class="hint">by {grant.by}, <RelativeTime timestamp={grant.at} /></p></div>
              <Button tone="danger" onClick={() => void revoke(grant)}>Revoke</Button>
            </li>
          ))}
        </ul>
      </div>
    </Dialog>
  );
}
