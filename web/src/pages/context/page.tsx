/** The context page: the sections of each step's model request and their token counts. */

import { useEffect, useMemo } from "preact/hooks";
import { client } from "../../api/client";
import type { ContextManifest, ContextSection } from "../../api/types";
import { EmptyState, ErrorNotice, Loading } from "../../components/ui";
import { useLoad } from "../../components/use_load";
import { formatNumber, shortId, sessionTitle } from "../../components/format";
import { eventLog, sessions } from "../../state/app_state";
import { navigate, routeUrl, route } from "../../state/route";
import { useStore } from "../../state/store";

interface Step {
  run_id: string;
  step: number;
  label: string;
}

/** The page that shows the context of a step. */
export function ContextPage() {
  const { part, query } = useStore(route);
  const list = useStore(sessions, (sessionList) => sessionList.sessions);
  const sessionId = part || list[0]?.session_id || "";
  const version = useStore(eventLog.version);
  useEffect(() => {
    if (sessionId) void eventLog.loadAll(sessionId).catch(() => undefined);
  }, [sessionId]);
  const steps = useMemo(() => listSteps(sessionId), [sessionId, version]);
  const selectedStep = steps.find((step) => step.run_id === query.run && step.step === Number(query.step)) ?? steps.at(-1);
  return (
    <div class="page">
      <header class="page-head">
        <h1>Context</h1>
        <select aria-label="Session" value={sessionId} onChange={(event) => navigate(routeUrl("context", event.currentTarget.value), true)}>
          {!list.some((session) => session.session_id === sessionId) && sessionId && <option value={sessionId}>Session {shortId(sessionId)}</option>}
          {list.map((session) => <option key={session.session_id} value={session.session_id}>{sessionTitle(session)} · {shortId(session.session_id)}</option>)}
        </select>
        <select aria-label="Step" value={selectedStep ? `${selectedStep.run_id} ${selectedStep.step}` : ""}
          onChange={(event) => {
            const [run, step] = event.currentTarget.value.split(" ");
            navigate(routeUrl("context", sessionId, { run, step }), true);
          }}>
          {steps.map((step) => <option key={`${step.run_id}${step.step}`} value={`${step.run_id} ${step.step}`}>{step.label}</option>)}
        </select>
      </header>
      <div class="page-body" tabIndex={0} role="region" aria-label="Context">
        {selectedStep ? <StepContext key={`${selectedStep.run_id}${selectedStep.step}`} sessionId={sessionId} step={selectedStep} />
          : <EmptyState icon="layers" title="No steps yet">Select a session with at least one run.</EmptyState>}
      </div>
    </div>
  );
}

function listSteps(sessionId: string): Step[] {
  let runNumber = 0;
  return eventLog.frames.filter((frame) => frame.session_id === sessionId).flatMap((frame) => {
    if (frame.type === "run_started") runNumber += 1;
    if (frame.type !== "thinking" || !frame.run_id) return [];
    const step = frame.step ?? 0;
    return [{ run_id: frame.run_id, step, label: `run ${runNumber}, ${step ? `step ${step}` : "plan"}` }];
  });
}

function StepContext({ sessionId, step }: { sessionId: string; step: Step }) {
  const { value, problem, reload } = useLoad(() => client.getContext(sessionId, step.step, step.run_id), [sessionId, step.run_id, step.step]);
  if (problem?.isMissing) return <EmptyState icon="layers" title="Context not available">This server version does not report the context of a step.</EmptyState>;
  if (problem) return <ErrorNotice problem={problem} onRetry={reload} />;
  if (!value) return <Loading subject="the context" lines={6} />;
  return <Sections manifest={value} />;
}

function Sections({ manifest }: { manifest: ContextManifest }) {
  const { sections, window_tokens, output_tokens, tokens, model } = manifest;
  const free = Math.max(0, window_tokens - output_tokens - tokens);
  return (
    <div class="context">
      <p><strong>{formatNumber(tokens)}</strong> of {formatNumber(window_tokens)} tokens (estimated) for <code>{model}</code>; {formatNumber(output_tokens)} reserved for the answer, {formatNumber(free)} free.</p>
      <div class="context-bar" role="img" aria-label={sections.map((section) => `${section.name} ${section.tokens} tokens`).join(", ")}>
        {sections.map((section, index) => <span key={section.name} class={`s${index % 7}`} title={`${section.name}: ${formatNumber(section.tokens)}`} ref={(bar) => { if (bar) bar.style.flexGrow = String(section.tokens); }} />)}
      </div>
      <ol class="sections">
        {sections.map((section, index) => <SectionItem key={section.name} section={section} index={index} total={tokens} />)}
      </ol>
    </div>
  );
}

function SectionItem({ section, index, total }: { section: ContextSection; index: number; total: number }) {
  const counts = [
    section.included !== undefined && `${section.included} entries`, section.left_out && `${section.left_out} omitted`,
    section.summarised && `${section.summarised} summarised`, section.cut && `${section.cut} truncated`,
  ].filter(Boolean).join(", ");
  return (
    <li>
      <span class={`swatch s${index % 7}`} aria-hidden="true" /><strong>{section.name.replace(/_/g, " ")}</strong>
      <span class="numbers">{formatNumber(section.tokens)} tokens</span><span class="hint">{[total ? `${Math.round((section.tokens / total) * 100)} %` : "", counts].filter(Boolean).join(" · ")}</span>
      {section.items && <p class="hint section-items">{section.items.join(", ")}</p>}
    </li>
  );
}
