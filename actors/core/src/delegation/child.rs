//! What a session knows of a child that works for it.

use super::mirror::{Innermost, innermost};
use crate::{
    budget::Costs,
    ids::{AgentName, CallId, RunId, Seq, SessionId},
    policy::Cost,
    session::{EventRecord, SessionEvent},
    time::Day,
    usage::Spending,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whose a call is that another session is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assigned {
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
    pub mirrored: Seq,
    /// Whether that was its end.
    pub closed: bool,
    /// What is set aside for its calls that may still turn out not to have happened.
    held: BTreeMap<CallId, Held>,
    /// What the steps of runs that go on have told of their usage, the child's own and those below
    /// it.
    told: BTreeMap<SessionId, Spending>,
}

/// What is set aside for a call of a child.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    cost: Cost,
    tool: String,
    day: Day,
}

/// What the children of a run, or of a session, have spent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delegated {
    /// On models.
    pub usage: Spending,
    /// On tools.
    pub costs: Costs,
}

/// What one event adds to that.
pub(crate) enum Draw {
    /// Nothing.
    Nothing,
    /// A model call.
    Usage(Spending),
    /// So much for a tool; less than nothing where it is given back.
    Cost { unit: String, day: Day, tool: String, amount: f64 },
}

impl Delegated {
    pub(crate) fn add(&mut self, draw: &Draw) {
        match draw {
            Draw::Nothing => {}
            Draw::Usage(usage) => self.usage = self.usage.plus(*usage),
            Draw::Cost { unit, day, tool, amount } => self.costs.add(unit, *day, tool, *amount),
        }
    }
}

impl Child {
    /// One that is about to be started.
    pub(crate) fn new(assigned: &Assigned, call_id: CallId, run_id: RunId) -> Self {
        let Assigned { session_id, agent } = assigned.clone();
        let (mirrored, closed) = (Seq(0), false);
        let (held, told) = (BTreeMap::new(), BTreeMap::new());
        Self { session_id, agent, call_id, run_id, mirrored, closed, held, told }
    }

    /// Notes the next of its events; tells what it, or a child of its own, spent by it.
    pub(crate) fn follow(&mut self, record: &EventRecord) -> Draw {
        use SessionEvent as E;
        self.mirrored = record.seq;
        self.closed |= matches!(record.event, E::SessionClosed { .. });
        let Innermost { session_id, record, .. } = innermost(self.session_id, &self.agent, record);
        if let E::StepCompleted { usage, .. }
        | E::StepRetrying { usage, .. }
        | E::StepModelFallback { usage, .. }
        | E::ContextCompacted { usage, .. }
        | E::ContextCompactionFailed { usage, .. } = &record.event
        {
            let told = self.told.entry(session_id).or_default();
            *told = told.plus(*usage);
            return Draw::Usage(*usage);
        }
        if let E::RunCompleted { usage, .. }
        | E::RunFailed { usage, .. }
        | E::RunCancelled { usage, .. } = &record.event
        {
            // A run's last attempt is told with its end alone.
            let told = self.told.remove(&session_id).unwrap_or_default();
            return Draw::Usage(usage.minus(told));
        }
        if let E::BudgetReserved { call_id, tool, cost } = &record.event {
            let (cost, tool, day) = (cost.clone(), tool.clone(), record.at.day());
            let held = Held { cost, tool, day };
            let draw = held.draw(1.0);
            return match self.held.insert(*call_id, held) {
                None => draw,
                Some(_) => Draw::Nothing,
            };
        }
        if let E::ToolCallCompleted { call_id, .. }
        | E::ToolCallFailed { call_id, maybe_ran: true, .. } = &record.event
        {
            self.held.remove(call_id);
        } else if let E::AuthorizationDenied { call_id, .. }
        | E::ToolCallFailed { call_id, maybe_ran: false, .. } = &record.event
        {
            return self.held.remove(call_id).map_or(Draw::Nothing, |held| held.draw(-1.0));
        }
        Draw::Nothing
    }
}

impl Held {
    fn draw(&self, sign: f64) -> Draw {
        let (unit, tool) = (self.cost.unit.clone(), self.tool.clone());
        Draw::Cost { unit, day: self.day, tool, amount: sign * self.cost.amount }
    }
}
