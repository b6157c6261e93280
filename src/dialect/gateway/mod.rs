//! The dialect `gateway`: a chat as a front end knows it. A client sends requests, and each is
//! answered by a stream of text with a start and an end, and by tool calls, their results, and
//! questions in between. Spoken over the WebSocket `/gateway` alone, by [`crate::http`].
//!
//! A request is a user's message, its id the message's; so each frame belongs to a run, and what is
//! encoded here is one run's part of a session, [`Following`] it. What the dialect has no word for is
//! not told, but to a client that asked for details: it gets the native frame, so that nothing is
//! lost. `docs/protocol.md` lists what becomes of each event.

mod client_message;
mod server_message;

pub use client_message::{ClientMessage, ClientMessageError, EditedStep, decode};
pub use server_message::{GatewayFrame, GatewayOutcome, GatewayRisk, GatewayUsage, ServerMessage};

use super::{agent, approval_request::ApprovalRequestView};
use crate::redaction::Redactor;
use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{
    Timestamp,
    cursor::Cursor,
    delegation::resolve_source_event,
    ids::{ApprovalId, CallId, MessageId, Seq, SessionId},
    session::{EventRecord, SessionEvent},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The code of an `error` that tells of a question this dialect has no frame for: it is answered at
/// `/agent/approvals/{id}`.
pub const WAITING_FOR_APPROVAL: &str = "waiting_for_approval";

/// The run that a client follows.
#[derive(Clone, Debug)]
pub struct FollowedRun {
    /// Its request: the user's message.
    pub request_id: MessageId,
    /// The event by which the message was taken, which starts the stream.
    pub accepted_seq: Seq,
    /// The model that is to answer.
    pub model: String,
    /// Whether to tell in native frames what this dialect has no word for.
    pub include_native: bool,
    /// What was asked before the client came.
    pub approvals: ApprovalSnapshot,
}

/// How the questions stand that were asked before the client came. Those that are answered are not
/// asked again.
#[derive(Clone, Debug, Default)]
pub struct ApprovalSnapshot {
    /// The last event when this was looked up.
    pub head: Seq,
    /// The questions that waited then, and are to be told where they stand in the log.
    pub pending: BTreeSet<ApprovalId>,
    /// The calls of those that were decided then.
    pub decided_calls: BTreeSet<CallId>,
}

impl ApprovalSnapshot {
    fn is_closed(&self, seq: Seq, approval_id: ApprovalId) -> bool {
        seq <= self.head && !self.pending.contains(&approval_id)
    }
}

/// Puts what the dialect says of `item`. `sent_at` is the time of what has none of its own.
pub fn encode(
    item: &FeedItem,
    following: &FollowedRun,
    sent_at: Timestamp,
    redactor: &Redactor,
    put: &mut dyn FnMut(GatewayFrame),
) {
    let request_id = || following.request_id.clone();
    let fails = |code: &'static str, message: &str| {
        let message = redactor.redact_text(message).into_owned();
        let (request_id, extra) = (Some(request_id()), Map::new());
        GatewayFrame {
            cursor: None,
            session_id: None,
            message: ServerMessage::Error { request_id, code, message, extra },
        }
    };
    match &item.kind {
        FeedKind::Delta { message_id, text, .. } => {
            let delta = redactor.redact_text(text).into_owned();
            let message = ServerMessage::ChatStreamDelta {
                request_id: request_id(),
                delta,
                message_id: message_id.clone(),
                discarded: false,
            };
            put(GatewayFrame { cursor: Some(item.cursor), session_id: None, message });
        }
        FeedKind::Event(record) => {
            let mut said = Vec::new();
            if !encode_event(item, record, following, redactor, &mut said)
                && following.include_native
            {
                let native = agent::encode(item, sent_at, redactor);
                // Plain data: serialising it can't fail.
                let event = serde_json::to_value(native.flat()).unwrap_or_default();
                said.push(ServerMessage::AgentEvent { request_id: request_id(), event });
            }
            let inner = resolve_source_event(item.session_id, &item.agent, record).session_id;
            emit_messages(said, item.cursor, Some(inner).filter(|id| *id != item.session_id), put);
        }
        FeedKind::Draining => put(fails(agent::SERVER_DRAINING, "the server is shutting down")),
        FeedKind::Purged => put(fails(agent::SESSION_PURGED, "the session was purged")),
        FeedKind::Broken(error) => put(fails(agent::STREAM_BROKEN, error)),
    }
}

