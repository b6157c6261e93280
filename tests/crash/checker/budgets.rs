//! Checks reservations (G6): once per call, within the budget or approved, kept if the call took
//! effect or its outcome is unknown, and released if it definitely failed. Their sum is the stored
//! spending.

use super::{Report, Rule, text};
use crate::{
    history::{History, Session},
    script::BUDGET,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Costs of calls in ISK, by tool.
const COSTS: [(&str, f64); 4] = [
    ("create_shopping_list", 1.0),
    ("create_bookmark", 2.0),
    ("market_order_create", 3.0),
    ("wallet_transfer", 5.0),
];
/// Reasons of failed calls that definitely had no effect.
const DEFINITE_FAILURES: [&str; 6] =
    ["error", "invalid_arguments", "unknown_tool", "unavailable", "rejected", "expired"];
/// Tolerance for sums of the same amounts in different order.
const ROUNDING: f64 = 1e-6;

pub(super) fn check(history: &History, report: &mut Report) {
    let mut reserved_total = 0.0;
    for (id, session) in &history.sessions {
        let mut spending = SessionSpending::new(id);
        spending.apply_events(session, report);
        reserved_total += spending.reserved.values().sum::<f64>();
        for effect in &history.effects {
            let is_released = spending.released.contains(effect.key.as_str());
            report.check(!is_released, Rule::BudgetsAreKept, || {
                format!("the reservation of {effect:?} was released")
            });
        }
    }
    let spent = history.spent;
    report.check((spent - reserved_total).abs() < ROUNDING, Rule::BudgetsAreKept, || {
        format!("spending in the database: {spent} ISK; in the log: {reserved_total}")
    });
}

/// The spending of one session.
struct SessionSpending<'a> {
    session: &'a str,
    limit: f64,
    /// Reservations by call.
    reserved: BTreeMap<&'a str, f64>,
    released: BTreeSet<&'a str>,
    tools: BTreeMap<&'a str, &'a str>,
    /// Approved calls, whose cost may exceed the budget.
    approved: BTreeSet<&'a str>,
    /// Calls that a human reported as failed.
    failed: BTreeSet<&'a str>,
    started: BTreeSet<&'a str>,
}

impl<'a> SessionSpending<'a> {
    fn new(session: &'a str) -> Self {
        Self {
            session,
            limit: f64::from(BUDGET),
            reserved: BTreeMap::new(),
            released: BTreeSet::new(),
            tools: BTreeMap::new(),
            approved: BTreeSet::new(),
            failed: BTreeSet::new(),
            started: BTreeSet::new(),
        }
    }

    fn apply_events(&mut self, session: &'a Session, report: &mut Report) {
        let mut approval_calls = BTreeMap::new();
        for event in &session.events {
            let call = text(event, "call_id");
            match text(event, "type") {
                "tool_call_started" => drop(self.tools.insert(call, text(event, "tool"))),
                "tool_call_allowed" if event["by"]["kind"] == "approval" => {
                    self.approved.insert(call);
                }
                "waiting_for_approval" if event["plan"]["kind"] == "unknown_outcome" => {
                    approval_calls
                        .insert(text(event, "plan_id"), text(&event["plan"]["call"], "call_id"));
                }
                "approval_decided" if event["answer"]["decision"] == "failed" => {
                    self.failed.extend(approval_calls.get(text(event, "plan_id")));
                }
                "budget_raised" => {
                    self.limit = event["budget"]["limit"].as_f64().unwrap_or_default();
                }
                "budget_reserved" => self.reserve(event, report),
                "tool_call_attempt_started" => self.record_start(call, report),
                "tool_call_failed" | "authorization_denied" => self.record_end(event),
                _ => {}
            }
        }
    }

    fn reserve(&mut self, event: &'a Value, report: &mut Report) {
        let (session, call) = (self.session, text(event, "call_id"));
        let amount = event["cost"]["amount"].as_f64().unwrap_or_default();
        let tool = self.tools.get(call).copied().unwrap_or_default();
        report.check(tool_cost(tool) == Some(amount), Rule::BudgetsAreKept, || {
            format!("session {session} reserves {amount} for call {call} of `{tool}`")
        });
        let before = self.reserved.insert(call, amount);
        let is_repeated = before.is_some() || self.released.contains(call);
        report.check(!is_repeated, Rule::BudgetsAreKept, || {
            format!("session {session} reserves the cost of call {call} twice")
        });
        let (spent, limit) = (self.reserved.values().sum::<f64>(), self.limit);
        let is_covered = self.approved.contains(call) || spent <= limit + ROUNDING;
        report.check(is_covered, Rule::BudgetsAreKept, || {
            format!("session {session} spends {spent} of {limit} with call {call}")
        });
    }

    fn record_start(&mut self, call: &'a str, report: &mut Report) {
        self.started.insert(call);
        let tool = self.tools.get(call).copied().unwrap_or_default();
        let has_reservation = tool_cost(tool).is_none() || self.reserved.contains_key(call);
        report.check(has_reservation, Rule::BudgetsAreKept, || {
            format!("call {call} of `{tool}` started without a reservation")
        });
    }

    fn record_end(&mut self, event: &'a Value) {
        let call = text(event, "call_id");
        let reason = text(event, "reason");
        let is_definite = text(event, "type") == "authorization_denied"
            || DEFINITE_FAILURES.contains(&reason)
            || (reason == "cancelled" && !self.started.contains(call));
        // A human reported the failure and may be wrong.
        if is_definite && self.reserved.remove(call).is_some() && !self.failed.contains(call) {
            self.released.insert(call);
        }
    }
}

fn tool_cost(tool: &str) -> Option<f64> {
    COSTS.iter().find(|(name, _)| *name == tool).map(|(_, cost)| *cost)
}
