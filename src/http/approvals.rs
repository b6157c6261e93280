//! Questions to people, over REST (G8, G11): list, as a page or as a stream of what changes; read,
//! answer; and the two short forms for a whole plan, `execute` and `reject`.

mod changes;

use self::changes::Changes;
use super::{
    AppState, Problem, State, commands,
    decisions::{self, Answer},
    endpoint::{EVENT_STREAM, Endpoint},
    events::{self, DialectQuery},
    follow::Follow,
    guard::{self, Caller, SURFACE},
    problem_codes::{OF_ANSWERS, OF_COMMANDS},
    read::{self, Json},
    sse,
};
use crate::{
    auth::Principal,
    dialect::{Flat, question::Plan},
};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::{limits::LOG_PAGE_EVENTS, ports::ApprovalQuery};
use greenroom_core::{
    Timestamp,
    approval::{Role, StepDecision, Surface, Word},
    cursor::Cursor,
    delegation::Origin,
    ids::{ApprovalId, RunId, Seq, SessionId, UserId},
    session::{ApprovalRow, ApprovalState, SessionEvent},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

/// Questions on a page where the client says nothing, and at most.
const PAGE: (usize, usize) = (50, 200);

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let one = "/agent/approvals/{approval_id}";
    vec![
        Endpoint::get("/agent/approvals", list)
            .named("list_approvals", "Questions, the newest first; or a stream of those that wait.")
            .explained("Approvers and administrators get everybody's, others their own.")
            .query::<ListQuery>()
            .at_most("limit", PAGE)
            .answers::<ApprovalPage>("A page of questions")
            .streams::<Changes>(
                EVENT_STREAM,
                "Those that wait: first all of them, then what changes",
            )
            .problems(&["invalid_id"]),
        Endpoint::get(one, read)
            .named("read_approval", "A question.")
            .answers::<ApprovalView>("The question")
            .problems(&["approval_not_found"]),
        Endpoint::post(one, decide)
            .named("decide_approval", "Answers a question.")
            .explained(
                "The first answer wins. The same answer of the same person again is answered as \
                 the first, with `repeated`; another is 409 with the `first`.",
            )
            .header(SURFACE, "`cli` or `rest`: through what the person answers")
            .body::<Answer>()
            .answers::<Answered>("What became of it")
            .problems(OF_COMMANDS)
            .problems(OF_ANSWERS),
        of_plan(Endpoint::post("/agent/execute", execute))
            .named("execute_plan", "Approves all that is undecided of a plan."),
        of_plan(Endpoint::post("/agent/reject", reject))
            .named("reject_plan", "Rejects all that is undecided of a plan."),
    ]
}

/// What the two short forms have in common.
fn of_plan(endpoint: Endpoint) -> Endpoint {
    endpoint
        .query::<DialectQuery>()
        .header(SURFACE, "`cli` or `rest`: through what the person answers")
        .body::<PlanBody>()
        .answers::<Answered>("What became of it")
        .streams::<Flat>(EVENT_STREAM, "The rest of the run, one frame in each `data:` line")
        .problems(OF_COMMANDS)
        .problems(OF_ANSWERS)
        .problems(&["unknown_dialect", "too_many_subscribers"])
}

/// A question, and what became of it.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
pub(super) struct ApprovalView {
    #[serde(flatten)]
    plan: Plan,
    state: ApprovalState,
    session_id: SessionId,
    run_id: RunId,
    /// The run that people watch, where a child asks (S8).
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<Origin>,
    /// Whose session asks.
    user_id: UserId,
    /// What was said of each step of a plan.
    decisions: Vec<StepDecision>,
    closed_at: Option<Timestamp>,
    /// What was said of a question without steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Word>,
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
struct Answered {
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
pub(super) fn view(row: &ApprovalRow) -> ApprovalView {
    let mut plan = Plan::from(&*row.approval);
    if let Some(escalation) = &row.escalation {
        plan.deadline = escalation.deadline;
    }
    ApprovalView {
        plan,
        state: row.state,
        session_id: row.session_id,
        run_id: row.run_id,
        root: row.root,
        user_id: row.owner.clone(),
        decisions: row.decisions.clone(),
        closed_at: row.closed_at,
        answer: row.word.clone(),
        escalated_to: row.escalation.map(|escalation| escalation.to),
    }
}

/// The same, redacted.
fn redacted(state: &AppState, row: &ApprovalRow) -> Value {
    state.redactor.scrubbed(json!(view(row)))
}

#[derive(Deserialize, IntoParams)]
struct ListQuery {
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
    let asked: ListQuery = read::query(&request)?;
    let limit = read::page_size("limit", asked.limit, PAGE.0, PAGE.1)?;
    let everybodys = caller.0.role >= Role::Approver;
    let query = ApprovalQuery {
        owner: (!everybodys).then(|| caller.0.user.clone()),
        session_id: read::id::<SessionId>("session_id", asked.session_id.as_deref())?,
        state: asked.state,
        before: read::id::<ApprovalId>("before", asked.before.as_deref())?,
        limit: limit + 1,
    };
    if read::wants_stream(&request) {
        return stream(state, caller, query, asked.limit);
    }
    let mut rows = state.runtime.journal.approvals(query).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.approval.approval_id);
    let approvals = rows.iter().map(|row| redacted(&state, row)).collect();
    Ok(HttpResponse::Ok().json(ApprovalPage { approvals, next }))
}

/// Those that wait, from now on: the newest `limit`, at most a page as long as there is.
fn stream(
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
    let limit = limit.unwrap_or(PAGE.1);
    let wanted = ApprovalQuery { state: Some(ApprovalState::Pending), limit, ..query };
    let heartbeat = state.limits.heartbeat;
    let onlooker = changes::Onlooker::new(state, caller.0, wanted);
    Ok(super::changes::respond(onlooker, heartbeat))
}

/// `GET /agent/approvals/{approval_id}`
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let approval_id = read::path_id(&request, "approval_id")?;
    let row = commands::approval_for(&state, &caller.0, approval_id).await?;
    Ok(HttpResponse::Ok().json(redacted(&state, &row)))
}

