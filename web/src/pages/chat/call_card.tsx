/** The card of a tool call: a summary line, and its details when it is open. */

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
import { ArgumentDiff } from "../../approvals/argument_diff";
import type { Call } from "../../state/session_view";
import { CallFeedback } from "./feedback";

const PHASE_STYLES: Record<Call["phase"], { icon: IconName; tone: string; label: string }> = {
  proposed: { icon: "tools", tone: "", label: "proposed" },
  waiting: { icon: "shield", tone: "warn", label: "waiting for approval" },
  allowed: { icon: "tools", tone: "", label: "queued" },
  running: { icon: "tools", tone: "live", label: "running" },
  backing_off: { icon: "retry", tone: "warn", label: "retrying" },
  completed: { icon: "check", tone: "good", label: "done" },
  failed: { icon: "close", tone: "bad", label: "failed" },
  denied: { icon: "shield", tone: "bad", label: "denied by policy" },
};

const REASONS: Record<string, string> = {
  rejected: "rejected", expired: "approval expired", cancelled: "cancelled", timeout: "timed out",
  crashed: "crashed", unavailable: "tool unavailable", invalid_arguments: "invalid arguments", unknown_tool: "unknown tool",
  outcome_unknown: "outcome unknown", error: "failed", refused: "not run", limit_exceeded: "not run",
};

/** Shows a tool call. */
export const CallCard = memo(function CallCard({ call, session_id }: { call: Call; session_id: string }) {
  const [isOpen, setOpen] = useState(false);
  const style = PHASE_STYLES[call.phase];
  const label = call.phase === "failed" ? (REASONS[call.reason ?? ""] ?? style.label) : style.label;
  return (
    <div class={`call ${style.tone}`} data-tool={call.tool} data-phase={call.phase}>
      <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <span class="call-icon"><Icon name={style.icon} size={15} /></span>
          <code class="tool-name"><EscapedText text={call.tool} /></code>
          <span class="call-summary">{formatArguments(call.edit?.arguments ?? call.argumentsText ?? call.arguments)}</span>
          {call.verdicts.map((rating) => <Badge key={rating.by} tone={CALL_RATINGS[rating.value].tone} title={`${CALL_RATINGS[rating.value].title}, rated by ${rating.by}`}>{CALL_RATINGS[rating.value].label.toLowerCase()}</Badge>)}
          <span class="call-state">
            {call.phase === "backing_off" && call.retryUntil
              ? <>retrying in <Countdown until={call.retryUntil} endedText="a moment" /> (attempt {call.attempts.length + 1})</>
              : call.phase === "running" && call.attempts.length ? <Running call={call} /> : <>{label}<DurationText call={call} /></>}
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
  return <>{attempt.attempt > 1 ? `attempt ${attempt.attempt}, ` : ""}running <ElapsedTime timestamp={attempt.at} /></>;
}

function DurationText({ call }: { call: Call }) {
  if (call.cached) return <span class="call-duration"> cached</span>;
  const first = call.attempts[0];
  if (!first || !call.endedAt) return null;
  const attemptsText = call.attempts.length > 1 ? `, ${call.attempts.length} attempts` : "";
  return <span class="call-duration"> {formatDuration(Date.parse(call.endedAt) - Date.parse(first.at))}{attemptsText}</span>;
}

/** The reason of a denial or a failure. It is visible while the card is closed. */
function FailureReason({ call }: { call: Call }) {
  if (call.phase === "denied") {
    return <p class="call-reason"><EscapedText text={call.reason ?? ""} />{call.requiredLevel !== null && <small>Requires L{call.requiredLevel} {LEVEL_LABELS[call.requiredLevel]?.toLowerCase()}.</small>}</p>;
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

const ENDED_PHASES = new Set<Call["phase"]>(["completed", "failed", "denied"]);

function CallDetail({ call, session_id }: { call: Call; session_id: string }) {
  return (
    <div class="call-detail">
      <section><h3>Arguments</h3>
        {call.edit ? <ArgumentDiff before={call.arguments} after={call.edit.arguments} /> : call.argumentsText !== null
          ? <><p class="hint">Not a JSON object. The model wrote:</p><pre class="raw-value"><EscapedText text={call.argumentsText} /></pre></>
          : <JsonView value={call.arguments} label="arguments" />}
        {call.edit?.reason && <p class="hint">edited: {call.edit.reason}</p>}
      </section>
      {call.attempts.length > 1 && (
        <section><h3>Attempts</h3>
          <ol class="attempts">
            {call.attempts.map((attempt) => (
              <li key={attempt.attempt}>
                <span>{attempt.attempt}</span>
                <span>{attempt.reason ?? (call.phase === "completed" ? "succeeded" : (call.error ?? "…"))}</span>
                <span class="numbers">{attempt.endedAt && formatDuration(Date.parse(attempt.endedAt) - Date.parse(attempt.at))}</span>
              </li>
            ))}
          </ol>
        </section>
      )}
      {call.result !== undefined && (
        <section><h3>Result{call.truncated && <small> truncated</small>}</h3><JsonView value={call.result} label="result" /></section>
      )}
      {call.lateResults.map((lateResult) => <p class="hint" key={lateResult}>Late result, ignored: <EscapedText text={lateResult} /></p>)}
      <dl class="facts">
        <div><dt>Risk</dt><dd><RiskBadge risk={call.risk} /></dd></div>
        {call.allowedBy && <div><dt>Allowed by</dt><dd>{allowedByText(call.allowedBy)}</dd></div>}
        <div><dt>Digest</dt><dd><code title={call.digest}>{call.digest.replace(/^.*:/, "").slice(0, 12)}</code></dd></div>
      </dl>
      {ENDED_PHASES.has(call.phase) && <CallFeedback session_id={session_id} call={call} />}
    </div>
  );
}

function allowedByText(allowedBy: JsonObject): string {
  switch (allowedBy.kind) {
    case "policy": return `policy: ${String(allowedBy.why ?? "")}`;
    case "approval": return `approval by ${String(allowedBy.by ?? "an approver")}`;
    case "grant": return "approval for this session";
    case "preflight": return `preflight plan, approved by ${String(allowedBy.by ?? "an approver")}`;
    default: return String(allowedBy.kind);
  }
}
