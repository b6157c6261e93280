//! The script file: its TOML format, checked and compiled when it is loaded.
//!
//! Owns the shape of a rule and its limits. Knows neither wire format, nor how a request is
//! matched (`matching`) or a reply written (`reply`). Called by the server and the command line.

use std::path::Path;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use super::template::{self, Arguments};

/// Most rules a script may have.
pub(super) const RULES_MAX: usize = 1_000;
/// Most parts a rule's reply may list (before any fan-out).
pub(super) const PARTS_MAX: usize = 64;
/// Most parts that one `for_each` makes.
pub(super) const FAN_OUT_MAX: usize = 32;
/// Longest delay a script may ask for, in milliseconds.
pub(super) const DELAY_MS_MAX: u64 = 60_000;

/// Why a script was refused.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file could not be read.
    #[error("cannot read the script {path}")]
    Read {
        /// The path asked for.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The text is not TOML of the expected shape; the source names line and column.
    #[error("the script is not in the expected format")]
    Format(#[from] toml::de::Error),
    /// A rule is well formed but cannot work.
    #[error("rule {rule}: {reason}")]
    Rule {
        /// The rule's name, or its position from 1.
        rule: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A compiled script: what the rehearsal answers from.
#[derive(Debug, Clone)]
pub struct Script {
    /// Refuse requests without a key (401).
    pub require_key: bool,
    /// Rules in order; the first that matches answers.
    pub rules: Vec<Rule>,
}

impl Script {
    /// Reads and compiles a script file.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScriptError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// Compiles a script from TOML text. Every regex and template is checked here.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let file: File = toml::from_str(text)?;
        if file.rules.len() > RULES_MAX {
            return Err(ScriptError::Rule {
                rule: (RULES_MAX + 1).to_string(),
                reason: format!("a script may have at most {RULES_MAX} rules"),
            });
        }
        let mut rules = Vec::with_capacity(file.rules.len());
        for (position, raw) in file.rules.into_iter().enumerate() {
            let name = raw.name.clone().unwrap_or_else(|| (position + 1).to_string());
            let rule = Rule::compile(name.clone(), raw, &file.defaults)
                .map_err(|reason| ScriptError::Rule { rule: name, reason })?;
            rules.push(rule);
        }
        Ok(Self { require_key: file.require_key, rules })
    }

    /// A script without rules: every message gets the polite echo.
    pub fn empty() -> Self {
        Self { require_key: false, rules: Vec::new() }
    }
}

/// One compiled rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its name in logs: `name`, or its position from 1.
    pub name: String,
    /// When it applies.
    pub when: When,
    /// What it answers, in order.
    pub reply: Vec<Part>,
    /// The stop reason; `None` = told by the parts.
    pub stop: Option<Stop>,
    /// Token counts; absent ones are computed from lengths.
    pub usage: UsageSpec,
    /// How the answer is cut up and paced.
    pub pace: Pace,
    /// What goes wrong first.
    pub faults: FaultSpec,
}

/// The conditions of a rule; all those given must hold.
#[derive(Debug, Clone, Default)]
pub struct When {
    /// Searched in the last user message; its captures are template variables.
    pub user: Option<Regex>,
    /// Number of model turns since the last user message.
    pub step: Option<usize>,
    /// Whether the last tool results contain an error.
    pub result: Option<ResultKind>,
    /// Searched in the text of each of the last tool results.
    pub result_matches: Option<Regex>,
    /// Searched in the system prompt.
    pub system: Option<Regex>,
    /// Searched in the model's name.
    pub model: Option<Regex>,
    /// The request offers a tool of this name.
    pub offers: Option<String>,
    /// The request forces a tool whose name matches. Without it, forced requests pass by.
    pub forced: Option<Regex>,
}

/// What the last tool results were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultKind {
    /// There are results and none is an error.
    Ok,
    /// At least one is an error.
    Error,
}

/// One part of a reply.
#[derive(Debug, Clone)]
pub struct Part {
    /// Expression giving a list; the part is repeated with `item` and `index`.
    pub for_each: Option<String>,
    /// Most repetitions.
    pub limit: usize,
    /// What the part is.
    pub content: Content,
}

