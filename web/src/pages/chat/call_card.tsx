/** The story of one tool call: a line, and all of it when it is opened. */

import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import type { JsonObject } from "../../api/types";
import { Icon, type IconName } from "../../components/icon";
import { JsonView } from "../../components/json";
import { Countdown, ElapsedTime } from "../../components/time";
import { Badge, RiskBadge } from "../../components/ui";
import { CALL_RATINGS } from "../../components/call_ratings";
import { EscapedText, escapeUnsafe } from "../../components/escaped_text";
import { formatDuration, formatArguments, LEVEL_LABELS } from "../../components/format";
import { Diff } from "../../approvals/argument_diff";
import type { Call } from "../../state/session_view";
import { CallFeedback } from "./feedback";

const LOOK: Record<Call["phase"], { icon: IconName; tone: string; said: string }> = {
  proposed: { icon: "tools", tone: "", said: "proposed" },
  waiting: { icon: "shield", tone: "warn", said: "waits for a person" },
  allowed: { icon: "tools", tone: "", said: "waits its turn" },
  running: { icon: "tools", tone: "live", said: "running" },
  backing_off: { icon: "retry", tone: "warn", said: "tries again" },
  completed: { icon: "check", tone: "good", said: "done" },
  failed: { icon: "close", tone: "bad", said: "failed" },
  denied: { icon: "shield", tone: "bad", said: "denied" },
};

const REASONS: Record<string, string> = {
  rejected: "rejected by a person", expired: "nobody answered in time", cancelled: "cancelled", timeout: "took too long",
  crashed: "crashed", unavailable: "tool unavailable", invalid_arguments: "arguments do not fit", unknown_tool: "no such tool",
  outcome_unknown: "outcome unknown", error: "failed",
};

export const CallCard = memo(function CallCard({ call, session_id }: { call: Call; session_id: string }) {
  const [isOpen, setOpen] = useState(false);
  const look = LOOK[call.phase];
  const said = call.phase === "failed" ? (REASONS[call.reason ?? ""] ?? look.said) : look.said;
  return (
    <div class={`call ${look.tone}`} data-tool={call.tool} data-phase={call.phase}>
      <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <span class="call-icon"><Icon name={look.icon} size={15} /></span>
          <code class="tool-name"><EscapedText text={call.tool} /></code>
          <span class="call-gist">{formatArguments(call.edit?.arguments ?? call.arguments)}</span>
          {call.verdicts.map((one) => <Badge key={one.by} tone={CALL_RATINGS[one.value].tone} title={`${CALL_RATINGS[one.value].title}, says ${one.by}`}>{CALL_RATINGS[one.value].label.toLowerCase()}</Badge>)}
          <span class="call-state">
            {call.phase === "backing_off" && call.retryUntil
              ? <>attempt {call.attempts.length} failed; again in <Countdown until={call.retryUntil} over="a moment" /></>
              : call.phase === "running" && call.attempts.length ? <Running call={call} /> : <>{said}<DurationText call={call} /></>}
          </span>
          <Icon name="chevron" size={15} />
        </summary>
        {isOpen && <CallDetail call={call} session_id={session_id} />}
      </details>
      <FailureReason call={call} />
      {call.progress && call.phase === "running" && <Progress call={call} />}
    </div>
  );
});

function Running({ call }: { call: Call }) {
  const attempt = call.attempts[call.attempts.length - 1]!;
  return <>{attempt.attempt > 1 ? `attempt ${attempt.attempt}, ` : ""}running <ElapsedTime at={attempt.at} /></>;
}

function DurationText({ call }: { call: Call }) {
  if (call.cached) return <span class="took"> from an earlier call</span>;
  const first = call.attempts[0];
  if (!first || !call.endedAt) return null;
  const tries = call.attempts.length > 1 ? `, ${call.attempts.length} attempts` : "";
  return <span class="took"> {formatDuration(Date.parse(call.endedAt) - Date.parse(first.at))}{tries}</span>;
}

/** Why it did not come to an end as proposed; seen without opening. */
function FailureReason({ call }: { call: Call }) {
  if (call.phase === "denied") {
    return <p class="call-reason"><EscapedText text={call.reason ?? ""} />{call.requiredLevel !== null && <small>It takes L{call.requiredLevel} {LEVEL_LABELS[call.requiredLevel]?.toLowerCase()}.</small>}</p>;
  }
  if (call.phase !== "failed") return null;
  return <p class="call-reason"><EscapedText text={call.error ?? ""} />{call.retriesExhausted && <small>All {call.attempts.length} attempts failed.</small>}</p>;
}

function Progress({ call }: { call: Call }) {
  const { progress, total, message } = call.progress!;
  return (
    <div class="progress">
      <progress aria-label={`Progress of ${escapeUnsafe(call.tool)}`} value={total ? progress : undefined} max={total ?? undefined} />
      <small>{message ? <EscapedText text={message} /> : (total ? `${progress} of ${total}` : String(progress))}</small>
    </div>
  );
}

const OVER = new Set<Call["phase"]>(["completed", "failed", "denied"]);

function CallDetail({ call, session_id }: { call: Call; session_id: string }) {
  return (
    <div class="story">
      <section><h3>Arguments</h3>
        {call.edit ? <Diff before={call.arguments} after={call.edit.arguments} /> : <JsonView value={call.arguments} label="arguments" />}
        {call.edit?.reason && <p class="hint">edited: {call.edit.reason}</p>}
      </section>
      {call.attempts.length > 1 && (
        <section><h3>Attempts</h3>
          <ol class="attempts">
            {call.attempts.map((attempt) => (
              <li key={attempt.attempt}>
                <span>{attempt.attempt}</span>
                <span>{attempt.reason ?? (call.phase === "completed" ? "worked" : (call.error ?? "…"))}</span>
                <span class="numbers">{attempt.endedAt && formatDuration(Date.parse(attempt.endedAt) - Date.parse(attempt.at))}</span>
              </li>
            ))}
          </ol>
        </section>
      )}
      {call.result !== undefined && (
        <section><h3>Result{call.truncated && <small> cut to fit</small>}</h3><JsonView value={call.result} label="result" /></section>
      )}
      {call.lateResults.map((late) => <p class="hint" key={late}>A late result was noted and changed nothing: <EscapedText text={late} /></p>)}
      <dl class="facts">
        <div><dt>Risk</dt><dd><RiskBadge risk={call.risk} /></dd></div>
        {call.allowedBy && <div><dt>Allowed by</dt><dd>{allowedByText(call.allowedBy)}</dd></div>}
        <div><dt>Digest</dt><dd><code title={call.digest}>{call.digest.slice(0, 12)}</code></dd></div>
      </dl>
      {OVER.has(call.phase) && <CallFeedback session_id={session_id} call={call} />}
    </div>
  );
}

function allowedByText(by: JsonObject): string {
  switch (by.kind) {
    case "policy": return `the policy: ${String(by.why ?? "")}`;
    case "approval": return `${String(by.by ?? "a person")}, who approved it`;
    case "grant": return "an approval for this session";
    case "preflight": return `the plan that ${String(by.by ?? "a person")} approved`;
    default: return String(by.kind);
  }
}
