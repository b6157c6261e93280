//! The dialect `gateway`: a request/response chat protocol for front ends. A client sends requests;
//! each is answered by a text stream with a start and an end, with tool calls, their results and
//! approval requests in between. Only the WebSocket `/gateway` in [`crate::http`] uses this dialect.
//!
//! A request is a user's message, and its id is the message's id. Each frame therefore belongs to a
//! run, and this module encodes the part of a session that belongs to one [`FollowedRun`]. An event
//! without a frame in this dialect is omitted; a client that requested details receives its native
//! frame instead, so that no event is lost. `docs/protocol.md` lists the frames of each event.

mod client_message;
pub mod request_id;
mod sent_text;
mod server_message;

pub use client_message::{ChatSend, ClientMessage, ClientMessageError, EditedStep, decode};
pub use sent_text::SentText;
pub use server_message::{GatewayFrame, GatewayOutcome, GatewayRisk, GatewayUsage, ServerMessage};

use super::{CallArguments, agent, approval_request::ApprovalRequestView};
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

/// The code of an `error` frame for an approval of a kind that has no frame in this dialect. The
/// client answers it at `/agent/approvals/{id}`.
pub const WAITING_FOR_APPROVAL: &str = "waiting_for_approval";

/// The delta that withdraws the text of a message. A client that only appends deltas shows it between
/// the withdrawn text and what follows.
pub const DISCARDED_TEXT: &str = "\n[The answer was interrupted. The text above is withdrawn.]\n";

/// The run that a client follows on a connection.
#[derive(Clone, Debug)]
pub struct FollowedRun {
    /// The id of the request and of the user's message.
    pub request_id: MessageId,
    /// The event that accepted or queued the message; the stream starts with it.
    pub accepted_seq: Seq,
    /// The name of the model that answers first.
    pub model: String,
    /// True if events without a frame in this dialect are sent as native frames.
    pub include_native: bool,
    /// The state of the approvals that were requested before the client connected.
    pub approvals: ApprovalSnapshot,
}

/// The state of the approvals requested before the client connected, so that answered approvals are
/// not sent again.
#[derive(Clone, Debug, Default)]
pub struct ApprovalSnapshot {
    /// The session's last event when the snapshot was taken.
    pub head: Seq,
    /// The approvals that were pending; these are sent at their position in the log.
    pub pending: BTreeSet<ApprovalId>,
    /// The calls of pending approvals that were already decided.
    pub decided_calls: BTreeSet<CallId>,
}

impl ApprovalSnapshot {
    fn is_closed(&self, seq: Seq, approval_id: ApprovalId) -> bool {
        seq <= self.head && !self.pending.contains(&approval_id)
    }
}

/// Encodes `item` and passes each frame to `emit`. `sent_at` is the time of native frames that have
/// no time of their own.
pub fn encode(
    item: &FeedItem,
    followed_run: &FollowedRun,
    sent_at: Timestamp,
    redactor: &Redactor,
    emit: &mut dyn FnMut(GatewayFrame),
) {
    let request_id = || followed_run.request_id.clone();
    let error_frame = |code: &'static str, message: &str| {
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
                message_id: Some(message_id.clone()),
                discarded: false,
                notice: false,
            };
            emit(GatewayFrame { cursor: Some(item.cursor), session_id: None, message });
        }
        FeedKind::Event(record) => {
            let mut messages = Vec::new();
            if !encode_event(item, record, followed_run, redactor, &mut messages)
                && followed_run.include_native
            {
                let native = agent::encode(item, sent_at, redactor);
                // Serializing the frame cannot fail, because it contains only plain data.
                let event = serde_json::to_value(native.flat()).unwrap_or_default();
                messages.push(ServerMessage::AgentEvent { request_id: request_id(), event });
            }
            let source = resolve_source_event(item.session_id, &item.agent, record).session_id;
            let child_session_id = Some(source).filter(|id| *id != item.session_id);
            emit_messages(messages, item.cursor, child_session_id, emit);
        }
        FeedKind::Draining => {
            emit(error_frame(agent::SERVER_DRAINING, "the server is shutting down"))
        }
        FeedKind::Purged => emit(error_frame(agent::SESSION_PURGED, "the session was purged")),
        FeedKind::Broken(error) => emit(error_frame(agent::STREAM_BROKEN, error)),
    }
}