/// What is said of one event, each with the client's place after it. Only the last one is past the
/// event: who is cut off in between hears all of them again.
fn emit_messages(
    said: Vec<ServerMessage>,
    cursor: Cursor,
    session_id: Option<SessionId>,
    put: &mut dyn FnMut(GatewayFrame),
) {
    let before = Cursor::after_seq(Seq(cursor.seq.0.saturating_sub(1)));
    let count = said.len();
    for (number, message) in (1..).zip(said) {
        let cursor = Some(if number < count { before } else { cursor });
        put(GatewayFrame { cursor, session_id, message });
    }
}

/// Says what this dialect has words for; false if it has none for the event. The vocabulary: long
/// because it is a table.
fn encode_event(
    item: &FeedItem,
    record: &EventRecord,
    following: &FollowedRun,
    redactor: &Redactor,
    said: &mut Vec<ServerMessage>,
) -> bool {
    use SessionEvent as E;
    let request_id = || following.request_id.clone();
    let start = |queued| ServerMessage::ChatStreamStart {
        request_id: request_id(),
        session_id: item.session_id,
        run_id: record.run_id,
        model: following.model.clone(),
        queued,
    };
    let end = |outcome, usage: &_| ServerMessage::ChatStreamEnd {
        request_id: request_id(),
        outcome,
        usage: GatewayUsage::from(usage),
    };
    match &record.event {
        // A message that had to wait is taken when it is queued, and told then.
        E::MessageQueued { .. } if record.seq == following.accepted_seq => said.push(start(true)),
        E::MessageAccepted { .. } if record.seq == following.accepted_seq => {
            said.push(start(false))
        }
        E::MessageDiscarded { message_id, .. } => said.push(ServerMessage::ChatStreamDelta {
            request_id: request_id(),
            delta: String::new(),
            message_id: message_id.clone(),
            discarded: true,
        }),
        E::RunCompleted { usage, .. } => said.push(end(GatewayOutcome::Completed, usage)),
        E::RunCancelled { usage, .. } => said.push(end(GatewayOutcome::Cancelled, usage)),
        E::RunFailed { code, error, usage } => {
            said.push(ServerMessage::Error {
                request_id: Some(request_id()),
                code: "run_failed",
                message: redactor.redact_text(error).into_owned(),
                extra: into_map(json!({ "reason": code })),
            });
            said.push(end(GatewayOutcome::Failed, usage));
        }
        E::ToolCallStarted { .. }
        | E::ToolCallCompleted { .. }
        | E::ToolCallFailed { .. }
        | E::AuthorizationDenied { .. }
        | E::ApprovalRequested { .. } => {
            encode_call_event(&record.event, record.seq, following, redactor, said);
        }
        // What a child wants to know of people is asked here (S8); what it says is its own.
        E::ChildEvent { event, .. } => {
            let event = event.event.source_event();
            return encode_call_event(event, record.seq, following, redactor, said);
        }
        E::ChildGone { .. } => return false,
        E::SessionCreated { .. }
        | E::SessionSettingsChanged { .. }
        | E::SessionClosed { .. }
        | E::MessageQueued { .. }
        | E::MessageAccepted { .. }
        | E::MessageStarted { .. }
        | E::MessageCompleted { .. }
        | E::RunStarted { .. }
        | E::StepStarted { .. }
        | E::StepCompleted { .. }
        | E::StepRetrying { .. }
        | E::StepModelFallback { .. }
        | E::ContextCompacted { .. }
        | E::ContextCompactionFailed { .. }
        | E::FeedbackGiven { .. }
        | E::ToolCallAllowed { .. }
        | E::ToolCallAttemptStarted { .. }
        | E::ToolCallProgress { .. }
        | E::ToolCallRetrying { .. }
        | E::LateResult { .. }
        | E::ApprovalDecided { .. }
        | E::ApprovalExpired { .. }
        | E::ApprovalCancelled { .. }
        | E::ApprovalEscalated { .. }
        | E::BudgetReserved { .. }
        | E::BudgetReached { .. }
        | E::BudgetRaised { .. }
        | E::SessionForked { .. }
        | E::PreflightApproved { .. }
        | E::PreflightSkipped { .. }
        | E::GrantAdded { .. }
        | E::GrantRevoked { .. } => return false,
    }
    true
}

