//! What the store keeps beside the log for lists and look-ups, derived from the state. It is
//! committed together with the events that change it.

use super::{Lifecycle, SessionState};
use crate::{
    approval::{
        Approval, ApprovalEnd, ClosedApproval, Grant, OpenApproval, PlanStep, StepDecision,
    },
    ids::{AgentName, CallId, RunId, SessionId, UserId},
    policy::Settings,
    time::Timestamp,
    usage::Spending,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// What is going on in a session, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// Nothing.
    Idle,
    /// A run, which must be brought back to life after a restart.
    Running,
    /// A run that waits for people, and for nothing else.
    Waiting,
    /// Nothing any more.
    Closed,
}

/// A session as lists show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    /// The session.
    pub session_id: SessionId,
    /// Whose it is.
    pub owner: UserId,
    /// Its agent.
    pub agent: AgentName,
    /// For people.
    pub title: Option<String>,
    /// What it allows.
    pub settings: Settings,
    /// What is going on.
    pub status: SessionStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// When this row last changed.
    pub updated_at: Timestamp,
    /// What people granted for the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Tokens of all runs up to this row's change, and their cost.
    pub usage: Spending,
}

/// Where a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// It waits.
    Pending,
    /// People decided every step.
    Decided,
    /// Nobody answered in time.
    Expired,
    /// Its run was cancelled.
    Cancelled,
}

/// A question as stored (G11).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRow {
    /// What was asked.
    pub approval: Arc<Approval>,
    /// The session that asks.
    pub session_id: SessionId,
    /// The run that asks.
    pub run_id: RunId,
    /// Whose session it is.
    pub owner: UserId,
    /// Where it stands.
    pub state: ApprovalState,
    /// What was decided, in the steps' order.
    pub decisions: Vec<StepDecision>,
    /// When it stopped waiting.
    pub closed_at: Option<Timestamp>,
}

/// What a commit changes beside the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projection {
    /// The session's row, if it changed.
    pub session: Option<SessionRow>,
    /// The questions that are new or changed.
    pub approvals: Vec<ApprovalRow>,
}

impl Projection {
    /// What changed from `before` to `after`.
    pub fn between(before: &SessionState, after: &SessionState) -> Self {
        let row = SessionRow::of(after);
        let unchanged = match (SessionRow::of(before), &row) {
            (Some(before), Some(after)) => before.shows_the_same_as(after),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let approvals = changed_rows(before, after);
        Self { session: row.filter(|_| !unchanged), approvals }
    }
}

impl SessionRow {
    /// The row of that session, once it exists.
    pub fn of(state: &SessionState) -> Option<Self> {
        let identity = state.identity.as_ref()?;
        Some(Self {
            session_id: state.session_id,
            owner: identity.owner.clone(),
            agent: identity.agent.clone(),
            title: state.active.title.clone(),
            settings: state.active.settings.clone(),
            status: status(state),
            created_at: identity.created_at,
            updated_at: identity.updated_at,
            grants: state.active.grants.clone(),
            usage: state.spent(),
        })
    }

    fn shows_the_same_as(&self, other: &Self) -> bool {
        let Self { session_id: _, owner: _, agent: _, title, settings, status, grants, .. } = self;
        *title == other.title
            && *settings == other.settings
            && *status == other.status
            && *grants == other.grants
    }
}

fn status(state: &SessionState) -> SessionStatus {
    match state.active.lifecycle {
        Lifecycle::Vacant | Lifecycle::Closed => SessionStatus::Closed,
        Lifecycle::Open if state.is_idle() => SessionStatus::Idle,
        Lifecycle::Open if state.is_waiting_for_people() => SessionStatus::Waiting,
        Lifecycle::Open => SessionStatus::Running,
    }
}

/// The rows that `after` has and `before` had not, or not so. `after` must follow from `before`:
/// then an open question changes by new decisions alone, and closed ones only come at the end,
/// so that a commit which touches none costs nothing.
fn changed_rows(before: &SessionState, after: &SessionState) -> Vec<ApprovalRow> {
    let Some(identity) = &after.identity else { return Vec::new() };
    let row = |asked: Asked<'_>| asked.row(after.session_id, &identity.owner);
    let decided =
        |state: &SessionState, id| state.active.open_approval(id).map(|open| open.decisions.len());
    let is_changed = |open: &&OpenApproval| {
        decided(before, open.approval.approval_id) != Some(open.decisions.len())
    };
    let open = after.active.approvals.iter().filter(is_changed).map(|open| row(open.into()));
    let newest = before.closed_approvals.back().map(|closed| closed.approval.approval_id);
    let is_new = |closed: &&ClosedApproval| Some(closed.approval.approval_id) != newest;
    let new = after.closed_approvals.iter().rev().take_while(is_new).count();
    let closed = after.closed_approvals.iter().skip(after.closed_approvals.len() - new);
    open.chain(closed.map(|closed| row(closed.into()))).collect()
}

/// A question, open or closed, on its way to a row.
struct Asked<'a> {
    approval: &'a Arc<Approval>,
    run_id: RunId,
    state: ApprovalState,
    decisions: &'a BTreeMap<CallId, StepDecision>,
    closed_at: Option<Timestamp>,
}

impl<'a> From<&'a OpenApproval> for Asked<'a> {
    fn from(open: &'a OpenApproval) -> Self {
        let OpenApproval { approval, run_id, decisions } = open;
        let state = ApprovalState::Pending;
        Self { approval, run_id: *run_id, state, decisions, closed_at: None }
    }
}

impl<'a> From<&'a ClosedApproval> for Asked<'a> {
    fn from(closed: &'a ClosedApproval) -> Self {
        let ClosedApproval { approval, run_id, end, closed_at, decisions } = closed;
        let state = match end {
            ApprovalEnd::Decided => ApprovalState::Decided,
            ApprovalEnd::Expired => ApprovalState::Expired,
            ApprovalEnd::Cancelled => ApprovalState::Cancelled,
        };
        Self { approval, run_id: *run_id, state, decisions, closed_at: Some(*closed_at) }
    }
}

impl Asked<'_> {
    fn row(self, session_id: SessionId, owner: &UserId) -> ApprovalRow {
        let of_step = |step: &PlanStep| self.decisions.get(&step.call_id).cloned();
        ApprovalRow {
            approval: self.approval.clone(),
            session_id,
            run_id: self.run_id,
            owner: owner.clone(),
            state: self.state,
            decisions: self.approval.steps.iter().filter_map(of_step).collect(),
            closed_at: self.closed_at,
        }
    }
}

impl ApprovalRow {
    /// The rows of every question that the session remembers.
    pub fn all_of(state: &SessionState) -> Vec<Self> {
        changed_rows(&SessionState::vacant(state.session_id), state)
    }
}