/// Emits the messages of one event. Only the last message has the event's own cursor; the others
/// have the cursor before the event, so that a client that disconnects in between receives all of
/// them again.
fn emit_messages(
    messages: Vec<ServerMessage>,
    cursor: Cursor,
    session_id: Option<SessionId>,
    emit: &mut dyn FnMut(GatewayFrame),
) {
    let before = Cursor::after_seq(Seq(cursor.seq.0.saturating_sub(1)));
    let count = messages.len();
    for (number, message) in (1..).zip(messages) {
        let cursor = Some(if number < count { before } else { cursor });
        emit(GatewayFrame { cursor, session_id, message });
    }
}

/// Appends the messages of an event to `messages`; false if this dialect has no message for its type.
fn encode_event(
    item: &FeedItem,
    record: &EventRecord,
    followed_run: &FollowedRun,
    redactor: &Redactor,
    messages: &mut Vec<ServerMessage>,
) -> bool {
    use SessionEvent as E;
    let request_id = || followed_run.request_id.clone();
    let start = |queued| ServerMessage::ChatStreamStart {
        request_id: request_id(),
        session_id: item.session_id,
        run_id: record.run_id,
        model: followed_run.model.clone(),
        queued,
    };
    let end = |outcome, stop_reason, usage: &_| ServerMessage::ChatStreamEnd {
        request_id: request_id(),
        outcome,
        stop_reason,
        usage: GatewayUsage::from(usage),
    };
    match &record.event {
        // For a message that has to wait, the stream starts when the message is queued.
        E::MessageQueued { .. } if record.seq == followed_run.accepted_seq => {
            messages.push(start(true))
        }
        E::MessageAccepted { .. } if record.seq == followed_run.accepted_seq => {
            messages.push(start(false))
        }
        E::MessageDiscarded { message_id, .. } => messages.push(ServerMessage::ChatStreamDelta {
            request_id: request_id(),
            delta: DISCARDED_TEXT.to_owned(),
            message_id: Some(message_id.clone()),
            discarded: true,
            notice: false,
        }),
        E::RunCompleted { usage, stop_reason, .. } => {
            messages.push(end(GatewayOutcome::Completed, *stop_reason, usage));
        }
        E::RunCancelled { usage, .. } => messages.push(end(GatewayOutcome::Cancelled, None, usage)),
        E::RunFailed { code, error, usage } => {
            messages.push(ServerMessage::Error {
                request_id: Some(request_id()),
                code: "run_failed",
                message: redactor.redact_text(error).into_owned(),
                extra: into_map(json!({ "reason": code })),
            });
            messages.push(end(GatewayOutcome::Failed, None, usage));
        }
        E::ToolCallStarted { .. }
        | E::ToolCallCompleted { .. }
        | E::ToolCallFailed { .. }
        | E::AuthorizationDenied { .. }
        | E::ApprovalRequested { .. } => {
            encode_call_event(&record.event, record.seq, followed_run, redactor, messages);
        }
        // Calls and approvals of a child session are sent here (S8); its messages are not.
        E::ChildEvent { event, .. } => {
            let event = event.event.source_event();
            return encode_call_event(event, record.seq, followed_run, redactor, messages);
        }
        E::ChildGone { .. } => return false,
        E::SessionCreated { .. }
        | E::SessionSettingsChanged { .. }
        | E::SessionClosed { .. }
        | E::MessageQueued { .. }
        | E::MessageAccepted { .. }
        // A withdrawn message's run is cancelled, which ends the stream.
        | E::QueuedMessageChanged { .. }
        | E::QueuedMessageWithdrawn { .. }
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

/// Appends the messages of a call or approval event of the session or of a child session; false if
/// the event is of another kind. `seq` is that of the event in the followed session.
fn encode_call_event(
    event: &SessionEvent,
    seq: Seq,
    followed_run: &FollowedRun,
    redactor: &Redactor,
    messages: &mut Vec<ServerMessage>,
) -> bool {
    use SessionEvent as E;
    let request_id = || followed_run.request_id.clone();
    let result = |call_id: &CallId, tool: &str, result, is_error| ServerMessage::ToolResult {
        request_id: request_id(),
        tool_call_id: *call_id,
        tool_name: tool.to_owned(),
        result: redactor.redact_value(result),
        is_error,
    };
    if let E::ToolCallStarted { call_id, tool, arguments, .. } = event {
        let CallArguments { object, text } = CallArguments::from(&**arguments);
        messages.push(ServerMessage::ToolCall {
            request_id: request_id(),
            tool_call_id: *call_id,
            tool_name: tool.clone(),
            args: redactor.redact_value(Value::Object(object.into_owned())),
            arguments_text: text.map(|text| redactor.redact_text(&text).into_owned()),
        });
    } else if let E::ToolCallCompleted { call_id, tool, output } = event {
        messages.push(result(call_id, tool, agent::tool_result(output).into(), false));
    } else if let E::ToolCallFailed { call_id, tool, reason, error, .. } = event {
        messages.push(result(call_id, tool, json!({"error": error, "reason": reason}), true));
    } else if let E::AuthorizationDenied { call_id, tool, reason, required_level } = event {
        let denied = json!({
            "error": reason, "reason": "authorization_denied", "requiredLevel": required_level,
        });
        messages.push(result(call_id, tool, denied, true));
    } else if let E::ApprovalRequested { approval } = event {
        let approvals = &followed_run.approvals;
        if !approvals.is_closed(seq, approval.approval_id) {
            let view = redactor.redact_to_value(&ApprovalRequestView::from(&**approval));
            let is_decided = |call_id: &str| {
                seq <= approvals.head
                    && approvals.decided_calls.iter().any(|id| id.to_string() == call_id)
            };
            messages.extend(approval_messages(&view, &followed_run.request_id, is_decided));
        }
    } else {
        return false;
    }
    true
}

/// Returns the messages of a pending approval, given its client view: one message for each undecided
/// call of a plan, or one message for another kind. A kind without a message in this dialect is an
/// `error` that contains the view.
pub fn approval_messages(
    view: &Value,
    request_id: &MessageId,
    is_decided: impl Fn(&str) -> bool,
) -> Vec<ServerMessage> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match view["kind"].as_str().unwrap_or_default() {
        "plan" => {
            let steps = view["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
            let is_undecided = |step: &&Value| !is_decided(&text(&step["call_id"]));
            let request = |step: &Value| ServerMessage::ToolApprovalRequest {
                request_id: request_id.clone(),
                tool_call_id: step["call_id"].clone(),
                tool_name: text(&step["tool"]),
                args: step["arguments"].clone(),
                risk: GatewayRisk::from_risk_name(&text(&step["risk"])),
                grantable: step["risk"] != "critical",
                approval_id: view["approval_id"].clone(),
                description: text(&step["description"]),
                why: text(&step["why"]),
                cost: step["cost"].clone(),
                deadline: view["deadline"].clone(),
            };
            steps.iter().filter(is_undecided).map(request).collect()
        }
        "preflight" => {
            let mut steps = view["steps"].clone();
            for step in steps.as_array_mut().into_iter().flatten() {
                step["risk"] = json!(GatewayRisk::from_risk_name(&text(&step["risk"])));
            }
            vec![ServerMessage::PreflightChecklist {
                request_id: request_id.clone(),
                steps,
                estimated_cost: cost_estimate(&view["estimatedCost"]),
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

/// Returns the estimated cost with a number where the price is unknown. A warning of the checklist
/// states that it is unknown.
fn cost_estimate(estimate: &Value) -> Value {
    let mut estimate = estimate.clone();
    estimate["costKnown"] = json!(!estimate["estimatedUSD"].is_null());
    if estimate["estimatedUSD"].is_null() {
        estimate["estimatedUSD"] = json!(0);
    }
    estimate
}

fn into_map(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
