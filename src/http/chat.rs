//! Chatting: `POST /agent/chat/stream` carries one run as it goes, `POST /agent/chat` answers once
//! it has ended or pauses. A client that goes away cancels nothing (S6).

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
    sse,
    stream_filter::StreamFilter,
    workflows::WorkflowRequest,
};
use crate::{
    auth::Principal,
    dialect::{FlatFrame, approval_request::ApprovalRequestView},
};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode};
use greenroom_core::{
    cursor::Cursor,
    ids::{ApprovalId, MessageId, RunId, Seq, SessionId, UserId},
    policy::{Autonomy, SettingsPatch},
    session::SessionRow,
    trace_context::TraceContext,
    usage::ModelUsage,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let key = "Stands for `message_id`: sent again, it starts nothing";
    let span = "The span of a trace that the run shall be a part of";
    vec![
        Endpoint::post("/agent/chat", chat)
            .operation("chat", "Sends a message, and answers once its run has ended or pauses.")
            .description("Without `session_id` a session is created for it.")
            .header(IDEMPOTENCY_KEY, key)
            .header(TRACEPARENT, span)
            .body::<ChatBody>()
            .returns::<ChatResponse>("The run has ended")
            .returns_with_status::<ChatResponse>(
                202,
                "The run waits for a person, who is asked `plan`",
            )
            .problems(COMMAND_PROBLEMS)
            .problems(CREATE_SESSION_PROBLEMS)
            .problems(MESSAGE_PROBLEMS)
            .problems(&["invalid_id", "too_many_subscribers", "run_failed", "stream_broken"]),
        Endpoint::post("/agent/chat/stream", stream)
            .operation("chat_stream", "Sends a message, and streams its run to its end.")
            .query::<DialectQuery>()
            .header(IDEMPOTENCY_KEY, key)
            .header(TRACEPARENT, span)
            .body::<ChatStreamBody>()
            .returns_stream::<FlatFrame>(
                EVENT_STREAM,
                "One frame in each `data:` line, as things happen",
            )
            .problems(COMMAND_PROBLEMS)
            .problems(MESSAGE_PROBLEMS)
            .problems(&["invalid_id", "forbidden", "unknown_dialect", "too_many_subscribers"]),
    ]
}

/// A message for a session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChatStreamBody {
    session_id: SessionId,
    /// May be left out where there is a workflow.
    #[serde(default)]
    message: String,
    /// Sent again, it starts nothing and answers the same.
    #[serde(default)]
    message_id: Option<MessageId>,
    /// While a run is going: `queue` (default), `steer`, `interrupt` or `reject`.
    #[serde(default)]
    on_busy: Option<String>,
    /// Whether its run begins with a plan; by default as the session's settings say.
    #[serde(default)]
    preflight: Option<bool>,
    #[serde(default)]
    workflow: Option<WorkflowRequest>,
    /// Whose session it must be; `character_id` says the same, and a number will do.
    #[serde(default, alias = "character_id", deserialize_with = "extract::deserialize_user_id")]
    user_id: Option<UserId>,
    /// `end` (default), or `pause`: the stream ends when a person is asked, too.
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
        Some(_) => return Err(Problem::invalid("until", "until must be `end` or `pause`")),
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
    let follow = StreamFilter::Run { run_id, until_pause };
    Ok(sse::stream_session(&state, &session, cursor_before(seq), follow, dialect))
}

/// The cursor right before event `seq`.
fn cursor_before(seq: Seq) -> Cursor {
    Cursor::after_seq(Seq(seq.0.saturating_sub(1)))
}

/// The session, which must be the named user's where one is named.
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

/// The message's id: the body's, or the `Idempotency-Key` header, which stands for it (S5).
fn message_id(
    in_body: Option<MessageId>,
    request: &HttpRequest,
) -> Result<Option<MessageId>, Problem> {
    let invalid = |detail| Problem::bad_request("invalid_id", detail);
    let mut keys = request.headers().get_all(IDEMPOTENCY_KEY);
    let Some(key) = keys.next() else { return Ok(in_body) };
    if keys.next().is_some() {
        return Err(invalid("there is more than one Idempotency-Key"));
    }
    let key = key.to_str().ok().and_then(|key| MessageId::parse(key).ok());
    let key = key.ok_or_else(|| invalid("Idempotency-Key must have 1 to 128 ASCII characters"))?;
    match in_body {
        Some(id) if id != key => Err(invalid("message_id and Idempotency-Key differ")),
        Some(_) | None => Ok(Some(key)),
    }
}

