//! What the store keeps beside the log for lists and look-ups, derived from the state. It is
//! committed together with the events that change it.

use super::{Lifecycle, SessionState, state::SessionMetadata};
use crate::{
    approval::{
        Approval, ApprovalOutcome, ClosedApproval, Escalation, Grant, OpenApproval, PlanStep,
        PlanStepDecision, RecordedAnswer,
    },
    budget::{BudgetMeasure, SpendingEntry, SpendingPrecondition, SpendingUpdate},
    delegation::{Parent, RootRun},
    ids::{AgentName, CallId, RunId, SessionId, UserId},
    policy::Settings,
    time::{Day, Timestamp},
    usage::ModelUsage,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};
use utoipa::ToSchema;

/// What is going on in a session, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// The session that started it, if one did (S8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<Parent>>,
    /// For people.
    pub title: Option<String>,
    /// What it allows.
    pub settings: Arc<Settings>,
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
    pub usage: ModelUsage,
}

/// Where a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// The run that people watch, where it is a child that asks (S8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<RootRun>,
    /// Whose session it is.
    pub owner: UserId,
    /// Where it stands.
    pub state: ApprovalState,
    /// What was decided of a plan, in the steps' order.
    pub decisions: Vec<PlanStepDecision>,
    /// What was said to a question that has no steps.
    #[serde(default, rename = "answer", skip_serializing_if = "Option::is_none")]
    pub answer: Option<RecordedAnswer>,
    /// Whom it went to when nobody had answered in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<Escalation>,
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
    /// What is added to the user's spending (G6), if anything is.
    pub spending_update: Option<SpendingUpdate>,
}

impl Projection {
    /// What changed from `before` to `after`.
    pub fn diff(before: &SessionState, after: &SessionState) -> Self {
        let row = SessionRow::from_state(after);
        let unchanged = match (SessionRow::from_state(before), &row) {
            (Some(before), Some(after)) => before.has_same_content(after),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let approvals = changed_approval_rows(before, after);
        let spends = after.active.tool_costs.changes_since(&before.active.tool_costs);
        let user = after.metadata.as_ref().filter(|_| !spends.is_empty());
        let spending_update = user.map(|identity| {
            let user = identity.owner.clone();
            SpendingUpdate { user, entries: spends, preconditions: Vec::new() }
        });
        Self { session: row.filter(|_| !unchanged), approvals, spending_update }
    }

    /// Adds what must hold of the user's spending.
    #[must_use]
    pub fn with_preconditions(mut self, claims: Vec<SpendingPrecondition>) -> Self {
        if let Some(posting) = &mut self.spending_update {
            posting.preconditions = claims;
        }
        self
    }

    /// Adds the tokens and the money of model calls to the user's spending; not all need counting.
    #[must_use]
    pub fn with_model_usage(
        mut self,
        before: &SessionState,
        after: &SessionState,
        day: Day,
    ) -> Self {
        let Some(identity) = &after.metadata else { return self };
        let (before, after) = (before.total_usage(), after.total_usage());
        let tokens = after.tokens.total().saturating_sub(before.tokens.total()) as f64;
        let costs = after.cost_usd.zip(before.cost_usd);
        let money = costs.map_or(0.0, |(after, before)| after - before);
        let spent = [(BudgetMeasure::Tokens, tokens), (BudgetMeasure::Usd, money)];
        let spends = spent.into_iter().filter(|(_, amount)| *amount > 0.0);
        let spends: Vec<_> =
            spends.map(|(measure, amount)| SpendingEntry { measure, day, amount }).collect();
        if !spends.is_empty() {
            let user = identity.owner.clone();
            let empty = SpendingUpdate { user, entries: Vec::new(), preconditions: Vec::new() };
            self.spending_update.get_or_insert(empty).entries.extend(spends);
        }
        self
    }
}

impl SessionRow {
    /// The row of that session, once it exists.
    pub fn from_state(state: &SessionState) -> Option<Self> {
        let identity = state.metadata.as_ref()?;
        Some(Self {
            session_id: state.session_id,
            owner: identity.owner.clone(),
            agent: identity.agent.clone(),
            parent: identity.parent.clone(),
            title: state.active.title.clone(),
            settings: state.active.settings.clone(),
            status: session_status(state),
            created_at: identity.created_at,
            updated_at: identity.updated_at,
            grants: state.active.grants.clone(),
            usage: state.total_usage(),
        })
    }

