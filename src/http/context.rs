//! `GET /agent/session/{id}/context`: the parts of a step's model request, with sizes (C1).
//!
//! The request is reassembled from the log as of the step. Its conversation is exact.
//! Configuration, tools and skills are the current ones, since they are not stored per step.

use super::{Problem, State, access_control::Caller, commands, endpoint::Endpoint, extract};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode};
use greenroom_actors::limits::LOG_PAGE_EVENTS;
use greenroom_core::{
    context::{self, ContextManifest},
    ids::{RunId, Seq, SessionId},
    session::{EventRecord, SessionEvent, SessionState, evolve},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/session/{session_id}/context", context)
            .operation(
                "session_context",
                "Returns the parts of a step's model request, with sizes.",
            )
            .query::<ContextQuery>()
            .returns::<StepContext>("The context")
            .problems(&["session_not_found", "step_not_found"]),
    ]
}

#[derive(Deserialize, IntoParams)]
pub(super) struct ContextQuery {
    /// The step of the run, by default the newest. 0 is the step of the preflight.
    step: Option<u32>,
    /// The run, by default the newest.
    #[param(value_type = Option<RunId>)]
    run_id: Option<String>,
}

/// The parts of a step's model request.
#[derive(Serialize, ToSchema)]
struct StepContext {
    #[serde(flatten)]
    manifest: ContextManifest,
    session_id: SessionId,
    run_id: Option<RunId>,
    step: u32,
    attempt: u32,
    /// The event with which the step started.
    seq: Seq,
}

/// A step, and the state of the session when the step started.
struct StartedStep {
    state: SessionState,
    record: EventRecord,
}

/// `GET /agent/session/{session_id}/context?step=&run_id=`; by default of the newest step.
async fn context(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let session_id: SessionId = extract::path_id(&request, "session_id")?;
    let query: ContextQuery = extract::parse_query(&request)?;
    let run_id = extract::parse_optional_id::<RunId>("run_id", query.run_id.as_deref())?;
    let session = commands::load_visible_session(&state, &caller.0, session_id).await?;
    let matches_query = |record: &EventRecord| {
        let step = query.step.is_none_or(|step| step == record.step.unwrap_or(0));
        step && run_id.is_none_or(|run_id| record.run_id == Some(run_id))
    };
    let mut past = SessionState::new(session_id);
    let mut started_step: Option<StartedStep> = None;
    loop {
        let page =
            state.runtime.journal.load_events(session_id, past.last_seq, LOG_PAGE_EVENTS).await?;
        let is_last = page.len() < LOG_PAGE_EVENTS;
        for record in page {
            past = evolve(past, &record);
            let starts = matches!(record.event, SessionEvent::StepStarted { compacting: None, .. });
            if starts && matches_query(&record) {
                started_step = Some(StartedStep { state: past.clone(), record });
            }
        }
        if is_last {
            break;
        }
    }
    let no_step = || {
        let detail = "the session has no such step";
        Problem::new(StatusCode::NOT_FOUND, "step_not_found", detail)
    };
    let StartedStep { state: step_state, record } = started_step.ok_or_else(no_step)?;
    let SessionEvent::StepStarted { model, attempt, .. } = record.event else {
        return Err(no_step());
    };
    let rules = state.runtime.governance().rules(
        &session.agent,
        session.parent.as_deref(),
        state.runtime.tools.as_ref(),
    );
    let manifest = context::describe_request(&step_state, &rules, model);
    let (run_id, step, seq) = (record.run_id, record.step.unwrap_or(0), record.seq);
    let response = StepContext { manifest, session_id, run_id, step, attempt, seq };
    Ok(HttpResponse::Ok().json(response))
}
