//! Submits gateway requests as messages of sessions, and finds their runs in the log.

use super::{
    super::{
        AppState, Problem, approvals,
        commands::{self, MessageRequest, SubmittedMessage},
        run_log, sse, workflows,
    },
    targets::{self, KnownRequest, RequestTarget},
};
use crate::{
    auth::Principal,
    dialect::{
        gateway::{
            ApprovalSnapshot, ChatSend, FollowedRun, GatewayFrame, approval_messages,
            request_id::is_message_of,
        },
        open_child_calls::OpenChildCalls,
    },
};
use greenroom_actors::{limits::LOG_PAGE_EVENTS, ports::ApprovalQuery};
use greenroom_core::{
    cursor::Cursor,
    delegation::RootRun,
    ids::{MessageId, RunId, Seq, SessionId},
    session::{ApprovalRow, ApprovalState, EventRecord, SessionEvent, SessionRow},
};

/// Maximum approvals of one session that are sent again.
const RESENT_APPROVALS_MAX: usize = 200;
/// Maximum pages of a log, from its end, that are searched for a run.
const LOG_PAGES_SEARCHED: usize = 40;

/// The code of the problem of a message whose id another message of the session has.
const REUSED_ID: &str = "message_id_reused";

/// A `chat.send` request with the state of its connection.
pub(super) struct ChatSendRequest {
    pub(super) send: Box<ChatSend>,
    /// The request with this id that the connection has submitted.
    pub(super) known: Option<KnownRequest>,
    /// The runs that the client already follows.
    pub(super) streamed: Vec<RunId>,
    pub(super) include_native: bool,
}

/// A request that was submitted, now or earlier.
pub(super) struct SubmittedRequest {
    pub(super) session: SessionRow,
    pub(super) request: KnownRequest,
    pub(super) followed_run: FollowedRun,
    /// The calls of the run's child sessions that are open at the cursor.
    pub(super) open_child_calls: OpenChildCalls,
    /// The cursor from which the request is streamed.
    pub(super) cursor: Cursor,
    /// Frames of the session's pending approvals that are not part of the stream.
    pub(super) resent_approvals: Vec<GatewayFrame>,
}

/// Submits the message of a request, or attaches to the run of the request that it repeats.
pub(super) async fn submit_request(
    state: &AppState,
    principal: &Principal,
    request: ChatSendRequest,
) -> Result<SubmittedRequest, Problem> {
    let ChatSendRequest { mut send, known, streamed, include_native } = request;
    let message = MessageRequest {
        message: std::mem::take(&mut send.content),
        message_id: None,
        on_busy: None,
        preflight: send.preflight,
        workflow: send.workflow.take().map(workflows::parse_workflow).transpose()?,
        traceparent: None,
    };
    MessageRequest::validate_text(state, "content", &message.message)?;
    let digest = targets::request_digest(&message, send.agent.as_ref(), send.autonomy_level);
    let target = targets::resolve_target(state, principal, &send, &message, digest, known).await?;
    let (id, after) = (send.id, send.after);
    let session = target.session.clone();
    if let Some(after) = after {
        state.runtime.validate_cursor(session.session_id, after).await?;
    }
    sse::check_subscriber_limit(state, &session)?;
    let submitted = submit_message(state, principal, &id, target, message).await?;
    let SubmittedMessage { message_id, run_id, seq: accepted_seq, .. } = submitted;
    let request = KnownRequest { session_id: session.session_id, run_id, message_id, digest };
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
        request,
        followed_run,
        open_child_calls,
        cursor,
        resent_approvals,
    })
}

/// Submits the message under the id of its request, or under the alternative id if another message of
/// the session has that id.
async fn submit_message(
    state: &AppState,
    principal: &Principal,
    id: &MessageId,
    target: RequestTarget,
    mut message: MessageRequest,
) -> Result<SubmittedMessage, Problem> {
    let RequestTarget { session, message_id, alternative_id } = target;
    message.message_id = Some(message_id);
    let alternative =
        alternative_id.map(|id| MessageRequest { message_id: Some(id), ..message.clone() });
    let submitted = commands::submit_message(state, principal, &session, message).await;
    match (submitted, alternative) {
        (Err(problem), Some(alternative)) if problem.code == REUSED_ID => {
            commands::submit_message(state, principal, &session, alternative).await
        }
        (Err(problem), None) if problem.code == REUSED_ID => {
            Err(targets::reused_id(id, "other content"))
        }
        (submitted, _) => submitted,
    }
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

/// Returns the id of the request that started `run`.
pub(super) async fn find_request_id(state: &AppState, run: RootRun) -> Result<MessageId, Problem> {
    let request_id = find_in_log(state, run.session_id, |record| {
        if let SessionEvent::RunStarted { message_id, .. } = &record.event
            && record.run_id == Some(run.run_id)
        {
            return Some(message_id.clone());
        }
        None
    });
    // Any id works: an answer is matched by its call.
    Ok(request_id.await?.unwrap_or_else(|| MessageId::from_uuid(run.run_id.0)))
}

/// Returns the newest run of the request with this id in the session.
pub(super) async fn find_run_of_request(
    state: &AppState,
    session_id: SessionId,
    request_id: &MessageId,
) -> Result<Option<RunId>, Problem> {
    find_in_log(state, session_id, |record| {
        if let SessionEvent::RunStarted { message_id, .. }
        | SessionEvent::MessageQueued { message_id, .. } = &record.event
            && is_message_of(message_id, request_id)
        {
            return record.run_id;
        }
        None
    })
    .await
}

/// Searches the log from its end, where the runs that wait are.
async fn find_in_log<T>(
    state: &AppState,
    session_id: SessionId,
    find: impl Fn(&EventRecord) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let journal = &state.runtime.journal;
    let page_size = LOG_PAGE_EVENTS as u64;
    let mut end = journal.load_head(session_id).await?.0;
    for _ in 0..LOG_PAGES_SEARCHED {
        let start = end.saturating_sub(page_size);
        let page = journal.load_events(session_id, Seq(start), LOG_PAGE_EVENTS).await?;
        let matched = page.iter().rev().find_map(&find);
        if matched.is_some() || start == 0 {
            return Ok(matched);
        }
        end = start;
    }
    Ok(None)
}