    fn has_same_content(&self, other: &Self) -> bool {
        let Self { title, settings, status, grants, .. } = self;
        *title == other.title
            && *settings == other.settings
            && *status == other.status
            && *grants == other.grants
    }
}

fn session_status(state: &SessionState) -> SessionStatus {
    match state.active.lifecycle {
        Lifecycle::NotCreated => SessionStatus::Closed,
        Lifecycle::Closed if state.active.children.is_empty() => SessionStatus::Closed,
        // Its children may not know yet that nobody wants them: it must come back to tell them.
        Lifecycle::Closed => SessionStatus::Running,
        Lifecycle::Open if state.is_idle() => SessionStatus::Idle,
        Lifecycle::Open if state.is_waiting_for_approval() => SessionStatus::Waiting,
        Lifecycle::Open => SessionStatus::Running,
    }
}

/// The rows that `after` has and `before` had not, or not so. `after` must follow from `before`:
/// then an open question changes by new decisions and by escalation alone, and a closed one never,
/// so that a commit which touches none costs nothing.
fn changed_approval_rows(before: &SessionState, after: &SessionState) -> Vec<ApprovalRow> {
    let Some(identity) = &after.metadata else { return Vec::new() };
    let row = |asked: ApprovalRowSource<'_>| asked.into_row(after.session_id, identity);
    let standing = |open: &OpenApproval| (open.decisions.len(), open.escalation);
    let is_changed = |open: &&OpenApproval| {
        let before = before.active.open_approval(open.approval.approval_id);
        before.map(standing) != Some(standing(open))
    };
    let open = after.active.approvals.iter().filter(is_changed).map(|open| row(open.into()));
    let closed = after.closed_approvals.closed_after(before.last_seq);
    open.chain(closed.map(|closed| row(closed.into()))).collect()
}

/// A question, open or closed, on its way to a row.
struct ApprovalRowSource<'a> {
    approval: &'a Arc<Approval>,
    run_id: RunId,
    state: ApprovalState,
    decisions: &'a BTreeMap<CallId, PlanStepDecision>,
    answer: Option<&'a RecordedAnswer>,
    escalation: Option<Escalation>,
    closed_at: Option<Timestamp>,
}

impl<'a> From<&'a OpenApproval> for ApprovalRowSource<'a> {
    fn from(open: &'a OpenApproval) -> Self {
        let OpenApproval { approval, run_id, decisions, escalation } = open;
        let (state, escalation) = (ApprovalState::Pending, *escalation);
        let run_id = *run_id;
        Self { approval, run_id, state, decisions, answer: None, escalation, closed_at: None }
    }
}

impl<'a> From<&'a ClosedApproval> for ApprovalRowSource<'a> {
    fn from(closed: &'a ClosedApproval) -> Self {
        let ClosedApproval {
            approval,
            run_id,
            outcome: end,
            closed_at,
            decisions,
            answer: word,
            escalation,
        } = closed;
        let state = match end {
            ApprovalOutcome::Decided => ApprovalState::Decided,
            ApprovalOutcome::Expired => ApprovalState::Expired,
            ApprovalOutcome::Cancelled => ApprovalState::Cancelled,
        };
        let (run_id, escalation, closed_at) = (*run_id, *escalation, Some(*closed_at));
        Self { approval, run_id, state, decisions, answer: word.as_ref(), escalation, closed_at }
    }
}

impl ApprovalRowSource<'_> {
    fn into_row(self, session_id: SessionId, identity: &SessionMetadata) -> ApprovalRow {
        let of_step = |step: &PlanStep| self.decisions.get(&step.call_id).cloned();
        ApprovalRow {
            approval: self.approval.clone(),
            session_id,
            run_id: self.run_id,
            root: identity.parent.as_ref().map(|parent| parent.root),
            owner: identity.owner.clone(),
            state: self.state,
            decisions: self.approval.steps().iter().filter_map(of_step).collect(),
            answer: self.answer.cloned(),
            escalation: self.escalation,
            closed_at: self.closed_at,
        }
    }
}

impl ApprovalRow {
    /// When something must happen about it, if nobody answers.
    pub fn due_at(&self) -> Option<Timestamp> {
        match &self.escalation {
            Some(escalation) => escalation.deadline,
            None => self.approval.due_at(),
        }
    }

    /// The rows of every question that the session remembers.
    pub fn all_from_state(state: &SessionState) -> Vec<Self> {
        changed_approval_rows(&SessionState::new(state.session_id), state)
    }
}
