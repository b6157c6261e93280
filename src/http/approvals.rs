//! Questions to people, over REST (G8, G11): list, as a page or as a stream of what changes; read,
//! answer; and the two short forms for a whole plan, `execute` and `reject`.

mod change_source;

use self::change_source::ApprovalChanges;
use super::{
    AppState, Problem, State,
    access_control::{self, Caller, SURFACE_HEADER},
    answers::{self, AnswerRequest},
    commands,
    endpoint::{EVENT_STREAM, Endpoint},
    events::{self, DialectQuery},
    extract::{self, Json},
    problem_codes::{ANSWER_PROBLEMS, COMMAND_PROBLEMS},
    sse,
    stream_filter::StreamFilter,
};
use crate::{
    auth::Principal,
    dialect::{FlatFrame, approval_request::ApprovalRequestView},
};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::{limits::LOG_PAGE_EVENTS, ports::ApprovalQuery};
use greenroom_core::{
    Timestamp,
    approval::{PlanStepDecision, RecordedAnswer, Role, Surface},
    cursor::Cursor,
    delegation::RootRun,
    ids::{ApprovalId, RunId, Seq, SessionId, UserId},
    session::{ApprovalRow, ApprovalState, SessionEvent},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

/// Questions on a page where the client says nothing, and at most.
const PAGE_LIMITS: (usize, usize) = (50, 200);

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let one = "/agent/approvals/{approval_id}";
    vec![
        Endpoint::get("/agent/approvals", list)
            .operation(
                "list_approvals",
                "Questions, the newest first; or a stream of those that wait.",
            )
            .description("Approvers and administrators get everybody's, others their own.")
            .query::<ListApprovalsQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .returns::<ApprovalPage>("A page of questions")
            .returns_stream::<ApprovalChanges>(
                EVENT_STREAM,
                "Those that wait: first all of them, then what changes",
            )
            .problems(&["invalid_id"]),
        Endpoint::get(one, read)
            .operation("read_approval", "A question.")
            .returns::<ApprovalView>("The question")
            .problems(&["approval_not_found"]),
        Endpoint::post(one, answer_approval)
            .operation("decide_approval", "Answers a question.")
            .description(
                "The first answer wins. The same answer of the same person again is answered as \
                 the first, with `repeated`; another is 409 with the `first`.",
            )
            .header(SURFACE_HEADER, "`cli` or `rest`: through what the person answers")
            .body::<AnswerRequest>()
            .returns::<AnswerResponse>("What became of it")
            .problems(COMMAND_PROBLEMS)
            .problems(ANSWER_PROBLEMS),
        plan_endpoint(Endpoint::post("/agent/execute", execute))
            .operation("execute_plan", "Approves all that is undecided of a plan."),
        plan_endpoint(Endpoint::post("/agent/reject", reject))
            .operation("reject_plan", "Rejects all that is undecided of a plan."),
    ]
}

/// What the two short forms have in common.
fn plan_endpoint(endpoint: Endpoint) -> Endpoint {
    endpoint
        .query::<DialectQuery>()
        .header(SURFACE_HEADER, "`cli` or `rest`: through what the person answers")
        .body::<PlanBody>()
        .returns::<AnswerResponse>("What became of it")
        .returns_stream::<FlatFrame>(
            EVENT_STREAM,
            "The rest of the run, one frame in each `data:` line",
        )
        .problems(COMMAND_PROBLEMS)
        .problems(ANSWER_PROBLEMS)
        .problems(&["unknown_dialect", "too_many_subscribers"])
}

/// A question, and what became of it.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
pub(super) struct ApprovalView {
    #[serde(flatten)]
    request: ApprovalRequestView,
    state: ApprovalState,
    session_id: SessionId,
    run_id: RunId,
    /// The run that people watch, where a child asks (S8).
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<RootRun>,
    /// Whose session asks.
    user_id: UserId,
    /// What was said of each step of a plan.
    decisions: Vec<PlanStepDecision>,
    closed_at: Option<Timestamp>,
    /// What was said of a question without steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<RecordedAnswer>,
    /// To whom it went when nobody answered in time; `deadline` is theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    escalated_to: Option<Role>,
}

