//! The independent checker: reads a [`History`] and says what is wrong with it. It knows what was
//! promised and none of Greenroom's code. One file a subject; each rule is shown to fail by a forged
//! history in `forged`.

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

/// What was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Every acknowledged command is in the log (D1).
    AcknowledgedIsLogged,
    /// No client saw an event that the log lacks, or has differently (D1).
    ReceivedIsLogged,
    /// What a client hears has no gap, no repetition and no end too early, across reconnects (E2, E3).
    ReceivedIsComplete,
    /// The log has no gap and no repetition, and the file says the same (D1).
    LogIsComplete,
    /// One message, one run (S5).
    OneRunForOneMessage,
    /// Every run ends, or waits visibly; every call has exactly one end (D2).
    RunsEndOrWait,
    /// Nothing reaches the market that the log does not have as allowed and begun (D1, G8).
    EffectsAreAllowed,
    /// No side effect twice without a person's word or the same key (D3).
    NoDuplicateEffects,
    /// An unknown outcome is said, never guessed (D3).
    UnknownOutcomesReported,
    /// What calls cost is set aside once, kept or given back, and adds up (G6).
    BudgetsAreKept,
    /// An approval for the session lets calls run without a question until it is taken back, and not
    /// after (G9).
    GrantsHold,
    /// A step of an approved plan covers one call of just what it shows (G14).
    PlansCoverOnce,
    /// What people say whom a tool asks reaches it at most once, and as they said it (T1).
    AnswersArriveOnce,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// Tools whose calls may not be repeated by themselves.
pub(crate) const UNREPEATABLE: [&str; 2] = ["wallet_transfer", "create_bookmark"];
/// Tools that a person must have been asked about.
pub(crate) const APPROVAL_TOOLS: [&str; 2] = ["wallet_transfer", "market_order_create"];
/// Tools that a person must have been asked about at every call.
pub(crate) const CRITICAL: &str = "wallet_transfer";

/// All that is wrong.
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

/// What was found so far.
pub(crate) struct Report(Vec<Violation>);

impl Report {
    fn check(&mut self, holds: bool, rule: Rule, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation { rule, what: what() });
        }
    }
}

/// A field that is a text.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// What the log says of one call.
#[derive(Default)]
struct CallRecord<'a> {
    session: &'a str,
    run_id: &'a str,
    tool: &'a str,
    arguments: Value,
    /// Whether by a person, of each allowance.
    allowed: Vec<&'a Value>,
    attempts: u32,
    ends: Vec<&'a Value>,
    /// Words of people on its unknown outcomes, each with what it said.
    answers: Vec<&'a Value>,
    /// Questions about its unknown outcome.
    unknown_outcome_approvals: u32,
}

/// The calls of all sessions, by id.
fn calls(history: &History) -> BTreeMap<&str, CallRecord<'_>> {
    let mut calls = BTreeMap::<&str, CallRecord<'_>>::new();
    for (id, session) in &history.sessions {
        // The call that each question about an outcome is about.
        let mut asked = BTreeMap::new();
        for event in &session.events {
            let named = text(event, "call_id");
            match text(event, "type") {
                "tool_call_started" => {
                    *calls.entry(named).or_default() = CallRecord {
                        session: id,
                        run_id: text(event, "run_id"),
                        tool: text(event, "tool"),
                        arguments: event["arguments"].clone(),
                        ..CallRecord::default()
                    };
                }
                "tool_call_allowed" => {
                    if let Some(edited) = event["edit"].get("arguments") {
                        calls.entry(named).or_default().arguments = edited.clone();
                    }
                    calls.entry(named).or_default().allowed.push(event);
                }
                "tool_call_attempt_started" => calls.entry(named).or_default().attempts += 1,
                "tool_call_completed" | "tool_call_failed" | "authorization_denied" => {
                    calls.entry(named).or_default().ends.push(event);
                }
                "waiting_for_approval" if event["plan"]["kind"] == "unknown_outcome" => {
                    let about = text(&event["plan"]["call"], "call_id");
                    calls.entry(about).or_default().unknown_outcome_approvals += 1;
                    asked.insert(text(event, "plan_id"), about);
                }
                "approval_decided" => {
                    if let Some(about) = asked.get(text(event, "plan_id")) {
                        calls.entry(about).or_default().answers.push(&event["answer"]);
                    }
                }
                _ => {}
            }
        }
    }
    calls
}
