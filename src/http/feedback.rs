//! `POST /agent/feedback`: what a person thinks of an answer, or of a call (C5). It is an event of the
//! session, and so is stored, streamed and exported with it.

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

/// Pages of a session's log, from its end, on which what is judged is looked for.
const LOG_PAGES_SEARCHED: usize = 40;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::post("/agent/feedback", give)
            .operation("give_feedback", "What a person thinks of an answer, or of a call.")
            .description("A message of the model is rated; a call gets a verdict.")
            .body::<FeedbackRequest>()
            .returns::<FeedbackResponse>("It is an event of the session now")
            .problems(COMMAND_PROBLEMS)
            .problems(&["message_not_found", "call_not_found", "too_much_feedback"]),
    ]
}

/// Feedback that was taken.
#[derive(Serialize, ToSchema)]
#[schema(as = FeedbackTaken)]
struct FeedbackResponse {
    session_id: SessionId,
    /// The run it is about.
    run_id: Option<RunId>,
}

/// What somebody thinks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct FeedbackRequest {
    session_id: SessionId,
    #[serde(default)]
    message_id: Option<MessageId>,
    #[serde(default)]
    call_id: Option<CallId>,
    #[serde(default)]
    rating: Option<MessageRating>,
    #[serde(default)]
    verdict: Option<CallRating>,
    #[serde(default)]
    comment: Option<String>,
}

impl FeedbackRequest {
    fn into_feedback(self) -> Result<Feedback, Problem> {
        let Self { session_id: _, message_id, call_id, rating, verdict, comment } = self;
        let comment = comment.filter(|comment| !comment.trim().is_empty());
        if comment.as_ref().is_some_and(|comment| comment.len() > REASON_BYTES_MAX) {
            let detail = format!("may have at most {REASON_BYTES_MAX} bytes");
            return Err(Problem::invalid("comment", detail));
        }
        match (message_id, call_id, rating, verdict) {
            (Some(message_id), None, Some(rating), None) => {
                Ok(Feedback::Message { message_id, rating, comment })
            }
            (None, Some(call_id), None, Some(verdict)) => {
                Ok(Feedback::Call { call_id, verdict, comment })
            }
            (Some(_), None, None, _) => {
                Err(Problem::invalid("rating", "a message is rated, from 1 to 5"))
            }
            (None, Some(_), _, None) => {
                let detail = "of a call say `good`, `unnecessary` or `wrong`";
                Err(Problem::invalid("verdict", detail))
            }
            (Some(_), None, Some(_), Some(_)) => {
                Err(Problem::invalid("verdict", "only a call takes a verdict"))
            }
            (None, Some(_), Some(_), Some(_)) => {
                Err(Problem::invalid("rating", "only a message is rated"))
            }
            (Some(_), Some(_), ..) | (None, None, ..) => {
                Err(Problem::invalid("message_id", "say `message_id`, or `call_id`"))
            }
        }
    }
}

/// `POST /agent/feedback`
async fn give(
    state: State,
    caller: Caller,
    Json(opinion): Json<FeedbackRequest>,
) -> Result<HttpResponse, Problem> {
    let session_id = opinion.session_id;
    let feedback = opinion.into_feedback()?;
    commands::load_visible_session(&state, &caller.0, session_id).await?;
    let run_id = find_run(&state, session_id, &feedback).await?;
    let input = Input::GiveFeedback { feedback, run_id, by: caller.0.user.clone() };
    state.runtime.execute(session_id, input).await?;
    Ok(HttpResponse::Ok().json(FeedbackResponse { session_id, run_id }))
}

/// The run in which that was said or called. What is judged is mostly near the end of the log.
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
        if let Some(found) = page.iter().find(|record| is_about(record, feedback)) {
            return Ok(found.run_id);
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
            SessionEvent::MessageCompleted { message_id: said, .. } if said == message_id
        ),
        Feedback::Call { call_id, .. } => matches!(
            &record.event,
            SessionEvent::ToolCallStarted { call_id: made, .. } if made == call_id
        ),
    }
}
