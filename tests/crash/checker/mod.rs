//! The independent checker: reads a [`History`] and reports violations of Greenroom's guarantees. It
//! uses none of Greenroom's code. One file per subject; invalid histories show that each rule fails
//! when it must.

mod answers;
mod budgets;
mod effects;
mod invalid_approval_histories;
mod invalid_histories;
mod log;
mod prior_approvals;
mod subscribers;

use crate::history::History;
use serde_json::Value;
use std::{collections::BTreeMap, fmt};

/// The checked guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Every acknowledged command is in the log (D1).
    AcknowledgedIsLogged,
    /// Every event that a client received is in the log, with the same content (D1).
    ReceivedIsLogged,
    /// A client receives events without gap, repetition or early end, across reconnects (E2, E3).
    ReceivedIsComplete,
    /// The log has no gap and no repetition, and equals the database (D1).
    LogIsComplete,
    /// One run per message (S5).
    OneRunForOneMessage,
    /// Every run ends or visibly waits; every call has exactly one end (D2).
    RunsEndOrWait,
    /// Every call at the market was recorded as allowed and started before (D1, G8).
    EffectsAreAllowed,
    /// No effect occurs twice without a human's answer or the same idempotency key (D3).
    NoDuplicateEffects,
    /// Unknown outcomes are reported, never guessed (D3).
    UnknownOutcomesReported,
    /// Costs are reserved once, kept or released, and add up to the stored spending (G6).
    BudgetsAreKept,
    /// A grant covers calls until it is revoked, and not after (G9).
    GrantsHold,
    /// A step of an approved preflight plan covers one call with exactly its arguments (G14).
    PlansCoverOnce,
    /// An answer to an elicitation reaches the tool at most once and unchanged (T1).
    AnswersArriveOnce,
}

/// A violated guarantee.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) description: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.description)
    }
}

/// Tools whose calls may not be repeated automatically.
pub(crate) const UNREPEATABLE: [&str; 2] = ["wallet_transfer", "create_bookmark"];
/// Tools whose calls need approval.
pub(crate) const APPROVAL_TOOLS: [&str; 2] = ["wallet_transfer", "market_order_create"];
/// The tool whose calls need approval every time.
pub(crate) const CRITICAL: &str = "wallet_transfer";

/// Returns all violations in `history`.
pub(crate) fn find_violations(history: &History) -> Vec<Violation> {
    let mut report = Report(Vec::new());
    log::check(history, &mut report);
    subscribers::check(history, &mut report);
    effects::check(history, &mut report);
    budgets::check(history, &mut report);
    prior_approvals::check(history, &mut report);
    answers::check(history, &mut report);
    report.0
}

/// Collects violations.
pub(crate) struct Report(Vec<Violation>);

impl Report {
    fn check(&mut self, holds: bool, rule: Rule, description: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation { rule, description: description() });
        }
    }
}

/// Returns a string field of a JSON object, empty if absent.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The log's record of one call.
#[derive(Default)]
struct CallRecord<'a> {
    session: &'a str,
    run_id: &'a str,
    tool: &'a str,
    arguments: Value,
    /// The `by` of each allowance.
    allowed: Vec<&'a Value>,
    attempts: u32,
    ends: Vec<&'a Value>,
    /// Answers to approvals of its unknown outcome.
    answers: Vec<&'a Value>,
    /// Number of approvals for its unknown outcome.
    unknown_outcome_approvals: u32,
}

/// Returns the calls of all sessions, by id.
fn collect_calls(history: &History) -> BTreeMap<&str, CallRecord<'_>> {
    let mut calls = BTreeMap::<&str, CallRecord<'_>>::new();
    for (id, session) in &history.sessions {
        // The call of each approval for an unknown outcome.
        let mut approval_calls = BTreeMap::new();
        for event in &session.events {
            let call_id = text(event, "call_id");
            match text(event, "type") {
                "tool_call_started" => {
                    *calls.entry(call_id).or_default() = CallRecord {
                        session: id,
                        run_id: text(event, "run_id"),
                        tool: text(event, "tool"),
                        arguments: event["arguments"].clone(),
                        ..CallRecord::default()
                    };
                }
                "tool_call_allowed" => {
                    if let Some(edited) = event["edit"].get("arguments") {
                        calls.entry(call_id).or_default().arguments = edited.clone();
                    }
                    calls.entry(call_id).or_default().allowed.push(event);
                }
                "tool_call_attempt_started" => calls.entry(call_id).or_default().attempts += 1,
                "tool_call_completed" | "tool_call_failed" | "authorization_denied" => {
                    calls.entry(call_id).or_default().ends.push(event);
                }
                "waiting_for_approval" if event["plan"]["kind"] == "unknown_outcome" => {
                    let unknown_call = text(&event["plan"]["call"], "call_id");
                    calls.entry(unknown_call).or_default().unknown_outcome_approvals += 1;
                    approval_calls.insert(text(event, "plan_id"), unknown_call);
                }
                "approval_decided" => {
                    if let Some(unknown_call) = approval_calls.get(text(event, "plan_id")) {
                        calls.entry(unknown_call).or_default().answers.push(&event["answer"]);
                    }
                }
                _ => {}
            }
        }
    }
    calls
}
