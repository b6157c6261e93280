//! A script: rules with conditions, replies and faults.
//!
//! Owns the compiled form of a rule and its limits; `script_file` parses them. Does not know the wire
//! formats, nor how a request is matched and a reply is rendered (`reply`). Used by `server` and the
//! command line.

use std::path::Path;

use regex::Regex;
use serde::Deserialize;

use super::script_file;
use super::template::ArgumentsTemplate;

/// Maximum number of rules of a script.
pub(super) const RULES_MAX: usize = 1_000;
/// Maximum number of listed parts of a reply, before `for_each`.
pub(super) const PARTS_MAX: usize = 64;
/// Maximum number of repetitions of one `for_each`.
pub(super) const FAN_OUT_MAX: usize = 32;
/// Maximum delay in milliseconds.
pub(super) const DELAY_MS_MAX: u64 = 60_000;

/// The reason why a script is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("can't read the script {path}")]
    Read {
        /// The path of the file.
        path: String,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The text is not TOML of the expected format. The source contains line and column.
    #[error("the script has an invalid format")]
    Format(#[from] toml::de::Error),
    /// A rule is invalid.
    #[error("rule {rule}: {reason}")]
    Rule {
        /// The rule's name, or its position from 1.
        rule: String,
        /// The description of the problem.
        reason: String,
    },
}

/// A compiled script.
#[derive(Debug, Clone)]
pub struct Script {
    /// True if requests without a key are rejected (401).
    pub require_key: bool,
    /// The rules in order; the first that matches is used.
    pub rules: Vec<Rule>,
}

impl Script {
    /// Loads and compiles a script file.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScriptError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// Compiles a script from TOML text. Validates every regular expression and template.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        script_file::compile(text)
    }

    /// Returns the built-in script, which is used if no key and no script is configured.
    pub fn tour() -> Result<Self, ScriptError> {
        Self::parse(include_str!("../../examples/rehearsal/market.toml"))
    }

    /// Returns a script without rules: every request gets the echo reply.
    pub fn empty() -> Self {
        Self { require_key: false, rules: Vec::new() }
    }
}

/// One compiled rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The name in logs: `name`, or the position from 1.
    pub name: String,
    /// The conditions under which the rule matches.
    pub conditions: RuleConditions,
    /// The parts of the reply, in order.
    pub reply: Vec<PartTemplate>,
    /// The stop reason; `None` derives it from the parts.
    pub stop: Option<StopReason>,
    /// The token counts; absent ones are estimated from lengths.
    pub usage: UsageSpec,
    /// The chunking and pacing of the stream.
    pub pacing: StreamPacing,
    /// The faults of the first attempts.
    pub faults: FaultSpec,
}

/// The conditions of a rule. All configured conditions must be met.
#[derive(Debug, Clone, Default)]
pub struct RuleConditions {
    /// Pattern of the last user message. Its captures are template variables.
    pub user: Option<Regex>,
    /// Number of model messages since the last user message.
    pub step: Option<usize>,
    /// The kind of the last tool results.
    pub result: Option<ResultKind>,
    /// Pattern that the text of at least one of the last tool results matches.
    pub result_matches: Option<Regex>,
    /// Pattern of the system prompt.
    pub system: Option<Regex>,
    /// Pattern of the model's name.
    pub model: Option<Regex>,
    /// Name of a tool that the request offers.
    pub offers: Option<String>,
    /// Pattern of the tool that the request forces. A rule without it matches no request that forces
    /// a tool.
    pub forced: Option<Regex>,
}

/// The kind of the last tool results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultKind {
    /// There are results and none is an error.
    Ok,
    /// At least one is an error.
    Error,
}

/// A part of a reply, before rendering.
#[derive(Debug, Clone)]
pub struct PartTemplate {
    /// Expression that yields a list; the part is repeated with the variables `item` and `index`.
    pub for_each: Option<String>,
    /// Maximum number of repetitions.
    pub limit: usize,
    /// The content of the part.
    pub content: PartContent,
}

/// The content of a part of a reply.
#[derive(Debug, Clone)]
pub enum PartContent {
    /// Visible text (template).
    Text(String),
    /// A thinking block (template).
    Thinking(String),
    /// A refusal (template). The stop reason defaults to a refusal.
    Refusal(String),
    /// A tool call.
    ToolCall {
        /// Tool name (template).
        name: String,
        /// The arguments.
        arguments: ArgumentsTemplate,
        /// A fixed call id; `None` generates one.
        id: Option<String>,
        /// True if only the first part of the arguments' JSON is sent.
        malformed: bool,
    },
}

