//! The parent's record of a child session: mirrored position, reservations and usage.

use super::mirror::{SourceEvent, resolve_source_event};
use crate::{
    amount::Amount,
    budget::ToolCosts,
    ids::{AgentName, CallId, RunId, Seq, SessionId},
    policy::Cost,
    session::{EventRecord, SessionEvent},
    time::Day,
    usage::ModelUsage,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A reference to the child session that executes a delegated call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildRef {
    /// The child.
    pub session_id: SessionId,
    /// The child's agent profile.
    pub agent: AgentName,
}

/// A child session that has not closed yet, or whose close is not mirrored yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// The child.
    pub session_id: SessionId,
    /// The child's agent profile.
    pub agent: AgentName,
    /// The delegated call.
    pub call_id: CallId,
    /// The parent's run that contains the call.
    pub run_id: RunId,
    /// The sequence number of the last mirrored event of the child.
    pub mirrored_seq: Seq,
    /// True if the last mirrored event closed the child.
    pub closed: bool,
    /// The costs of the child's calls that can still be released because the call did not run.
    reservations: BTreeMap<CallId, ChildReservation>,
    /// The usage that steps of unfinished runs have reported, per session: the child and its
    /// descendants.
    reported_usage: BTreeMap<SessionId, ModelUsage>,
}

/// Cost reserved for a call of a child.
#[derive(Clone, Debug, PartialEq)]
struct ChildReservation {
    cost: Cost,
    tool: String,
    day: Day,
}

/// The expenses of the children of a run or of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChildUsage {
    /// The usage of models.
    pub usage: ModelUsage,
    /// The costs of tools.
    pub costs: ToolCosts,
}

/// The change of a [`ChildUsage`] by one event.
pub(crate) enum ChildUsageChange {
    /// No change.
    Unchanged,
    /// A model call.
    ModelUsage(ModelUsage),
    /// A tool cost; negative if a reservation is released.
    ToolCost { unit: String, day: Day, tool: String, amount: Amount },
}

impl ChildUsage {
    pub(crate) fn add(&mut self, change: &ChildUsageChange) {
        match change {
            ChildUsageChange::Unchanged => {}
            ChildUsageChange::ModelUsage(usage) => self.usage = self.usage.plus(*usage),
            ChildUsageChange::ToolCost { unit, day, tool, amount } => {
                self.costs.add(unit, *day, tool, *amount)
            }
        }
    }
}

impl Child {
    /// Creates the record of a child that is about to be started.
    pub(crate) fn new(child: &ChildRef, call_id: CallId, run_id: RunId) -> Self {
        let ChildRef { session_id, agent } = child.clone();
        let (mirrored_seq, closed) = (Seq(0), false);
        let (reservations, reported_usage) = (BTreeMap::new(), BTreeMap::new());
        Self {
            session_id,
            agent,
            call_id,
            run_id,
            mirrored_seq,
            closed,
            reservations,
            reported_usage,
        }
    }

    /// Applies the next event of the child and returns the usage that the event adds for the child
    /// or one of its descendants.
    pub(crate) fn apply_event(&mut self, record: &EventRecord) -> ChildUsageChange {
        use SessionEvent as E;
        self.mirrored_seq = record.seq;
        self.closed |= matches!(record.event, E::SessionClosed { .. });
        let SourceEvent { session_id, record, .. } =
            resolve_source_event(self.session_id, &self.agent, record);
        if let E::StepCompleted { usage, .. }
        | E::StepRetrying { usage, .. }
        | E::StepModelFallback { usage, .. }
        | E::ContextCompacted { usage, .. }
        | E::ContextCompactionFailed { usage, .. } = &record.event
        {
            let reported = self.reported_usage.entry(session_id).or_default();
            *reported = reported.plus(*usage);
            return ChildUsageChange::ModelUsage(*usage);
        }
        if let E::RunCompleted { usage, .. }
        | E::RunFailed { usage, .. }
        | E::RunCancelled { usage, .. } = &record.event
        {
            // Only the end of a run reports the usage of the run's last attempt.
            let reported = self.reported_usage.remove(&session_id).unwrap_or_default();
            return ChildUsageChange::ModelUsage(usage.minus(reported));
        }
        if let E::BudgetReserved { call_id, tool, cost } = &record.event {
            let (cost, tool, day) = (cost.clone(), tool.clone(), record.at.day());
            let reservation = ChildReservation { cost, tool, day };
            let change = reservation.usage_change(reservation.cost.amount);
            return match self.reservations.insert(*call_id, reservation) {
                None => change,
                Some(_) => ChildUsageChange::Unchanged,
            };
        }
        if let E::ToolCallCompleted { call_id, .. }
        | E::ToolCallFailed { call_id, maybe_ran: true, .. } = &record.event
        {
            self.reservations.remove(call_id);
        } else if let E::AuthorizationDenied { call_id, .. }
        | E::ToolCallFailed { call_id, maybe_ran: false, .. } = &record.event
        {
            return self
                .reservations
                .remove(call_id)
                .map_or(ChildUsageChange::Unchanged, |reservation| {
                    reservation.usage_change(-reservation.cost.amount)
                });
        }
        ChildUsageChange::Unchanged
    }
}

impl ChildReservation {
    fn usage_change(&self, amount: Amount) -> ChildUsageChange {
        let (unit, tool) = (self.cost.unit.clone(), self.tool.clone());
        ChildUsageChange::ToolCost { unit, day: self.day, tool, amount }
    }
}
