//! The native dialect `agent`: one frame per feed item. Most frames have the event's own type and
//! payload; a few have another name. `docs/protocol.md` lists the frames, and the tests check each.

use super::{
    CallArguments, Frame, approval_request::ApprovalRequestView, member_writer::MemberNaming,
};
use crate::redaction::Redactor;
use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{
    Timestamp,
    call::ToolOutput,
    delegation::SourceEvent,
    ids::{AgentName, ApprovalId, CallId, MessageId, SessionId},
    json::Digest,
    model::delta::StopReason,
    policy::Risk,
    session::{CallAuthorization, EventRecord, RunStopReason, SessionEvent},
    usage::ModelUsage,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The frame type of a pending approval.
pub const WAITING_FOR_APPROVAL: &str = "waiting_for_approval";
/// The control frame of a server that shuts down (D8).
pub const SERVER_DRAINING: &str = "server_draining";
/// The control frame of a session that was purged.
pub const SESSION_PURGED: &str = "session_purged";
/// The control frame of a stream that cannot continue; the client reconnects with its cursor.
pub const STREAM_BROKEN: &str = "stream_broken";

/// Encodes `item` as exactly one frame. `sent_at` is the time of text and control frames.
pub fn encode<'a>(item: &'a FeedItem, sent_at: Timestamp, redactor: &'a Redactor) -> Frame<'a> {
    let frame = |kind, payload| Frame {
        kind,
        session_id: item.session_id,
        agent_id: item.session_id,
        agent: &item.agent,
        seq: Some(item.cursor.seq),
        cursor: Some(item.cursor),
        run_id: None,
        step: None,
        plan_id: None,
        at: sent_at,
        payload,
        naming: MemberNaming::Native,
        redactor,
    };
    let control = |kind, payload| Frame { seq: None, cursor: None, ..frame(kind, payload) };
    let empty = || Payload::Other(Map::new());
    match &item.kind {
        FeedKind::Event(record) => {
            let (agent, parent_call_id) = (&item.agent, None);
            let own = SourceEvent { session_id: item.session_id, agent, parent_call_id, record };
            encode_source_event(item, record, own, redactor)
        }
        FeedKind::Delta { run_id, step, message_id, text } => {
            let payload = Payload::TextDelta { message_id, text };
            Frame { run_id: Some(*run_id), step: Some(*step), ..frame("text", payload) }
        }
        FeedKind::Draining => control(SERVER_DRAINING, empty()),
        FeedKind::Purged => control(SESSION_PURGED, empty()),
        FeedKind::Broken(error) => {
            control(STREAM_BROKEN, Payload::Other(into_map(json!({ "error": error }))))
        }
    }
}

/// Encodes the event `source` as a frame of the session that is streamed, at the position of its
/// event `record`. `source` is `record` itself, or the event of a child session that it mirrors.
pub(super) fn encode_source_event<'a>(
    item: &'a FeedItem,
    record: &EventRecord,
    source: SourceEvent<'a>,
    redactor: &'a Redactor,
) -> Frame<'a> {
    let EncodedEvent { kind, plan_id, payload } = encode_event(source.record, redactor);
    Frame {
        kind,
        session_id: item.session_id,
        agent_id: source.session_id,
        agent: source.agent,
        seq: Some(record.seq),
        cursor: Some(item.cursor),
        run_id: record.run_id,
        step: record.step,
        plan_id,
        at: record.at,
        payload,
        naming: MemberNaming::Native,
        redactor,
    }
}

/// All frame types of this dialect, in alphabetical order.
pub const FRAME_TYPES: [&str; 49] = [
    "approval_cancelled",
    "approval_decided",
    "approval_escalated",
    "approval_expired",
    "authorization_denied",
    "budget_raised",
    "budget_reached",
    "budget_reserved",
    "child_event",
    "child_gone",
    "context_compacted",
    "context_compaction_failed",
    "done",
    "error",
    "feedback_given",
    "grant_added",
    "grant_revoked",
    "late_result",
    "message_accepted",
    "message_completed",
    "message_discarded",
    "message_queued",
    "message_started",
    "preflight_approved",
    "preflight_skipped",
    "queued_message_changed",
    "queued_message_withdrawn",
    "run_started",
    SERVER_DRAINING,
    "session_closed",
    "session_created",
    "session_forked",
    SESSION_PURGED,
    "session_settings_changed",
    "step_completed",
    "step_model_fallback",
    "step_retrying",
    "step_started",
    STREAM_BROKEN,
    "text",
    "thinking",
    "tool_call_allowed",
    "tool_call_attempt_started",
    "tool_call_completed",
    "tool_call_failed",
    "tool_call_progress",
    "tool_call_retrying",
    "tool_call_started",
    WAITING_FOR_APPROVAL,
];

