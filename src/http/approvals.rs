//! Approvals over REST (G8, G11): a list as a page or as a stream of changes, reading and answering
//! one approval, and the two short forms for a whole plan, `execute` and `reject`.

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
    run_log,
    sse::{self, RunStream},
};
use crate::{
    auth::Principal,
    dialect::{
        Dialect, FlatFrame, approval_request::ApprovalRequestView, open_child_calls::OpenChildCalls,
    },
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
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Default and maximum number of approvals on a page.
const PAGE_LIMITS: (usize, usize) = (50, 200);

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let item_path = "/agent/approvals/{approval_id}";
    vec![
        Endpoint::get("/agent/approvals", list)
            .operation(
                "list_approvals",
                "Lists approvals, newest first, or streams the pending ones.",
            )
            .description("Approvers and administrators see all approvals, other users their own.")
            .query::<ListApprovalsQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .returns::<ApprovalPage>("A page of approvals")
            .returns_stream::<ApprovalChanges>(
                EVENT_STREAM,
                "First all pending approvals, then the changes",
            )
            .problems(&["invalid_id"]),
        Endpoint::get(item_path, read)
            .operation("read_approval", "Returns an approval.")
            .returns::<ApprovalView>("The approval")
            .problems(&["approval_not_found"]),
        Endpoint::post(item_path, answer_approval)
            .operation("decide_approval", "Answers an approval.")
            .description(
                "The first answer wins. Repeating the same answer as the same user returns the \
                 first result with `repeated`; a different answer is rejected with 409, which \
                 contains the `first` answer.",
            )
            .header(SURFACE_HEADER, "The surface of the answer: `cli` or `rest`")
            .body::<AnswerRequest>()
            .returns::<AnswerResponse>("The outcome of the answer")
            .problems(COMMAND_PROBLEMS)
            .problems(ANSWER_PROBLEMS),
        plan_endpoint(Endpoint::post("/agent/execute", execute))
            .operation("execute_plan", "Approves all undecided steps of a plan."),
        plan_endpoint(Endpoint::post("/agent/reject", reject))
            .operation("reject_plan", "Rejects all undecided steps of a plan."),
    ]
}

/// Adds the description that `execute` and `reject` have in common.
fn plan_endpoint(endpoint: Endpoint) -> Endpoint {
    endpoint
        .query::<DialectQuery>()
        .header(SURFACE_HEADER, "The surface of the answer: `cli` or `rest`")
        .body::<PlanBody>()
        .returns::<AnswerResponse>("The outcome of the answer")
        .returns_stream::<FlatFrame>(
            EVENT_STREAM,
            "The rest of the run, one frame per `data:` line",
        )
        .problems(COMMAND_PROBLEMS)
        .problems(ANSWER_PROBLEMS)
        .problems(&["unknown_dialect", "too_many_subscribers"])
}

/// An approval with its state and answer.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
pub(super) struct ApprovalView {
    #[serde(flatten)]
    request: ApprovalRequestView,
    state: ApprovalState,
    session_id: SessionId,
    run_id: RunId,
    /// The run of the root session, if a child session requested the approval (S8).
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<RootRun>,
    /// The owner of the session.
    user_id: UserId,
    /// The decisions on the steps of a plan.
    decisions: Vec<PlanStepDecision>,
    /// The time at which the approval was closed.
    closed_at: Option<Timestamp>,
    /// The answer to an approval without steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<RecordedAnswer>,
    /// The role to which the approval was escalated after its first deadline. `deadline` is then
    /// the deadline of that role.
    #[serde(skip_serializing_if = "Option::is_none")]
    escalated_to: Option<Role>,
}

/// A page of approvals.
#[derive(Serialize, ToSchema)]
struct ApprovalPage {
    /// The approvals, newest first.
    #[schema(value_type = Vec<ApprovalView>)]
    approvals: Vec<Value>,
    /// The value of `before` for the next page; `null` on the last page.
    next: Option<ApprovalId>,
}

/// The outcome of an answer.
#[derive(Serialize, ToSchema)]
struct AnswerResponse {
    session_id: SessionId,
    run_id: RunId,
    /// Same as `approval_id`.
    plan_id: ApprovalId,
    approval_id: ApprovalId,
    /// True if the approval has no undecided step left.
    closed: bool,
    /// True if the same answer was given before.
    repeated: bool,
    /// The approval after the answer.
    #[schema(value_type = ApprovalView)]
    approval: Value,
}