/// What a part of a reply is.
#[derive(Debug, Clone)]
pub enum Content {
    /// Visible text (template).
    Text(String),
    /// A thinking block (template).
    Thinking(String),
    /// A refusal (template): ends the answer as refused.
    Refusal(String),
    /// A tool call.
    ToolCall {
        /// Tool name (template).
        name: String,
        /// Arguments.
        arguments: Arguments,
        /// A fixed call id; by default a fresh one.
        id: Option<String>,
        /// Send only the first part of the arguments' JSON.
        malformed: bool,
    },
}

/// Why the model stopped, in neutral words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The answer is complete.
    EndTurn,
    /// It waits for tool results.
    ToolUse,
    /// The token limit was reached.
    MaxTokens,
    /// A stop sequence was produced.
    #[serde(rename = "stop_sequence")]
    Sequence,
    /// The model refused.
    Refusal,
}

/// Token counts given by the script.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageSpec {
    /// All input tokens, cached ones included.
    pub input: Option<u64>,
    /// Output tokens.
    pub output: Option<u64>,
    /// Input tokens read from the provider's cache.
    pub cached: Option<u64>,
}

/// How an answer is cut up and paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Wait before the first byte.
    pub delay_ms: u64,
    /// Characters in one text delta.
    pub chunk_chars: usize,
    /// Wait before each further delta.
    pub chunk_delay_ms: u64,
    /// Bytes of argument JSON in one delta (never inside a character: that is `wire_split`).
    pub fragment: usize,
    /// Alternate between parallel tool calls (OpenAI wire only; Anthropic's blocks are sequential).
    pub interleave: bool,
    /// Bytes in one write to the socket; `None` = one write per event.
    pub wire_split: Option<usize>,
    /// A ping after each n-th delta (Anthropic: `ping` event; OpenAI: SSE comment).
    pub ping_every: Option<usize>,
    /// Use the legacy `function_call` delta (OpenAI wire only).
    pub legacy_function_call: bool,
}

/// What goes wrong before an answer gets through, in this order.
#[derive(Debug, Clone, Default)]
pub struct FaultSpec {
    /// The request is answered with an error status.
    pub fail: Option<Fail>,
    /// The stream carries a provider error event, then ends.
    pub error: Option<Break>,
    /// The connection is cut in the middle of the stream.
    pub cut: Option<Break>,
    /// The stream stops without ending.
    pub stall: Option<Break>,
}

/// An error status in place of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// HTTP status, 400–599; by default 500 (400 with `context_length`).
    pub status: Option<u16>,
    /// Seconds for the `retry-after` header.
    pub retry_after: Option<u64>,
    /// How often; by default always.
    pub times: Option<u32>,
    /// The provider's message; by default a usual one.
    pub message: Option<String>,
    /// The provider's "prompt is too long" error.
    #[serde(default)]
    pub context_length: bool,
}