/// A JSON value, or text if there is no JSON value.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum JsonOrText<'a> {
    /// A JSON value.
    Json(&'a Value),
    /// Text.
    Text(&'a str),
}

impl From<JsonOrText<'_>> for Value {
    fn from(json_or_text: JsonOrText<'_>) -> Self {
        match json_or_text {
            JsonOrText::Json(value) => value.clone(),
            JsonOrText::Text(text) => text.into(),
        }
    }
}

/// Returns a tool's result as clients receive it: the structured result if there is one, else text.
pub fn tool_result(output: &ToolOutput) -> JsonOrText<'_> {
    output.structured.as_ref().map_or(JsonOrText::Text(&output.text), JsonOrText::Json)
}

struct EncodedEvent<'a> {
    kind: &'static str,
    plan_id: Option<ApprovalId>,
    payload: Payload<'a>,
}

/// The content of a frame without its envelope.
#[derive(Clone, Debug)]
pub(super) enum Payload<'a> {
    /// The payload of the stored event.
    Stored(&'a SessionEvent),
    /// A payload of a frequent event type that differs from the stored payload.
    Typed(TypedPayload<'a>),
    /// Any other payload, as a JSON object.
    Other(Map<String, Value>),
    /// A text delta of an open message.
    TextDelta {
        /// The id of the message.
        message_id: &'a MessageId,
        /// The text.
        text: &'a str,
    },
}

/// Payloads of frequent event types that differ from the stored payloads. They borrow from the event
/// so that encoding builds no JSON tree; rarer payloads use [`Payload::Other`].
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum TypedPayload<'a> {
    MessageAccepted {
        message_id: &'a MessageId,
        text: &'a str,
    },
    MessageCompleted {
        message_id: &'a MessageId,
        text: &'a str,
        stop_reason: StopReason,
        stopped: bool,
    },
    RunStarted {
        message_id: &'a MessageId,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    RunCompleted {
        message_id: &'a MessageId,
        outcome: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<RunStopReason>,
        usage: &'a ModelUsage,
    },
    Thinking {
        iteration: Option<u32>,
        model: &'a str,
    },
    ToolCallStarted {
        call_id: CallId,
        tool: &'a str,
        arguments: Cow<'a, Map<String, Value>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments_text: Option<Cow<'a, str>>,
        digest: &'a Digest,
        risk: Risk,
    },
    ToolCallCompleted {
        call_id: CallId,
        tool: &'a str,
        result: JsonOrText<'a>,
        truncated: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        cached: bool,
    },
}

fn typed_event<'a>(kind: &'static str, payload: TypedPayload<'a>) -> EncodedEvent<'a> {
    EncodedEvent { kind, plan_id: None, payload: Payload::Typed(payload) }
}

/// Returns an event with a JSON payload, which must be an object.
fn json_event(kind: &'static str, payload: Value) -> EncodedEvent<'static> {
    EncodedEvent { kind, plan_id: None, payload: Payload::Other(into_map(payload)) }
}

/// Returns an event about an approval. Its payload, such as `json!({…})`, must not contain digests
/// that are not keyed yet.
fn approval_event(
    kind: &'static str,
    plan_id: ApprovalId,
    payload: Value,
) -> EncodedEvent<'static> {
    let mut payload = into_map(payload);
    for name in ["plan_id", "approval_id"] {
        payload.insert(name.to_owned(), plan_id.to_string().into());
    }
    EncodedEvent { kind, plan_id: Some(plan_id), payload: Payload::Other(payload) }
}

/// Returns an event with its stored payload.
fn stored_event<'a>(kind: &'static str, event: &'a SessionEvent) -> EncodedEvent<'a> {
    EncodedEvent { kind, plan_id: None, payload: Payload::Stored(event) }
}

fn into_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// Encodes an event of a child session: the frame that a subscriber of the child receives, without
/// message texts. An event that was mirrored several times is attributed to the session in which it
/// occurred (S8).
fn encode_child_event(
    session_id: SessionId,
    agent: &AgentName,
    call_id: CallId,
    record: &EventRecord,
    redactor: &Redactor,
) -> EncodedEvent<'static> {
    if let SessionEvent::ChildEvent { session_id, agent, call_id, event } = &record.event {
        return encode_child_event(*session_id, agent, *call_id, event, redactor);
    }
    let inner = encode_event(record, redactor);
    let frame = Frame {
        kind: inner.kind,
        session_id,
        agent_id: session_id,
        agent,
        seq: Some(record.seq),
        cursor: None,
        run_id: record.run_id,
        step: record.step,
        plan_id: inner.plan_id,
        at: record.at,
        payload: inner.payload,
        naming: MemberNaming::WithoutText,
        redactor,
    };
    // Serializing the frame cannot fail, because it contains only plain data.
    let event = serde_json::to_value(frame.flat()).unwrap_or_default();
    let payload = Payload::Other(into_map(json!({"call_id": call_id, "event": event})));
    EncodedEvent { kind: "child_event", plan_id: inner.plan_id, payload }
}

