/** The settings of a session. They may narrow the settings of its owner, but never widen them. */

import { useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import { Button, Dialog, Toggle } from "../../components/ui";
import { LEVEL_LABELS } from "../../components/format";
import type { SessionView } from "../../state/session_view";
import { useAutonomyCeiling } from "./use_autonomy_ceiling";

const LEVEL_DESCRIPTIONS = [
  "Only reads.", "Makes low-risk changes. High-risk changes need approval. Critical calls are denied.",
  "Like L1, but critical calls are possible with approval.", "Makes high-risk changes without approval, and critical calls within a budget.",
];

/** The dialog for the title, the autonomy level and the preflight setting of a session. */
export function SessionSettingsDialog({ session_id, view, onClose }: { session_id: string; view: SessionView; onClose: () => void }) {
  const [title, setTitle] = useState(view.title ?? "");
  const [level, setLevel] = useState(Number(view.settings?.autonomy_level ?? 1));
  const ceiling = useAutonomyCeiling(view.owner);
  const [preflight, setPreflight] = useState(view.settings?.preflight === true);
  const [problem, setProblem] = useState<string | null>(null);
  const save = async () => {
    try {
      // An unchanged level may exceed a ceiling; then it is narrowed at each evaluation.
      const autonomy = level === Number(view.settings?.autonomy_level ?? 1) ? {} : { autonomy_level: level };
      await client.changeSession(session_id, { title: title.trim() || null, ...autonomy, preflight });
      onClose();
    } catch (error) {
      setProblem(toProblem(error).message);
    }
  };
  return (
    <Dialog title="Session settings" onClose={onClose} actions={
      <><Button onClick={onClose}>Cancel</Button><Button tone="primary" onClick={() => void save()}>Save</Button></>
    }>
      <label class="stacked-field">Title<input type="text" value={title} maxLength={200} onInput={(event) => setTitle(event.currentTarget.value)} /></label>
      <fieldset class="levels">
        <legend>Autonomy level</legend>
        {LEVEL_LABELS.map((name, index) => {
          const isAboveCeiling = ceiling !== null && index > ceiling;
          return (
            <label key={name}><input type="radio" name="level" checked={level === index} disabled={isAboveCeiling} onChange={() => setLevel(index)} />
              <span><strong>L{index} {name}</strong><small>{LEVEL_DESCRIPTIONS[index]}{isAboveCeiling && ` Above the limit of ${view.owner || "the owner"}: L${ceiling}.`}</small></span></label>
          );
        })}
      </fieldset>
      <Toggle label="Plan first: each run starts with a checklist to approve" checked={preflight} onChange={setPreflight} />
      {problem && <p class="error-text" role="alert">{problem}</p>}
    </Dialog>
  );
}
