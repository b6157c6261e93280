//! Requests of the gateway as messages of sessions, and which question a client's word is about.

use super::super::{
    AppState, Problem, approvals,
    commands::{self, CreateSessionRequest, MessageRequest},
    sse,
    workflows::WorkflowRequest,
};
use crate::{
    auth::{Principal, Role},
    dialect::gateway::{ApprovalSnapshot, FollowedRun, GatewayFrame, approval_messages},
};
use greenroom_actors::{
    limits::LOG_PAGE_EVENTS,
    ports::{ApprovalQuery, ParentFilter, SessionQuery},
};
use greenroom_core::{
    approval::ApprovalKind,
    cursor::Cursor,
    delegation::RootRun,
    ids::{ApprovalId, CallId, MessageId, RunId, Seq, SessionId},
    json::Digest,
    session::{ApprovalRow, ApprovalState, SessionEvent, SessionRow},
};
use serde_json::json;
use tokio::sync::Mutex;
use uuid::Uuid;

/// A user's newest sessions among which that of a repeated request is looked for.
const SESSIONS_SEARCHED: usize = 200;
/// Questions on a page, and pages, among which that of a call is looked for.
const APPROVALS_SEARCHED: (usize, usize) = (200, 10);
/// Questions of one session that are asked again.
const RESENT_APPROVALS_MAX: usize = 200;
/// Pages of a log, from its end, on which a run's beginning is looked for.
const LOG_PAGES_SEARCHED: usize = 40;

/// A `chat.send`.
pub(super) struct ChatSendRequest {
    pub(super) id: MessageId,
    pub(super) session_id: Option<SessionId>,
    pub(super) content: String,
    pub(super) after: Option<Cursor>,
    pub(super) include_native: bool,
    pub(super) workflow: Option<WorkflowRequest>,
}

/// A request that was taken, now or before.
pub(super) struct SubmittedRequest {
    pub(super) session: SessionRow,
    pub(super) run_id: RunId,
    pub(super) followed_run: FollowedRun,
    /// Where its stream begins.
    pub(super) cursor: Cursor,
    /// The questions of the session that wait and stand nowhere on the stream.
    pub(super) resent_approvals: Vec<GatewayFrame>,
}

/// Submits the message, to a session of its own if it names none. `streamed` are the runs that the
/// client follows already.
pub(super) async fn submit_request(
    state: &AppState,
    principal: &Principal,
    wish: ChatSendRequest,
    streamed: Vec<RunId>,
) -> Result<SubmittedRequest, Problem> {
    let ChatSendRequest { id, session_id, content, after, include_native: details, workflow } =
        wish;
    let message = MessageRequest {
        message: content,
        message_id: Some(id.clone()),
        on_busy: None,
        preflight: None,
        workflow,
        traceparent: None,
    };
    let session = match session_id {
        Some(session_id) => commands::load_visible_session(state, principal, session_id).await?,
        None => {
            message.validate_first(state).await?;
            find_or_create_session(state, principal, &id).await?
        }
    };
    if let Some(after) = after {
        state.runtime.validate_cursor(session.session_id, after).await?;
    }
    sse::check_subscriber_limit(state, &session)?;
    let submitted = commands::submit_message(state, principal, &session, message).await?;
    let (run_id, taken) = (submitted.run_id, submitted.seq);
    let head = state.runtime.journal.load_head(session.session_id).await?;
    let mut asked = ApprovalSnapshot { head, ..ApprovalSnapshot::default() };
    let mut asked_again = Vec::new();
    for row in list_pending(state, session.session_id).await? {
        // What a child asks is asked in its root's run.
        let own = RootRun { session_id: row.session_id, run_id: row.run_id };
        let asks = row.root.unwrap_or(own);
        if asks.run_id == run_id && after.is_none() {
            // The stream comes past it.
            asked.pending.insert(row.approval.approval_id);
            asked.decided_calls.extend(row.decisions.iter().map(|decision| decision.call_id));
        } else if asks.run_id == run_id || !streamed.contains(&asks.run_id) {
            let request_id = match asks.run_id == run_id {
                true => id.clone(),
                false => find_request_id(state, asks).await?,
            };
            let decided =
                |call: &str| row.decisions.iter().any(|said| said.call_id.to_string() == call);
            let view = state.redactor.redact_value(json!(approvals::approval_view(&row)));
            let session_id = row.root.map(|_| row.session_id);
            let frame = |message| GatewayFrame { cursor: None, session_id, message };
            asked_again
                .extend(approval_messages(&view, &request_id, decided).into_iter().map(frame));
        }
    }
    let agents = &state.runtime.governance().agents;
    let model = agents.get(&session.agent).and_then(|agent| agent.models.first());
    let model = model.cloned().unwrap_or_default();
    let following = FollowedRun {
        request_id: id,
        accepted_seq: taken,
        model,
        include_native: details,
        approvals: asked,
    };
    let cursor = after.unwrap_or_else(|| Cursor::after_seq(Seq(taken.0.saturating_sub(1))));
    Ok(SubmittedRequest {
        session,
        run_id,
        followed_run: following,
        cursor,
        resent_approvals: asked_again,
    })
}

