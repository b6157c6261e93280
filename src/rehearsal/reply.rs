//! From a prompt to a reply: which rule answers, and what it says.
//!
//! Pure: the same script and prompt give the same reply, whatever the wire. Knows no JSON of
//! either provider and no failures (`faults`). Called by the server for each request.

use serde_json::{Map, Value, json};

use super::prompt::{Prompt, Turn};
use super::script::{Content, Part, ResultKind, Rule, Script, Stop, UsageSpec, When};
use super::template::Renderer;

/// Most parts in one reply, fan-outs included.
pub(super) const REPLY_PARTS_MAX: usize = 128;
/// How many characters count as one token.
pub(super) const CHARS_PER_TOKEN: usize = 4;
/// Longest piece of a message that the echo repeats, in characters.
const ECHO_CHARS_MAX: usize = 400;

/// What the model answers, in neutral form.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reply {
    /// Its parts, in order.
    pub parts: Vec<Said>,
    /// Why it stopped.
    pub stop: Stop,
    /// Token counts.
    pub usage: Usage,
}

/// One rendered part.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    /// Visible text.
    Text(String),
    /// Thinking.
    Thinking(String),
    /// A refusal.
    Refusal(String),
    /// A tool call.
    ToolCall {
        /// The id given by the script.
        id: Option<String>,
        /// Tool name.
        name: String,
        /// JSON text, perhaps cut off on purpose.
        arguments: String,
    },
}

/// Token counts of one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    /// All input tokens, cached ones included.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cached: u64,
}

/// The first rule that matches, with its position.
pub(super) fn find<'s>(script: &'s Script, prompt: &Prompt) -> Option<(usize, &'s Rule)> {
    script.rules.iter().enumerate().find(|(_, rule)| matches(&rule.when, prompt))
}

