/** What each step of a session was told: its sections, and how much room they take. */

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

export function ContextPage() {
  const { part, query } = useStore(route);
  const list = useStore(sessions, (found) => found.sessions);
  const session = part || list[0]?.session_id || "";
  const version = useStore(eventLog.version);
  useEffect(() => {
    if (session) void eventLog.readAll(session).catch(() => undefined);
  }, [session]);
  const steps = useMemo(() => stepsOf(session), [session, version]);
  const chosen = steps.find((one) => one.run_id === query.run && one.step === Number(query.step)) ?? steps.at(-1);
  return (
    <div class="page">
      <header class="room-head">
        <h1>Context</h1>
        <select aria-label="Session" value={session} onChange={(event) => navigate(routeUrl("context", event.currentTarget.value), true)}>
          {!list.some((one) => one.session_id === session) && session && <option value={session}>Session {shortId(session)}</option>}
          {list.map((one) => <option key={one.session_id} value={one.session_id}>{sessionTitle(one)} · {shortId(one.session_id)}</option>)}
        </select>
        <select aria-label="Step" value={chosen ? `${chosen.run_id} ${chosen.step}` : ""}
          onChange={(event) => {
            const [run, step] = event.currentTarget.value.split(" ");
            navigate(routeUrl("context", session, { run, step }), true);
          }}>
          {steps.map((one) => <option key={`${one.run_id}${one.step}`} value={`${one.run_id} ${one.step}`}>{one.label}</option>)}
        </select>
      </header>
      <div class="page-body" tabIndex={0} role="region" aria-label="Context">
        {chosen ? <StepContext key={`${chosen.run_id}${chosen.step}`} session={session} step={chosen} />
          : <EmptyState icon="layers" title="No step to look at">Choose a session in which something was asked.</EmptyState>}
      </div>
    </div>
  );
}

function stepsOf(session: string): Step[] {
  let run = 0;
  return eventLog.frames.filter((frame) => frame.session_id === session).flatMap((frame) => {
    if (frame.type === "run_started") run += 1;
    if (frame.type !== "thinking" || !frame.run_id) return [];
    const step = frame.step ?? 0;
    return [{ run_id: frame.run_id, step, label: `run ${run}, ${step ? `step ${step}` : "plan"}` }];
  });
}

function StepContext({ session, step }: { session: string; step: Step }) {
  const { value, problem, reload } = useLoad(() => client.context(session, step.step, step.run_id), [session, step.run_id, step.step]);
  if (problem?.isMissing) return <EmptyState icon="layers" title="This server does not tell">It is a version that can’t say what a step was told.</EmptyState>;
  if (problem) return <ErrorNotice problem={problem} retry={reload} />;
  if (!value) return <Loading what="the context" lines={6} />;
  return <Sections manifest={value} />;
}

function Sections({ manifest }: { manifest: ContextManifest }) {
  const { sections, window_tokens, output_tokens, tokens, model } = manifest;
  const free = Math.max(0, window_tokens - output_tokens - tokens);
  return (
    <div class="context">
      <p><strong>{formatNumber(tokens)}</strong> of {formatNumber(window_tokens)} tokens, as estimated, for <code>{model}</code>; {formatNumber(output_tokens)} are kept for the answer, {formatNumber(free)} are free.</p>
      <div class="context-bar" role="img" aria-label={sections.map((section) => `${section.name} ${section.tokens} tokens`).join(", ")}>
        {sections.map((section, at) => <span key={section.name} class={`s${at % 7}`} title={`${section.name}: ${formatNumber(section.tokens)}`} ref={(bar) => { if (bar) bar.style.flexGrow = String(section.tokens); }} />)}
      </div>
      <ol class="sections">
        {sections.map((section, at) => <SectionItem key={section.name} section={section} at={at} total={tokens} />)}
      </ol>
    </div>
  );
}

function SectionItem({ section, at, total }: { section: ContextSection; at: number; total: number }) {
  const said = [
    section.included !== undefined && `${section.included} entries`, section.left_out && `${section.left_out} left out`,
    section.summarised && `${section.summarised} summarised`, section.cut && `${section.cut} cut`,
  ].filter(Boolean).join(", ");
  return (
    <li>
      <span class={`swatch s${at % 7}`} aria-hidden="true" /><strong>{section.name.replace(/_/g, " ")}</strong>
      <span class="numbers">{formatNumber(section.tokens)} tokens</span><span class="hint">{[total ? `${Math.round((section.tokens / total) * 100)} %` : "", said].filter(Boolean).join(" · ")}</span>
      {section.items && <p class="hint items-line">{section.items.join(", ")}</p>}
    </li>
  );
}
