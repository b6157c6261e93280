//! Checks effects at the market: each was recorded as allowed and started before, occurred once, and
//! was reported correctly.

use super::{
    APPROVAL_TOOLS, CRITICAL, CallRecord, Report, Rule, UNREPEATABLE, collect_calls, text,
};
use crate::history::{History, MarketEffect};
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) fn check(history: &History, report: &mut Report) {
    let calls = collect_calls(history);
    let mut arrived = BTreeMap::<&str, u32>::new();
    for arrival in &history.market_calls {
        *arrived.entry(arrival.key.as_str()).or_default() += 1;
        let call = calls.get(arrival.key.as_str());
        let is_recorded = call
            .is_some_and(|call| call.tool == arrival.tool && call.arguments == arrival.arguments);
        report.check(is_recorded, Rule::EffectsAreAllowed, || {
            format!("the market received {arrival:?}, which is not in the log")
        });
    }
    let mut effects = BTreeMap::<&str, Vec<&MarketEffect>>::new();
    for effect in &history.effects {
        effects.entry(effect.key.as_str()).or_default().push(effect);
        let is_recorded = calls.get(effect.key.as_str()).is_some_and(|call| {
            call.tool == effect.tool && is_same_json(&call.arguments, &effect.arguments)
        });
        report.check(is_recorded, Rule::EffectsAreAllowed, || {
            format!("the market recorded {effect:?}, which is not in the log")
        });
    }
    for (call_id, call) in &calls {
        let arrived = arrived.get(call_id).copied().unwrap_or_default();
        let effects = effects.get(call_id).map(Vec::as_slice).unwrap_or_default();
        check_allowed(call_id, call, arrived, report);
        check_no_duplicates(call_id, call, arrived, effects, report);
        check_reported_end(call_id, call, effects, report);
    }
}

/// Checks that every call at the market was started, and allowed or approved as its tool requires.
fn check_allowed(call_id: &str, call: &CallRecord<'_>, arrived: u32, report: &mut Report) {
    report.check(arrived <= call.attempts, Rule::EffectsAreAllowed, || {
        format!("call {call_id} arrived {arrived} times in {} recorded attempts", call.attempts)
    });
    let by_human = |event: &&Value| match text(&event["by"], "kind") {
        "approval" => true,
        // Prior approvals cover every call except a critical one.
        "grant" | "preflight" => call.tool != CRITICAL,
        _ => false,
    };
    let is_approved = !APPROVAL_TOOLS.contains(&call.tool) || call.allowed.iter().any(by_human);
    let is_allowed = arrived == 0 || (is_approved && !call.allowed.is_empty());
    report.check(is_allowed, Rule::EffectsAreAllowed, || {
        format!("call {call_id} ({}) ran without the approval that it needs", call.tool)
    });
}

/// Checks that no effect occurred twice and no unrepeatable call was repeated automatically.
fn check_no_duplicates(
    call_id: &str,
    call: &CallRecord<'_>,
    arrived: u32,
    effects: &[&MarketEffect],
    report: &mut Report,
) {
    report.check(effects.len() <= 1, Rule::NoDuplicateEffects, || {
        format!("call {call_id} took effect {} times", effects.len())
    });
    if !UNREPEATABLE.contains(&call.tool) {
        return;
    }
    let retry_answers = call.answers.iter().filter(|answer| answer["decision"] == "retry").count();
    report.check(arrived as usize <= 1 + retry_answers, Rule::NoDuplicateEffects, || {
        format!(
            "call {call_id} ({}) arrived {arrived} times with {retry_answers} `retry` answers",
            call.tool
        )
    });
}

/// Checks that the end of a call reports its effect, or that it is unknown.
fn check_reported_end(
    call_id: &str,
    call: &CallRecord<'_>,
    effects: &[&MarketEffect],
    report: &mut Report,
) {
    let Some(end) = call.ends.first() else { return };
    let was_answered = |decision: &str| {
        let mut answers = call.answers.iter();
        answers.any(|answer| answer["decision"] == decision)
    };
    let holds = match text(end, "type") {
        "tool_call_completed" => {
            let mut effects = effects.iter();
            let is_effect = effects.any(|effect| is_same_json(&effect.result, &end["result"]));
            is_effect || was_answered("done") || is_read_only(call.tool)
        }
        "tool_call_failed" => match text(end, "reason") {
            // If there is an effect, the error must state that the call may have taken effect.
            "cancelled" | "outcome_unknown" => {
                effects.is_empty() || text(end, "error").contains("have taken effect")
            }
            _ => effects.is_empty() || was_answered("failed"),
        },
        _ => effects.is_empty(),
    };
    report.check(holds, Rule::UnknownOutcomesReported, || {
        format!("call {call_id} ended with {end}; effects at the market: {effects:?}")
    });
    // An automatic repetition would have assumed that the first attempt had no effect.
    let retry_answers = call.answers.iter().filter(|answer| answer["decision"] == "retry").count();
    let is_permitted =
        !UNREPEATABLE.contains(&call.tool) || call.attempts as usize <= 1 + retry_answers;
    report.check(is_permitted, Rule::UnknownOutcomesReported, || {
        format!("call {call_id} ({}) started {} times automatically", call.tool, call.attempts)
    });
}

fn is_read_only(tool: &str) -> bool {
    ["get_", "scan_", "list_", "choose_"].iter().any(|prefix| tool.starts_with(prefix))
}

/// Compares two JSON values; 5 and 5.0 are equal.
fn is_same_json(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| is_same_json(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let is_in_right = |(key, value): (&String, &Value)| {
                right.get(key).is_some_and(|right| is_same_json(value, right))
            };
            left.len() == right.len() && left.iter().all(is_in_right)
        }
        _ => left == right,
    }
}
