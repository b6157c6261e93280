//! Chat: `POST /agent/chat/stream` streams one run, `POST /agent/chat` responds when the run ends or
//! pauses. A client that disconnects does not cancel the run (S6).

mod run_collector;

use self::run_collector::{CollectedRun, RunEnding, ToolCallResult, collect};
use super::{
    AppState, Problem, State,
    access_control::Caller,
    commands::{self, CreateSessionRequest, MessageRequest, SubmittedMessage},
    endpoint::{EVENT_STREAM, Endpoint, IDEMPOTENCY_KEY, TRACEPARENT},
    events::{self, DialectQuery},
    extract::{self, Json},
    problem_codes::{COMMAND_PROBLEMS, CREATE_SESSION_PROBLEMS, MESSAGE_PROBLEMS},
    sse::{self, RunStream},
    workflows::WorkflowRequest,
};
use crate::{
    auth::Principal,
    dialect::{FlatFrame, approval_request::ApprovalRequestView, open_child_calls::OpenChildCalls},
};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode};
use greenroom_core::{
    cursor::Cursor,
    ids::{ApprovalId, MessageId, RunId, Seq, SessionId, UserId},
    policy::{Autonomy, SettingsPatch},
    session::{QueuedMessageStatus, RunStopReason, SessionRow},
    trace_context::TraceContext,
    usage::ModelUsage,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let key = "Same as `message_id`: a repeated request does not start another run";
    let trace = "The W3C trace context of which the run becomes a part";
    vec![
        Endpoint::post("/agent/chat", chat)
            .operation("chat", "Sends a message and responds when its run ends or pauses.")
            .description("Without `session_id`, a session is created.")
            .header(IDEMPOTENCY_KEY, key)
            .header(TRACEPARENT, trace)
            .body::<ChatBody>()
            .returns::<ChatResponse>("The run has ended")
            .returns_with_status::<ChatResponse>(
                202,
                "The run waits for an answer to the approval `plan`",
            )
            .problems(COMMAND_PROBLEMS)
            .problems(CREATE_SESSION_PROBLEMS)
            .problems(MESSAGE_PROBLEMS)
            .problems(&["invalid_id", "too_many_subscribers", "run_failed", "stream_broken"]),
        Endpoint::post("/agent/chat/stream", stream)
            .operation("chat_stream", "Sends a message and streams its run until the run ends.")
            .query::<DialectQuery>()
            .header(IDEMPOTENCY_KEY, key)
            .header(TRACEPARENT, trace)
            .body::<ChatStreamBody>()
            .returns_stream::<FlatFrame>(
                EVENT_STREAM,
                "One frame per `data:` line, as events occur",
            )
            .problems(COMMAND_PROBLEMS)
            .problems(MESSAGE_PROBLEMS)
            .problems(&["invalid_id", "forbidden", "unknown_dialect", "too_many_subscribers"]),
    ]
}

/// A message to a session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChatStreamBody {
    /// The session.
    session_id: SessionId,
    /// The text. Optional if `workflow` is present.
    #[serde(default)]
    message: String,
    /// Id of the message. Repeating a message with the same id returns the first response and
    /// starts no run.
    #[serde(default)]
    message_id: Option<MessageId>,
    /// Handling while another run is active: `queue` (default), `steer`, `interrupt` or `reject`.
    #[serde(default)]
    on_busy: Option<String>,
    /// True if the run starts with a preflight; by default as the session's settings specify.
    #[serde(default)]
    preflight: Option<bool>,
    /// The workflow to run.
    #[serde(default)]
    workflow: Option<WorkflowRequest>,
    /// The expected owner of the session. May be a number. `character_id` is an alias.
    #[serde(default, alias = "character_id", deserialize_with = "extract::deserialize_user_id")]
    user_id: Option<UserId>,
    /// `end` (default): the stream ends with the run. `pause`: it also ends at a request for
    /// approval.
    #[serde(default)]
    until: Option<String>,
}

