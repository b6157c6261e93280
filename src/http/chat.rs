//! Chatting: `POST /agent/chat/stream` carries one run as it goes, `POST /agent/chat` answers once
//! it has ended or pauses. A client that goes away cancels nothing (S6).

mod collect;

use self::collect::{Collected, Ending, collect};
use super::{
    AppState, Problem, State,
    commands::{self, CreateSession, Message, Submitted},
    events,
    follow::Follow,
    guard::Caller,
    read::{self, Json},
    sse,
    workflows::WorkflowWish,
};
use crate::auth::Principal;
use actix_web::{HttpRequest, HttpResponse, http::StatusCode};
use greenroom_core::{
    cursor::Cursor,
    ids::{MessageId, Seq, SessionId, UserId},
    policy::{Autonomy, SettingsPatch},
    session::{RunFailure, SessionRow},
    trace::Trace,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub(super) struct StreamBody {
    session_id: SessionId,
    #[serde(default)]
    message: String,
    #[serde(default)]
    message_id: Option<MessageId>,
    #[serde(default)]
    on_busy: Option<String>,
    #[serde(default)]
    preflight: Option<bool>,
    #[serde(default)]
    workflow: Option<WorkflowWish>,
    #[serde(default, alias = "character_id", deserialize_with = "read::user_id")]
    user_id: Option<UserId>,
    #[serde(default)]
    until: Option<String>,
}

/// `POST /agent/chat/stream`
pub(super) async fn stream(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<StreamBody>,
) -> Result<HttpResponse, Problem> {
    let dialect = events::asked_for(&request)?;
    let until_pause = match body.until.as_deref() {
        None | Some("end") => false,
        Some("pause") => true,
        Some(_) => return Err(Problem::invalid("until", "until must be `end` or `pause`")),
    };
    let session = session_of(&state, &caller.0, body.session_id, body.user_id).await?;
    sse::check_room(&state, &session)?;
    let message = Message {
        message: body.message,
        message_id: body.message_id.or(idempotency_key(&request)?),
        on_busy: body.on_busy,
        preflight: body.preflight,
        workflow: body.workflow,
        traceparent: traceparent(&request),
    };
    let Submitted { run_id, seq, .. } =
        commands::submit(&state, &caller.0, &session, message).await?;
    let follow = Follow::Run { run_id, until_pause };
    Ok(sse::of_session(&state, &session, before(seq), follow, dialect))
}

/// The cursor right before event `seq`.
fn before(seq: Seq) -> Cursor {
    Cursor::after(Seq(seq.0.saturating_sub(1)))
}

/// The session, which must be the named user's where one is named.
async fn session_of(
    state: &AppState,
    principal: &Principal,
    session_id: SessionId,
    user: Option<UserId>,
) -> Result<SessionRow, Problem> {
    let named = user.map(|user| commands::acting_for(principal, Some(user))).transpose()?;
    let session = commands::session_for(state, principal, session_id).await?;
    if named.is_some_and(|user| user != session.owner) {
        return Err(Problem::session_not_found());
    }
    Ok(session)
}

/// The `Idempotency-Key` header, which stands for `message_id` (S5).
fn idempotency_key(request: &HttpRequest) -> Result<Option<MessageId>, Problem> {
    let Some(key) = request.headers().get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().ok().and_then(|key| MessageId::parse(key).ok());
    let invalid = || {
        Problem::bad_request("invalid_id", "Idempotency-Key must have 1 to 128 ASCII characters")
    };
    key.map(Some).ok_or_else(invalid)
}

/// The span of a trace that the request is sent in (A4). A header that makes no sense is passed over,
/// as the W3C says: tracing fails no request.
fn traceparent(request: &HttpRequest) -> Option<Trace> {
    let mut headers = request.headers().get_all("traceparent");
    let header = headers.next().filter(|_| headers.next().is_none())?;
    header.to_str().ok()?.parse().ok()
}

#[derive(Deserialize)]
pub(super) struct ChatBody {
    #[serde(default)]
    message: String,
    #[serde(default)]
    session_id: Option<SessionId>,
    #[serde(default, alias = "character_id", deserialize_with = "read::user_id")]
    user_id: Option<UserId>,
    #[serde(default)]
    region_id: Option<i64>,
    #[serde(default)]
    autonomy_level: Option<Autonomy>,
    #[serde(default)]
    message_id: Option<MessageId>,
    #[serde(default)]
    on_busy: Option<String>,
    #[serde(default)]
    preflight: Option<bool>,
    #[serde(default)]
    workflow: Option<WorkflowWish>,
}

/// `POST /agent/chat`
pub(super) async fn chat(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<ChatBody>,
) -> Result<HttpResponse, Problem> {
    let ChatBody { message, session_id, user_id, region_id, autonomy_level, .. } = body;
    let message = Message {
        message,
        message_id: body.message_id.or(idempotency_key(&request)?),
        on_busy: body.on_busy,
        preflight: body.preflight,
        workflow: body.workflow,
        traceparent: traceparent(&request),
    };
    // Before a session is made for it.
    message.check(&state)?;
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
            session_of(&state, &caller.0, session_id, user_id).await?
        }
        None => {
            let settings = SettingsPatch {
                allowed_regions: region_id.map(|region| Some([region].into())),
                ..SettingsPatch::default()
            };
            let settings = Some(settings);
            let wish = CreateSession { autonomy_level, user_id, settings, ..Default::default() };
            commands::create(&state, &caller.0, wish).await?
        }
    };
    sse::check_room(&state, &session)?;
    let submitted = commands::submit(&state, &caller.0, &session, message).await?;
    let collected = collect(&state, &session, before(submitted.seq), submitted.run_id).await?;
    answer(&state, &session, &submitted, collected)
}

fn answer(
    state: &AppState,
    session: &SessionRow,
    submitted: &Submitted,
    collected: Collected,
) -> Result<HttpResponse, Problem> {
    let mut body = json!({
        "session_id": session.session_id,
        "run_id": submitted.run_id,
        "response": collected.response,
        "tool_results": collected.tool_results(),
        "iterations": collected.iterations,
    });
    let status = match collected.ending {
        Some(Ending::Completed(usage)) => {
            body["outcome"] = json!("completed");
            body["usage"] = json!(usage);
            StatusCode::OK
        }
        Some(Ending::Cancelled) => {
            body["outcome"] = json!("cancelled");
            StatusCode::OK
        }
        Some(Ending::Paused(approval)) => {
            body["outcome"] = json!("waiting_for_approval");
            body["plan_id"] = json!(approval.approval_id);
            body["plan"] = crate::dialect::agent::plan(&approval);
            StatusCode::ACCEPTED
        }
        Some(Ending::Failed { code, error }) => {
            state.redactor.scrub(&mut body);
            return Err(run_failed(code, &state.redactor.text(&error), &body));
        }
        None => {
            let detail = "the answer could not be followed to its end; read it from the session";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(Problem::new(status, "stream_broken", detail)
                .with("session_id", session.session_id)
                .with("run_id", submitted.run_id));
        }
    };
    state.redactor.scrub(&mut body);
    Ok(HttpResponse::build(status).json(body))
}

/// The model did not do its part: to the client, a gateway's failure.
fn run_failed(code: RunFailure, error: &str, body: &Value) -> Problem {
    let mut problem =
        Problem::new(StatusCode::BAD_GATEWAY, "run_failed", error).with("reason", code);
    for name in ["session_id", "run_id", "tool_results", "iterations"] {
        problem = problem.with(name, &body[name]);
    }
    problem
}
