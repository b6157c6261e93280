//! `POST /agent/feedback`: a user's rating of a message or a tool call (C5). Feedback is an event of
//! the session, so it is stored, streamed and exported with the session.

use super::{
    AppState, Problem, State, access_control::Caller, commands, endpoint::Endpoint, extract::Json,
    problem_codes::COMMAND_PROBLEMS,
};
use actix_web::{HttpResponse, http::StatusCode};
use greenroom_actors::limits::LOG_PAGE_EVENTS;
use greenroom_core::{
    feedback::{CallRating, Feedback, MessageRating},
    ids::{CallId, MessageId, RunId, Seq, SessionId},
    limits::REASON_BYTES_MAX,
    session::{EventRecord, Input, SessionEvent},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum pages of a session's log, from its end, that are searched for the rated message or call.
const LOG_PAGES_SEARCHED: usize = 40;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::post("/agent/feedback", give_feedback)
            .operation("give_feedback", "Rates a message or a tool call.")
            .description(
                "A message of the model takes `message_id` and `rating`, a call `call_id` and \
                 `verdict`.",
            )
            .body::<FeedbackRequest>()
            .returns::<FeedbackResponse>("The feedback is recorded as an event of the session")
            .problems(COMMAND_PROBLEMS)
            .problems(&["message_not_found", "call_not_found", "too_much_feedback"]),
    ]
}

/// Recorded feedback.
#[derive(Serialize, ToSchema)]
#[schema(as = FeedbackAccepted)]
struct FeedbackResponse {
    session_id: SessionId,
    /// The run of the rated message or call.
    run_id: Option<RunId>,
}

/// Feedback on a message or a call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FeedbackRequest {
    /// The session of the message or call.
    session_id: SessionId,
    /// The rated message.
    #[serde(default)]
    message_id: Option<MessageId>,
    /// The rated call.
    #[serde(default)]
    call_id: Option<CallId>,
    /// The rating of the message, 1 to 5.
    #[serde(default)]
    rating: Option<MessageRating>,
    /// The rating of the call.
    #[serde(default)]
    verdict: Option<CallRating>,
    /// An optional comment.
    #[serde(default)]
    comment: Option<String>,
}

impl FeedbackRequest {
    fn into_feedback(self) -> Result<Feedback, Problem> {
        let Self { session_id: _, message_id, call_id, rating, verdict, comment } = self;
        let comment = comment.filter(|comment| !comment.trim().is_empty());
        if let Some(bytes) = comment.as_ref().map(String::len)
            && bytes > REASON_BYTES_MAX
        {
            return Err(Problem::too_long("comment", bytes, REASON_BYTES_MAX, "bytes"));
        }
        match (message_id, call_id, rating, verdict) {
            (Some(message_id), None, Some(rating), None) => {
                Ok(Feedback::Message { message_id, rating, comment })
            }
            (None, Some(call_id), None, Some(verdict)) => {
                Ok(Feedback::Call { call_id, verdict, comment })
            }
            (Some(_), None, None, _) => {
                Err(Problem::invalid("rating", "a message requires `rating`, 1 to 5"))
            }
            (None, Some(_), _, None) => {
                let detail = "a call requires `verdict`: `good`, `unnecessary` or `wrong`";
                Err(Problem::invalid("verdict", detail))
            }
            (Some(_), None, Some(_), Some(_)) => {
                Err(Problem::invalid("verdict", "`verdict` is allowed only for a call"))
            }
            (None, Some(_), Some(_), Some(_)) => {
                Err(Problem::invalid("rating", "`rating` is allowed only for a message"))
            }
            (Some(_), Some(_), ..) | (None, None, ..) => {
                Err(Problem::invalid("message_id", "requires either `message_id` or `call_id`"))
            }
        }
    }
}

/// `POST /agent/feedback`
async fn give_feedback(
    state: State,
    caller: Caller,
    Json(request): Json<FeedbackRequest>,
) -> Result<HttpResponse, Problem> {
    let session_id = request.session_id;
    let feedback = request.into_feedback()?;
    commands::load_visible_session(&state, &caller.0, session_id).await?;
    let run_id = find_run(&state, session_id, &feedback).await?;
    let input = Input::GiveFeedback { feedback, run_id, by: caller.0.user.clone() };
    state.runtime.execute(session_id, input).await?;
    Ok(HttpResponse::Ok().json(FeedbackResponse { session_id, run_id }))
}

/// Returns the run of the rated message or call. Searches the log from its end, where most rated
/// messages and calls are.
async fn find_run(
    state: &AppState,
    session_id: SessionId,
    feedback: &Feedback,
) -> Result<Option<RunId>, Problem> {
    let journal = &state.runtime.journal;
    let mut end = journal.load_head(session_id).await?.0;
    for _ in 0..LOG_PAGES_SEARCHED {
        let start = end.saturating_sub(LOG_PAGE_EVENTS as u64);
        let page = journal.load_events(session_id, Seq(start), LOG_PAGE_EVENTS).await?;
        if let Some(record) = page.iter().find(|record| is_about(record, feedback)) {
            return Ok(record.run_id);
        }
        if start == 0 {
            break;
        }
        end = start;
    }
    let (code, detail) = match feedback {
        Feedback::Message { .. } => ("message_not_found", "the session has no such message"),
        Feedback::Call { .. } => ("call_not_found", "the session has no such call"),
    };
    Err(Problem::new(StatusCode::NOT_FOUND, code, detail))
}

fn is_about(record: &EventRecord, feedback: &Feedback) -> bool {
    match feedback {
        Feedback::Message { message_id, .. } => matches!(
            &record.event,
            SessionEvent::MessageCompleted { message_id: id, .. } if id == message_id
        ),
        Feedback::Call { call_id, .. } => matches!(
            &record.event,
            SessionEvent::ToolCallStarted { call_id: id, .. } if id == call_id
        ),
    }
}