/// `POST /agent/chat/stream`
async fn stream(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<ChatStreamBody>,
) -> Result<HttpResponse, Problem> {
    let dialect = events::parse_dialect(&request)?;
    let until_pause = match body.until.as_deref() {
        None | Some("end") => false,
        Some("pause") => true,
        Some(_) => return Err(Problem::invalid("until", "`until` must be `end` or `pause`")),
    };
    let session = load_user_session(&state, &caller.0, body.session_id, body.user_id).await?;
    sse::check_subscriber_limit(&state, &session)?;
    let message = MessageRequest {
        message: body.message,
        message_id: message_id(body.message_id, &request)?,
        on_busy: body.on_busy,
        preflight: body.preflight,
        workflow: body.workflow,
        traceparent: traceparent(&request),
    };
    let SubmittedMessage { run_id, seq, .. } =
        commands::submit_message(&state, &caller.0, &session, message).await?;
    let (cursor, open_child_calls) = (cursor_before(seq), OpenChildCalls::default());
    let run = RunStream { run_id, until_pause, cursor, open_child_calls };
    Ok(sse::stream_run(&state, &session, run, dialect))
}

/// Returns the cursor directly before event `seq`.
fn cursor_before(seq: Seq) -> Cursor {
    Cursor::after_seq(Seq(seq.0.saturating_sub(1)))
}

/// Loads the session. If `user` is given, the session must belong to that user.
async fn load_user_session(
    state: &AppState,
    principal: &Principal,
    session_id: SessionId,
    user: Option<UserId>,
) -> Result<SessionRow, Problem> {
    let named =
        user.map(|user| commands::resolve_acting_user(principal, Some(user))).transpose()?;
    let session = commands::load_visible_session(state, principal, session_id).await?;
    if named.is_some_and(|user| user != session.owner) {
        return Err(Problem::session_not_found());
    }
    Ok(session)
}

/// Returns the message's id from the body or from the `Idempotency-Key` header (S5).
fn message_id(
    in_body: Option<MessageId>,
    request: &HttpRequest,
) -> Result<Option<MessageId>, Problem> {
    let invalid = |detail| Problem::bad_request("invalid_id", detail);
    let mut keys = request.headers().get_all(IDEMPOTENCY_KEY);
    let Some(key) = keys.next() else { return Ok(in_body) };
    if keys.next().is_some() {
        return Err(invalid("more than one `Idempotency-Key` header"));
    }
    let key = key.to_str().ok().and_then(|key| MessageId::parse(key).ok());
    let key =
        key.ok_or_else(|| invalid("`Idempotency-Key` must have 1 to 128 ASCII characters"))?;
    match in_body {
        Some(id) if id != key => Err(invalid("`message_id` and `Idempotency-Key` differ")),
        Some(_) | None => Ok(Some(key)),
    }
}

/// Returns the trace context of the request (A4). As W3C Trace Context requires, an invalid header
/// is ignored.
fn traceparent(request: &HttpRequest) -> Option<TraceContext> {
    let mut headers = request.headers().get_all(TRACEPARENT);
    let header = headers.next().filter(|_| headers.next().is_none())?;
    header.to_str().ok()?.parse().ok()
}

/// A message to a session or to a new session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChatBody {
    /// The text. Optional if `workflow` is present.
    #[serde(default)]
    message: String,
    /// The session; by default a new one.
    #[serde(default)]
    session_id: Option<SessionId>,
    /// The owner of the session. May be a number. `character_id` is an alias.
    #[serde(default, alias = "character_id", deserialize_with = "extract::deserialize_user_id")]
    user_id: Option<UserId>,
    /// The only allowed region of a new session.
    #[serde(default)]
    region_id: Option<i64>,
    /// The autonomy level of a new session.
    #[serde(default)]
    autonomy_level: Option<Autonomy>,
    /// Id of the message. Repeating a message with the same id returns the first response and
    /// starts no run. Requires `session_id`.
    #[serde(default)]
    message_id: Option<MessageId>,
    /// Handling while another run is active: `queue` (default), `steer`, `interrupt` or `reject`.
    #[serde(default)]
    on_busy: Option<String>,
    /// True if the run starts with a preflight; by default as the session's settings specify.
    #[serde(default)]
    preflight: Option<bool>,
    /// The workflow to run.
    #[serde(default)]
    workflow: Option<WorkflowRequest>,
}