/// Says what it has words for of calls and questions, the session's own and its children's; false if
/// it has none. `seq` is the session's.
fn encode_call_event(
    event: &SessionEvent,
    seq: Seq,
    following: &FollowedRun,
    redactor: &Redactor,
    said: &mut Vec<ServerMessage>,
) -> bool {
    use SessionEvent as E;
    let request_id = || following.request_id.clone();
    let result = |call_id: &CallId, tool: &str, result, is_error| ServerMessage::ToolResult {
        request_id: request_id(),
        tool_call_id: *call_id,
        tool_name: tool.to_owned(),
        result: redactor.redact_value(result),
        is_error,
    };
    if let E::ToolCallStarted { call_id, tool, arguments, .. } = event {
        said.push(ServerMessage::ToolCall {
            request_id: request_id(),
            tool_call_id: *call_id,
            tool_name: tool.clone(),
            args: redactor.redact_value(agent::call_arguments(arguments).into()),
        });
    } else if let E::ToolCallCompleted { call_id, tool, output } = event {
        said.push(result(call_id, tool, agent::tool_result(output).into(), false));
    } else if let E::ToolCallFailed { call_id, tool, reason, error, .. } = event {
        said.push(result(call_id, tool, json!({"error": error, "reason": reason}), true));
    } else if let E::AuthorizationDenied { call_id, tool, reason, required_level } = event {
        let denied = json!({
            "error": reason, "reason": "authorization_denied", "requiredLevel": required_level,
        });
        said.push(result(call_id, tool, denied, true));
    } else if let E::ApprovalRequested { approval } = event {
        let asked = &following.approvals;
        if !asked.is_closed(seq, approval.approval_id) {
            let view = redactor.redact_value(json!(ApprovalRequestView::from(&**approval)));
            said.extend(approval_messages(&view, &following.request_id, |call_id| {
                seq <= asked.head && asked.decided_calls.iter().any(|id| id.to_string() == call_id)
            }));
        }
    } else {
        return false;
    }
    true
}

/// What is asked by the question of that view, but for the calls that are decided: a frame for each
/// call of a plan, or one for the whole. A kind of question that the dialect has no frame for is told
/// as an `error` with the view in it, which names where it is answered.
pub fn approval_messages(
    view: &Value,
    request_id: &MessageId,
    is_decided: impl Fn(&str) -> bool,
) -> Vec<ServerMessage> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match view["kind"].as_str().unwrap_or_default() {
        "plan" => {
            let steps = view["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
            let undecided = |step: &&Value| !is_decided(&text(&step["call_id"]));
            let request = |step: &Value| ServerMessage::ToolApprovalRequest {
                request_id: request_id.clone(),
                tool_call_id: step["call_id"].clone(),
                tool_name: text(&step["tool"]),
                args: step["arguments"].clone(),
                risk: GatewayRisk::from_risk_name(&text(&step["risk"])),
                approval_id: view["approval_id"].clone(),
                description: text(&step["description"]),
                why: text(&step["why"]),
                cost: step["cost"].clone(),
                deadline: view["deadline"].clone(),
            };
            steps.iter().filter(undecided).map(request).collect()
        }
        "preflight" => {
            let mut steps = view["steps"].clone();
            for step in steps.as_array_mut().into_iter().flatten() {
                step["risk"] = json!(GatewayRisk::from_risk_name(&text(&step["risk"])));
            }
            vec![ServerMessage::PreflightChecklist {
                request_id: request_id.clone(),
                steps,
                estimated_cost: view["estimatedCost"].clone(),
                required_permissions: view["requiredPermissions"].clone(),
                warnings: view["warnings"].clone(),
                approval_id: view["approval_id"].clone(),
                deadline: view["deadline"].clone(),
            }]
        }
        "elicitation" => vec![ServerMessage::ElicitationRequest {
            request_id: request_id.clone(),
            approval_id: view["approval_id"].clone(),
            tool_call_id: view["call_id"].clone(),
            tool_name: text(&view["tool"]),
            server: text(&view["server"]),
            message: text(&view["message"]),
            mode: text(&view["mode"]),
            requested_schema: view["schema"].clone(),
            url: view["url"].clone(),
            deadline: view["deadline"].clone(),
        }],
        _ => vec![ServerMessage::Error {
            request_id: Some(request_id.clone()),
            code: WAITING_FOR_APPROVAL,
            message: text(&view["purpose"]),
            extra: into_map(json!({ "approval": view })),
        }],
    }
}

fn into_map(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