/// `POST /agent/approvals/{approval_id}`
async fn decide(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(answer): Json<Answer>,
) -> Result<HttpResponse, Problem> {
    let approval_id = read::path_id(&request, "approval_id")?;
    let row = commands::approval_for(&state, &caller.0, approval_id).await?;
    let surface = guard::surface(&request, &caller.0)?;
    answer_in_json(&state, &caller.0, &row, answer, surface).await
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
    decide_whole(&state, &caller, &request, body, true).await
}

/// `POST /agent/reject`: rejects all that is undecided.
async fn reject(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<PlanBody>,
) -> Result<HttpResponse, Problem> {
    decide_whole(&state, &caller, &request, body, false).await
}

async fn decide_whole(
    state: &AppState,
    caller: &Caller,
    request: &HttpRequest,
    body: PlanBody,
    approve: bool,
) -> Result<HttpResponse, Problem> {
    let row = commands::approval_for(state, &caller.0, body.plan_id).await?;
    let own = Origin { session_id: row.session_id, run_id: row.run_id };
    let watched = [Some(own), row.root].into_iter().flatten();
    let watched = watched.into_iter().find(|run| run.session_id == body.session_id);
    let Origin { session_id, run_id } = watched.ok_or_else(Problem::approval_not_found)?;
    let answer = Answer::whole(approve, body.reason);
    let surface = guard::surface(request, &caller.0)?;
    if !read::wants_stream(request) {
        return answer_in_json(state, &caller.0, &row, answer, surface).await;
    }
    let dialect = events::asked_for(request)?;
    // An approver may answer for a session, not listen to it.
    let session = commands::session_for(state, &caller.0, session_id).await?;
    sse::check_room(state, &session)?;
    let head = state.runtime.journal.head(session_id).await?;
    let decided = decisions::decide(state, &caller.0, &row, answer, surface).await?;
    let seq = match decided.repeated {
        false => head,
        // The run may have ended since: its rest begins with the first answer.
        true => last_before_answer(state, session_id, body.plan_id).await?,
    };
    let follow = Follow::Run { run_id, until_pause: false };
    Ok(sse::of_session(state, &session, Cursor::after(seq), follow, dialect))
}

async fn answer_in_json(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    answer: Answer,
    surface: Surface,
) -> Result<HttpResponse, Problem> {
    let decided = decisions::decide(state, principal, row, answer, surface).await?;
    let approval_id = row.approval.approval_id;
    let row = commands::approval_for(state, principal, approval_id).await?;
    Ok(HttpResponse::Ok().json(Answered {
        session_id: row.session_id,
        run_id: row.run_id,
        plan_id: approval_id,
        approval_id,
        closed: decided.closed,
        repeated: decided.repeated,
        approval: redacted(state, &row),
    }))
}

/// The event before the first answer to the question.
async fn last_before_answer(
    state: &AppState,
    session_id: SessionId,
    wanted: ApprovalId,
) -> Result<Seq, Problem> {
    let mut after = Seq(0);
    loop {
        let page = state.runtime.journal.read(session_id, after, LOG_PAGE_EVENTS).await?;
        let Some(last) = page.last() else { return Ok(after) };
        let found = page.iter().find(|record| {
            matches!(record.event.innermost(),
                SessionEvent::ApprovalDecided { approval_id, .. } if *approval_id == wanted)
        });
        if let Some(found) = found {
            return Ok(Seq(found.seq.0 - 1));
        }
        after = last.seq;
    }
}
