//! What the store keeps beside the log for lists and look-ups, derived from the state. It is
//! committed together with the events that change it.

use super::{Lifecycle, SessionState};
use crate::{
    approval::{Approval, ApprovalEnd, StepDecision},
    ids::{AgentName, ApprovalId, RunId, SessionId, UserId},
    policy::Settings,
    time::Timestamp,
    usage::Usage,
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
    /// Tokens of all runs up to this row's change.
    pub usage: Usage,
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
        let was: BTreeMap<ApprovalId, ApprovalRow> =
            rows(before).map(|row| (row.approval.approval_id, row)).collect();
        let approvals =
            rows(after).filter(|row| was.get(&row.approval.approval_id) != Some(row)).collect();
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
            usage: state.usage,
        })
    }

    fn shows_the_same_as(&self, other: &Self) -> bool {
        let Self { session_id: _, owner: _, agent: _, title, settings, status, .. } = self;
        *title == other.title && *settings == other.settings && *status == other.status
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

fn rows(state: &SessionState) -> impl Iterator<Item = ApprovalRow> + '_ {
    let owner = state.identity.as_ref().map(|identity| identity.owner.clone());
    let row = move |approval: &Arc<Approval>, run_id, state_, decisions, closed_at| ApprovalRow {
        approval: approval.clone(),
        session_id: state.session_id,
        run_id,
        owner: owner.clone().expect("a session that asks has an owner"),
        state: state_,
        decisions,
        closed_at,
    };
    let in_order = |approval: &Approval, decisions: &BTreeMap<_, StepDecision>| {
        let of_step = |step: &crate::approval::PlanStep| decisions.get(&step.call_id).cloned();
        approval.steps.iter().filter_map(of_step).collect::<Vec<_>>()
    };
    let row_too = row.clone();
    let open = state.active.approvals.iter().map(move |open| {
        let decisions = in_order(&open.approval, &open.decisions);
        row(&open.approval, open.run_id, ApprovalState::Pending, decisions, None)
    });
    let closed = state.closed_approvals.iter().map(move |closed| {
        let end = match closed.end {
            ApprovalEnd::Decided => ApprovalState::Decided,
            ApprovalEnd::Expired => ApprovalState::Expired,
            ApprovalEnd::Cancelled => ApprovalState::Cancelled,
        };
        let decisions = in_order(&closed.approval, &closed.decisions);
        row_too(&closed.approval, closed.run_id, end, decisions, Some(closed.closed_at))
    });
    open.chain(closed)
}
