//! The run of a case, collected from its frames, and its comparison with the expectations. Pure.

use super::cases::{Case, ExpectedCall, ExpectedVerdict};
use greenroom_core::{json::decimal::are_equal, text::truncate};
use regex::Regex;
use serde::Serialize;
use serde_json::Value;

/// Maximum bytes of a text quoted in a problem.
const QUOTED_BYTES_MAX: usize = 200;

/// The observed run.
#[derive(Debug, Default, Serialize)]
pub(super) struct ObservedRun {
    pub(super) calls: Vec<ObservedCall>,
    /// The model's last message.
    pub(super) text: String,
    /// `completed`, `cancelled` or `failed`; empty if the run did not end.
    pub(super) outcome: String,
    /// The error of a failed run.
    pub(super) error: String,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
}

/// An observed call.
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
    /// Applies a frame. Returns the id of the approval that the frame requests, if any.
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
            // An approved call has its `ask` recorded before it is allowed.
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

    /// Records a verdict. The first one is the policy's; later ones are ignored.
    fn record_verdict(&mut self, call_id: &str, verdict: ExpectedVerdict) {
        if let Some(call) = self.call(call_id) {
            call.verdict.get_or_insert(verdict);
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

/// Compares the run with the case. Returns one text per deviation.
pub(super) fn find_problems(case: &Case, observed: &ObservedRun) -> Vec<String> {
    let mut problems = Vec::new();
    if observed.outcome != case.outcome.name() {
        let actual = match observed.outcome.as_str() {
            "" => "the run did not end in time".to_owned(),
            "failed" => format!("the run failed: {}", quote(&observed.error)),
            outcome => format!("got {outcome}"),
        };
        problems.push(format!("expected outcome {}; {actual}", case.outcome.name()));
    }
    if let Some(expected) = &case.calls {
        compare_calls(expected, case.other_calls, &observed.calls, &mut problems);
    }
    compare_text(case, &observed.text, &mut problems);
    problems
}

/// Compares the calls. Each expected call is searched for after the match of the one before it.
fn compare_calls(
    expected: &[ExpectedCall],
    others_allowed: bool,
    observed: &[ObservedCall],
    problems: &mut Vec<String>,
) {
    let mut remaining = observed.iter();
    let mut matched_count = 0;
    for call in expected {
        let Some(actual) = remaining.by_ref().find(|actual| matches_expected(call, actual)) else {
            let arguments = call.arguments.as_ref().map(|arguments| format!(" with {arguments}"));
            problems.push(format!(
                "{}{} was not called{}",
                call.tool,
                arguments.unwrap_or_default(),
                if matched_count > 0 { " after the others" } else { "" },
            ));
            continue;
        };
        matched_count += 1;
        if let Some(expected) = call.decision
            && actual.verdict != Some(expected)
        {
            let verdict = actual.verdict.map_or("none", ExpectedVerdict::name);
            let name = expected.name();
            problems.push(format!("{}: expected decision {name}, got {verdict}", call.tool));
        }
        if let Some(expected) = &call.end
            && actual.end.as_ref() != Some(expected)
        {
            let end = actual.end.as_deref().unwrap_or("open");
            problems.push(format!("{}: expected end {expected}, got {end}", call.tool));
        }
    }
    if !others_allowed && observed.len() > matched_count {
        let unexpected_count = observed.len() - matched_count;
        let tools: Vec<_> = observed.iter().map(|call| call.tool.as_str()).collect();
        problems
            .push(format!("{unexpected_count} unexpected calls; all calls: {}", tools.join(", ")));
    }
}

fn matches_expected(expected: &ExpectedCall, actual: &ObservedCall) -> bool {
    let arguments = expected.arguments.as_ref();
    expected.tool == actual.tool
        && arguments.is_none_or(|arguments| contains(&actual.arguments, arguments))
}

/// True if `value` contains every member of `expected`. Numbers are compared by value.
fn contains(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (Value::Object(value), Value::Object(expected)) => expected
            .iter()
            .all(|(name, expected)| value.get(name).is_some_and(|value| contains(value, expected))),
        (Value::Array(value), Value::Array(expected)) => {
            value.len() == expected.len()
                && value.iter().zip(expected).all(|(value, expected)| contains(value, expected))
        }
        (Value::Number(value), Value::Number(expected)) => are_equal(value, expected),
        _ => value == expected,
    }
}

fn compare_text(case: &Case, text: &str, problems: &mut Vec<String>) {
    let lower = text.to_lowercase();
    for words in &case.text.contains {
        if !lower.contains(&words.to_lowercase()) {
            problems.push(format!("the answer does not contain \"{words}\": {}", quote(text)));
        }
    }
    for words in &case.text.excludes {
        if lower.contains(&words.to_lowercase()) {
            problems.push(format!("the answer contains \"{words}\": {}", quote(text)));
        }
    }
    for pattern in &case.text.matches {
        // `CaseFile::parse` has validated the pattern.
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
        let mut observed = ObservedRun::default();
        for frame in [
            json!({"type": "tool_call_started", "call_id": "1", "tool": "look", "arguments": {"id": 34, "more": 1}}),
            json!({"type": "tool_call_allowed", "call_id": "1"}),
            json!({"type": "tool_call_completed", "call_id": "1"}),
            json!({"type": "tool_call_started", "call_id": "2", "tool": "buy", "arguments": {"n": 2.0}}),
            json!({"type": "message_completed", "text": "Bought Two."}),
        ] {
            assert_eq!(observed.apply_frame(&frame), None);
        }
        let plan = json!({"approval_id": "p", "steps": [{"call_id": "2"}]});
        let waiting = json!({"type": "waiting_for_approval", "plan": plan});
        assert_eq!(observed.apply_frame(&waiting).as_deref(), Some("p"));
        observed.apply_frame(&json!({"type": "tool_call_allowed", "call_id": "2"}));
        observed
            .apply_frame(&json!({"type": "tool_call_failed", "call_id": "2", "reason": "timeout"}));
        observed.apply_frame(
            &json!({"type": "done", "outcome": "completed", "usage": {"input_tokens": 7}}),
        );
        observed
    }

    #[test]
    fn c6_run_as_expected_has_no_problems() {
        let good = r#"
            calls = [
                { tool = "look", arguments = { id = 34 }, decision = "allow", end = "completed" },
                { tool = "buy", arguments = { n = 2 }, decision = "ask", end = "timeout" },
            ]
            text = { contains = ["bought two"], excludes = ["sorry"], matches = ['^Bought \w+\.$'] }
        "#;
        assert_eq!(find_problems(&case(good), &run()), [""; 0]);
        assert_eq!(run().input_tokens, 7);
    }

    #[test]
    fn c6_deviations_are_reported() {
        for (expected, problem) in [
            ("calls = [{ tool = \"look\" }]", "1 unexpected calls; all calls: look, buy"),
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
                "expected decision deny, got ask",
            ),
            (
                "calls = [{ tool = \"buy\", end = \"completed\" }]\nother_calls = true",
                "expected end completed, got timeout",
            ),
            ("text.contains = [\"three\"]", "does not contain \"three\": \"Bought Two.\""),
            ("text.excludes = [\"TWO\"]", "contains \"TWO\""),
            ("text.matches = ['\\d']", "does not match"),
            (
                "text.contains = [\"two\"]\noutcome = \"failed\"",
                "expected outcome failed; got completed",
            ),
        ] {
            let problems = find_problems(&case(expected), &run());
            assert_eq!(problems.len(), 1, "{expected}: {problems:?}");
            assert!(problems[0].contains(problem), "{problem} is not in {problems:?}");
        }
        let problems = find_problems(&case("text.excludes = [\"x\"]"), &ObservedRun::default());
        assert_eq!(problems, ["expected outcome completed; the run did not end in time"]);
    }
}
