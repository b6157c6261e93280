//! The queued messages of a session (S10): list, change and withdraw. REST and WebSockets both use
//! the functions of this module.

use super::{
    AppState, Problem, State,
    access_control::Caller,
    commands::{self, MessageRequest},
    endpoint::Endpoint,
    extract::{self, Json},
    problem_codes::{COMMAND_PROBLEMS, QUEUE_PROBLEMS},
};
use crate::auth::Principal;
use actix_web::{HttpRequest, HttpResponse, http::Method, web::Path};
use greenroom_core::{
    ids::{MessageId, RunId, Seq, SessionId},
    session::{
        Input, QueuedMessage, QueuedMessageChange, QueuedMessageStatus, Reply, SessionRow,
        SessionState, SessionStatus,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let item_path = "/agent/session/{session_id}/queue/{message_id}";
    vec![
        Endpoint::get("/agent/session/{session_id}/queue", list)
            .operation(
                "list_queue",
                "Lists the messages that wait, in the order of their delivery.",
            )
            .returns::<Queue>("The queued messages")
            .problems(&["session_not_found"]),
        Endpoint::new(Method::PATCH, item_path, change)
            .operation("change_queued_message", "Replaces the text of a queued message.")
            .description(
                "The message keeps its place and its workflow. Repeating the request has no \
                 further effect.",
            )
            .body::<ChangeBody>()
            .returns::<QueueUpdate>("The message is changed")
            .problems(COMMAND_PROBLEMS)
            .problems(QUEUE_PROBLEMS)
            .problems(&["message_withdrawn", "message_too_large"]),
        Endpoint::new(Method::DELETE, item_path, withdraw)
            .operation("withdraw_queued_message", "Withdraws a queued message.")
            .description("Repeating the request has no further effect.")
            .returns::<QueueUpdate>("The message is withdrawn and never runs")
            .problems(COMMAND_PROBLEMS)
            .problems(QUEUE_PROBLEMS),
    ]
}

/// The queued messages of a session.
#[derive(Serialize, ToSchema)]
struct Queue {
    /// In the order of their delivery: first messages that steer the active run.
    queued: Vec<QueuedMessageView>,
}

/// A message that waits.
#[derive(Serialize, ToSchema)]
#[schema(as = QueuedMessage)]
struct QueuedMessageView {
    message_id: MessageId,
    /// The run of the message: its own run, or the run that it steers.
    run_id: RunId,
    /// The text.
    message: String,
    delivery: QueueDelivery,
    /// True if the message's run starts with a preflight.
    preflight: bool,
    /// The name of the workflow that the message's run is started with.
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    /// True if the text was replaced since the message was sent.
    changed: bool,
    /// The event that queued the message.
    seq: Seq,
}

/// The time at which a queued message is delivered.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum QueueDelivery {
    /// With a run of its own.
    NextRun,
    /// With the next step of the active run.
    NextStep,
    /// With the next step of the active run, after the open approval is decided.
    AfterDecision,
}

/// The new content of a queued message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeBody {
    /// The new text; must not be empty.
    message: String,
    /// True if the run starts with a preflight; by default as before.
    #[serde(default)]
    preflight: Option<bool>,
}

/// A changed or withdrawn message.
#[derive(Serialize, ToSchema)]
pub(super) struct QueueUpdate {
    session_id: SessionId,
    message_id: MessageId,
    /// The run of the message: its own run, or the run that it steers.
    run_id: RunId,
    /// `changed` or `withdrawn`.
    status: QueuedMessageStatus,
    /// True if the message had been changed in the same way or withdrawn before.
    repeated: bool,
}

/// `GET /agent/session/{id}/queue`
async fn list(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let session_id: SessionId = extract::path_id(&request, "session_id")?;
    let session = commands::load_visible_session(&state, &caller.0, session_id).await?;
    Ok(HttpResponse::Ok().json(list_queue(&state, &session).await?))
}

/// `PATCH /agent/session/{id}/queue/{message_id}`
async fn change(
    state: State,
    caller: Caller,
    path: Path<(String, String)>,
    Json(body): Json<ChangeBody>,
) -> Result<HttpResponse, Problem> {
    let (session, message_id) = load_target(&state, &caller.0, &path).await?;
    let update = change_message(&state, &caller.0, &session, message_id, body).await?;
    Ok(HttpResponse::Ok().json(update))
}

