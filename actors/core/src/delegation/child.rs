//! What a session knows of a child that works for it.

use super::mirror::{SourceEvent, resolve_source_event};
use crate::{
    budget::ToolCosts,
    ids::{AgentName, CallId, RunId, Seq, SessionId},
    policy::Cost,
    session::{EventRecord, SessionEvent},
    time::Day,
    usage::ModelUsage,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whose a call is that another session is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildRef {
    /// The child.
    pub session_id: SessionId,
    /// Its agent profile.
    pub agent: AgentName,
}

/// A child that works, or that was told to stop and has not closed yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// The child.
    pub session_id: SessionId,
    /// Its agent profile.
    pub agent: AgentName,
    /// The call it works for.
    pub call_id: CallId,
    /// The run of that call.
    pub run_id: RunId,
    /// The last of its events that is mirrored.
    pub mirrored_seq: Seq,
    /// Whether that was its end.
    pub closed: bool,
    /// What is set aside for its calls that may still turn out not to have happened.
    reservations: BTreeMap<CallId, ChildReservation>,
    /// What the steps of runs that go on have told of their usage, the child's own and those below
    /// it.
    reported_usage: BTreeMap<SessionId, ModelUsage>,
}

/// What is set aside for a call of a child.
#[derive(Clone, Debug, PartialEq)]
struct ChildReservation {
    cost: Cost,
    tool: String,
    day: Day,
}

/// What the children of a run, or of a session, have spent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChildUsage {
    /// On models.
    pub usage: ModelUsage,
    /// On tools.
    pub costs: ToolCosts,
}

/// What one event adds to that.
pub(crate) enum ChildUsageChange {
    /// Nothing.
    Unchanged,
    /// A model call.
    ModelUsage(ModelUsage),
    /// So much for a tool; less than nothing where it is given back.
    ToolCost { unit: String, day: Day, tool: String, amount: f64 },
}

impl ChildUsage {
    pub(crate) fn add(&mut self, draw: &ChildUsageChange) {
        match draw {
            ChildUsageChange::Unchanged => {}
            ChildUsageChange::ModelUsage(usage) => self.usage = self.usage.plus(*usage),
            ChildUsageChange::ToolCost { unit, day, tool, amount } => {
                self.costs.add(unit, *day, tool, *amount)
            }
        }
    }
}

impl Child {
    /// One that is about to be started.
    pub(crate) fn new(assigned: &ChildRef, call_id: CallId, run_id: RunId) -> Self {
        let ChildRef { session_id, agent } = assigned.clone();
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

    /// Notes the next of its events; tells what it, or a child of its own, spent by it.
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
            let told = self.reported_usage.entry(session_id).or_default();
            *told = told.plus(*usage);
            return ChildUsageChange::ModelUsage(*usage);
        }
        if let E::RunCompleted { usage, .. }
        | E::RunFailed { usage, .. }
        | E::RunCancelled { usage, .. } = &record.event
        {
            // A run's last attempt is told with its end alone.
            let told = self.reported_usage.remove(&session_id).unwrap_or_default();
            return ChildUsageChange::ModelUsage(usage.minus(told));
        }
        if let E::BudgetReserved { call_id, tool, cost } = &record.event {
            let (cost, tool, day) = (cost.clone(), tool.clone(), record.at.day());
            let held = ChildReservation { cost, tool, day };
            let draw = held.usage_change(1.0);
            return match self.reservations.insert(*call_id, held) {
                None => draw,
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
                .map_or(ChildUsageChange::Unchanged, |held| held.usage_change(-1.0));
        }
        ChildUsageChange::Unchanged
    }
}

impl ChildReservation {
    fn usage_change(&self, sign: f64) -> ChildUsageChange {
        let (unit, tool) = (self.cost.unit.clone(), self.tool.clone());
        ChildUsageChange::ToolCost { unit, day: self.day, tool, amount: sign * self.cost.amount }
    }
}
