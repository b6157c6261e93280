//! Submits gateway requests as messages of sessions, and finds the approval that a client answers.

use super::super::{
    AppState, Problem, approvals,
    commands::{self, CreateSessionRequest, MessageRequest},
    run_log, sse,
    workflows::WorkflowRequest,
};
use crate::{
    auth::{Principal, Role},
    dialect::{
        gateway::{ApprovalSnapshot, FollowedRun, GatewayFrame, approval_messages},
        open_child_calls::OpenChildCalls,
    },
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

/// Number of a user's newest sessions that are searched for the session of a repeated request.
const SESSIONS_SEARCHED: usize = 200;
/// Page size and maximum pages when searching for the approval of a call.
const APPROVALS_SEARCHED: (usize, usize) = (200, 10);
/// Maximum approvals of one session that are sent again.
const RESENT_APPROVALS_MAX: usize = 200;
/// Maximum pages of a log, from its end, that are searched for the start of a run.
const LOG_PAGES_SEARCHED: usize = 40;

/// A `chat.send` request.
pub(super) struct ChatSendRequest {
    pub(super) id: MessageId,
    pub(super) session_id: Option<SessionId>,
    pub(super) content: String,
    pub(super) after: Option<Cursor>,
    pub(super) include_native: bool,
    pub(super) workflow: Option<WorkflowRequest>,
}

/// A request that was submitted, now or earlier.
pub(super) struct SubmittedRequest {
    pub(super) session: SessionRow,
    pub(super) run_id: RunId,
    pub(super) followed_run: FollowedRun,
    /// The calls of the run's child sessions that are open at the cursor.
    pub(super) open_child_calls: OpenChildCalls,
    /// The cursor from which the request is streamed.
    pub(super) cursor: Cursor,
    /// Frames of the session's pending approvals that are not part of the stream.
    pub(super) resent_approvals: Vec<GatewayFrame>,
}

/// Submits the message. Without `session_id`, it goes to the session that belongs to the request's
/// id. `streamed` contains the runs that the client already follows.
pub(super) async fn submit_request(
    state: &AppState,
    principal: &Principal,
    request: ChatSendRequest,
    streamed: Vec<RunId>,
) -> Result<SubmittedRequest, Problem> {
    let ChatSendRequest { id, session_id, content, after, include_native, workflow } = request;
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
    let (run_id, accepted_seq) = (submitted.run_id, submitted.seq);
    let head = state.runtime.journal.load_head(session.session_id).await?;
    let mut approvals = ApprovalSnapshot { head, ..ApprovalSnapshot::default() };
    let mut resent_approvals = Vec::new();
    for row in list_pending(state, session.session_id).await? {
        // An approval of a child session belongs to the run of the root session.
        let own_run = RootRun { session_id: row.session_id, run_id: row.run_id };
        let run = row.root.unwrap_or(own_run);
        if run.run_id == run_id && after.is_none() {
            // The stream starts before this approval and contains it.
            approvals.pending.insert(row.approval.approval_id);
            approvals.decided_calls.extend(row.decisions.iter().map(|decision| decision.call_id));
        } else if run.run_id == run_id || !streamed.contains(&run.run_id) {
            let request_id = match run.run_id == run_id {
                true => id.clone(),
                false => find_request_id(state, run).await?,
            };
            let is_decided =
                |call: &str| row.decisions.iter().any(|step| step.call_id.to_string() == call);
            let view = state.redactor.redact_to_value(&approvals::approval_view(&row));
            let session_id = row.root.map(|_| row.session_id);
            let frame = |message| GatewayFrame { cursor: None, session_id, message };
            let messages = approval_messages(&view, &request_id, is_decided);
            resent_approvals.extend(messages.into_iter().map(frame));
        }
    }
    let agents = &state.runtime.governance().agents;
    let model = agents.get(&session.agent).and_then(|agent| agent.models.first());
    let model = model.cloned().unwrap_or_default();
    let followed_run =
        FollowedRun { request_id: id, accepted_seq, model, include_native, approvals };
    let cursor = after.unwrap_or_else(|| Cursor::after_seq(Seq(accepted_seq.0.saturating_sub(1))));
    let open_child_calls = match after {
        Some(after) => run_log::load_open_child_calls(state, &session, run_id, after.seq).await?,
        None => OpenChildCalls::default(),
    };
    Ok(SubmittedRequest {
        session,
        run_id,
        followed_run,
        open_child_calls,
        cursor,
        resent_approvals,
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

/// Returns the id of the request that started `run`. Searches from the end of the log, where the
/// runs that wait are.
async fn find_request_id(state: &AppState, run: RootRun) -> Result<MessageId, Problem> {
    let journal = &state.runtime.journal;
    let page_size = LOG_PAGE_EVENTS as u64;
    let mut end = journal.load_head(run.session_id).await?.0;
    for _ in 0..LOG_PAGES_SEARCHED {
        let start = end.saturating_sub(page_size);
        let page = journal.load_events(run.session_id, Seq(start), LOG_PAGE_EVENTS).await?;
        let request_id = page.iter().find_map(|record| {
            if let SessionEvent::RunStarted { message_id, .. } = &record.event
                && record.run_id == Some(run.run_id)
            {
                return Some(message_id.clone());
            }
            None
        });
        if let Some(request_id) = request_id {
            return Ok(request_id);
        }
        if start == 0 {
            break;
        }
        end = start;
    }
    // Any id works: an answer is matched by its call.
    Ok(MessageId::from_uuid(run.run_id.0))
}

/// Returns the session that was created for request `id`, or creates it.
///
/// The session's id identifies user and request: its random bits are a digest of both.
async fn find_or_create_session(
    state: &AppState,
    principal: &Principal,
    id: &MessageId,
) -> Result<SessionRow, Problem> {
    // Requests that might belong to the same session are handled one at a time.
    static SESSION_LOCKS: [Mutex<()>; 16] = [const { Mutex::const_new(()) }; 16];
    let digest = Digest::hash_canonical_text(&json!(["gateway request", principal.user, id]));
    let tag = u64::from_be_bytes(std::array::from_fn(|index| digest.as_bytes()[index])) >> 2;
    let _guard = SESSION_LOCKS[tag as usize % SESSION_LOCKS.len()].lock().await;
    let query = SessionQuery {
        owner: Some(principal.user.clone()),
        parent_filter: ParentFilter::Roots,
        before: None,
        limit: SESSIONS_SEARCHED,
    };
    let newest = state.runtime.journal.list_sessions(query).await?;
    let has_tag = |session: &SessionRow| session.session_id.0.as_u64_pair().1 << 2 >> 2 == tag;
    if let Some(session) = newest.into_iter().find(has_tag) {
        return Ok(session);
    }
    let (time, random) = state.runtime.new_id().as_u64_pair();
    let variant = random >> 62 << 62;
    let session_id = SessionId(Uuid::from_u64_pair(time, variant | tag));
    commands::create_session_with_id(state, principal, CreateSessionRequest::default(), session_id)
        .await
}

/// Selects the approval that a client answers.
#[derive(Clone, Copy)]
pub(super) enum ApprovalSelector {
    /// The plan with this call.
    Call(CallId),
    /// The preflight of this run.
    Preflight { session_id: SessionId, run_id: RunId },
}

/// Returns the selected approval, if the principal may answer it. A pending approval takes
/// precedence over a closed one, whose answer then fails with the reason.
pub(super) async fn find_approval(
    state: &AppState,
    principal: &Principal,
    selector: ApprovalSelector,
) -> Result<ApprovalRow, Problem> {
    let session_id = match selector {
        ApprovalSelector::Call(_) => None,
        ApprovalSelector::Preflight { session_id, .. } => Some(session_id),
    };
    let sees_all = principal.role >= Role::Approver;
    let owner = (!sees_all).then(|| principal.user.clone());
    for approval_state in [Some(ApprovalState::Pending), None] {
        let mut before: Option<ApprovalId> = None;
        for _ in 0..APPROVALS_SEARCHED.1 {
            let (owner, limit) = (owner.clone(), APPROVALS_SEARCHED.0);
            let query = ApprovalQuery { owner, session_id, state: approval_state, before, limit };
            let page = state.runtime.journal.list_approvals(query).await?;
            before = page.last().map(|row| row.approval.approval_id);
            let is_last = page.len() < limit;
            let matching = page.into_iter().find(|row| matches_selector(row, selector));
            if let Some(row) = matching.filter(|row| principal.can_answer(row)) {
                return Ok(row);
            }
            if is_last {
                break;
            }
        }
    }
    Err(Problem::approval_not_found())
}

fn matches_selector(row: &ApprovalRow, selector: ApprovalSelector) -> bool {
    match selector {
        ApprovalSelector::Call(call_id) => {
            row.approval.steps().iter().any(|step| step.call_id == call_id)
        }
        ApprovalSelector::Preflight { run_id, .. } => {
            let root_run_id = row.root.map_or(row.run_id, |root| root.run_id);
            root_run_id == run_id && row.approval.kind() == ApprovalKind::Preflight
        }
    }
}