/// Returns the client's view of an approval, not yet redacted.
pub(super) fn approval_view(row: &ApprovalRow) -> ApprovalView {
    let mut request = ApprovalRequestView::from(&*row.approval);
    if let Some(escalation) = &row.escalation {
        request.deadline = escalation.deadline;
    }
    ApprovalView {
        request,
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

/// Returns the client's view of an approval, redacted.
fn redacted_approval(state: &AppState, row: &ApprovalRow) -> Value {
    state.redactor.redact_to_value(&approval_view(row))
}

#[derive(Deserialize, IntoParams)]
pub(super) struct ListApprovalsQuery {
    /// Only approvals in this state.
    #[param(inline)]
    state: Option<ApprovalState>,
    /// Only approvals of this session and of its child sessions.
    #[param(value_type = Option<SessionId>)]
    session_id: Option<String>,
    /// Only approvals that were requested before this one.
    #[param(value_type = Option<ApprovalId>)]
    before: Option<String>,
    /// Maximum number of approvals.
    limit: Option<usize>,
}

/// `GET /agent/approvals`: a page, or a stream of the pending approvals.
async fn list(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let params: ListApprovalsQuery = extract::parse_query(&request)?;
    let limit = extract::validate_page_size("limit", params.limit, PAGE_LIMITS.0, PAGE_LIMITS.1)?;
    let sees_all = caller.0.role >= Role::Approver;
    let query = ApprovalQuery {
        owner: (!sees_all).then(|| caller.0.user.clone()),
        session_id: extract::parse_optional_id::<SessionId>(
            "session_id",
            params.session_id.as_deref(),
        )?,
        state: params.state,
        before: extract::parse_optional_id::<ApprovalId>("before", params.before.as_deref())?,
        limit: limit + 1,
    };
    if extract::accepts_event_stream(&request) {
        return stream_pending(state, caller, query, params.limit);
    }
    let mut rows = state.runtime.journal.list_approvals(query).await?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| row.approval.approval_id);
    let approvals = rows.iter().map(|row| redacted_approval(&state, row)).collect();
    Ok(HttpResponse::Ok().json(ApprovalPage { approvals, next }))
}

/// Streams the newest `limit` pending approvals and their changes; by default a full page.
fn stream_pending(
    state: State,
    caller: Caller,
    query: ApprovalQuery,
    limit: Option<usize>,
) -> Result<HttpResponse, Problem> {
    if query.before.is_some() || query.state.is_some_and(|state| state != ApprovalState::Pending) {
        let detail = "a stream contains pending approvals only: it takes no `before`, and no \
                      `state` other than `pending`";
        return Err(Problem::bad_request("invalid_query", detail));
    }
    let limit = limit.unwrap_or(PAGE_LIMITS.1);
    let query = ApprovalQuery { state: Some(ApprovalState::Pending), limit, ..query };
    let heartbeat = state.limits.heartbeat;
    let source = change_source::ApprovalChangeSource::new(state, caller.0, query);
    Ok(super::change_stream::stream_changes(source, heartbeat))
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

/// Identifies a plan and gives the reason of its answer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanBody {
    /// The session that shows the plan: its own session or the root session.
    session_id: SessionId,
    /// The approval of the plan. `approval_id` is an alias.
    #[serde(alias = "approval_id")]
    plan_id: ApprovalId,
    /// The reason, shown to the model and in the record.
    #[serde(default)]
    reason: Option<String>,
}

/// `POST /agent/execute`: approves all undecided steps.
async fn execute(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<PlanBody>,
) -> Result<HttpResponse, Problem> {
    answer_plan(&state, &caller, &request, body, true).await
}

/// `POST /agent/reject`: rejects all undecided steps.
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
    let own_run = RootRun { session_id: row.session_id, run_id: row.run_id };
    let runs = [Some(own_run), row.root].into_iter().flatten();
    let run = runs.into_iter().find(|run| run.session_id == body.session_id);
    let RootRun { session_id, run_id } = run.ok_or_else(Problem::approval_not_found)?;
    let answer = AnswerRequest::for_all_steps(approve, body.reason);
    let surface = access_control::resolve_surface(request, &caller.0)?;
    if !extract::accepts_event_stream(request) {
        return answer_as_json(state, &caller.0, &row, answer, surface).await;
    }
    let dialect = events::parse_dialect(request)?;
    // An approver may answer the approvals of a session without the right to read its events.
    let session = commands::load_visible_session(state, &caller.0, session_id).await?;
    sse::check_subscriber_limit(state, &session)?;
    let head = state.runtime.journal.load_head(session_id).await?;
    let outcome = answers::submit_answer(state, &caller.0, &row, answer, surface).await?;
    let seq = match outcome.repeated {
        false => head,
        // The run may have ended since: the rest of the run starts at the first answer.
        true => seq_before_first_answer(state, session_id, body.plan_id).await?,
    };
    let open_child_calls = match dialect {
        Dialect::Agent => OpenChildCalls::default(),
        Dialect::Task => run_log::load_open_child_calls(state, &session, run_id, seq).await?,
    };
    let cursor = Cursor::after_seq(seq);
    let run = RunStream { run_id, until_pause: false, cursor, open_child_calls };
    Ok(sse::stream_run(state, &session, run, dialect))
}

async fn answer_as_json(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    answer: AnswerRequest,
    surface: Surface,
) -> Result<HttpResponse, Problem> {
    let outcome = answers::submit_answer(state, principal, row, answer, surface).await?;
    let approval_id = row.approval.approval_id;
    let row = commands::load_visible_approval(state, principal, approval_id).await?;
    Ok(HttpResponse::Ok().json(AnswerResponse {
        session_id: row.session_id,
        run_id: row.run_id,
        plan_id: approval_id,
        approval_id,
        closed: outcome.closed,
        repeated: outcome.repeated,
        approval: redacted_approval(state, &row),
    }))
}

/// Returns the number of the event before the first answer to the approval.
async fn seq_before_first_answer(
    state: &AppState,
    session_id: SessionId,
    approval_id: ApprovalId,
) -> Result<Seq, Problem> {
    let mut after = Seq(0);
    loop {
        let page = state.runtime.journal.load_events(session_id, after, LOG_PAGE_EVENTS).await?;
        let Some(last) = page.last() else { return Ok(after) };
        let first_answer = page.iter().find(|record| {
            matches!(record.event.source_event(),
                SessionEvent::ApprovalDecided { approval_id: id, .. } if *id == approval_id)
        });
        if let Some(first_answer) = first_answer {
            return Ok(Seq(first_answer.seq.0 - 1));
        }
        after = last.seq;
    }
}
