//! The rows that the store keeps beside the log for lists and look-ups, derived from the state and
//! committed together with the events that change them.

use super::{Lifecycle, SessionState, state::SessionMetadata};
use crate::{
    amount::Amount,
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

/// The status of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// The session has no active run, queued message or child.
    Idle,
    /// The session has work in progress and must be resumed after a restart.
    Running,
    /// The session's run waits for human decisions only.
    Waiting,
    /// The session is closed and has no work left.
    Closed,
}

/// A session in lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    /// The session's id.
    pub session_id: SessionId,
    /// The session's principal.
    pub owner: UserId,
    /// The session's agent profile.
    pub agent: AgentName,
    /// The parent session, if the session is a child (S8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<Parent>>,
    /// The title shown to users.
    pub title: Option<String>,
    /// The session's settings.
    pub settings: Arc<Settings>,
    /// The session's status.
    pub status: SessionStatus,
    /// The time of the first event.
    pub created_at: Timestamp,
    /// The time of the last change of this row.
    pub updated_at: Timestamp,
    /// The session's grants (G9).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Tokens of all runs up to the last change of this row, and their cost.
    pub usage: ModelUsage,
}

/// The state of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// The approval waits for an answer.
    Pending,
    /// A human decided the approval completely.
    Decided,
    /// The deadline passed without a complete answer.
    Expired,
    /// The approval was cancelled: its run ended, or the requesting tool attempt no longer waits.
    Cancelled,
}

/// An approval as stored (G11).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRow {
    /// The approval.
    pub approval: Arc<Approval>,
    /// The session that requested the approval.
    pub session_id: SessionId,
    /// The run that requested the approval.
    pub run_id: RunId,
    /// The root session's run, if a child requested the approval (S8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<RootRun>,
    /// The session's principal.
    pub owner: UserId,
    /// The approval's state.
    pub state: ApprovalState,
    /// The decisions on a plan, in the order of its steps.
    pub decisions: Vec<PlanStepDecision>,
    /// The answer to an approval that has no steps.
    #[serde(default, rename = "answer", skip_serializing_if = "Option::is_none")]
    pub answer: Option<RecordedAnswer>,
    /// The escalation, if the approval was escalated after its deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<Escalation>,
    /// The time at which the approval was closed.
    pub closed_at: Option<Timestamp>,
}

/// The changes of a commit to rows beside the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projection {
    /// The session's row, if it changed.
    pub session: Option<SessionRow>,
    /// The approvals that are new or changed.
    pub approvals: Vec<ApprovalRow>,
    /// The amounts to add to the user's spending (G6), if there are any.
    pub spending_update: Option<SpendingUpdate>,
}

