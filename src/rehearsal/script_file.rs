//! The TOML format of a script, and its compilation with all validations.
//!
//! Knows TOML and the compiled types of `script`; does not know requests. Called by `script`.

use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use super::script::{
    DELAY_MS_MAX, FAN_OUT_MAX, FaultSpec, PARTS_MAX, PartContent, PartTemplate, RULES_MAX,
    ResultKind, Rule, RuleConditions, Script, ScriptError, StatusFault, StopReason, StreamBreak,
    StreamPacing, UsageSpec,
};
use super::template::{self, ArgumentsTemplate};

/// Compiles the text of a script file.
pub(super) fn compile(text: &str) -> Result<Script, ScriptError> {
    let file: RawScript = toml::from_str(text)?;
    if file.rules.len() > RULES_MAX {
        return Err(ScriptError::Rule {
            rule: (RULES_MAX + 1).to_string(),
            reason: format!("too many rules; the limit is {RULES_MAX}"),
        });
    }
    let mut rules = Vec::with_capacity(file.rules.len());
    for (position, raw) in file.rules.into_iter().enumerate() {
        let name = raw.name.clone().unwrap_or_else(|| (position + 1).to_string());
        let rule = Rule::compile(name.clone(), raw, &file.defaults)
            .map_err(|reason| ScriptError::Rule { rule: name, reason })?;
        rules.push(rule);
    }
    Ok(Script { require_key: file.require_key, rules })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScript {
    #[serde(default)]
    require_key: bool,
    #[serde(default)]
    defaults: RawPacing,
    #[serde(default, rename = "rule")]
    rules: Vec<RawRule>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct RawPacing {
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

/// A raw rule. Repeats the keys of [`RawPacing`] because serde cannot both flatten and deny unknown
/// keys.
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
    stop: Option<StopReason>,
    #[serde(default)]
    usage: UsageSpec,
    delay_ms: Option<u64>,
    chunk: Option<RawChunk>,
    fragment: Option<usize>,
    interleave: Option<bool>,
    wire_split: Option<usize>,
    ping_every: Option<usize>,
    legacy_function_call: Option<bool>,
    fail: Option<StatusFault>,
    error: Option<StreamBreak>,
    cut: Option<StreamBreak>,
    stall: Option<StreamBreak>,
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
    fn compile(name: String, raw: RawRule, defaults: &RawPacing) -> Result<Self, String> {
        if raw.reply.len() > PARTS_MAX {
            return Err(format!("`reply` has {} parts; the limit is {PARTS_MAX}", raw.reply.len()));
        }
        let rule_pacing = RawPacing {
            delay_ms: raw.delay_ms,
            chunk: raw.chunk,
            fragment: raw.fragment,
            interleave: raw.interleave,
            wire_split: raw.wire_split,
            ping_every: raw.ping_every,
            legacy_function_call: raw.legacy_function_call,
        };
        let faults = FaultSpec { fail: raw.fail, error: raw.error, cut: raw.cut, stall: raw.stall };
        faults.validate()?;
        if raw.reply.is_empty() && faults.is_empty() {
            return Err("`reply` or a fault is required".to_owned());
        }
        Ok(Self {
            name,
            conditions: RuleConditions {
                user: compile_pattern("user", raw.user)?,
                step: raw.step,
                result: raw.result,
                result_matches: compile_pattern("result_matches", raw.result_matches)?,
                system: compile_pattern("system", raw.system)?,
                model: compile_pattern("model", raw.model)?,
                offers: raw.offers,
                forced: compile_pattern("forced", raw.forced)?,
            },
            reply: raw.reply.into_iter().map(PartTemplate::compile).collect::<Result<_, _>>()?,
            stop: raw.stop,
            usage: raw.usage,
            pacing: StreamPacing::merge(&rule_pacing, defaults)?,
            faults,
        })
    }
}

impl PartTemplate {
    fn compile(raw: RawPart) -> Result<Self, String> {
        let mut contents = Vec::new();
        if let Some(text) = raw.text {
            template::validate_template(&text)?;
            contents.push(PartContent::Text(text));
        }
        if let Some(text) = raw.thinking {
            template::validate_template(&text)?;
            contents.push(PartContent::Thinking(text));
        }
        if let Some(text) = raw.refusal {
            template::validate_template(&text)?;
            contents.push(PartContent::Refusal(text));
        }
        if let Some(call) = raw.tool_call {
            template::validate_template(&call.name)?;
            let arguments = ArgumentsTemplate::compile(call.arguments)?;
            contents.push(PartContent::ToolCall {
                name: call.name,
                arguments,
                id: call.id,
                malformed: call.malformed,
            });
        }
        if let Some(expression) = &raw.for_each {
            template::validate_expression(expression)?;
        }
        let limit = raw.limit.unwrap_or(FAN_OUT_MAX);
        if limit > FAN_OUT_MAX {
            return Err(format!("`limit` must be at most {FAN_OUT_MAX}, not {limit}"));
        }
        match (contents.pop(), contents.is_empty()) {
            (Some(content), true) => Ok(Self { for_each: raw.for_each, limit, content }),
            (None, _) | (Some(_), false) => {
                Err("a part of `reply` must have exactly one of `text`, `thinking`, `refusal`, \
                 `tool_call`"
                    .to_owned())
            }
        }
    }
}

impl StreamPacing {
    fn merge(rule: &RawPacing, defaults: &RawPacing) -> Result<Self, String> {
        let base = Self::default();
        let chunk_chars = [rule.chunk, defaults.chunk].iter().flatten().find_map(|c| c.text);
        let chunk_delay = [rule.chunk, defaults.chunk].iter().flatten().find_map(|c| c.delay_ms);
        let legacy = rule.legacy_function_call.or(defaults.legacy_function_call);
        let pacing = Self {
            delay_ms: rule.delay_ms.or(defaults.delay_ms).unwrap_or(base.delay_ms),
            chunk_chars: chunk_chars.unwrap_or(base.chunk_chars),
            chunk_delay_ms: chunk_delay.unwrap_or(base.chunk_delay_ms),
            fragment: rule.fragment.or(defaults.fragment).unwrap_or(base.fragment),
            interleave: rule.interleave.or(defaults.interleave).unwrap_or(base.interleave),
            wire_split: rule.wire_split.or(defaults.wire_split),
            ping_every: rule.ping_every.or(defaults.ping_every),
            legacy_function_call: legacy.unwrap_or(base.legacy_function_call),
        };
        if pacing.delay_ms > DELAY_MS_MAX || pacing.chunk_delay_ms > DELAY_MS_MAX {
            return Err(format!("a delay must be at most {DELAY_MS_MAX} ms"));
        }
        if [Some(pacing.chunk_chars), Some(pacing.fragment), pacing.wire_split, pacing.ping_every]
            .contains(&Some(0))
        {
            return Err(
                "`chunk.text`, `fragment`, `wire_split`, `ping_every` must be at least 1".into()
            );
        }
        Ok(pacing)
    }
}

impl FaultSpec {
    fn is_empty(&self) -> bool {
        self.fail.is_none() && self.error.is_none() && self.cut.is_none() && self.stall.is_none()
    }

    fn validate(&self) -> Result<(), String> {
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
                return Err(format!("`{name}` only supports `after` and `times`"));
            }
        }
        Ok(())
    }
}

fn compile_pattern(key: &str, source: Option<String>) -> Result<Option<Regex>, String> {
    source
        .map(|source| {
            RegexBuilder::new(&source)
                .case_insensitive(true)
                .build()
                .map_err(|error| format!("`{key}` is not a valid regular expression: {error}"))
        })
        .transpose()
}
