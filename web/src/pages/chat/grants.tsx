/** What people approved for a whole session; each can be taken back. */

import { useEffect, useRef, useState } from "preact/hooks";
import { client } from "../../api/client";
import { type Problem, toProblem } from "../../api/http";
import type { Grant } from "../../api/types";
import { RelativeTime } from "../../components/time";
import { Button, Dialog, ErrorNotice, Loading } from "../../components/ui";
import { useRestoreFocus } from "../../components/use_focus";
import { EscapedText } from "../../components/escaped_text";

export function Grants({ session_id, onClose }: { session_id: string; onClose: () => void }) {
  const [grants, setGrants] = useState<Grant[] | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const load = () => client.grants(session_id).then((found) => setGrants(found.grants), (error) => setProblem(toProblem(error)));
  useEffect(() => void load(), [session_id]);
  const box = useRef<HTMLDivElement>(null);
  useRestoreFocus(box, "button, [tabindex]", grants);
  const revoke = (grant: Grant) =>
    client.revokeGrant(session_id, grant.grant_id).then(load, (error) => setProblem(toProblem(error)));
  return (
    <Dialog title="Approved for this session" onClose={onClose}>
      <div ref={box}>
        {problem && <ErrorNotice problem={problem} />}
        {!grants && !problem && <Loading what="approvals" />}
        {grants && !grants.length && <p class="hint" tabIndex={-1}>Nothing yet. Tick “For this session” when you approve a call, and later calls of that tool run without asking.</p>}
        <ul class="plain-list">
          {grants?.map((grant) => (
            <li key={grant.grant_id}>
              <div><code class="tool-name"><EscapedText text={grant.tool} /></code>{grant.where && <> where <code><EscapedText text={grant.where} /></code></>}
                <p class="hint">by {grant.by}, <RelativeTime at={grant.at} /></p></div>
              <Button tone="danger" onClick={() => void revoke(grant)}>Revoke</Button>
            </li>
          ))}
        </ul>
      </div>
    </Dialog>
  );
}
