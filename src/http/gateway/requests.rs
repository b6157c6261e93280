//! Requests of the gateway as messages of sessions, and which question a client's word is about.

use super::super::{
    AppState, Problem, approvals,
    commands::{self, CreateSession, Message},
    sse,
    workflows::WorkflowWish,
};
use crate::{
    auth::{Principal, Role},
    dialect::gateway::{Asked, Following, Frame, question},
};
use greenroom_actors::{
    limits::LOG_PAGE_EVENTS,
    ports::{ApprovalQuery, Descent, SessionQuery},
};
use greenroom_core::{
    approval::ApprovalKind,
    cursor::Cursor,
    delegation::Origin,
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
const ASKED_AGAIN_MAX: usize = 200;
/// Pages of a log, from its end, on which a run's beginning is looked for.
const LOG_PAGES_SEARCHED: usize = 40;

/// A `chat.send`.
pub(super) struct Wish {
    pub(super) id: MessageId,
    pub(super) session_id: Option<SessionId>,
    pub(super) content: String,
    pub(super) after: Option<Cursor>,
    pub(super) details: bool,
    pub(super) workflow: Option<WorkflowWish>,
}

/// A request that was taken, now or before.
pub(super) struct Sent {
    pub(super) session: SessionRow,
    pub(super) run_id: RunId,
    pub(super) following: Following,
    /// Where its stream begins.
    pub(super) cursor: Cursor,
    /// The questions of the session that wait and stand nowhere on the stream.
    pub(super) asked_again: Vec<Frame>,
}

/// Submits the message, to a session of its own if it names none. `streamed` are the runs that the
/// client follows already.
pub(super) async fn send(
    state: &AppState,
    principal: &Principal,
    wish: Wish,
    streamed: Vec<RunId>,
) -> Result<Sent, Problem> {
    let Wish { id, session_id, content, after, details, workflow } = wish;
    let message = Message {
        message: content,
        message_id: Some(id.clone()),
        on_busy: None,
        preflight: None,
        workflow,
        traceparent: None,
    };
    let session = match session_id {
        Some(session_id) => commands::session_for(state, principal, session_id).await?,
        None => {
            message.check_new(state).await?;
            session_of(state, principal, &id).await?
        }
    };
    if let Some(after) = after {
        state.runtime.check_cursor(session.session_id, after).await?;
    }
    sse::check_room(state, &session)?;
    let submitted = commands::submit(state, principal, &session, message).await?;
    let (run_id, taken) = (submitted.run_id, submitted.seq);
    let head = state.runtime.journal.head(session.session_id).await?;
    let mut asked = Asked { head, ..Asked::default() };
    let mut asked_again = Vec::new();
    for row in waiting(state, session.session_id).await? {
        // What a child asks is asked in its root's run.
        let own = Origin { session_id: row.session_id, run_id: row.run_id };
        let asks = row.root.unwrap_or(own);
        if asks.run_id == run_id && after.is_none() {
            // The stream comes past it.
            asked.waiting.insert(row.approval.approval_id);
            asked.decided.extend(row.decisions.iter().map(|decision| decision.call_id));
        } else if asks.run_id == run_id || !streamed.contains(&asks.run_id) {
            let request_id = match asks.run_id == run_id {
                true => id.clone(),
                false => request_of(state, asks).await?,
            };
            let decided =
                |call: &str| row.decisions.iter().any(|said| said.call_id.to_string() == call);
            let view = state.redactor.scrubbed(json!(approvals::view(&row)));
            let session_id = row.root.map(|_| row.session_id);
            let frame = |message| Frame { cursor: None, session_id, message };
            asked_again.extend(question(&view, &request_id, decided).into_iter().map(frame));
        }
    }
    let agents = &state.runtime.governance().agents;
    let model = agents.get(&session.agent).and_then(|agent| agent.models.first());
    let model = model.cloned().unwrap_or_default();
    let following = Following { request_id: id, taken, model, details, asked };
    let cursor = after.unwrap_or_else(|| Cursor::after(Seq(taken.0.saturating_sub(1))));
    Ok(Sent { session, run_id, following, cursor, asked_again })
}

async fn waiting(state: &AppState, session_id: SessionId) -> Result<Vec<ApprovalRow>, Problem> {
    let query = ApprovalQuery {
        session_id: Some(session_id),
        state: Some(ApprovalState::Pending),
        limit: ASKED_AGAIN_MAX,
        ..ApprovalQuery::default()
    };
    let mut rows = state.runtime.journal.approvals(query).await?;
    rows.reverse();
    Ok(rows)
}

/// The request whose run asks. Runs that wait are near the end of the log.
async fn request_of(state: &AppState, asks: Origin) -> Result<MessageId, Problem> {
    let journal = &state.runtime.journal;
    let page_size = LOG_PAGE_EVENTS as u64;
    let mut end = journal.head(asks.session_id).await?.0;
    for _ in 0..LOG_PAGES_SEARCHED {
        let start = end.saturating_sub(page_size);
        let page = journal.read(asks.session_id, Seq(start), LOG_PAGE_EVENTS).await?;
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
async fn session_of(
    state: &AppState,
    principal: &Principal,
    id: &MessageId,
) -> Result<SessionRow, Problem> {
    // One at a time of those that might be the same.
    static MAKING: [Mutex<()>; 16] = [const { Mutex::const_new(()) }; 16];
    let digest = Digest::of(&json!(["gateway request", principal.user, id]));
    let mark = u64::from_be_bytes(std::array::from_fn(|index| digest.as_bytes()[index])) >> 2;
    let _making = MAKING[mark as usize % MAKING.len()].lock().await;
    let query = SessionQuery {
        owner: Some(principal.user.clone()),
        descent: Descent::Roots,
        before: None,
        limit: SESSIONS_SEARCHED,
    };
    let newest = state.runtime.journal.sessions(query).await?;
    let is_marked = |session: &SessionRow| session.session_id.0.as_u64_pair().1 << 2 >> 2 == mark;
    if let Some(session) = newest.into_iter().find(is_marked) {
        return Ok(session);
    }
    let (time, chance) = state.runtime.new_id().as_u64_pair();
    let variant = chance >> 62 << 62;
    let session_id = SessionId(Uuid::from_u64_pair(time, variant | mark));
    commands::create_as(state, principal, CreateSession::default(), session_id).await
}

/// Which question a client's word is about.
#[derive(Clone, Copy)]
pub(super) enum Question {
    /// The plan that has this call.
    OfCall(CallId),
    /// The checklist of this run.
    Preflight { session_id: SessionId, run_id: RunId },
}

/// The question, if it exists and the principal may answer it. One that waits comes before one that
/// was answered, which then says so.
pub(super) async fn asked(
    state: &AppState,
    principal: &Principal,
    question: Question,
) -> Result<ApprovalRow, Problem> {
    let session_id = match question {
        Question::OfCall(_) => None,
        Question::Preflight { session_id, .. } => Some(session_id),
    };
    let everybodys = principal.role >= Role::Approver;
    let owner = (!everybodys).then(|| principal.user.clone());
    for wanted in [Some(ApprovalState::Pending), None] {
        let mut before: Option<ApprovalId> = None;
        for _ in 0..APPROVALS_SEARCHED.1 {
            let (owner, limit) = (owner.clone(), APPROVALS_SEARCHED.0);
            let query = ApprovalQuery { owner, session_id, state: wanted, before, limit };
            let page = state.runtime.journal.approvals(query).await?;
            before = page.last().map(|row| row.approval.approval_id);
            let is_last = page.len() < limit;
            let found = page.into_iter().find(|row| is_about(row, question));
            if let Some(row) = found.filter(|row| principal.may_decide(row)) {
                return Ok(row);
            }
            if is_last {
                break;
            }
        }
    }
    Err(Problem::approval_not_found())
}

fn is_about(row: &ApprovalRow, question: Question) -> bool {
    match question {
        Question::OfCall(call_id) => {
            row.approval.steps().iter().any(|step| step.call_id == call_id)
        }
        Question::Preflight { run_id, .. } => {
            let asks = row.root.map_or(row.run_id, |root| root.run_id);
            asks == run_id && row.approval.kind() == ApprovalKind::Preflight
        }
    }
}
