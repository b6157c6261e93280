//! A script: rules that say when they apply, what they answer and what goes wrong first.
//!
//! Owns the compiled shape of a rule and its limits; `script_file` reads them. Knows neither wire
//! format, nor how a request is matched and a reply written (`reply`). Called by the server and
//! the command line.

use std::path::Path;

use regex::Regex;
use serde::Deserialize;

use super::script_file;
use super::template::ArgumentsTemplate;

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
        script_file::compile(text)
    }

    /// The tour's script, built into the binary: what runs when no key is configured.
    pub fn tour() -> Result<Self, ScriptError> {
        Self::parse(include_str!("../../examples/rehearsal/market.toml"))
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
    pub conditions: RuleConditions,
    /// What it answers, in order.
    pub reply: Vec<PartTemplate>,
    /// The stop reason; `None` = told by the parts.
    pub stop: Option<StopReason>,
    /// Token counts; absent ones are computed from lengths.
    pub usage: UsageSpec,
    /// How the answer is cut up and paced.
    pub pacing: StreamPacing,
    /// What goes wrong first.
    pub faults: FaultSpec,
}

/// The conditions of a rule; all those given must hold.
#[derive(Debug, Clone, Default)]
pub struct RuleConditions {
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
pub struct PartTemplate {
    /// Expression giving a list; the part is repeated with `item` and `index`.
    pub for_each: Option<String>,
    /// Most repetitions.
    pub limit: usize,
    /// What the part is.
    pub content: PartContent,
}

/// What a part of a reply is.
#[derive(Debug, Clone)]
pub enum PartContent {
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
        arguments: ArgumentsTemplate,
        /// A fixed call id; by default a fresh one.
        id: Option<String>,
        /// Send only the first part of the arguments' JSON.
        malformed: bool,
    },
}

/// Why the model stopped, in neutral words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
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
pub struct StreamPacing {
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
    pub fail: Option<StatusFault>,
    /// The stream carries a provider error event, then ends.
    pub error: Option<StreamBreak>,
    /// The connection is cut in the middle of the stream.
    pub cut: Option<StreamBreak>,
    /// The stream stops without ending.
    pub stall: Option<StreamBreak>,
}

/// An error status in place of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusFault {
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
pub struct StreamBreak {
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

impl Default for StreamPacing {
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
        let expected = StreamPacing {
            chunk_chars: 9,
            chunk_delay_ms: 20,
            fragment: 2,
            interleave: true,
            ..StreamPacing::default()
        };
        assert_eq!(script.rules[0].pacing, expected);
    }

    #[test]
    fn too_many_rules_are_refused() {
        let text = "[[rule]]\nreply=[{text='x'}]\n".repeat(RULES_MAX + 1);
        assert!(Script::parse(&text).is_err());
    }
}