async fn list_pending(
    state: &AppState,
    session_id: SessionId,
) -> Result<Vec<ApprovalRow>, Problem> {
    let query = ApprovalQuery {
        session_id: Some(session_id),
        state: Some(ApprovalState::Pending),
        limit: RESENT_APPROVALS_MAX,
        ..ApprovalQuery::default()
    };
    let mut rows = state.runtime.journal.list_approvals(query).await?;
    rows.reverse();
    Ok(rows)
}

/// The request whose run asks. Runs that wait are near the end of the log.
async fn find_request_id(state: &AppState, asks: RootRun) -> Result<MessageId, Problem> {
    let journal = &state.runtime.journal;
    let page_size = LOG_PAGE_EVENTS as u64;
    let mut end = journal.load_head(asks.session_id).await?.0;
    for _ in 0..LOG_PAGES_SEARCHED {
        let start = end.saturating_sub(page_size);
        let page = journal.load_events(asks.session_id, Seq(start), LOG_PAGE_EVENTS).await?;
        let request = page.iter().find_map(|record| {
            if let SessionEvent::RunStarted { message_id, .. } = &record.event
                && record.run_id == Some(asks.run_id)
            {
                return Some(message_id.clone());
            }
            None
        });
        if let Some(request) = request {
            return Ok(request);
        }
        if start == 0 {
            break;
        }
        end = start;
    }
    // Any name will do: the answer goes by the call.
    Ok(MessageId::from_uuid(asks.run_id.0))
}

/// The session that was made for the request of that id, or is made now.
///
/// Its id says whose it is: the bits that are left to chance come from the user and the request.
async fn find_or_create_session(
    state: &AppState,
    principal: &Principal,
    id: &MessageId,
) -> Result<SessionRow, Problem> {
    // One at a time of those that might be the same.
    static SESSION_LOCKS: [Mutex<()>; 16] = [const { Mutex::const_new(()) }; 16];
    let digest = Digest::hash_json(&json!(["gateway request", principal.user, id]));
    let mark = u64::from_be_bytes(std::array::from_fn(|index| digest.as_bytes()[index])) >> 2;
    let _making = SESSION_LOCKS[mark as usize % SESSION_LOCKS.len()].lock().await;
    let query = SessionQuery {
        owner: Some(principal.user.clone()),
        parent_filter: ParentFilter::Roots,
        before: None,
        limit: SESSIONS_SEARCHED,
    };
    let newest = state.runtime.journal.list_sessions(query).await?;
    let is_marked = |session: &SessionRow| session.session_id.0.as_u64_pair().1 << 2 >> 2 == mark;
    if let Some(session) = newest.into_iter().find(is_marked) {
        return Ok(session);
    }
    let (time, chance) = state.runtime.new_id().as_u64_pair();
    let variant = chance >> 62 << 62;
    let session_id = SessionId(Uuid::from_u64_pair(time, variant | mark));
    commands::create_session_with_id(state, principal, CreateSessionRequest::default(), session_id)
        .await
}

/// Which question a client's word is about.
#[derive(Clone, Copy)]
pub(super) enum ApprovalSelector {
    /// The plan that has this call.
    Call(CallId),
    /// The checklist of this run.
    Preflight { session_id: SessionId, run_id: RunId },
}

/// The question, if it exists and the principal may answer it. One that waits comes before one that
/// was answered, which then says so.
pub(super) async fn find_approval(
    state: &AppState,
    principal: &Principal,
    question: ApprovalSelector,
) -> Result<ApprovalRow, Problem> {
    let session_id = match question {
        ApprovalSelector::Call(_) => None,
        ApprovalSelector::Preflight { session_id, .. } => Some(session_id),
    };
    let everybodys = principal.role >= Role::Approver;
    let owner = (!everybodys).then(|| principal.user.clone());
    for wanted in [Some(ApprovalState::Pending), None] {
        let mut before: Option<ApprovalId> = None;
        for _ in 0..APPROVALS_SEARCHED.1 {
            let (owner, limit) = (owner.clone(), APPROVALS_SEARCHED.0);
            let query = ApprovalQuery { owner, session_id, state: wanted, before, limit };
            let page = state.runtime.journal.list_approvals(query).await?;
            before = page.last().map(|row| row.approval.approval_id);
            let is_last = page.len() < limit;
            let found = page.into_iter().find(|row| is_about(row, question));
            if let Some(row) = found.filter(|row| principal.can_answer(row)) {
                return Ok(row);
            }
            if is_last {
                break;
            }
        }
    }
    Err(Problem::approval_not_found())
}

fn is_about(row: &ApprovalRow, question: ApprovalSelector) -> bool {
    match question {
        ApprovalSelector::Call(call_id) => {
            row.approval.steps().iter().any(|step| step.call_id == call_id)
        }
        ApprovalSelector::Preflight { run_id, .. } => {
            let asks = row.root.map_or(row.run_id, |root| root.run_id);
            asks == run_id && row.approval.kind() == ApprovalKind::Preflight
        }
    }
}
