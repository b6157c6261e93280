//! What happened in a case, put together from the frames of its run, and what is wrong with it.
//! Pure.

use super::cases::{Case, ExpectedCall, ExpectedVerdict};
use greenroom_core::text::truncate;
use regex::Regex;
use serde::Serialize;
use serde_json::Value;

/// Bytes of a text that a problem quotes.
const QUOTED_BYTES_MAX: usize = 200;

/// What happened.
#[derive(Debug, Default, Serialize)]
pub(super) struct ObservedRun {
    pub(super) calls: Vec<ObservedCall>,
    /// What the model said last.
    pub(super) text: String,
    /// `completed`, `cancelled` or `failed`; empty if it did not end.
    pub(super) outcome: String,
    /// Why it failed.
    pub(super) error: String,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
}

/// A call that was made.
#[derive(Debug, Serialize)]
pub(super) struct ObservedCall {
    #[serde(skip)]
    call_id: String,
    pub(super) tool: String,
    pub(super) arguments: Value,
    #[serde(rename = "decision")]
    pub(super) verdict: Option<ExpectedVerdict>,
    pub(super) end: Option<String>,
}

impl ObservedRun {
    /// Takes a frame in; the id of the question, if a person is asked.
    pub(super) fn apply_frame(&mut self, frame: &Value) -> Option<String> {
        let text = |name: &str| frame[name].as_str().unwrap_or_default().to_owned();
        match frame["type"].as_str().unwrap_or_default() {
            "tool_call_started" => self.calls.push(ObservedCall {
                call_id: text("call_id"),
                tool: text("tool"),
                arguments: frame["arguments"].clone(),
                verdict: None,
                end: None,
            }),
            // An approval's allowance comes after its question.
            "tool_call_allowed" => self.record_verdict(&text("call_id"), ExpectedVerdict::Allow),
            "authorization_denied" => {
                self.record_verdict(&text("call_id"), ExpectedVerdict::Deny);
                self.record_end(&text("call_id"), "denied".to_owned());
            }
            "waiting_for_approval" => {
                let plan = &frame["plan"];
                for step in plan["steps"].as_array().into_iter().flatten() {
                    let call_id = step["call_id"].as_str().unwrap_or_default().to_owned();
                    self.record_verdict(&call_id, ExpectedVerdict::Ask);
                }
                return plan["approval_id"].as_str().map(str::to_owned);
            }
            "tool_call_completed" => self.record_end(&text("call_id"), "completed".to_owned()),
            "tool_call_failed" => self.record_end(&text("call_id"), text("reason")),
            "message_completed" => self.text = text("text"),
            "done" | "error" => {
                let is_done = frame["type"] == "done";
                self.outcome = if is_done { text("outcome") } else { "failed".to_owned() };
                self.error = text("error");
                let tokens = |name: &str| frame["usage"][name].as_u64().unwrap_or_default();
                self.input_tokens = tokens("input_tokens");
                self.output_tokens = tokens("output_tokens");
            }
            _ => {}
        }
        None
    }

    /// The first decision is the policy's.
    fn record_verdict(&mut self, call_id: &str, decision: ExpectedVerdict) {
        if let Some(call) = self.call(call_id) {
            call.verdict.get_or_insert(decision);
        }
    }

    fn record_end(&mut self, call_id: &str, end: String) {
        if let Some(call) = self.call(call_id) {
            call.end = Some(end);
        }
    }

    fn call(&mut self, call_id: &str) -> Option<&mut ObservedCall> {
        self.calls.iter_mut().find(|call| call.call_id == call_id)
    }
}

/// What is wrong, in words; nothing if all is as expected.
pub(super) fn problems(case: &Case, happened: &ObservedRun) -> Vec<String> {
    let mut problems = Vec::new();
    if happened.outcome != case.outcome.name() {
        let ended = match happened.outcome.as_str() {
            "" => "it did not end in time".to_owned(),
            "failed" => format!("it failed: {}", quote(&happened.error)),
            outcome => format!("it was {outcome}"),
        };
        problems.push(format!("the run should have {}; {ended}", case.outcome.name()));
    }
    if let Some(expected) = &case.calls {
        compare_calls(expected, case.other_calls, &happened.calls, &mut problems);
    }
    compare_text(case, &happened.text, &mut problems);
    problems
}

/// Each expected call must be found after the one before it.
fn compare_calls(
    expected: &[ExpectedCall],
    others_may_be: bool,
    made: &[ObservedCall],
    problems: &mut Vec<String>,
) {
    let mut left = made.iter();
    let mut found = 0;
    for call in expected {
        let Some(made) = left.by_ref().find(|made| matches_expected(call, made)) else {
            let arguments = call.arguments.as_ref().map(|it| format!(" with {it}"));
            problems.push(format!(
                "{}{} was not called{}",
                call.tool,
                arguments.unwrap_or_default(),
                if found > 0 { " after the others" } else { "" },
            ));
            continue;
        };
        found += 1;
        if let Some(decision) = call.decision
            && made.verdict != Some(decision)
        {
            let is = made.verdict.map_or("none", ExpectedVerdict::name);
            let name = decision.name();
            problems.push(format!("{}: the policy should say {name}, it says {is}", call.tool));
        }
        if let Some(end) = &call.end
            && made.end.as_ref() != Some(end)
        {
            let is = made.end.as_deref().unwrap_or("open");
            problems.push(format!("{}: it should end as {end}, it is {is}", call.tool));
        }
    }
    if !others_may_be && made.len() > found {
        let more = made.len() - found;
        let tools: Vec<_> = made.iter().map(|call| call.tool.as_str()).collect();
        problems.push(format!("{more} other calls; all of them: {}", tools.join(", ")));
    }
}

