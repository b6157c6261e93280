//! Selects the rule that matches a request and renders its reply.
//!
//! Pure: the same script and request give the same reply in both wire formats. Does not know the
//! JSON of either provider or faults (`faults`). Called by `server` for each request.

use serde_json::{Map, Value, json};

use super::decoded_request::{ChatMessage, DecodedRequest};
use super::script::{
    PartContent, PartTemplate, ResultKind, Rule, RuleConditions, Script, StopReason, UsageSpec,
};
use super::template::Renderer;

/// Maximum number of parts of a reply, including those of `for_each`.
pub(super) const REPLY_PARTS_MAX: usize = 128;
/// Number of characters that count as one token.
pub(super) const CHARS_PER_TOKEN: usize = 4;
/// Maximum characters of each quoted text in the echo reply.
const ECHO_CHARS_MAX: usize = 400;

/// A reply, independent of the wire format.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reply {
    /// The parts, in order.
    pub parts: Vec<ReplyPart>,
    /// The stop reason.
    pub stop: StopReason,
    /// The token counts.
    pub usage: TokenCounts,
}

/// A rendered part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReplyPart {
    /// Visible text.
    Text(String),
    /// Thinking.
    Thinking(String),
    /// A refusal.
    Refusal(String),
    /// A tool call.
    ToolCall {
        /// The id, if the script sets it.
        id: Option<String>,
        /// The name of the tool.
        name: String,
        /// The arguments as JSON text; truncated if the script requests malformed arguments.
        arguments: String,
    },
}

/// The token counts of a request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenCounts {
    /// All input tokens, including cached ones.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cached: u64,
}

/// Returns the first rule that matches, with its index.
pub(super) fn find_rule<'s>(
    script: &'s Script,
    prompt: &DecodedRequest,
) -> Option<(usize, &'s Rule)> {
    script.rules.iter().enumerate().find(|(_, rule)| rule_matches(&rule.conditions, prompt))
}