impl Projection {
    /// Returns the changes from `before` to `after`.
    pub fn diff(before: &SessionState, after: &SessionState) -> Self {
        let row = SessionRow::from_state(after);
        let unchanged = match (SessionRow::from_state(before), &row) {
            (Some(before), Some(after)) => before.has_same_content(after),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let approvals = changed_approval_rows(before, after);
        let entries = after.active.tool_costs.changes_since(&before.active.tool_costs);
        let metadata = after.metadata.as_ref().filter(|_| !entries.is_empty());
        let spending_update = metadata.map(|metadata| {
            let user = metadata.owner.clone();
            SpendingUpdate { user, entries, preconditions: Vec::new() }
        });
        Self { session: row.filter(|_| !unchanged), approvals, spending_update }
    }

    /// Adds the preconditions on the user's spending. Has no effect without a spending update.
    #[must_use]
    pub fn with_preconditions(mut self, preconditions: Vec<SpendingPrecondition>) -> Self {
        if let Some(update) = &mut self.spending_update {
            update.preconditions = preconditions;
        }
        self
    }

    /// Adds the tokens and cost of model calls to the user's spending. Only needed if a budget of
    /// the user counts model usage.
    #[must_use]
    pub fn with_model_usage(
        mut self,
        before: &SessionState,
        after: &SessionState,
        day: Day,
    ) -> Self {
        let Some(metadata) = &after.metadata else { return self };
        let (before, after) = (before.total_usage(), after.total_usage());
        let tokens = after.tokens.total().saturating_sub(before.tokens.total());
        let costs = after.counted_cost_usd().zip(before.counted_cost_usd());
        let usd = costs.map_or(Amount::ZERO, |(after, before)| after - before);
        let amounts =
            [(BudgetMeasure::Tokens, Amount::from_whole(tokens)), (BudgetMeasure::Usd, usd)];
        let entries = amounts.into_iter().filter(|(_, amount)| amount.is_positive());
        let entries: Vec<_> =
            entries.map(|(measure, amount)| SpendingEntry { measure, day, amount }).collect();
        if !entries.is_empty() {
            let user = metadata.owner.clone();
            let empty = SpendingUpdate { user, entries: Vec::new(), preconditions: Vec::new() };
            self.spending_update.get_or_insert(empty).entries.extend(entries);
        }
        self
    }
}

impl SessionRow {
    /// Returns the row of a session, or `None` before its first event.
    pub fn from_state(state: &SessionState) -> Option<Self> {
        let metadata = state.metadata.as_ref()?;
        Some(Self {
            session_id: state.session_id,
            owner: metadata.owner.clone(),
            agent: metadata.agent.clone(),
            parent: metadata.parent.clone(),
            title: state.active.title.clone(),
            settings: state.active.settings.clone(),
            status: session_status(state),
            created_at: metadata.created_at,
            updated_at: metadata.updated_at,
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
        // Some children may not be closed yet; after a restart the session is resumed to close
        // them.
        Lifecycle::Closed => SessionStatus::Running,
        Lifecycle::Open if state.is_idle() => SessionStatus::Idle,
        Lifecycle::Open if state.is_waiting_for_approval() => SessionStatus::Waiting,
        Lifecycle::Open => SessionStatus::Running,
    }
}

/// Returns the approval rows that differ between `before` and `after`. `after` must result from
/// `before` by events: then an open approval changes only by new decisions or escalation, and a
/// closed one never changes. A commit that touches no approval costs nothing.
fn changed_approval_rows(before: &SessionState, after: &SessionState) -> Vec<ApprovalRow> {
    let Some(metadata) = &after.metadata else { return Vec::new() };
    let row = |source: ApprovalRowSource<'_>| source.into_row(after.session_id, metadata);
    let progress = |open: &OpenApproval| (open.decisions.len(), open.escalation);
    let is_changed = |open: &&OpenApproval| {
        let before = before.active.open_approval(open.approval.approval_id);
        before.map(progress) != Some(progress(open))
    };
    let open = after.active.approvals.iter().filter(is_changed).map(|open| row(open.into()));
    let closed = after.closed_approvals.closed_after(before.last_seq);
    open.chain(closed.map(|closed| row(closed.into()))).collect()
}

/// The data of an open or closed approval from which a row is built.
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
        let ClosedApproval { approval, run_id, outcome, closed_at, decisions, answer, escalation } =
            closed;
        let state = match outcome {
            ApprovalOutcome::Decided => ApprovalState::Decided,
            ApprovalOutcome::Expired => ApprovalState::Expired,
            ApprovalOutcome::Cancelled => ApprovalState::Cancelled,
        };
        let (run_id, escalation, closed_at) = (*run_id, *escalation, Some(*closed_at));
        Self { approval, run_id, state, decisions, answer: answer.as_ref(), escalation, closed_at }
    }
}

impl ApprovalRowSource<'_> {
    fn into_row(self, session_id: SessionId, metadata: &SessionMetadata) -> ApprovalRow {
        let step_decision = |step: &PlanStep| self.decisions.get(&step.call_id).cloned();
        ApprovalRow {
            approval: self.approval.clone(),
            session_id,
            run_id: self.run_id,
            root: metadata.parent.as_ref().map(|parent| parent.root),
            owner: metadata.owner.clone(),
            state: self.state,
            decisions: self.approval.steps().iter().filter_map(step_decision).collect(),
            answer: self.answer.cloned(),
            escalation: self.escalation,
            closed_at: self.closed_at,
        }
    }
}

impl ApprovalRow {
    /// Returns the time at which the approval must be escalated or closed if it is not answered.
    pub fn deadline_action_at(&self) -> Option<Timestamp> {
        match &self.escalation {
            Some(escalation) => escalation.deadline,
            None => self.approval.deadline_action_at(),
        }
    }

    /// Returns the rows of all open approvals and all retained closed approvals.
    pub fn all_from_state(state: &SessionState) -> Vec<Self> {
        changed_approval_rows(&SessionState::new(state.session_id), state)
    }
}