/// Maps each event type to its frame type and payload. Payloads that become JSON here are redacted
/// here, because JSON does not distinguish digests from texts; the others while they are serialized.
fn encode_event<'a>(record: &'a EventRecord, redactor: &Redactor) -> EncodedEvent<'a> {
    use SessionEvent as E;
    let event = &record.event;
    match event {
        E::SessionCreated { .. } => stored_event("session_created", event),
        E::SessionForked {
            from,
            at_seq,
            owner,
            agent,
            title,
            settings,
            conversation,
            spent: _,
        } => json_event(
            "session_forked",
            json!({
                "from": from, "at_seq": at_seq, "owner": owner, "agent": agent, "title": title,
                "settings": settings, "messages": conversation.len(),
            }),
        ),
        E::SessionSettingsChanged { .. } => stored_event("session_settings_changed", event),
        E::SessionClosed { .. } => stored_event("session_closed", event),
        // The digest of a message only serves to distinguish a repetition from a different message.
        E::MessageQueued {
            message_id,
            text,
            digest: _,
            steers,
            preflight: _,
            workflow: _,
            traceparent: _,
            authors: _,
        } => {
            let delivery = match steers {
                None => "next_run",
                Some(steering) if steering.after_decision => "after_decision",
                Some(_) => "next_step",
            };
            let payload = json!({"message_id": message_id, "text": text, "delivery": delivery});
            json_event("message_queued", payload)
        }
        E::MessageAccepted { message_id, text, digest: _, authors: _ } => {
            typed_event("message_accepted", TypedPayload::MessageAccepted { message_id, text })
        }
        E::QueuedMessageChanged { message_id, text, digest: _, preflight: _, by } => json_event(
            "queued_message_changed",
            json!({"message_id": message_id, "text": text, "by": by}),
        ),
        E::QueuedMessageWithdrawn { .. } => stored_event("queued_message_withdrawn", event),
        E::MessageStarted { .. } => stored_event("message_started", event),
        // Reasoning blocks are not published: they are signed by the provider.
        E::MessageCompleted { message_id, text, reasoning: _, stop_reason, stopped } => {
            let (stop_reason, stopped) = (*stop_reason, *stopped);
            let payload = TypedPayload::MessageCompleted { message_id, text, stop_reason, stopped };
            typed_event("message_completed", payload)
        }
        E::MessageDiscarded { .. } => stored_event("message_discarded", event),
        E::RunStarted { message_id, preflight: false, workflow: None, title, traceparent: _ } => {
            typed_event(
                "run_started",
                TypedPayload::RunStarted { message_id, title: title.as_deref() },
            )
        }
        // The workflow's instructions to the model are not published.
        E::RunStarted { message_id, preflight, workflow, title, traceparent: _ } => {
            let mut payload = json!({ "message_id": message_id });
            if let Some(title) = title {
                payload["title"] = json!(title);
            }
            if *preflight {
                payload["preflight"] = json!(true);
            }
            if let Some(workflow) = workflow {
                payload["workflow"] = json!({ "name": workflow.name, "inputs": workflow.inputs });
            }
            json_event("run_started", payload)
        }
        E::RunCompleted { message_id, usage, stop_reason } => {
            let (outcome, stop_reason) = ("completed", *stop_reason);
            let payload = TypedPayload::RunCompleted { message_id, outcome, stop_reason, usage };
            typed_event("done", payload)
        }
        E::RunFailed { .. } => stored_event("error", event),
        E::RunCancelled { by, message_id, usage } => json_event(
            "done",
            json!({"message_id": message_id, "outcome": "cancelled", "by": by, "usage": usage}),
        ),
        // An iteration is a step; only its first attempt is published as `thinking`.
        E::StepStarted { attempt: 1, model, attempt_id: _, planning: _, compacting: Some(_) } => {
            let iteration = record.step.unwrap_or(0);
            json_event(
                "thinking",
                json!({"iteration": iteration, "model": model, "compacting": true}),
            )
        }
        E::StepStarted { attempt: 1, model, attempt_id: _, planning: true, compacting: None } => {
            json_event("thinking", json!({"iteration": 0, "model": model, "planning": true}))
        }
        E::StepStarted { attempt: 1, model, attempt_id: _, planning: false, compacting: None } => {
            typed_event("thinking", TypedPayload::Thinking { iteration: record.step, model })
        }
        E::StepStarted { .. } => stored_event("step_started", event),
        E::StepCompleted { .. } => stored_event("step_completed", event),
        E::StepRetrying { .. } => stored_event("step_retrying", event),
        E::ContextCompacted { .. } => stored_event("context_compacted", event),
        E::ContextCompactionFailed { .. } => stored_event("context_compaction_failed", event),
        E::StepModelFallback { .. } => stored_event("step_model_fallback", event),
        E::ToolCallStarted { call_id, tool, arguments, digest, risk, .. } => {
            let CallArguments { object, text } = CallArguments::from(&**arguments);
            let payload = TypedPayload::ToolCallStarted {
                call_id: *call_id,
                tool,
                arguments: object,
                arguments_text: text,
                digest,
                risk: *risk,
            };
            typed_event("tool_call_started", payload)
        }
        E::ToolCallAllowed { by, .. } => EncodedEvent {
            plan_id: match by {
                CallAuthorization::Approval { approval_id, .. }
                | CallAuthorization::Preflight { approval_id, .. } => Some(*approval_id),
                CallAuthorization::Policy { .. } | CallAuthorization::Grant { .. } => None,
            },
            ..stored_event("tool_call_allowed", event)
        },
        E::ToolCallAttemptStarted { .. } => stored_event("tool_call_attempt_started", event),
        E::ToolCallProgress { .. } => stored_event("tool_call_progress", event),
        E::ToolCallRetrying { .. } => stored_event("tool_call_retrying", event),
        E::LateResult { .. } => stored_event("late_result", event),
        E::ToolCallCompleted { call_id, tool, output } => {
            let (call_id, result) = (*call_id, tool_result(output));
            let (truncated, cached) = (output.truncated, output.cached);
            let payload =
                TypedPayload::ToolCallCompleted { call_id, tool, result, truncated, cached };
            typed_event("tool_call_completed", payload)
        }
        E::ToolCallFailed {
            call_id,
            tool,
            reason,
            error,
            retries_exhausted,
            attempts,
            maybe_ran,
        } => {
            let mut payload = json!({
                "call_id": call_id, "tool": tool, "reason": reason, "error": error,
                "retries_exhausted": retries_exhausted, "maybe_ran": maybe_ran,
            });
            if *attempts > 0 {
                payload["attempts"] = json!(attempts);
            }
            json_event("tool_call_failed", payload)
        }
        E::AuthorizationDenied { .. } => stored_event("authorization_denied", event),
        E::ApprovalRequested { approval } => {
            let plan = redactor.redact_to_value(&ApprovalRequestView::from(&**approval));
            let payload = json!({ "plan": plan });
            approval_event(WAITING_FOR_APPROVAL, approval.approval_id, payload)
        }
        E::ApprovalDecided { approval_id, steps, answer, closed } => {
            let payload = match answer {
                Some(answer) => json!({"answer": answer, "closed": closed}),
                None => json!({"steps": redactor.redact_to_value(steps), "closed": closed}),
            };
            approval_event("approval_decided", *approval_id, payload)
        }
        E::ApprovalEscalated { approval_id, to, deadline } => approval_event(
            "approval_escalated",
            *approval_id,
            json!({"to": to, "deadline": deadline}),
        ),
        E::PreflightApproved { approval_id, by, reason, steps } => {
            let steps = redactor.redact_to_value(steps);
            let payload = json!({"by": by, "reason": reason, "steps": steps});
            approval_event("preflight_approved", *approval_id, payload)
        }
        E::PreflightSkipped { .. } => stored_event("preflight_skipped", event),
        E::BudgetReserved { .. } => stored_event("budget_reserved", event),
        E::BudgetReached { .. } => stored_event("budget_reached", event),
        E::BudgetRaised { approval_id, budget, by } => {
            approval_event("budget_raised", *approval_id, json!({"budget": budget, "by": by}))
        }
        E::ApprovalExpired { approval_id } => {
            approval_event("approval_expired", *approval_id, json!({}))
        }
        E::ApprovalCancelled { approval_id } => {
            approval_event("approval_cancelled", *approval_id, json!({}))
        }
        E::ChildEvent { session_id, agent, call_id, event } => {
            encode_child_event(*session_id, agent, *call_id, event, redactor)
        }
        E::ChildGone { .. } => stored_event("child_gone", event),
        E::FeedbackGiven { .. } => stored_event("feedback_given", event),
        E::GrantAdded { .. } => stored_event("grant_added", event),
        E::GrantRevoked { .. } => stored_event("grant_revoked", event),
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
