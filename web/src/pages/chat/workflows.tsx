/** Workflows by `/`: found by name, filled in, and sent in place of a message. */

import { useEffect, useState } from "preact/hooks";
import { client, type WorkflowRequest } from "../../api/client";
import type { Json, JsonObject, Workflow } from "../../api/types";
import { Badge, IconButton } from "../../components/ui";
import { LEVEL_LABELS } from "../../components/format";
import { type FormDraft, SchemaForm } from "../../approvals/schema_form";

let asked: Promise<Workflow[]> | null = null;

/** The workflows there are, asked for when somebody first types `/`. */
export function useWorkflows(wanted: boolean): Workflow[] {
  const [found, setFound] = useState<Workflow[]>([]);
  useEffect(() => {
    if (!wanted) return;
    asked ??= client.workflows().then(({ workflows }) => workflows);
    // An older server has none; one that is away is asked again.
    asked.then(setFound, () => { asked = null; });
  }, [wanted]);
  return found;
}

/** Those that begin so, the name before the description. */
export function matching(workflows: Workflow[], text: string): Workflow[] {
  const words = text.replace(/^\//, "").trim().toLowerCase();
  return workflows.filter((one) => `${one.name} ${one.description ?? ""}`.toLowerCase().includes(words))
    .sort((one, other) => Number(other.name.toLowerCase().startsWith(words)) - Number(one.name.toLowerCase().startsWith(words)));
}

/** Its inputs as a schema, and what they are where nothing is said. */
export function schemaOf({ inputs }: Workflow): { schema: JsonObject; initial: JsonObject } {
  const properties: JsonObject = {};
  const initial: JsonObject = {};
  for (const { name, required: _, ...rules } of inputs) {
    properties[name] = Object.fromEntries(Object.entries(rules).filter((rule): rule is [string, Json] => rule[1] !== undefined && rule[1] !== null));
    if (rules.default !== undefined && rules.default !== null) initial[name] = rules.default;
  }
  return { schema: { type: "object", properties, required: inputs.filter((input) => input.required).map((input) => input.name) }, initial };
}

export function WorkflowList({ id, found, at, onChoose }: {
  id: string; found: Workflow[]; at: number; onChoose: (workflow: Workflow) => void;
}) {
  return (
    <ul class="workflow-list" id={id} role="listbox" aria-label="Workflows">
      {found.map((one, row) => (
        <li key={one.name} id={`${id}-${row}`} role="option" aria-selected={row === at} onPointerDown={(event) => { event.preventDefault(); onChoose(one); }}>
          <code>/{one.name}</code><span>{one.description}</span>
        </li>
      ))}
    </ul>
  );
}

export interface SelectedWorkflow {
  workflow: Workflow;
  request: WorkflowRequest;
  complete: boolean;
}

export function selectWorkflow(workflow: Workflow): SelectedWorkflow {
  const { schema, initial } = schemaOf(workflow);
  return { workflow, request: { name: workflow.name, inputs: initial }, complete: hasRequired(schema, initial) };
}

const hasRequired = (schema: JsonObject, value: JsonObject) =>
  (schema.required as string[]).every((name) => value[name] !== undefined && value[name] !== "");

export function WorkflowForm({ chosen, onChange, onClose }: { chosen: SelectedWorkflow; onChange: (chosen: SelectedWorkflow) => void; onClose: () => void }) {
  const { workflow } = chosen;
  const { schema, initial } = schemaOf(workflow);
  const change = ({ value, isValid: fits }: FormDraft) =>
    onChange({ workflow, request: { name: workflow.name, inputs: value }, complete: fits && hasRequired(schema, value) });
  return (
    <section class="workflow" aria-label={`Workflow ${workflow.name}`}>
      <header>
        <code class="tool-name">/{workflow.name}</code>
        {typeof workflow.autonomy_level === "number" && <Badge tone="info">at most L{workflow.autonomy_level} {LEVEL_LABELS[workflow.autonomy_level]?.toLowerCase()}</Badge>}
        {workflow.preflight && <Badge tone="info">plans first</Badge>}
        <IconButton icon="close" label="Leave the workflow" onClick={onClose} />
      </header>
      {workflow.description && <p class="hint">{workflow.description}</p>}
      {workflow.inputs.length > 0 && <SchemaForm key={workflow.name} schema={schema} initial={initial} onChange={change} />}
    </section>
  );
}
