//! Checks prior approvals: a grant covers calls from its creation to its revocation (G9), and a step
//! of an approved preflight plan covers one call with exactly its arguments (G14).

use super::{Report, Rule, collect_calls, text};
use crate::history::{History, Session};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(history: &History, report: &mut Report) {
    let calls = collect_calls(history);
    let arguments: BTreeMap<&str, &Value> =
        calls.iter().map(|(call_id, call)| (*call_id, &call.arguments)).collect();
    for (id, session) in &history.sessions {
        check_grants(id, session, report);
        check_plans(id, session, &arguments, report);
    }
}

fn check_grants(id: &str, session: &Session, report: &mut Report) {
    // The tool of each active grant, and the calls that were proposed while it was active.
    let mut grants = BTreeMap::<&str, &str>::new();
    let mut tools = BTreeMap::<&str, &str>::new();
    let mut covered = BTreeSet::<&str>::new();
    for event in &session.events {
        let call = text(event, "call_id");
        match text(event, "type") {
            "grant_added" => {
                let grant = &event["grant"];
                grants.insert(text(grant, "grant_id"), text(grant, "tool"));
            }
            "grant_revoked" => {
                grants.remove(text(event, "grant_id"));
                covered.retain(|call| grants.values().any(|tool| tools.get(call) == Some(tool)));
            }
            "tool_call_started" => {
                let tool = text(event, "tool");
                tools.insert(call, tool);
                if grants.values().any(|granted| *granted == tool) {
                    covered.insert(call);
                }
            }
            "tool_call_allowed" if event["by"]["kind"] == "grant" => {
                let granted = grants.get(text(&event["by"], "grant_id"));
                let is_active = granted.is_some() && granted == tools.get(call);
                report.check(is_active, Rule::GrantsHold, || {
                    format!(
                        "call {call} of session {id} was allowed by {}; active grants: {grants:?}",
                        event["by"]
                    )
                });
            }
            "waiting_for_approval" if event["plan"]["kind"] == "plan" => {
                let steps = event["plan"]["steps"].as_array();
                for step in steps.into_iter().flatten() {
                    let call = text(step, "call_id");
                    report.check(!covered.contains(call), Rule::GrantsHold, || {
                        format!(
                            "call {call} of session {id} needed approval although a grant covers it"
                        )
                    });
                }
            }
            _ => {}
        }
    }
}

fn check_plans(
    id: &str,
    session: &Session,
    arguments: &BTreeMap<&str, &Value>,
    report: &mut Report,
) {
    let mut plans = BTreeMap::<&str, &Value>::new();
    let mut used = BTreeSet::<(&str, u64)>::new();
    for event in &session.events {
        match text(event, "type") {
            "preflight_approved" => drop(plans.insert(text(event, "plan_id"), event)),
            "tool_call_allowed" if event["by"]["kind"] == "preflight" => {
                let call = text(event, "call_id");
                let plan_id = text(&event["by"], "approval_id");
                let position = event["by"]["step"].as_u64().unwrap_or_default();
                let plan = plans.get(plan_id).filter(|plan| plan["run_id"] == event["run_id"]);
                let steps = plan.and_then(|plan| plan["steps"].as_array());
                let is_covering = |step: &&Value| {
                    step["position"] == position
                        && step["skipped"] != true
                        && Some(&&step["arguments"]) == arguments.get(call)
                };
                let is_covered =
                    steps.is_some_and(|steps| steps.iter().any(|step| is_covering(&step)));
                report.check(is_covered, Rule::PlansCoverOnce, || {
                    format!(
                        "call {call} of session {id} was allowed by step {position} of {plan:?}"
                    )
                });
                report.check(used.insert((plan_id, position)), Rule::PlansCoverOnce, || {
                    format!(
                        "step {position} of the plan {plan_id} of session {id} covers two calls"
                    )
                });
            }
            _ => {}
        }
    }
}