/// The span of a trace that the request is sent in (A4). A header that makes no sense is passed over,
/// as the W3C says: tracing fails no request.
fn traceparent(request: &HttpRequest) -> Option<TraceContext> {
    let mut headers = request.headers().get_all(TRACEPARENT);
    let header = headers.next().filter(|_| headers.next().is_none())?;
    header.to_str().ok()?.parse().ok()
}

/// A message, for a session or for a new one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChatBody {
    /// May be left out where there is a workflow.
    #[serde(default)]
    message: String,
    #[serde(default)]
    session_id: Option<SessionId>,
    /// Whose session; `character_id` says the same, and a number will do.
    #[serde(default, alias = "character_id", deserialize_with = "extract::deserialize_user_id")]
    user_id: Option<UserId>,
    #[serde(default)]
    region_id: Option<i64>,
    #[serde(default)]
    autonomy_level: Option<Autonomy>,
    /// Sent again to that session, it starts nothing and answers the same; for a new one there is
    /// none.
    #[serde(default)]
    message_id: Option<MessageId>,
    /// While a run is going: `queue` (default), `steer`, `interrupt` or `reject`.
    #[serde(default)]
    on_busy: Option<String>,
    /// Whether its run begins with a plan; by default as the session's settings say.
    #[serde(default)]
    preflight: Option<bool>,
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
            for (field, given) in
                [("region_id", region_id.is_some()), ("autonomy_level", autonomy_level.is_some())]
            {
                if given {
                    let detail = "is for new sessions; change the settings of this one instead";
                    return Err(Problem::invalid(field, format!("{field} {detail}")));
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
            let wish =
                CreateSessionRequest { autonomy_level, user_id, settings, ..Default::default() };
            commands::create_session(&state, &caller.0, wish).await?
        }
    };
    sse::check_subscriber_limit(&state, &session)?;
    let submitted = commands::submit_message(&state, &caller.0, &session, message).await?;
    let collected =
        collect(&state, &session, cursor_before(submitted.seq), submitted.run_id).await?;
    chat_response(&state, &session, &submitted, collected)
}

/// What a run came to, or that it waits.
#[derive(Serialize, ToSchema)]
struct ChatResponse {
    session_id: SessionId,
    run_id: RunId,
    /// The newest complete message of the model.
    response: String,
    /// Each call with its result, in the order they were proposed.
    tool_results: Vec<ToolCallResult>,
    /// The step the run reached.
    iterations: u32,
    outcome: ChatOutcome,
    /// What a run that completed has used.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ModelUsage>,
    /// The question that is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_id: Option<ApprovalId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<ApprovalRequestView>,
}

/// How a run ended, or that it has not.
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
    let (outcome, usage, asked) = match collected.ending {
        Some(RunEnding::Completed(usage)) => (ChatOutcome::Completed, Some(usage), None),
        Some(RunEnding::Cancelled) => (ChatOutcome::Cancelled, None, None),
        Some(RunEnding::Paused(approval)) => {
            (ChatOutcome::WaitingForApproval, None, Some(approval))
        }
        Some(RunEnding::Failed { code, ref error }) => {
            // The model did not do its part: to the client, a gateway's failure.
            let error = state.redactor.redact_text(error);
            let results = state.redactor.redact_value(json!(collected.calls));
            return Err(Problem::new(StatusCode::BAD_GATEWAY, "run_failed", error)
                .with("reason", code)
                .with("session_id", session_id)
                .with("run_id", run_id)
                .with("tool_results", results)
                .with("iterations", collected.last_step));
        }
        None => {
            let detail = "the answer could not be followed to its end; read it from the session";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(Problem::new(status, "stream_broken", detail)
                .with("session_id", session_id)
                .with("run_id", run_id));
        }
    };
    let status = if asked.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
    let answer = ChatResponse {
        session_id,
        run_id,
        response: collected.response,
        tool_results: collected.calls,
        iterations: collected.last_step,
        outcome,
        usage,
        plan_id: asked.as_ref().map(|approval| approval.approval_id),
        plan: asked.map(|approval| ApprovalRequestView::from(&*approval)),
    };
    Ok(HttpResponse::build(status).json(state.redactor.redact(&answer)))
}
