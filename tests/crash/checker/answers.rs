//! Checks elicitations (T1): each answer reaches the tool at most once and unchanged, and the tool's
//! result uses a submitted answer.

use super::{Report, Rule, text};
use crate::history::History;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) fn check(history: &History, report: &mut Report) {
    let submitted = collect_answers(history, report);
    for (index, arrived) in history.answers.iter().enumerate() {
        // Cancellations and declines are not checked: their reasons may be in no log.
        if arrived.answer["action"] != "accept" {
            continue;
        }
        let (key, content) = (arrived.key.as_str(), &arrived.answer["content"]);
        let is_submitted = submitted.get(key).is_some_and(|answers| answers.contains(&content));
        report.check(is_submitted, Rule::AnswersArriveOnce, || {
            format!("call {key} was answered {content}, which is not in the log")
        });
        let mut earlier = history.answers[..index].iter();
        let is_repeated =
            earlier.any(|answer| answer.key == key && answer.answer == arrived.answer);
        report.check(!is_repeated, Rule::AnswersArriveOnce, || {
            format!("call {key} was answered {content} twice")
        });
    }
    let results = history.sessions.values().flat_map(|session| &session.events).filter(|event| {
        text(event, "type") == "tool_call_completed" && text(event, "tool") == "choose_hangar"
    });
    for result in results {
        let key = text(result, "call_id");
        let is_result = |answer: &Value| {
            ["hangar", "crates"].iter().all(|field| answer[field] == result["result"][field])
        };
        let mut answers = history.answers.iter().filter(|answer| answer.key == key);
        let matches = answers.any(|answer| is_result(&answer.answer["content"]));
        report.check(matches, Rule::AnswersArriveOnce, || {
            format!("call {key} ended with {}, which no answer contains", result["result"])
        });
    }
}

/// Returns the submitted forms, by the call that requested them.
fn collect_answers<'a>(
    history: &'a History,
    report: &mut Report,
) -> BTreeMap<&'a str, Vec<&'a Value>> {
    let mut submitted = BTreeMap::<&str, Vec<&Value>>::new();
    for session in history.sessions.values() {
        let mut open = BTreeMap::<&str, &str>::new();
        for event in &session.events {
            let approval_id = text(event, "plan_id");
            match text(event, "type") {
                "waiting_for_approval" if event["plan"]["kind"] == "elicitation" => {
                    open.insert(approval_id, text(&event["plan"], "call_id"));
                }
                "approval_decided" if event["answer"]["decision"] == "answer" => {
                    let call = open.remove(approval_id);
                    report.check(call.is_some(), Rule::AnswersArriveOnce, || {
                        format!("approval {approval_id} was answered but is not open: {event}")
                    });
                    submitted
                        .entry(call.unwrap_or_default())
                        .or_default()
                        .push(&event["answer"]["value"]);
                }
                "approval_decided" | "approval_expired" | "approval_cancelled" => {
                    open.remove(approval_id);
                }
                _ => {}
            }
        }
    }
    submitted
}