fn rule_matches(conditions: &RuleConditions, prompt: &DecodedRequest) -> bool {
    let last = prompt.last_answered_calls();
    let result_matches_kind = |kind| match kind {
        ResultKind::Ok => !last.is_empty() && last.iter().all(|outcome| !outcome.error),
        ResultKind::Error => last.iter().any(|outcome| outcome.error),
    };
    let forced = match (&conditions.forced, &prompt.forced_tool) {
        (Some(pattern), Some(tool)) => pattern.is_match(tool),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    forced
        && conditions.step.is_none_or(|step| step == prompt.step())
        && conditions.user.as_ref().is_none_or(|pattern| pattern.is_match(prompt.last_user()))
        && conditions.system.as_ref().is_none_or(|pattern| pattern.is_match(&prompt.system))
        && conditions.model.as_ref().is_none_or(|pattern| pattern.is_match(&prompt.model))
        && conditions.offers.as_ref().is_none_or(|tool| prompt.tools.contains(tool))
        && conditions.result.is_none_or(result_matches_kind)
        && conditions
            .result_matches
            .as_ref()
            .is_none_or(|pattern| last.iter().any(|outcome| pattern.is_match(&outcome.text)))
}

/// Renders the reply of a rule to a request.
pub(super) fn render_reply(rule: &Rule, prompt: &DecodedRequest) -> Reply {
    let mut renderer = Renderer::new(variables(rule, prompt));
    let mut parts = Vec::new();
    for part in &rule.reply {
        for rendered in render_part(part, &mut renderer) {
            if parts.len() < REPLY_PARTS_MAX {
                parts.push(rendered);
            }
        }
    }
    finish_reply(parts, rule.stop, rule.usage, prompt)
}

/// Returns the reply to a request that no rule matches: it quotes the message or the tool results.
pub(super) fn echo_reply(prompt: &DecodedRequest) -> Reply {
    let last = prompt.last_answered_calls();
    let text = if last.is_empty() {
        format!(
            "This is the rehearsal model. Its script has no rule for \"{}\". Send a message that \
             the script handles, or configure a real model.",
            clip(prompt.last_user())
        )
    } else {
        let mut text =
            "This is the rehearsal model. Its script ends here. Tool results:\n".to_owned();
        for outcome in &last {
            let status = if outcome.error { "error" } else { "ok" };
            text.push_str(&format!("- {} ({status}): {}\n", outcome.tool, clip(&outcome.text)));
        }
        text
    };
    finish_reply(vec![ReplyPart::Text(text)], None, UsageSpec::default(), prompt)
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(ECHO_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn variables(rule: &Rule, prompt: &DecodedRequest) -> Value {
    let mut variables = Map::new();
    let answered = prompt.answered_calls();
    let mut by_tool: Map<String, Value> = Map::new();
    for outcome in &answered {
        let entry = by_tool.entry(outcome.tool.clone()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(results) = entry {
            results.push(outcome.result.clone());
        }
    }
    let last = prompt.last_answered_calls();
    let errors: Vec<&str> =
        last.iter().filter(|outcome| outcome.error).map(|outcome| outcome.text.as_str()).collect();
    variables.insert("errors".to_owned(), json!(errors));
    variables.insert("results".to_owned(), answered.iter().map(|o| o.result.clone()).collect());
    variables.insert("by_tool".to_owned(), Value::Object(by_tool));
    variables.insert("outcomes".to_owned(), json!(answered));
    variables.insert("last".to_owned(), json!(last));
    variables.insert("user".to_owned(), json!(prompt.last_user()));
    variables.insert("model".to_owned(), json!(prompt.model));
    variables.insert("forced".to_owned(), json!(prompt.forced_tool));
    variables.insert("step".to_owned(), json!(prompt.step()));
    variables.insert("turns".to_owned(), json!(count_user_messages(prompt)));
    if let Some(pattern) = &rule.conditions.user
        && let Some(captures) = pattern.captures(prompt.last_user())
    {
        for name in pattern.capture_names().flatten() {
            if let Some(capture) = captures.name(name) {
                variables.insert(name.to_owned(), json!(capture.as_str()));
            }
        }
    }
    Value::Object(variables)
}

fn count_user_messages(prompt: &DecodedRequest) -> usize {
    prompt.messages.iter().filter(|message| matches!(message, ChatMessage::User(_))).count()
}

fn render_part(part: &PartTemplate, renderer: &mut Renderer) -> Vec<ReplyPart> {
    let Some(expression) = &part.for_each else {
        return vec![render_content(&part.content, renderer)];
    };
    let items = match renderer.value(expression) {
        Some(Value::Array(items)) => items,
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_),
        )
        | None => return vec![ReplyPart::Text(format!("⟨missing: {expression}⟩"))],
    };
    let mut rendered: Vec<ReplyPart> = Vec::new();
    for (index, item) in items.into_iter().take(part.limit).enumerate() {
        renderer.set("item", item);
        renderer.set("index", json!(index));
        // Repeated text is joined to one part; repeated calls remain separate parts.
        match (render_content(&part.content, renderer), rendered.last_mut()) {
            (ReplyPart::Text(further_text), Some(ReplyPart::Text(text))) => {
                text.push_str(&further_text);
            }
            (next, _) => rendered.push(next),
        }
    }
    rendered
}

fn render_content(content: &PartContent, renderer: &Renderer) -> ReplyPart {
    match content {
        PartContent::Text(template) => ReplyPart::Text(renderer.text(template)),
        PartContent::Thinking(template) => ReplyPart::Thinking(renderer.text(template)),
        PartContent::Refusal(template) => ReplyPart::Refusal(renderer.text(template)),
        PartContent::ToolCall { name, arguments, id, malformed } => {
            let mut arguments = renderer.arguments(arguments);
            if *malformed {
                let chars = arguments.chars().count();
                arguments = arguments.chars().take(chars * 2 / 3).collect();
            }
            ReplyPart::ToolCall { id: id.clone(), name: renderer.text(name), arguments }
        }
    }
}

fn finish_reply(
    mut parts: Vec<ReplyPart>,
    stop: Option<StopReason>,
    usage_spec: UsageSpec,
    prompt: &DecodedRequest,
) -> Reply {
    parts.retain(|part| !part.is_blank());
    let is_truncated = prompt.max_tokens.is_some_and(|max| truncate(&mut parts, max));
    let default_stop = if parts.iter().any(|part| matches!(part, ReplyPart::Refusal(_))) {
        StopReason::Refusal
    } else if parts.iter().any(|part| matches!(part, ReplyPart::ToolCall { .. })) {
        StopReason::ToolUse
    } else {
        StopReason::EndTurn
    };
    let output: usize = parts.iter().map(ReplyPart::length).sum();
    let input = usage_spec.input.unwrap_or_else(|| estimate_tokens(prompt.length()));
    let usage = TokenCounts {
        input,
        output: usage_spec.output.unwrap_or_else(|| estimate_tokens(output)),
        cached: usage_spec.cached.unwrap_or(0).min(input),
    };
    let stop = if is_truncated { StopReason::MaxTokens } else { stop.unwrap_or(default_stop) };
    Reply { parts, stop, usage }
}

/// Truncates the parts at the token limit. True if anything was removed.
fn truncate(parts: &mut Vec<ReplyPart>, max_tokens: u64) -> bool {
    let mut remaining =
        usize::try_from(max_tokens).unwrap_or(usize::MAX).saturating_mul(CHARS_PER_TOKEN);
    let total: usize = parts.iter().map(ReplyPart::length).sum();
    if total <= remaining {
        return false;
    }
    for part in parts.iter_mut() {
        let kept_chars = part.length().min(remaining);
        remaining -= kept_chars;
        let text = part.text_mut();
        *text = text.chars().take(kept_chars).collect();
    }
    parts.retain(|part| part.length() > 0);
    true
}

fn estimate_tokens(chars: usize) -> u64 {
    u64::try_from(chars.div_ceil(CHARS_PER_TOKEN)).unwrap_or(u64::MAX).max(1)
}

impl ReplyPart {
    /// Returns the number of characters of content, as counted by token estimates and `after`.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Text(text) | Self::Thinking(text) | Self::Refusal(text) => text.chars().count(),
            Self::ToolCall { arguments, .. } => arguments.chars().count(),
        }
    }

    /// True for a part with empty text. A call without arguments is not blank.
    fn is_blank(&self) -> bool {
        match self {
            Self::Text(text) | Self::Thinking(text) | Self::Refusal(text) => text.is_empty(),
            Self::ToolCall { .. } => false,
        }
    }

    fn text_mut(&mut self) -> &mut String {
        match self {
            Self::Text(text) | Self::Thinking(text) | Self::Refusal(text) => text,
            Self::ToolCall { arguments, .. } => arguments,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::decoded_request::AssistantToolCall;
    use super::*;

    fn call(id: &str, tool: &str) -> AssistantToolCall {
        AssistantToolCall { id: id.into(), tool: tool.into(), arguments: json!({"q": id}) }
    }

    fn tool_result(id: &str, text: &str, error: bool) -> ChatMessage {
        ChatMessage::ToolResult { call_id: id.into(), text: text.into(), error }
    }

    fn request_with(user: &str) -> DecodedRequest {
        DecodedRequest {
            model: "m".into(),
            messages: vec![ChatMessage::User(user.into())],
            ..DecodedRequest::default()
        }
    }

    /// A request after two steps: the first step's call failed; the second step's calls returned a
    /// list and a text.
    fn two_steps() -> DecodedRequest {
        let mut prompt = request_with("Buy 5 Rifter");
        prompt.messages.extend([
            ChatMessage::Assistant { text: String::new(), calls: vec![call("1", "find")] },
            tool_result("1", "no such item", true),
            ChatMessage::Assistant {
                text: String::new(),
                calls: vec![call("2", "find"), call("3", "now")],
            },
            tool_result("3", "noon", false),
            tool_result("2", r#"{"list": [{"id": 1}, {"id": 2}, {"id": 3}]}"#, false),
        ]);
        prompt
    }

    /// Returns the name of the rule that matches.
    fn matching_rule(script: &str, prompt: &DecodedRequest) -> Option<String> {
        let script = Script::parse(script).unwrap();
        find_rule(&script, prompt).map(|(_, rule)| rule.name.clone())
    }

    #[test]
    fn each_condition_is_evaluated() {
        let mut forced = request_with("x");
        forced.forced_tool = Some("submit_plan".into());
        let mut offered = request_with("x");
        offered.tools = vec!["find".into()];
        offered.system = "You are terse".into();
        let mut second_message = two_steps();
        second_message.messages.push(ChatMessage::Assistant { text: "done".into(), calls: vec![] });
        second_message.messages.push(ChatMessage::User("Buy again".into()));
        let cases = [
            ("user = '^buy'", request_with("BUY it"), true),
            ("user = '^buy'", request_with("please buy"), false),
            ("user = '^buy'", two_steps(), true),
            ("user = '^buy 5'", second_message.clone(), false),
            ("step = 0", request_with("x"), true),
            ("step = 0", two_steps(), false),
            ("step = 2", two_steps(), true),
            ("step = 0", second_message.clone(), true),
            ("result = 'ok'", two_steps(), true),
            ("result = 'ok'", request_with("x"), false),
            ("result = 'error'", two_steps(), false),
            ("result = 'ok'", second_message, false),
            ("result_matches = 'NOON'", two_steps(), true),
            ("result_matches = 'no such'", two_steps(), false),
            ("system = 'terse'", offered.clone(), true),
            ("system = 'terse'", request_with("x"), false),
            ("model = '^m$'", request_with("x"), true),
            ("model = 'gpt'", request_with("x"), false),
            ("offers = 'find'", offered, true),
            ("offers = 'find'", request_with("x"), false),
            ("forced = 'plan'", forced.clone(), true),
            ("forced = 'other'", forced.clone(), false),
            ("forced = 'plan'", request_with("x"), false),
            ("user = 'x'", forced, false),
        ];
        for (condition, prompt, expected) in cases {
            let script = format!("[[rule]]\n{condition}\nreply = [{{ text = 'yes' }}]");
            assert_eq!(
                matching_rule(&script, &prompt).is_some(),
                expected,
                "{condition} on {prompt:?}"
            );
        }
    }

    #[test]
    fn first_matching_rule_is_used() {
        let script = "[[rule]]\nname='a'\nuser='z'\nreply=[{text='1'}]\n\
                      [[rule]]\nreply=[{text='2'}]\n[[rule]]\nname='c'\nreply=[{text='3'}]";
        assert_eq!(matching_rule(script, &request_with("x")).as_deref(), Some("2"));
        assert_eq!(matching_rule(script, &request_with("z")).as_deref(), Some("a"));
    }

    fn reply_to(script: &str, prompt: &DecodedRequest) -> Reply {
        let script = Script::parse(script).unwrap();
        let (_, rule) = find_rule(&script, prompt).unwrap();
        render_reply(rule, prompt)
    }

    #[test]
    fn replies_contain_captures_results_and_repeated_parts() {
        let script = r#"
            [[rule]]
            user = 'buy (?P<n>\d+) (?P<item>\w+)'
            [[rule.reply]]
            text = "{{ n }} {{ item }}: {{ outcomes[0].text }}, {{ by_tool.now[0] }}, {{ last | length }}; "
            [[rule.reply]]
            for_each = "results[2].list"
            text = "{{ index }}={{ item.id }} "
            [[rule.reply]]
            for_each = "by_tool.find[1].list"
            limit = 2
            tool_call = { name = "look_{{ index }}", arguments = { id = "{{ item.id }}" } }
            [[rule.reply]]
            for_each = "results[0].list"
            text = "never"
        "#;
        let reply = reply_to(script, &two_steps());
        let call = |name: &str, arguments: &str| ReplyPart::ToolCall {
            id: None,
            name: name.into(),
            arguments: arguments.into(),
        };
        let expected = vec![
            ReplyPart::Text("5 Rifter: no such item, noon, 2; ".into()),
            ReplyPart::Text("0=1 1=2 2=3 ".into()),
            call("look_0", r#"{"id":1}"#),
            call("look_1", r#"{"id":2}"#),
            ReplyPart::Text("⟨missing: results[0].list⟩".into()),
        ];
        assert_eq!(reply.parts, expected);
        assert_eq!(reply.stop, StopReason::ToolUse);
    }

    #[test]
    fn token_limit_truncates_text_and_then_arguments() {
        let script = "[[rule]]\nreply=[{text='12345678'},\
                      {tool_call={name='t', arguments='{\"a\":1}'}}]";
        let mut prompt = request_with("x");
        for (max, text, arguments) in [(1, "1234", None), (3, "12345678", Some("{\"a\""))] {
            prompt.max_tokens = Some(max);
            let reply = reply_to(script, &prompt);
            let mut expected = vec![ReplyPart::Text(text.into())];
            expected.extend(arguments.map(|arguments: &str| ReplyPart::ToolCall {
                id: None,
                name: "t".into(),
                arguments: arguments.into(),
            }));
            assert_eq!((reply.parts, reply.stop), (expected, StopReason::MaxTokens));
            assert_eq!(reply.usage.output, max);
        }
        prompt.max_tokens = Some(4);
        assert_eq!(reply_to(script, &prompt).stop, StopReason::ToolUse);
    }

    #[test]
    fn usage_is_estimated_unless_the_script_sets_it() {
        let script = "[[rule]]\nreply=[{text='12345'}]\nusage = { input = 50, cached = 70 }";
        let usage = reply_to(script, &request_with("x")).usage;
        assert_eq!(
            usage,
            TokenCounts { input: 50, output: 2, cached: 50 },
            "cached is part of input"
        );
        let usage = reply_to("[[rule]]\nreply=[{text='1'}]", &request_with("12345678")).usage;
        assert_eq!(usage, TokenCounts { input: 2, output: 1, cached: 0 });
    }

    #[test]
    fn request_without_matching_rule_gets_the_echo_reply() {
        let Some(ReplyPart::Text(text)) = echo_reply(&request_with("fly me to Jita")).parts.pop()
        else {
            panic!()
        };
        assert!(text.contains("no rule for \"fly me to Jita\""), "{text}");
        let Some(ReplyPart::Text(text)) = echo_reply(&two_steps()).parts.pop() else { panic!() };
        assert!(text.contains("- now (ok): noon"), "{text}");
    }
}
