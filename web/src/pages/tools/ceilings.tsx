/** The ceilings that apply to the current user, and the dialog in which administrators change all of them. */

import { useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import { isObject, parseJson, stringifyJson } from "../../api/json";
import type { CeilingLimit, CeilingScope, Ceilings, Json, JsonObject } from "../../api/types";
import { Button, Dialog, ErrorNotice, Loading } from "../../components/ui";
import { EscapedText } from "../../components/escaped_text";
import { LEVEL_LABELS, formatAmount } from "../../components/format";
import { useLoad } from "../../components/use_load";
import { currentUser } from "../../state/app_state";
import { useStore } from "../../state/store";

const FIELD_LABELS: Record<CeilingLimit["field"], string> = {
  autonomy_level: "Autonomy level", require_confirmation: "Confirmation", allowed_regions: "Regions",
  budget_limits: "Budget", blocked_tools: "Blocked tool",
};

/** The list of the limits, with the owner of each; a button to change them for administrators. */
export function CeilingList({ limits, onChange }: { limits: CeilingLimit[]; onChange: () => void }) {
  const isAdmin = useStore(currentUser)?.role === "admin";
  const [isEditing, setEditing] = useState(false);
  if (!limits.length && !isAdmin) return null;
  return (
    <section class="ceilings">
      <div class="ceilings-head">
        <p class="matrix-intro">{limits.length ? "Ceilings: limits of administrators that no setting exceeds." : "No ceiling applies to you."}</p>
        {isAdmin && <Button onClick={() => setEditing(true)}>Change ceilings</Button>}
      </div>
      {limits.length > 0 && (
        <div class="table-frame"><table class="table">
          <caption class="sr-only">Ceilings</caption>
          <thead><tr><th scope="col">Ceiling</th><th scope="col">Limit</th><th scope="col">Of</th></tr></thead>
          <tbody>
            {limits.map((limit, index) => (
              <tr key={index}><td>{FIELD_LABELS[limit.field]}</td>
                <td><EscapedText text={limitText(limit)} /></td><td class="hint"><EscapedText text={scopeText(limit.ceiling)} /></td></tr>
            ))}
          </tbody>
        </table></div>
      )}
      {isEditing && <CeilingsDialog onClose={() => setEditing(false)} onSaved={() => { setEditing(false); onChange(); }} />}
    </section>
  );
}

function limitText({ field, value }: CeilingLimit): string {
  switch (field) {
    case "autonomy_level": return `at most L${String(value)} ${LEVEL_LABELS[Number(value)] ?? ""}`;
    case "require_confirmation": return "may not be switched off; L3 asks as well";
    case "allowed_regions": return (value as Json[]).map(String).join(", ") || "none";
    case "budget_limits": {
      const { amount, unit, period } = value as JsonObject;
      return `${formatAmount(Number(amount), String(unit))} ${period === "total" ? "in total" : `a ${String(period)}`}`;
    }
    case "blocked_tools": return String(value);
  }
}

function scopeText({ scope, name }: CeilingScope): string {
  return name === undefined ? "the installation" : `${scope} ${name}`;
}

/** The dialog with the stored ceilings as JSON. */
function CeilingsDialog({ onClose, onSaved }: { onClose: () => void; onSaved: () => void }) {
  const { value, problem, reload } = useLoad(() => client.getCeilings(), []);
  return (
    <>
      {!value && <Dialog title="Ceilings" onClose={onClose} actions={<Button onClick={onClose}>Cancel</Button>}>
        {problem ? <ErrorNotice problem={problem} onRetry={reload} /> : <Loading subject="ceilings" lines={4} />}
      </Dialog>}
      {value && <CeilingsForm key={value.version} ceilings={value} onClose={onClose} onSaved={onSaved} onReload={reload} />}
    </>
  );
}

function CeilingsForm({ ceilings, onClose, onSaved, onReload }: {
  ceilings: Ceilings; onClose: () => void; onSaved: () => void; onReload: () => void;
}) {
  const [text, setText] = useState(stringifyJson(ceilings.stored, 2));
  const [problem, setProblem] = useState<string | null>(null);
  const [isOutdated, setOutdated] = useState(false);
  const [isSaving, setSaving] = useState(false);
  const parsed = parseObject(text);
  const save = async () => {
    if (!("value" in parsed)) return;
    setSaving(true);
    try {
      await client.replaceCeilings(ceilings.version, parsed.value);
      onSaved();
    } catch (error) {
      const failure = toProblem(error);
      setOutdated(failure.code === "version_conflict");
      setProblem(failure.message);
    } finally {
      setSaving(false);
    }
  };
  const error = "error" in parsed ? parsed.error : problem;
  return (
    <Dialog wide title="Ceilings" onClose={onClose} actions={
      <>
        {isOutdated && <Button onClick={onReload}>Discard and reload</Button>}
        <Button onClick={onClose}>Cancel</Button>
        <Button tone="primary" disabled={!("value" in parsed) || isSaving} onClick={() => void save()}>Save</Button>
      </>
    }>
      <p class="hint">These ceilings narrow those of the configuration file and apply at once, also to active sessions. Keys: {" "}
        <code>autonomy_level</code>, <code>require_confirmation</code>, <code>allowed_regions</code>, <code>budget_limits</code>, <code>blocked_tools</code>;
        the same keys within <code>roles</code>, <code>agents</code> and <code>users</code> by name.</p>
      <label class="stacked-field">Ceilings (JSON)
        <textarea class="code-input" rows={14} spellcheck={false} value={text} aria-invalid={error !== null} aria-describedby="ceilings-problem"
          onInput={(event) => { setText(event.currentTarget.value); setProblem(null); }} /></label>
      <p id="ceilings-problem" class="error-text" role="alert">{error}</p>
      <details><summary>Configuration file (cannot be widened here)</summary><pre>{stringifyJson(ceilings.configured, 2)}</pre></details>
    </Dialog>
  );
}

function parseObject(text: string): { value: JsonObject } | { error: string } {
  try {
    const value = parseJson(text);
    return isObject(value) ? { value } : { error: "The ceilings must be a JSON object." };
  } catch (error) {
    return { error: `Not JSON: ${(error as Error).message}` };
  }
}