/// A page of questions.
#[derive(Serialize, ToSchema)]
struct ApprovalPage {
    #[schema(value_type = Vec<ApprovalView>)]
    approvals: Vec<Value>,
    /// `before` of the next page, if there is one.
    next: Option<ApprovalId>,
}

/// What became of an answer.
#[derive(Serialize, ToSchema)]
struct AnswerResponse {
    session_id: SessionId,
    run_id: RunId,
    /// The same as `approval_id`.
    plan_id: ApprovalId,
    approval_id: ApprovalId,
    /// Whether nothing of the question is left to answer.
    closed: bool,
    /// Whether it had been answered so before.
    repeated: bool,
    #[schema(value_type = ApprovalView)]
    approval: Value,
}

/// A question as clients see it, not yet redacted.
pub(super) fn approval_view(row: &ApprovalRow) -> ApprovalView {
    let mut plan = ApprovalRequestView::from(&*row.approval);
    if let Some(escalation) = &row.escalation {
        plan.deadline = escalation.deadline;
    }
    ApprovalView {
        request: plan,
        state: row.state,
        session_id: row.session_id,
        run_id: row.run_id,
        root: row.root,
        user_id: row.owner.clone(),
        decisions: row.decisions.clone(),
        closed_at: row.closed_at,
        answer: row.answer.clone(),
        escalated_to: row.escalation.map(|escalation| escalation.to),
    }
}

/// The same, redacted.
fn redacted_approval(state: &AppState, row: &ApprovalRow) -> Value {
    state.redactor.redact_value(json!(approval_view(row)))
}

#[derive(Deserialize, IntoParams)]
struct ListApprovalsQuery {
    /// Only those in this state.
    #[param(inline)]
    state: Option<ApprovalState>,
    /// Only this session's, and those of the sessions that work for it.
    #[param(value_type = Option<SessionId>)]
    session_id: Option<String>,
    /// Only those asked before this one.
    #[param(value_type = Option<ApprovalId>)]
    before: Option<String>,
    limit: Option<usize>,
}

/// `GET /agent/approvals`: a page, or those that wait as a stream.
async fn list(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let asked: ListApprovalsQuery = extract::parse_query(&request)?;
    let limit = extract::validate_page_size("limit", asked.limit, PAGE_LIMITS.0, PAGE_LIMITS.1)?;
    let everybodys = caller.0.role >= Role::Approver;
    let query = ApprovalQuery {
        owner: (!everybodys).then(|| caller.0.user.clone()),
        session_id: extract::parse_optional_id::<SessionId>(
            "session_id",
            asked.session_id.as_deref(),
        )?,
        state: asked.state,
        before: extract::parse_optional_id::<ApprovalId>("before", asked.before.as_deref())?,
        limit: limit + 1,
    };
    if extract::accepts_event_stream(&request) {
        return stream_pending(state, caller, query, asked.limit);
    }
    let mut rows = state.runtime.journal.list_approvals(query).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.approval.approval_id);
    let approvals = rows.iter().map(|row| redacted_approval(&state, row)).collect();
    Ok(HttpResponse::Ok().json(ApprovalPage { approvals, next }))
}

/// Those that wait, from now on: the newest `limit`, at most a page as long as there is.
fn stream_pending(
    state: State,
    caller: Caller,
    query: ApprovalQuery,
    limit: Option<usize>,
) -> Result<HttpResponse, Problem> {
    if query.before.is_some() || query.state.is_some_and(|state| state != ApprovalState::Pending) {
        let detail =
            "a stream tells of what waits: it takes no `before`, and no `state` but `pending`";
        return Err(Problem::bad_request("invalid_query", detail));
    }
    let limit = limit.unwrap_or(PAGE_LIMITS.1);
    let wanted = ApprovalQuery { state: Some(ApprovalState::Pending), limit, ..query };
    let heartbeat = state.limits.heartbeat;
    let onlooker = change_source::ApprovalChangeSource::new(state, caller.0, wanted);
    Ok(super::change_stream::stream_changes(onlooker, heartbeat))
}

/// `GET /agent/approvals/{approval_id}`
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let approval_id = extract::path_id(&request, "approval_id")?;
    let row = commands::load_visible_approval(&state, &caller.0, approval_id).await?;
    Ok(HttpResponse::Ok().json(redacted_approval(&state, &row)))
}