/// The reason why the model stopped, independent of the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The answer is complete.
    EndTurn,
    /// The model waits for tool results.
    ToolUse,
    /// The token limit was reached.
    MaxTokens,
    /// A stop sequence was produced.
    #[serde(rename = "stop_sequence")]
    Sequence,
    /// The model refused to answer.
    Refusal,
    /// The provider's content filter cut the answer off. Anthropic reports this as a refusal.
    ContentFilter,
}

/// The token counts that a script sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageSpec {
    /// All input tokens, including cached ones.
    pub input: Option<u64>,
    /// Output tokens.
    pub output: Option<u64>,
    /// Input tokens read from the provider's cache.
    pub cached: Option<u64>,
}

/// The chunking and pacing of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPacing {
    /// Delay before the first byte.
    pub delay_ms: u64,
    /// Number of characters of a text delta.
    pub chunk_chars: usize,
    /// Delay before each further delta.
    pub chunk_delay_ms: u64,
    /// Number of bytes of argument JSON in a delta. Characters are split only by `wire_split`.
    pub fragment: usize,
    /// True to alternate between parallel tool calls (OpenAI only; Anthropic's blocks are
    /// sequential).
    pub interleave: bool,
    /// Number of bytes of a write to the socket; `None` writes each event at once.
    pub wire_split: Option<usize>,
    /// Sends a ping after each n-th delta (Anthropic: `ping` event; OpenAI: SSE comment).
    pub ping_every: Option<usize>,
    /// True to use the legacy `function_call` delta (OpenAI only).
    pub legacy_function_call: bool,
}

/// The faults that occur before a reply succeeds, in this order.
#[derive(Debug, Clone, Default)]
pub struct FaultSpec {
    /// The request is answered with an error status.
    pub fail: Option<StatusFault>,
    /// The stream contains a provider error event and ends.
    pub error: Option<StreamBreak>,
    /// The connection is closed in the middle of the stream.
    pub cut: Option<StreamBreak>,
    /// The stream stalls without ending.
    pub stall: Option<StreamBreak>,
}

/// An error response instead of a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusFault {
    /// The HTTP status, 400 to 599; by default 500, or 400 with `context_length`.
    pub status: Option<u16>,
    /// Value of the `retry-after` header in seconds.
    pub retry_after: Option<u64>,
    /// Number of failing attempts; by default all.
    pub times: Option<u32>,
    /// The error message; by default the provider's default message.
    pub message: Option<String>,
    /// True for the provider's error of an exceeded context window.
    #[serde(default)]
    pub context_length: bool,
}

/// A fault inside a stream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamBreak {
    /// Number of characters of content that are sent before the fault.
    #[serde(default)]
    pub after: usize,
    /// Number of failing attempts; by default all.
    pub times: Option<u32>,
    /// For `error`: the corresponding status (529 by default).
    pub status: Option<u16>,
    /// For `error`: the error message.
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
    fn invalid_scripts_are_rejected_with_location_and_problem() {
        let cases = [
            ("[[rule]]\nname='a'\nuser='('\nreply=[{text='x'}]", "rule a: `user` is not a valid"),
            ("[[rule]]\nuser='a'", "rule 1: `reply` or a fault is required"),
            ("[[rule]]\nreply=[{}]", "rule 1: a part of `reply` must have exactly one"),
            (
                "[[rule]]\nreply=[{text='a', thinking='b'}]",
                "rule 1: a part of `reply` must have exactly",
            ),
            ("[[rule]]\nreply=[{text='{{ a b }}'}]", "rule 1: invalid template"),
            ("[[rule]]\nreply=[{for_each='a[', text='x'}]", "rule 1: invalid expression"),
            (
                "[[rule]]\nreply=[{limit=99, text='x'}]",
                "rule 1: `limit` must be at most 32, not 99",
            ),
            ("[[rule]]\nreply=[{text='x'}]\nfragment=0", "rule 1: `chunk.text`, `fragment`"),
            (
                "[[rule]]\nreply=[{text='x'}]\ndelay_ms=99999",
                "rule 1: a delay must be at most 60000 ms",
            ),
            ("[[rule]]\nfail={status=200}", "rule 1: status 200 is not an error status"),
            ("[[rule]]\nreply=[{text='x'}]\ncut={status=500}", "rule 1: `cut` only supports"),
            ("[[rule]]\nrepley=[]", "the script has an invalid format: TOML parse error at line 2"),
            ("rules = 1", "the script has an invalid format: TOML parse error at line 1"),
        ];
        for (text, expected) in cases {
            let error = format!("{:#}", anyhow::Error::from(Script::parse(text).unwrap_err()));
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn rule_overrides_the_defaults_by_key() {
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
    fn too_many_rules_are_rejected() {
        let text = "[[rule]]\nreply=[{text='x'}]\n".repeat(RULES_MAX + 1);
        assert!(Script::parse(&text).is_err());
    }
}