/// `POST /agent/chat`
async fn chat(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<ChatBody>,
) -> Result<HttpResponse, Problem> {
    let ChatBody { message, session_id, user_id, region_id, autonomy_level, .. } = body;
    let message = MessageRequest {
        message,
        message_id: message_id(body.message_id, &request)?,
        on_busy: body.on_busy,
        preflight: body.preflight,
        workflow: body.workflow,
        traceparent: traceparent(&request),
    };
    let session = match session_id {
        Some(session_id) => {
            for (field, is_present) in
                [("region_id", region_id.is_some()), ("autonomy_level", autonomy_level.is_some())]
            {
                if is_present {
                    let detail = "allowed only for a new session; change the session's settings";
                    return Err(Problem::invalid(field, format!("`{field}`: {detail}")));
                }
            }
            load_user_session(&state, &caller.0, session_id, user_id).await?
        }
        None => {
            commands::check_first_message(&state, &caller.0, user_id.as_ref(), &message).await?;
            let settings = SettingsPatch {
                allowed_regions: region_id.map(|region| Some([region].into())),
                ..SettingsPatch::default()
            };
            let settings = Some(settings);
            let request =
                CreateSessionRequest { autonomy_level, user_id, settings, ..Default::default() };
            commands::create_session(&state, &caller.0, request).await?
        }
    };
    sse::check_subscriber_limit(&state, &session)?;
    let submitted = commands::submit_message(&state, &caller.0, &session, message).await?;
    let collected = collect(&state, &session, cursor_before(submitted.seq), &submitted).await?;
    chat_response(&state, &session, &submitted, collected)
}

/// The result of a run that ended or paused.
#[derive(Serialize, ToSchema)]
struct ChatResponse {
    session_id: SessionId,
    run_id: RunId,
    /// The latest complete message of the model.
    response: String,
    /// The tool calls with their results, in the order in which they were proposed.
    tool_results: Vec<ToolCallResult>,
    /// The last step of the run so far.
    iterations: u32,
    outcome: ChatOutcome,
    /// The way in which the final message of a completed run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<RunStopReason>,
    /// Set if the message was changed or removed while it was queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_status: Option<QueuedMessageStatus>,
    /// The model usage of a completed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ModelUsage>,
    /// Id of the pending approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_id: Option<ApprovalId>,
    /// The pending approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<ApprovalRequestView>,
}

/// The outcome of a run, or that it is paused.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ChatOutcome {
    Completed,
    Cancelled,
    WaitingForApproval,
}

fn chat_response(
    state: &AppState,
    session: &SessionRow,
    submitted: &SubmittedMessage,
    collected: CollectedRun,
) -> Result<HttpResponse, Problem> {
    let (session_id, run_id) = (session.session_id, submitted.run_id);
    let mut final_stop_reason = None;
    let (outcome, usage, approval) = match collected.ending {
        Some(RunEnding::Completed { usage, stop_reason }) => {
            final_stop_reason = stop_reason;
            (ChatOutcome::Completed, Some(usage), None)
        }
        Some(RunEnding::Cancelled) => (ChatOutcome::Cancelled, None, None),
        Some(RunEnding::Paused(approval)) => {
            (ChatOutcome::WaitingForApproval, None, Some(approval))
        }
        Some(RunEnding::Failed { code, ref error }) => {
            // Behind this server the model failed, as behind a gateway.
            let error = state.redactor.redact_text(error);
            let results = state.redactor.redact_value(json!(collected.calls));
            return Err(Problem::new(StatusCode::BAD_GATEWAY, "run_failed", error)
                .with_member("reason", code)
                .with_member("session_id", session_id)
                .with_member("run_id", run_id)
                .with_member("tool_results", results)
                .with_member("iterations", collected.last_step));
        }
        None => {
            let detail = "the run could not be followed to its end; read it from the session";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(Problem::new(status, "stream_broken", detail)
                .with_member("session_id", session_id)
                .with_member("run_id", run_id));
        }
    };
    let status = if approval.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
    let response = ChatResponse {
        session_id,
        run_id,
        response: collected.response,
        tool_results: collected.calls,
        iterations: collected.last_step,
        outcome,
        stop_reason: final_stop_reason,
        message_status: collected.queued_status.or(submitted.queued_status),
        usage,
        plan_id: approval.as_ref().map(|approval| approval.approval_id),
        plan: approval.map(|approval| ApprovalRequestView::from(&*approval)),
    };
    Ok(HttpResponse::build(status).json(state.redactor.redact(&response)))
}
