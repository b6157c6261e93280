//! Finds the approval that a client answers, also on a connection that does not stream its run.

use super::{
    super::{AppState, Problem, commands},
    requests, targets,
};
use crate::{auth::Principal, dialect::gateway::request_id::is_message_of};
use greenroom_actors::ports::ApprovalQuery;
use greenroom_core::{
    approval::ApprovalKind,
    delegation::RootRun,
    ids::{ApprovalId, CallId, MessageId, SessionId},
    session::{ApprovalRow, ApprovalState},
};

/// Page size of a search.
const PAGE_ROWS: usize = 200;

/// Returns the approval of a call, if the principal may answer it. A pending approval takes
/// precedence over a closed one, whose answer then fails with the reason.
pub(super) async fn find_approval_of_call(
    state: &AppState,
    principal: &Principal,
    call_id: CallId,
) -> Result<ApprovalRow, Problem> {
    let mut rows = state.runtime.journal.list_approvals_of_call(call_id).await?;
    rows.retain(|row| principal.can_answer(row));
    let pending = rows.iter().position(|row| row.state == ApprovalState::Pending);
    match rows.into_iter().nth(pending.unwrap_or(0)) {
        Some(row) => Ok(row),
        None => Err(Problem::approval_not_found()),
    }
}

/// Identifies the preflight that a client answers.
pub(super) struct PreflightSelector {
    pub(super) request_id: MessageId,
    pub(super) approval_id: Option<ApprovalId>,
    /// The run of the request, if the connection has submitted it.
    pub(super) run: Option<RootRun>,
    /// The sessions of the connection's requests.
    pub(super) sessions: Vec<SessionId>,
}

/// Returns the selected preflight, if the principal may answer it. A pending one takes precedence
/// over a closed one, whose answer then fails with the reason.
pub(super) async fn find_preflight(
    state: &AppState,
    principal: &Principal,
    selector: PreflightSelector,
) -> Result<ApprovalRow, Problem> {
    let PreflightSelector { request_id, approval_id, mut run, sessions } = selector;
    if let Some(approval_id) = approval_id {
        return commands::load_visible_approval(state, principal, approval_id).await;
    }
    if run.is_none()
        && let Some(stored) = targets::find_request(state, principal, &request_id).await?
    {
        let session_id = stored.session_id;
        let run_id = requests::find_run_of_request(state, session_id, &request_id).await?;
        run = run_id.map(|run_id| RootRun { session_id, run_id });
    }
    let of_run = |row: &ApprovalRow| Some(root_run(row)) == run;
    let run_session = run.map(|run| run.session_id);
    if let Some(session_id) = run_session {
        let query = in_session(session_id, Some(ApprovalState::Pending));
        let pending = list_preflights(state, principal, query).await?;
        if let Some(row) = pending.into_iter().find(of_run) {
            return Ok(row);
        }
    }
    // Another request with the same id, of another connection.
    if let Some(row) = find_pending(state, principal, &request_id, &sessions).await? {
        return Ok(row);
    }
    if let Some(session_id) = run_session {
        let closed = list_preflights(state, principal, in_session(session_id, None)).await?;
        if let Some(row) = closed.into_iter().find(of_run) {
            return Ok(row);
        }
    }
    Err(Problem::approval_not_found())
}

/// Returns the pending preflight of a request with this id, in `sessions` or in any session of the
/// principal.
async fn find_pending(
    state: &AppState,
    principal: &Principal,
    request_id: &MessageId,
    sessions: &[SessionId],
) -> Result<Option<ApprovalRow>, Problem> {
    let pending = Some(ApprovalState::Pending);
    let own = ApprovalQuery {
        owner: Some(principal.user.clone()),
        state: pending,
        ..ApprovalQuery::default()
    };
    let queries = sessions.iter().map(|session_id| in_session(*session_id, pending));
    let mut matching: Vec<ApprovalRow> = Vec::new();
    for query in queries.chain([own]) {
        for row in list_preflights(state, principal, query).await? {
            let approval_id = row.approval.approval_id;
            let is_new = matching.iter().all(|row| row.approval.approval_id != approval_id);
            let message_id = requests::find_request_id(state, root_run(&row)).await?;
            if is_new && is_message_of(&message_id, request_id) {
                matching.push(row);
            }
        }
    }
    if matching.len() > 1 {
        let count = matching.len();
        let detail = format!(
            "`requestId`: {count} requests `{request_id}` wait for approval; name one with \
             `approvalId`"
        );
        return Err(Problem::invalid("requestId", detail));
    }
    Ok(matching.pop())
}

fn in_session(session_id: SessionId, state: Option<ApprovalState>) -> ApprovalQuery {
    ApprovalQuery { session_id: Some(session_id), state, ..ApprovalQuery::default() }
}

/// Returns the run at the root of the approval's session tree.
fn root_run(row: &ApprovalRow) -> RootRun {
    row.root.unwrap_or(RootRun { session_id: row.session_id, run_id: row.run_id })
}

/// Returns all preflights of the query that the principal may answer, newest first.
async fn list_preflights(
    state: &AppState,
    principal: &Principal,
    mut query: ApprovalQuery,
) -> Result<Vec<ApprovalRow>, Problem> {
    query.limit = PAGE_ROWS;
    let mut preflights = Vec::new();
    loop {
        let page = state.runtime.journal.list_approvals(query.clone()).await?;
        query.before = page.last().map(|row| row.approval.approval_id);
        let is_last = page.len() < PAGE_ROWS;
        preflights.extend(page.into_iter().filter(|row| {
            row.approval.kind() == ApprovalKind::Preflight && principal.can_answer(row)
        }));
        if is_last {
            return Ok(preflights);
        }
    }
}
