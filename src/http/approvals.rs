//! Questions to people, over REST (G8, G11): list, as a page or as a stream of what changes; read,
//! answer; and the two short forms for a whole plan, `execute` and `reject`.

mod changes;

use super::{
    AppState, Problem, State, commands,
    decisions::{self, Answer},
    events,
    follow::Follow,
    guard::{self, Caller},
    read::{self, Json},
    sse,
};
use crate::{
    auth::{Principal, Role},
    dialect::agent,
    redaction::Redactor,
};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::{limits::LOG_PAGE_EVENTS, ports::ApprovalQuery};
use greenroom_core::{
    approval::Surface,
    cursor::Cursor,
    ids::{ApprovalId, Seq, SessionId},
    session::{ApprovalRow, ApprovalState, SessionEvent},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Questions on a page where the client says nothing, and at most.
const PAGE: (usize, usize) = (50, 200);

/// A question as clients see it.
pub(super) fn view(row: &ApprovalRow, redactor: &Redactor) -> Value {
    let mut view = agent::plan(&row.approval);
    for (name, value) in [
        ("state", json!(row.state)),
        ("session_id", json!(row.session_id)),
        ("run_id", json!(row.run_id)),
        ("user_id", json!(row.owner)),
        ("decisions", json!(row.decisions)),
        ("closed_at", json!(row.closed_at)),
    ] {
        view[name] = value;
    }
    if let Some(word) = &row.word {
        view["answer"] = json!(word);
    }
    if let Some(escalation) = &row.escalation {
        view["escalated_to"] = json!(escalation.to);
        view["deadline"] = json!(escalation.deadline);
    }
    redactor.scrubbed(view)
}

#[derive(Deserialize)]
struct ListQuery {
    state: Option<ApprovalState>,
    session_id: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
}

/// `GET /agent/approvals`: a page, or those that wait as a stream.
pub(super) async fn list(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let asked: ListQuery = read::query(&request)?;
    let limit = read::page_size(asked.limit, PAGE.0, PAGE.1)?;
    let everybodys = caller.0.role >= Role::Approver;
    let query = ApprovalQuery {
        owner: (!everybodys).then(|| caller.0.user.clone()),
        session_id: asked.session_id.as_deref().map(str::parse::<SessionId>).transpose()?,
        state: asked.state,
        before: asked.before.as_deref().map(str::parse::<ApprovalId>).transpose()?,
        limit: limit + 1,
    };
    if read::wants_stream(&request) {
        return stream(state, caller, query, asked.limit);
    }
    let mut rows = state.runtime.journal.approvals(query).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.approval.approval_id);
    let approvals: Vec<_> = rows.iter().map(|row| view(row, &state.redactor)).collect();
    Ok(HttpResponse::Ok().json(json!({"approvals": approvals, "next": next})))
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
pub(super) async fn read(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let approval_id = read::path_id(&request, "approval_id")?;
    let row = commands::approval_for(&state, &caller.0, approval_id).await?;
    Ok(HttpResponse::Ok().json(view(&row, &state.redactor)))
}

/// `POST /agent/approvals/{approval_id}`
pub(super) async fn decide(
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

#[derive(Deserialize)]
pub(super) struct PlanBody {
    session_id: SessionId,
    #[serde(alias = "approval_id")]
    plan_id: ApprovalId,
    #[serde(default)]
    reason: Option<String>,
}

/// `POST /agent/execute`: approves all that is undecided.
pub(super) async fn execute(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<PlanBody>,
) -> Result<HttpResponse, Problem> {
    decide_whole(&state, &caller, &request, body, true).await
}

/// `POST /agent/reject`: rejects all that is undecided.
pub(super) async fn reject(
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
    if row.session_id != body.session_id {
        return Err(Problem::approval_not_found());
    }
    let answer = Answer::whole(approve, body.reason);
    let surface = guard::surface(request, &caller.0)?;
    if !read::wants_stream(request) {
        return answer_in_json(state, &caller.0, &row, answer, surface).await;
    }
    let dialect = events::asked_for(request)?;
    // An approver may answer for a session, not listen to it.
    let session = commands::session_for(state, &caller.0, row.session_id).await?;
    sse::check_room(state, &session)?;
    let head = state.runtime.journal.head(row.session_id).await?;
    let decided = decisions::decide(state, &caller.0, &row, answer, surface).await?;
    let seq = match decided.repeated {
        false => head,
        // The run may have ended since: its rest begins with the first answer.
        true => last_before_answer(state, &row).await?,
    };
    let follow = Follow::Run { run_id: row.run_id, until_pause: false };
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
    Ok(HttpResponse::Ok().json(json!({
        "session_id": row.session_id,
        "run_id": row.run_id,
        "plan_id": approval_id,
        "approval_id": approval_id,
        "closed": decided.closed,
        "repeated": decided.repeated,
        "approval": view(&row, &state.redactor),
    })))
}

/// The event before the first answer to the question.
async fn last_before_answer(state: &AppState, row: &ApprovalRow) -> Result<Seq, Problem> {
    let wanted = row.approval.approval_id;
    let mut after = Seq(0);
    loop {
        let page = state.runtime.journal.read(row.session_id, after, LOG_PAGE_EVENTS).await?;
        let Some(last) = page.last() else { return Ok(after) };
        let found = page.iter().find(|record| {
            matches!(record.event,
                SessionEvent::ApprovalDecided { approval_id, .. } if approval_id == wanted)
        });
        if let Some(found) = found {
            return Ok(Seq(found.seq.0 - 1));
        }
        after = last.seq;
    }
}