fn matches_expected(expected: &ExpectedCall, made: &ObservedCall) -> bool {
    expected.tool == made.tool
        && expected.arguments.as_ref().is_none_or(|wanted| contains(&made.arguments, wanted))
}

/// Whether `value` has all that `wanted` has. Numbers are equal by what they are worth.
fn contains(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| value.get(name).is_some_and(|value| contains(value, wanted))),
        (Value::Array(value), Value::Array(wanted)) => {
            value.len() == wanted.len()
                && value.iter().zip(wanted).all(|(value, wanted)| contains(value, wanted))
        }
        (Value::Number(value), Value::Number(wanted)) => value.as_f64() == wanted.as_f64(),
        _ => value == wanted,
    }
}

fn compare_text(case: &Case, text: &str, problems: &mut Vec<String>) {
    let lower = text.to_lowercase();
    for words in &case.text.contains {
        if !lower.contains(&words.to_lowercase()) {
            problems.push(format!("the answer does not say \"{words}\": {}", quote(text)));
        }
    }
    for words in &case.text.excludes {
        if lower.contains(&words.to_lowercase()) {
            problems.push(format!("the answer says \"{words}\": {}", quote(text)));
        }
    }
    for pattern in &case.text.matches {
        // It was tried when the file was read.
        if !Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text)) {
            problems.push(format!("the answer does not match {pattern}: {}", quote(text)));
        }
    }
}

fn quote(text: &str) -> String {
    let short = truncate(text.trim(), QUOTED_BYTES_MAX);
    let dots = if short.len() < text.trim().len() { "…" } else { "" };
    format!("\"{}{dots}\"", short.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::{super::cases::CaseFile, *};
    use serde_json::json;

    fn case(text: &str) -> Case {
        let text = format!("[[case]]\nname = \"a\"\nmessage = \"hi\"\n{text}");
        CaseFile::parse(&text).unwrap().cases.remove(0)
    }

    fn run() -> ObservedRun {
        let mut happened = ObservedRun::default();
        for frame in [
            json!({"type": "tool_call_started", "call_id": "1", "tool": "look", "arguments": {"id": 34, "more": 1}}),
            json!({"type": "tool_call_allowed", "call_id": "1"}),
            json!({"type": "tool_call_completed", "call_id": "1"}),
            json!({"type": "tool_call_started", "call_id": "2", "tool": "buy", "arguments": {"n": 2.0}}),
            json!({"type": "message_completed", "text": "Bought Two."}),
        ] {
            assert_eq!(happened.apply_frame(&frame), None);
        }
        let plan = json!({"approval_id": "p", "steps": [{"call_id": "2"}]});
        let asked = happened.apply_frame(&json!({"type": "waiting_for_approval", "plan": plan}));
        assert_eq!(asked.as_deref(), Some("p"));
        happened.apply_frame(&json!({"type": "tool_call_allowed", "call_id": "2"}));
        happened
            .apply_frame(&json!({"type": "tool_call_failed", "call_id": "2", "reason": "timeout"}));
        happened.apply_frame(
            &json!({"type": "done", "outcome": "completed", "usage": {"input_tokens": 7}}),
        );
        happened
    }

    #[test]
    fn c6_what_is_as_expected_passes() {
        let good = r#"
            calls = [
                { tool = "look", arguments = { id = 34 }, decision = "allow", end = "completed" },
                { tool = "buy", arguments = { n = 2 }, decision = "ask", end = "timeout" },
            ]
            text = { contains = ["bought two"], excludes = ["sorry"], matches = ['^Bought \w+\.$'] }
        "#;
        assert_eq!(problems(&case(good), &run()), [""; 0]);
        assert_eq!(run().input_tokens, 7);
    }

    #[test]
    fn c6_what_is_not_is_named() {
        for (expected, problem) in [
            ("calls = [{ tool = \"look\" }]", "1 other calls; all of them: look, buy"),
            (
                "calls = [{ tool = \"buy\" }, { tool = \"look\" }]\nother_calls = true",
                "look was not called after the others",
            ),
            (
                "calls = [{ tool = \"look\", arguments = { id = 35 } }]\nother_calls = true",
                "look with {\"id\":35} was not called",
            ),
            (
                "calls = [{ tool = \"buy\", decision = \"deny\" }]\nother_calls = true",
                "should say deny, it says ask",
            ),
            (
                "calls = [{ tool = \"buy\", end = \"completed\" }]\nother_calls = true",
                "it is timeout",
            ),
            ("text.contains = [\"three\"]", "does not say \"three\": \"Bought Two.\""),
            ("text.excludes = [\"TWO\"]", "says \"TWO\""),
            ("text.matches = ['\\d']", "does not match"),
            (
                "text.contains = [\"two\"]\noutcome = \"failed\"",
                "should have failed; it was completed",
            ),
        ] {
            let found = problems(&case(expected), &run());
            assert_eq!(found.len(), 1, "{expected}: {found:?}");
            assert!(found[0].contains(problem), "{problem} is not in {found:?}");
        }
        let found = problems(&case("text.excludes = [\"x\"]"), &ObservedRun::default());
        assert_eq!(found, ["the run should have completed; it did not end in time"]);
    }
}