fn matches(when: &When, prompt: &Prompt) -> bool {
    let last = prompt.last_outcomes();
    let result = |kind| match kind {
        ResultKind::Ok => !last.is_empty() && last.iter().all(|outcome| !outcome.error),
        ResultKind::Error => last.iter().any(|outcome| outcome.error),
    };
    let forced = match (&when.forced, &prompt.forced_tool) {
        (Some(pattern), Some(tool)) => pattern.is_match(tool),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    forced
        && when.step.is_none_or(|step| step == prompt.step())
        && when.user.as_ref().is_none_or(|pattern| pattern.is_match(prompt.last_user()))
        && when.system.as_ref().is_none_or(|pattern| pattern.is_match(&prompt.system))
        && when.model.as_ref().is_none_or(|pattern| pattern.is_match(&prompt.model))
        && when.offers.as_ref().is_none_or(|tool| prompt.tools.contains(tool))
        && when.result.is_none_or(result)
        && when
            .result_matches
            .as_ref()
            .is_none_or(|pattern| last.iter().any(|outcome| pattern.is_match(&outcome.text)))
}

/// What a rule answers to a prompt.
pub(super) fn write(rule: &Rule, prompt: &Prompt) -> Reply {
    let mut renderer = Renderer::new(variables(rule, prompt));
    let mut parts = Vec::new();
    for part in &rule.reply {
        for said in render(part, &mut renderer) {
            if parts.len() < REPLY_PARTS_MAX {
                parts.push(said);
            }
        }
    }
    finish(parts, rule.stop, rule.usage, prompt)
}

/// The answer when no rule matches: it says so, politely.
pub(super) fn echo(prompt: &Prompt) -> Reply {
    let last = prompt.last_outcomes();
    let text = if last.is_empty() {
        format!(
            "This is the rehearsal model: I follow a script, and it has no line for \"{}\". \
             Try one of the messages the script knows, or configure a real model.",
            clip(prompt.last_user())
        )
    } else {
        let mut text =
            "This is the rehearsal model. My script ends here; the tools answered:\n".to_owned();
        for outcome in &last {
            let verdict = if outcome.error { "error" } else { "ok" };
            text.push_str(&format!("- {} ({verdict}): {}\n", outcome.tool, clip(&outcome.text)));
        }
        text
    };
    finish(vec![Said::Text(text)], None, UsageSpec::default(), prompt)
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(ECHO_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn variables(rule: &Rule, prompt: &Prompt) -> Value {
    let mut variables = Map::new();
    let outcomes = prompt.outcomes();
    let mut by_tool: Map<String, Value> = Map::new();
    for outcome in &outcomes {
        let entry = by_tool.entry(outcome.tool.clone()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(results) = entry {
            results.push(outcome.result.clone());
        }
    }
    let last = prompt.last_outcomes();
    let errors: Vec<&str> =
        last.iter().filter(|outcome| outcome.error).map(|outcome| outcome.text.as_str()).collect();
    variables.insert("errors".to_owned(), json!(errors));
    variables.insert("results".to_owned(), outcomes.iter().map(|o| o.result.clone()).collect());
    variables.insert("by_tool".to_owned(), Value::Object(by_tool));
    variables.insert("outcomes".to_owned(), json!(outcomes));
    variables.insert("last".to_owned(), json!(last));
    variables.insert("user".to_owned(), json!(prompt.last_user()));
    variables.insert("model".to_owned(), json!(prompt.model));
    variables.insert("forced".to_owned(), json!(prompt.forced_tool));
    variables.insert("step".to_owned(), json!(prompt.step()));
    variables.insert("turns".to_owned(), json!(user_turns(prompt)));
    if let Some(pattern) = &rule.when.user
        && let Some(captures) = pattern.captures(prompt.last_user())
    {
        for name in pattern.capture_names().flatten() {
            if let Some(found) = captures.name(name) {
                variables.insert(name.to_owned(), json!(found.as_str()));
            }
        }
    }
    Value::Object(variables)
}

fn user_turns(prompt: &Prompt) -> usize {
    prompt.turns.iter().filter(|turn| matches!(turn, Turn::User(_))).count()
}

fn render(part: &Part, renderer: &mut Renderer) -> Vec<Said> {
    let Some(expression) = &part.for_each else {
        return vec![say(&part.content, renderer)];
    };
    let items = match renderer.value(expression) {
        Some(Value::Array(items)) => items,
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_),
        )
        | None => return vec![Said::Text(format!("⟨missing: {expression}⟩"))],
    };
    let mut said: Vec<Said> = Vec::new();
    for (index, item) in items.into_iter().take(part.limit).enumerate() {
        renderer.set("item", item);
        renderer.set("index", json!(index));
        // Repeated text is one flowing text; repeated calls are calls of their own.
        match (say(&part.content, renderer), said.last_mut()) {
            (Said::Text(more), Some(Said::Text(text))) => text.push_str(&more),
            (next, _) => said.push(next),
        }
    }
    said
}

fn say(content: &Content, renderer: &Renderer) -> Said {
    match content {
        Content::Text(template) => Said::Text(renderer.text(template)),
        Content::Thinking(template) => Said::Thinking(renderer.text(template)),
        Content::Refusal(template) => Said::Refusal(renderer.text(template)),
        Content::ToolCall { name, arguments, id, malformed } => {
            let mut arguments = renderer.arguments(arguments);
            if *malformed {
                let chars = arguments.chars().count();
                arguments = arguments.chars().take(chars * 2 / 3).collect();
            }
            Said::ToolCall { id: id.clone(), name: renderer.text(name), arguments }
        }
    }
}

fn finish(mut parts: Vec<Said>, stop: Option<Stop>, given: UsageSpec, prompt: &Prompt) -> Reply {
    parts.retain(|part| !part.is_blank());
    let cut = prompt.max_tokens.is_some_and(|max| truncate(&mut parts, max));
    let told = if parts.iter().any(|part| matches!(part, Said::Refusal(_))) {
        Stop::Refusal
    } else if parts.iter().any(|part| matches!(part, Said::ToolCall { .. })) {
        Stop::ToolUse
    } else {
        Stop::EndTurn
    };
    let output: usize = parts.iter().map(Said::length).sum();
    let input = given.input.unwrap_or_else(|| tokens(prompt.length()));
    let usage = Usage {
        input,
        output: given.output.unwrap_or_else(|| tokens(output)),
        cached: given.cached.unwrap_or(0).min(input),
    };
    let stop = if cut { Stop::MaxTokens } else { stop.unwrap_or(told) };
    Reply { parts, stop, usage }
}

/// Cuts the parts at the token limit; tells whether anything was lost.
fn truncate(parts: &mut Vec<Said>, max_tokens: u64) -> bool {
    let mut left =
        usize::try_from(max_tokens).unwrap_or(usize::MAX).saturating_mul(CHARS_PER_TOKEN);
    let total: usize = parts.iter().map(Said::length).sum();
    if total <= left {
        return false;
    }
    for part in parts.iter_mut() {
        let kept = part.length().min(left);
        left -= kept;
        let text = part.text_mut();
        *text = text.chars().take(kept).collect();
    }
    parts.retain(|part| part.length() > 0);
    true
}

fn tokens(chars: usize) -> u64 {
    u64::try_from(chars.div_ceil(CHARS_PER_TOKEN)).unwrap_or(u64::MAX).max(1)
}

impl Said {
    /// Characters of content, as counted by token estimates and `after`.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Text(text) | Self::Thinking(text) | Self::Refusal(text) => text.chars().count(),
            Self::ToolCall { arguments, .. } => arguments.chars().count(),
        }
    }

    /// Empty text says nothing; a call without arguments still is one.
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
    use super::super::prompt::Call;
    use super::*;

    fn call(id: &str, tool: &str) -> Call {
        Call { id: id.into(), tool: tool.into(), arguments: json!({"q": id}) }
    }

    fn answered(id: &str, text: &str, error: bool) -> Turn {
        Turn::Result { call_id: id.into(), text: text.into(), error }
    }

    fn asked(user: &str) -> Prompt {
        Prompt { model: "m".into(), turns: vec![Turn::User(user.into())], ..Prompt::default() }
    }

    /// Two steps in: the first step's call failed, the second's gave a list and a word.
    fn two_steps() -> Prompt {
        let mut prompt = asked("Buy 5 Rifter");
        prompt.turns.extend([
            Turn::Model { text: String::new(), calls: vec![call("1", "find")] },
            answered("1", "no such item", true),
            Turn::Model { text: String::new(), calls: vec![call("2", "find"), call("3", "now")] },
            answered("3", "noon", false),
            answered("2", r#"{"list": [{"id": 1}, {"id": 2}, {"id": 3}]}"#, false),
        ]);
        prompt
    }

    /// The name of the rule that answers.
    fn found(script: &str, prompt: &Prompt) -> Option<String> {
        let script = Script::parse(script).unwrap();
        find(&script, prompt).map(|(_, rule)| rule.name.clone())
    }

    #[test]
    fn each_condition_decides() {
        let mut forced = asked("x");
        forced.forced_tool = Some("submit_plan".into());
        let mut offered = asked("x");
        offered.tools = vec!["find".into()];
        offered.system = "You are terse".into();
        let mut again = two_steps();
        again.turns.push(Turn::Model { text: "done".into(), calls: vec![] });
        again.turns.push(Turn::User("Buy again".into()));
        let cases = [
            ("user = '^buy'", asked("BUY it"), true),
            ("user = '^buy'", asked("please buy"), false),
            ("user = '^buy'", two_steps(), true),
            ("user = '^buy 5'", again.clone(), false),
            ("step = 0", asked("x"), true),
            ("step = 0", two_steps(), false),
            ("step = 2", two_steps(), true),
            ("step = 0", again.clone(), true),
            ("result = 'ok'", two_steps(), true),
            ("result = 'ok'", asked("x"), false),
            ("result = 'error'", two_steps(), false),
            ("result = 'ok'", again, false),
            ("result_matches = 'NOON'", two_steps(), true),
            ("result_matches = 'no such'", two_steps(), false),
            ("system = 'terse'", offered.clone(), true),
            ("system = 'terse'", asked("x"), false),
            ("model = '^m$'", asked("x"), true),
            ("model = 'gpt'", asked("x"), false),
            ("offers = 'find'", offered, true),
            ("offers = 'find'", asked("x"), false),
            ("forced = 'plan'", forced.clone(), true),
            ("forced = 'other'", forced.clone(), false),
            ("forced = 'plan'", asked("x"), false),
            ("user = 'x'", forced, false),
        ];
        for (condition, prompt, expected) in cases {
            let script = format!("[[rule]]\n{condition}\nreply = [{{ text = 'yes' }}]");
            assert_eq!(found(&script, &prompt).is_some(), expected, "{condition} on {prompt:?}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_answers() {
        let script = "[[rule]]\nname='a'\nuser='z'\nreply=[{text='1'}]\n\
                      [[rule]]\nreply=[{text='2'}]\n[[rule]]\nname='c'\nreply=[{text='3'}]";
        assert_eq!(found(script, &asked("x")).as_deref(), Some("2"));
        assert_eq!(found(script, &asked("z")).as_deref(), Some("a"));
    }

    fn said(script: &str, prompt: &Prompt) -> Reply {
        let script = Script::parse(script).unwrap();
        let (_, rule) = find(&script, prompt).unwrap();
        write(rule, prompt)
    }

    #[test]
    fn replies_quote_captures_and_results_and_fan_out() {
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
        let reply = said(script, &two_steps());
        let call = |name: &str, arguments: &str| Said::ToolCall {
            id: None,
            name: name.into(),
            arguments: arguments.into(),
        };
        let expected = vec![
            Said::Text("5 Rifter: no such item, noon, 2; ".into()),
            Said::Text("0=1 1=2 2=3 ".into()),
            call("look_0", r#"{"id":1}"#),
            call("look_1", r#"{"id":2}"#),
            Said::Text("⟨missing: results[0].list⟩".into()),
        ];
        assert_eq!(reply.parts, expected);
        assert_eq!(reply.stop, Stop::ToolUse);
    }

    #[test]
    fn the_token_limit_cuts_text_and_then_arguments() {
        let script = "[[rule]]\nreply=[{text='12345678'},\
                      {tool_call={name='t', arguments='{\"a\":1}'}}]";
        let mut prompt = asked("x");
        for (max, text, arguments) in [(1, "1234", None), (3, "12345678", Some("{\"a\""))] {
            prompt.max_tokens = Some(max);
            let reply = said(script, &prompt);
            let mut expected = vec![Said::Text(text.into())];
            expected.extend(arguments.map(|arguments: &str| Said::ToolCall {
                id: None,
                name: "t".into(),
                arguments: arguments.into(),
            }));
            assert_eq!((reply.parts, reply.stop), (expected, Stop::MaxTokens));
            assert_eq!(reply.usage.output, max);
        }
        prompt.max_tokens = Some(4);
        assert_eq!(said(script, &prompt).stop, Stop::ToolUse);
    }

    #[test]
    fn usage_is_computed_or_given() {
        let script = "[[rule]]\nreply=[{text='12345'}]\nusage = { input = 50, cached = 70 }";
        let usage = said(script, &asked("x")).usage;
        assert_eq!(usage, Usage { input: 50, output: 2, cached: 50 }, "cached is part of input");
        let usage = said("[[rule]]\nreply=[{text='1'}]", &asked("12345678")).usage;
        assert_eq!(usage, Usage { input: 2, output: 1, cached: 0 });
    }

    #[test]
    fn without_a_rule_the_echo_is_polite() {
        let Some(Said::Text(text)) = echo(&asked("fly me to Jita")).parts.pop() else { panic!() };
        assert!(text.contains("no line for \"fly me to Jita\""), "{text}");
        let Some(Said::Text(text)) = echo(&two_steps()).parts.pop() else { panic!() };
        assert!(text.contains("- now (ok): noon"), "{text}");
    }
}
