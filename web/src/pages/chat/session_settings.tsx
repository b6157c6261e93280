/** A session's title, and how much it may do. It may narrow what its user allows, never widen it. */

import { useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import { Button, Dialog, Toggle } from "../../components/ui";
import { LEVEL_LABELS } from "../../components/format";
import type { SessionView } from "../../state/session_view";
import { useCeiling } from "./use_autonomy_ceiling";

const MEANING = [
  "It reads, and changes nothing.", "It makes small changes, and asks before those that matter.",
  "It also does what is critical, once a person approved it.", "It does what matters by itself; what is critical within a budget.",
];

export function SessionSettings({ session_id, conversation, onClose }: { session_id: string; conversation: SessionView; onClose: () => void }) {
  const [title, setTitle] = useState(conversation.title ?? "");
  const [level, setLevel] = useState(Number(conversation.settings?.autonomy_level ?? 1));
  const ceiling = useCeiling(conversation.owner);
  const [preflight, setPreflight] = useState(conversation.settings?.preflight === true);
  const [problem, setProblem] = useState<string | null>(null);
  const save = async () => {
    try {
      await client.changeSession(session_id, { title: title.trim() || null, autonomy_level: level, preflight });
      onClose();
    } catch (error) {
      setProblem(toProblem(error).message);
    }
  };
  return (
    <Dialog title="Settings of this session" onClose={onClose} actions={
      <><Button onClick={onClose}>Leave as it is</Button><Button tone="primary" onClick={() => void save()}>Save</Button></>
    }>
      <label class="stacked-field">Title<input type="text" value={title} maxLength={200} onInput={(event) => setTitle(event.currentTarget.value)} /></label>
      <fieldset class="levels">
        <legend>What it may do</legend>
        {LEVEL_LABELS.map((name, at) => {
          const isAbove = ceiling !== null && at > ceiling;
          return (
            <label key={name}><input type="radio" name="level" checked={level === at} disabled={isAbove} onChange={() => setLevel(at)} />
              <span><strong>L{at} {name}</strong><small>{MEANING[at]}{isAbove && ` More than the settings of ${conversation.owner || "its user"} allow, which end at L${ceiling}.`}</small></span></label>
          );
        })}
      </fieldset>
      <Toggle label="Plan first: each message begins with a checklist to approve" checked={preflight} onChange={setPreflight} />
      {problem && <p class="wrong" role="alert">{problem}</p>}
    </Dialog>
  );
}