/// A break inside the stream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Break {
    /// Characters of content sent before it.
    #[serde(default)]
    pub after: usize,
    /// How often; by default always.
    pub times: Option<u32>,
    /// For `error`: the status it stands for (529 by default).
    pub status: Option<u16>,
    /// For `error`: the provider's message.
    pub message: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    require_key: bool,
    #[serde(default)]
    defaults: RawPace,
    #[serde(default, rename = "rule")]
    rules: Vec<RawRule>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct RawPace {
    delay_ms: Option<u64>,
    chunk: Option<RawChunk>,
    fragment: Option<usize>,
    interleave: Option<bool>,
    wire_split: Option<usize>,
    ping_every: Option<usize>,
    legacy_function_call: Option<bool>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct RawChunk {
    text: Option<usize>,
    delay_ms: Option<u64>,
}

/// The pace keys are repeated here since serde cannot both flatten and deny unknown keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    name: Option<String>,
    user: Option<String>,
    step: Option<usize>,
    result: Option<ResultKind>,
    result_matches: Option<String>,
    system: Option<String>,
    model: Option<String>,
    offers: Option<String>,
    forced: Option<String>,
    #[serde(default)]
    reply: Vec<RawPart>,
    stop: Option<Stop>,
    #[serde(default)]
    usage: UsageSpec,
    delay_ms: Option<u64>,
    chunk: Option<RawChunk>,
    fragment: Option<usize>,
    interleave: Option<bool>,
    wire_split: Option<usize>,
    ping_every: Option<usize>,
    legacy_function_call: Option<bool>,
    fail: Option<Fail>,
    error: Option<Break>,
    cut: Option<Break>,
    stall: Option<Break>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPart {
    for_each: Option<String>,
    limit: Option<usize>,
    text: Option<String>,
    thinking: Option<String>,
    refusal: Option<String>,
    tool_call: Option<RawToolCall>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawToolCall {
    name: String,
    arguments: Option<toml::Value>,
    id: Option<String>,
    #[serde(default)]
    malformed: bool,
}

impl Rule {
    fn compile(name: String, raw: RawRule, defaults: &RawPace) -> Result<Self, String> {
        if raw.reply.len() > PARTS_MAX {
            return Err(format!("a reply may list at most {PARTS_MAX} parts"));
        }
        let own = RawPace {
            delay_ms: raw.delay_ms,
            chunk: raw.chunk,
            fragment: raw.fragment,
            interleave: raw.interleave,
            wire_split: raw.wire_split,
            ping_every: raw.ping_every,
            legacy_function_call: raw.legacy_function_call,
        };
        let faults = FaultSpec { fail: raw.fail, error: raw.error, cut: raw.cut, stall: raw.stall };
        faults.check()?;
        if raw.reply.is_empty() && faults.is_empty() {
            return Err("a rule needs a `reply` or a fault".to_owned());
        }
        Ok(Self {
            name,
            when: When {
                user: pattern("user", raw.user)?,
                step: raw.step,
                result: raw.result,
                result_matches: pattern("result_matches", raw.result_matches)?,
                system: pattern("system", raw.system)?,
                model: pattern("model", raw.model)?,
                offers: raw.offers,
                forced: pattern("forced", raw.forced)?,
            },
            reply: raw.reply.into_iter().map(Part::compile).collect::<Result<_, _>>()?,
            stop: raw.stop,
            usage: raw.usage,
            pace: Pace::merge(&own, defaults)?,
            faults,
        })
    }
}

impl Part {
    fn compile(raw: RawPart) -> Result<Self, String> {
        let mut contents = Vec::new();
        if let Some(text) = raw.text {
            template::check(&text)?;
            contents.push(Content::Text(text));
        }
        if let Some(text) = raw.thinking {
            template::check(&text)?;
            contents.push(Content::Thinking(text));
        }
        if let Some(text) = raw.refusal {
            template::check(&text)?;
            contents.push(Content::Refusal(text));
        }
        if let Some(call) = raw.tool_call {
            template::check(&call.name)?;
            let arguments = Arguments::compile(call.arguments)?;
            contents.push(Content::ToolCall {
                name: call.name,
                arguments,
                id: call.id,
                malformed: call.malformed,
            });
        }
        if let Some(expression) = &raw.for_each {
            template::check_expression(expression)?;
        }
        let limit = raw.limit.unwrap_or(FAN_OUT_MAX);
        if limit > FAN_OUT_MAX {
            return Err(format!("`limit` may be at most {FAN_OUT_MAX}"));
        }
        match (contents.pop(), contents.is_empty()) {
            (Some(content), true) => Ok(Self { for_each: raw.for_each, limit, content }),
            (None, _) | (Some(_), false) => Err(
                "a part of `reply` needs exactly one of `text`, `thinking`, `refusal`, `tool_call`"
                    .to_owned(),
            ),
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            delay_ms: 0,
            chunk_chars: 16,
            chunk_delay_ms: 0,
            fragment: 16,
            interleave: false,
            wire_split: None,
            ping_every: None,
            legacy_function_call: false,
        }
    }
}

impl Pace {
    fn merge(own: &RawPace, defaults: &RawPace) -> Result<Self, String> {
        let base = Self::default();
        let chunk_chars = [own.chunk, defaults.chunk].iter().flatten().find_map(|c| c.text);
        let chunk_delay = [own.chunk, defaults.chunk].iter().flatten().find_map(|c| c.delay_ms);
        let legacy = own.legacy_function_call.or(defaults.legacy_function_call);
        let pace = Self {
            delay_ms: own.delay_ms.or(defaults.delay_ms).unwrap_or(base.delay_ms),
            chunk_chars: chunk_chars.unwrap_or(base.chunk_chars),
            chunk_delay_ms: chunk_delay.unwrap_or(base.chunk_delay_ms),
            fragment: own.fragment.or(defaults.fragment).unwrap_or(base.fragment),
            interleave: own.interleave.or(defaults.interleave).unwrap_or(base.interleave),
            wire_split: own.wire_split.or(defaults.wire_split),
            ping_every: own.ping_every.or(defaults.ping_every),
            legacy_function_call: legacy.unwrap_or(base.legacy_function_call),
        };
        if pace.delay_ms > DELAY_MS_MAX || pace.chunk_delay_ms > DELAY_MS_MAX {
            return Err(format!("a delay may be at most {DELAY_MS_MAX} ms"));
        }
        if [Some(pace.chunk_chars), Some(pace.fragment), pace.wire_split, pace.ping_every]
            .contains(&Some(0))
        {
            return Err(
                "`chunk.text`, `fragment`, `wire_split`, `ping_every` must be at least 1".into()
            );
        }
        Ok(pace)
    }
}

impl FaultSpec {
    fn is_empty(&self) -> bool {
        self.fail.is_none() && self.error.is_none() && self.cut.is_none() && self.stall.is_none()
    }

    fn check(&self) -> Result<(), String> {
        let statuses = [
            self.fail.as_ref().and_then(|fail| fail.status),
            self.error.as_ref().and_then(|error| error.status),
        ];
        for status in statuses.into_iter().flatten() {
            if !(400..600).contains(&status) {
                return Err(format!("status {status} is not an error status (400 to 599)"));
            }
        }
        for (name, fault) in [("cut", &self.cut), ("stall", &self.stall)] {
            if fault.as_ref().is_some_and(|f| f.status.is_some() || f.message.is_some()) {
                return Err(format!("`{name}` takes only `after` and `times`"));
            }
        }
        Ok(())
    }
}

fn pattern(key: &str, source: Option<String>) -> Result<Option<Regex>, String> {
    source
        .map(|source| {
            RegexBuilder::new(&source)
                .case_insensitive(true)
                .build()
                .map_err(|error| format!("`{key}` is not a regular expression: {error}"))
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_with_their_place() {
        let cases = [
            ("[[rule]]\nname='a'\nuser='('\nreply=[{text='x'}]", "rule a: `user` is not a regular"),
            ("[[rule]]\nuser='a'", "rule 1: a rule needs a `reply` or a fault"),
            ("[[rule]]\nreply=[{}]", "rule 1: a part of `reply` needs exactly one"),
            (
                "[[rule]]\nreply=[{text='a', thinking='b'}]",
                "rule 1: a part of `reply` needs exactly",
            ),
            ("[[rule]]\nreply=[{text='{{ a b }}'}]", "rule 1: not a template"),
            ("[[rule]]\nreply=[{for_each='a[', text='x'}]", "rule 1: not an expression"),
            ("[[rule]]\nreply=[{limit=99, text='x'}]", "rule 1: `limit` may be at most 32"),
            ("[[rule]]\nreply=[{text='x'}]\nfragment=0", "rule 1: `chunk.text`, `fragment`"),
            ("[[rule]]\nreply=[{text='x'}]\ndelay_ms=99999", "rule 1: a delay may be at most"),
            ("[[rule]]\nfail={status=200}", "rule 1: status 200 is not an error status"),
            ("[[rule]]\nreply=[{text='x'}]\ncut={status=500}", "rule 1: `cut` takes only"),
            (
                "[[rule]]\nrepley=[]",
                "the script is not in the expected format: TOML parse error at line 2",
            ),
            ("rules = 1", "the script is not in the expected format: TOML parse error at line 1"),
        ];
        for (text, expected) in cases {
            let error = format!("{:#}", anyhow::Error::from(Script::parse(text).unwrap_err()));
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_rule_overrides_the_defaults_key_by_key() {
        let script = Script::parse(
            "[defaults]\nchunk = { text = 5, delay_ms = 20 }\nfragment = 2\n\
             [[rule]]\nreply=[{text='x'}]\nchunk = { text = 9 }\ninterleave = true",
        )
        .unwrap();
        let expected = Pace {
            chunk_chars: 9,
            chunk_delay_ms: 20,
            fragment: 2,
            interleave: true,
            ..Pace::default()
        };
        assert_eq!(script.rules[0].pace, expected);
    }

    #[test]
    fn too_many_rules_are_refused() {
        let text = "[[rule]]\nreply=[{text='x'}]\n".repeat(RULES_MAX + 1);
        assert!(Script::parse(&text).is_err());
    }
}