/// `DELETE /agent/session/{id}/queue/{message_id}`
async fn withdraw(
    state: State,
    caller: Caller,
    path: Path<(String, String)>,
) -> Result<HttpResponse, Problem> {
    let (session, message_id) = load_target(&state, &caller.0, &path).await?;
    let update = withdraw_message(&state, &caller.0, &session, message_id).await?;
    Ok(HttpResponse::Ok().json(update))
}

/// Parses both path parameters and loads the session. Message ids are the client's, so that they
/// can contain encoded slashes, which only `Path` decodes.
async fn load_target(
    state: &AppState,
    principal: &Principal,
    path: &(String, String),
) -> Result<(SessionRow, MessageId), Problem> {
    let session_id = extract::parse_id("session_id", &path.0)?;
    let message_id = extract::parse_id("message_id", &path.1)?;
    let session = commands::load_visible_session(state, principal, session_id).await?;
    Ok((session, message_id))
}

/// Returns the queued messages of the session as a redacted JSON object with the member `queued`.
pub(super) async fn list_queue(state: &AppState, session: &SessionRow) -> Result<Value, Problem> {
    let queued = match session.status {
        SessionStatus::Idle | SessionStatus::Closed => Vec::new(),
        SessionStatus::Running | SessionStatus::Waiting => {
            let head = state.runtime.journal.load_head(session.session_id).await?;
            queued_messages(&commands::replay(state, session.session_id, head).await?)
        }
    };
    Ok(state.redactor.redact_to_value(&Queue { queued }))
}

fn queued_messages(state: &SessionState) -> Vec<QueuedMessageView> {
    let active = &state.active;
    let view = |message: &QueuedMessage, run_id, delivery| {
        let submission = state.submissions.get(&message.message_id);
        QueuedMessageView {
            message_id: message.message_id.clone(),
            run_id,
            message: message.text.to_string(),
            delivery,
            preflight: message.preflight,
            workflow: message.workflow.as_ref().map(|workflow| workflow.name.clone()),
            changed: submission.is_some_and(|submission| submission.changed_digest.is_some()),
            seq: submission.map_or(state.last_seq, |submission| submission.seq),
        }
    };
    let next_step = match active.approvals.is_empty() {
        true => QueueDelivery::NextStep,
        false => QueueDelivery::AfterDecision,
    };
    let steering = active.run.iter().flat_map(|run| {
        run.steering.iter().map(move |message| view(message, run.run_id, next_step))
    });
    let queued =
        active.queue.iter().map(|message| view(message, message.run_id, QueueDelivery::NextRun));
    steering.chain(queued).collect()
}

/// Replaces the text of a queued message, which is validated like that of a new message.
pub(super) async fn change_message(
    state: &AppState,
    principal: &Principal,
    session: &SessionRow,
    message_id: MessageId,
    body: ChangeBody,
) -> Result<QueueUpdate, Problem> {
    let ChangeBody { message, preflight } = body;
    MessageRequest::validate_text(state, "message", &message)?;
    if message.trim().is_empty() {
        return Err(Problem::invalid("message", "`message` must not be empty"));
    }
    let digest = commands::message_digest(&message, preflight, None);
    let change = QueuedMessageChange { text: message.into(), digest, preflight };
    let (id, by) = (message_id.clone(), principal.user.clone());
    let input = Input::ChangeQueuedMessage { message_id: id, change, by };
    update_queue(state, session, message_id, input, QueuedMessageStatus::Changed).await
}

/// Withdraws a queued message.
pub(super) async fn withdraw_message(
    state: &AppState,
    principal: &Principal,
    session: &SessionRow,
    message_id: MessageId,
) -> Result<QueueUpdate, Problem> {
    let (id, by) = (message_id.clone(), principal.user.clone());
    let input = Input::WithdrawQueuedMessage { message_id: id, by };
    update_queue(state, session, message_id, input, QueuedMessageStatus::Withdrawn).await
}

async fn update_queue(
    state: &AppState,
    session: &SessionRow,
    message_id: MessageId,
    input: Input,
    status: QueuedMessageStatus,
) -> Result<QueueUpdate, Problem> {
    let session_id = session.session_id;
    match state.runtime.execute(session_id, input).await? {
        Reply::QueueUpdated { run_id, repeated } => {
            Ok(QueueUpdate { session_id, message_id, run_id, status, repeated })
        }
        other @ (Reply::Done
        | Reply::Submitted { .. }
        | Reply::Repeated { .. }
        | Reply::Steered { .. }
        | Reply::Answered { .. }
        | Reply::Cancelled { .. }) => Err(commands::unexpected_reply(&other)),
    }
}