/// `POST /agent/approvals/{approval_id}`
async fn answer_approval(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(answer): Json<AnswerRequest>,
) -> Result<HttpResponse, Problem> {
    let approval_id = extract::path_id(&request, "approval_id")?;
    let row = commands::load_visible_approval(&state, &caller.0, approval_id).await?;
    let surface = access_control::resolve_surface(&request, &caller.0)?;
    answer_as_json(&state, &caller.0, &row, answer, surface).await
}

/// Which plan.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PlanBody {
    session_id: SessionId,
    /// The question; `approval_id` says the same.
    #[serde(alias = "approval_id")]
    plan_id: ApprovalId,
    #[serde(default)]
    reason: Option<String>,
}

/// `POST /agent/execute`: approves all that is undecided.
async fn execute(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<PlanBody>,
) -> Result<HttpResponse, Problem> {
    answer_plan(&state, &caller, &request, body, true).await
}

/// `POST /agent/reject`: rejects all that is undecided.
async fn reject(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<PlanBody>,
) -> Result<HttpResponse, Problem> {
    answer_plan(&state, &caller, &request, body, false).await
}

async fn answer_plan(
    state: &AppState,
    caller: &Caller,
    request: &HttpRequest,
    body: PlanBody,
    approve: bool,
) -> Result<HttpResponse, Problem> {
    let row = commands::load_visible_approval(state, &caller.0, body.plan_id).await?;
    let own = RootRun { session_id: row.session_id, run_id: row.run_id };
    let watched = [Some(own), row.root].into_iter().flatten();
    let watched = watched.into_iter().find(|run| run.session_id == body.session_id);
    let RootRun { session_id, run_id } = watched.ok_or_else(Problem::approval_not_found)?;
    let answer = AnswerRequest::for_all_steps(approve, body.reason);
    let surface = access_control::resolve_surface(request, &caller.0)?;
    if !extract::accepts_event_stream(request) {
        return answer_as_json(state, &caller.0, &row, answer, surface).await;
    }
    let dialect = events::parse_dialect(request)?;
    // An approver may answer for a session, not listen to it.
    let session = commands::load_visible_session(state, &caller.0, session_id).await?;
    sse::check_subscriber_limit(state, &session)?;
    let head = state.runtime.journal.load_head(session_id).await?;
    let decided = answers::submit_answer(state, &caller.0, &row, answer, surface).await?;
    let seq = match decided.repeated {
        false => head,
        // The run may have ended since: its rest begins with the first answer.
        true => seq_before_first_answer(state, session_id, body.plan_id).await?,
    };
    let follow = StreamFilter::Run { run_id, until_pause: false };
    Ok(sse::stream_session(state, &session, Cursor::after_seq(seq), follow, dialect))
}

async fn answer_as_json(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    answer: AnswerRequest,
    surface: Surface,
) -> Result<HttpResponse, Problem> {
    let decided = answers::submit_answer(state, principal, row, answer, surface).await?;
    let approval_id = row.approval.approval_id;
    let row = commands::load_visible_approval(state, principal, approval_id).await?;
    Ok(HttpResponse::Ok().json(AnswerResponse {
        session_id: row.session_id,
        run_id: row.run_id,
        plan_id: approval_id,
        approval_id,
        closed: decided.closed,
        repeated: decided.repeated,
        approval: redacted_approval(state, &row),
    }))
}

/// The event before the first answer to the question.
async fn seq_before_first_answer(
    state: &AppState,
    session_id: SessionId,
    wanted: ApprovalId,
) -> Result<Seq, Problem> {
    let mut after = Seq(0);
    loop {
        let page = state.runtime.journal.load_events(session_id, after, LOG_PAGE_EVENTS).await?;
        let Some(last) = page.last() else { return Ok(after) };
        let found = page.iter().find(|record| {
            matches!(record.event.source_event(),
                SessionEvent::ApprovalDecided { approval_id, .. } if *approval_id == wanted)
        });
        if let Some(found) = found {
            return Ok(Seq(found.seq.0 - 1));
        }
        after = last.seq;
    }
}
