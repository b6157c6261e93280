/**
 * Workflows in the composer: found with `/`, filled in with a form and sent instead of a message.
 */

import { useEffect, useState } from "preact/hooks";
import { client, type WorkflowRequest } from "../../api/client";
import type { Json, JsonObject, Workflow } from "../../api/types";
import { Badge, IconButton } from "../../components/ui";
import { LEVEL_LABELS } from "../../components/format";
import { type FormDraft, SchemaForm } from "../../approvals/schema_form";

let workflowsPromise: Promise<Workflow[]> | null = null;

/** Returns the workflows. They are loaded once, when `enabled` is first true. */
export function useWorkflows(enabled: boolean): Workflow[] {
  const [workflows, setWorkflows] = useState<Workflow[]>([]);
  useEffect(() => {
    if (!enabled) return;
    workflowsPromise ??= client.listWorkflows().then(({ workflows }) => workflows);
    // A failed load is retried the next time.
    workflowsPromise.then(setWorkflows, () => { workflowsPromise = null; });
  }, [enabled]);
  return workflows;
}

/**
 * Returns the workflows whose name or description contains the text; those whose name starts with
 * it first.
 */
export function matchWorkflows(workflows: Workflow[], text: string): Workflow[] {
  const searchText = text.replace(/^\//, "").trim().toLowerCase();
  return workflows.filter((workflow) => `${workflow.name} ${workflow.description ?? ""}`.toLowerCase().includes(searchText))
    .sort((a, b) => Number(b.name.toLowerCase().startsWith(searchText)) - Number(a.name.toLowerCase().startsWith(searchText)));
}

/** Returns the inputs of a workflow as a JSON schema, and their default values. */
export function workflowSchema({ inputs }: Workflow): { schema: JsonObject; initial: JsonObject } {
  const properties: JsonObject = {};
  const initial: JsonObject = {};
  for (const { name, required: _, ...rules } of inputs) {
    properties[name] = Object.fromEntries(Object.entries(rules).filter((rule): rule is [string, Json] => rule[1] !== undefined && rule[1] !== null));
    if (rules.default !== undefined && rules.default !== null) initial[name] = rules.default;
  }
  return { schema: { type: "object", properties, required: inputs.filter((input) => input.required).map((input) => input.name) }, initial };
}

/** The list of workflows that match the text of the composer. */
export function WorkflowList({ id, workflows, activeIndex, onSelect }: {
  id: string; workflows: Workflow[]; activeIndex: number; onSelect: (workflow: Workflow) => void;
}) {
  return (
    <ul class="workflow-list" id={id} role="listbox" aria-label="Workflows">
      {workflows.map((workflow, index) => (
        <li key={workflow.name} id={`${id}-${index}`} role="option" aria-selected={index === activeIndex} onPointerDown={(event) => { event.preventDefault(); onSelect(workflow); }}>
          <code>/{workflow.name}</code><span>{workflow.description}</span>
        </li>
      ))}
    </ul>
  );
}

/** A workflow that was selected in the composer, with the inputs entered so far. */
export interface SelectedWorkflow {
  workflow: Workflow;
  request: WorkflowRequest;
  isComplete: boolean;
}

/** Selects a workflow with its default inputs. */
export function selectWorkflow(workflow: Workflow): SelectedWorkflow {
  const { schema, initial } = workflowSchema(workflow);
  return { workflow, request: { name: workflow.name, inputs: initial }, isComplete: hasRequired(schema, initial) };
}

const hasRequired = (schema: JsonObject, value: JsonObject) =>
  (schema.required as string[]).every((name) => value[name] !== undefined && value[name] !== "");

/** The form for the inputs of the selected workflow. */
export function WorkflowForm({ selected, onChange, onClose }: { selected: SelectedWorkflow; onChange: (selected: SelectedWorkflow) => void; onClose: () => void }) {
  const { workflow } = selected;
  const { schema, initial } = workflowSchema(workflow);
  const change = ({ value, isValid }: FormDraft) =>
    onChange({ workflow, request: { name: workflow.name, inputs: value }, isComplete: isValid && hasRequired(schema, value) });
  return (
    <section class="workflow" aria-label={`Workflow ${workflow.name}`}>
      <header>
        <code class="tool-name">/{workflow.name}</code>
        {typeof workflow.autonomy_level === "number" && <Badge tone="info">at most L{workflow.autonomy_level} {LEVEL_LABELS[workflow.autonomy_level]?.toLowerCase()}</Badge>}
        {workflow.preflight && <Badge tone="info">plan first</Badge>}
        <IconButton icon="close" label="Remove workflow" onClick={onClose} />
      </header>
      {workflow.description && <p class="hint">{workflow.description}</p>}
      {workflow.inputs.length > 0 && <SchemaForm key={workflow.name} schema={schema} initial={initial} onChange={change} />}
    </section>
  );
}
