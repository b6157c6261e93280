//! Builds the complete message from a model's stream (M2).
//!
//! [`MessageBuilder`] folds [`Delta`]s into a [`Completion`], within limits. The reader of the stream
//! owns it.

use super::{
    delta::{Delta, StopReason},
    failure::ModelFailure,
    request::MessageLimits,
};
use crate::{
    context::token_estimate,
    json::{validate_object, validate_value},
    limits,
    message::{Arguments, AssistantMessage, ProposedCall, Reasoning},
    text::truncate,
    usage::TokenUsage,
};
use serde_json::Value;

/// A complete message with its usage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// The message. Its calls have nil `call_id`s; the session assigns the ids.
    pub message: AssistantMessage,
    /// Tokens that the provider reported, or an estimate if it reported none.
    pub usage: TokenUsage,
    /// Reason why the model stopped.
    pub stop_reason: StopReason,
    /// The number of calls that the message does not contain because it had too many.
    pub dropped_calls: usize,
}

/// Folds deltas into a message.
#[derive(Debug, Default)]
pub struct MessageBuilder {
    limits: MessageLimits,
    text: String,
    /// Bytes of text that were cut off.
    excess_text_bytes: usize,
    reasoning: Vec<(u32, Reasoning)>,
    calls: Vec<(u32, CallDraft)>,
    dropped_calls: usize,
    usage: TokenUsage,
    /// True if the provider has reported tokens.
    usage_reported: bool,
    /// Bytes that the model wrote since the provider last reported output tokens.
    uncounted_bytes: usize,
    /// True if the model has stopped. The report before or after that is complete.
    stopped: bool,
    stop_reason: StopReason,
    finished: bool,
}

#[derive(Debug, Default)]
struct CallDraft {
    provider_id: String,
    tool: String,
    arguments: String,
    /// True if a part of the arguments was not kept.
    is_cut: bool,
}

impl MessageBuilder {
    /// Creates a builder of a message with these limits.
    pub fn new(limits: MessageLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds one delta. More text and more calls than allowed are cut off. Fails if the message exceeds
    /// another limit; the builder must not be used afterwards.
    pub fn push(&mut self, delta: Delta) -> Result<(), ModelFailure> {
        self.uncounted_bytes += delta.written_bytes();
        match delta {
            Delta::Text(text) => {
                self.add_text(&text);
            }
            Delta::ReasoningStarted { index, redacted } => {
                let block = match redacted {
                    Some(payload) => Reasoning::Redacted { payload },
                    None => Reasoning::Thinking { text: String::new(), signature: None },
                };
                self.reasoning.push((index, block));
                return check_limit(
                    "thinking blocks",
                    self.reasoning.len(),
                    limits::MODEL_BLOCKS_MAX,
                );
            }
            Delta::Reasoning { index, text: piece } => {
                if let Reasoning::Thinking { text, .. } = self.thinking(index) {
                    text.push_str(&piece);
                    let length = text.len();
                    return check_limit("bytes of thinking", length, limits::REASONING_BYTES_MAX);
                }
            }
            Delta::ReasoningSignature { index, signature: piece } => {
                if let Reasoning::Thinking { signature, .. } = self.thinking(index) {
                    let signature = signature.get_or_insert_default();
                    signature.push_str(&piece);
                    let length = signature.len();
                    return check_limit("bytes of signature", length, limits::REASONING_BYTES_MAX);
                }
            }
            Delta::CallStarted { index, provider_id, tool } => {
                let Some((_, call)) = self.call(index) else {
                    self.dropped_calls += 1;
                    return Ok(());
                };
                call.provider_id.push_str(&provider_id);
                call.tool.push_str(&tool);
                let length = call.tool.len() + call.provider_id.len();
                return check_limit("bytes of tool name", length, limits::TOOL_NAME_BYTES_MAX);
            }
            Delta::CallArguments { index, fragment } => {
                let calls_max = self.limits.calls;
                let Some((position, call)) = self.call(index) else { return Ok(()) };
                if position >= calls_max {
                    call.push_excess_arguments(&fragment);
                    return Ok(());
                }
                call.arguments.push_str(&fragment);
                let length = call.arguments.len();
                let bytes_max = limits::ARGUMENTS_BYTES_MAX;
                return check_limit("bytes of tool arguments", length, bytes_max);
            }
            Delta::CallDropped => self.dropped_calls += 1,
            Delta::Usage(usage) => {
                self.usage_reported |= usage != TokenUsage::default();
                if usage.output_tokens > 0 {
                    self.uncounted_bytes = 0;
                }
                self.usage.input_tokens = self.usage.input_tokens.max(usage.input_tokens);
                self.usage.output_tokens = self.usage.output_tokens.max(usage.output_tokens);
                self.usage.cached_tokens = self.usage.cached_tokens.max(usage.cached_tokens);
            }
            Delta::Stopped(reason) => {
                self.stop_reason = reason;
                self.stopped = true;
            }
            Delta::Finished => self.finished = true,
        }
        Ok(())
    }

    /// Adds a piece of text, like [`Self::push`], and returns the number of bytes that were kept.
    pub fn push_text(&mut self, text: &str) -> usize {
        self.uncounted_bytes += text.len();
        self.add_text(text)
    }

    fn add_text(&mut self, text: &str) -> usize {
        // Text after a cut must not be kept, even if it fits.
        let room = match self.excess_text_bytes {
            0 => self.limits.text_bytes - self.text.len(),
            _ => 0,
        };
        let kept = truncate(text, room);
        self.text.push_str(kept);
        self.excess_text_bytes += text.len() - kept.len();
        kept.len()
    }

    /// True if the message has so much text that the rest of the stream need not be read.
    fn is_cut_short(&self) -> bool {
        self.excess_text_bytes > limits::MODEL_EXCESS_TEXT_BYTES_MAX
    }

    /// True if the message is complete: the provider reported its end, or it has far too much text.
    pub fn is_finished(&self) -> bool {
        self.finished || self.is_cut_short()
    }

    /// Returns the usage of an incomplete message. Providers report most output tokens at the end of
    /// the message. If the end was not received, the uncounted output is estimated (G6).
    pub fn usage(&self) -> TokenUsage {
        let is_complete = self.usage_reported && self.stopped && self.uncounted_bytes == 0;
        if is_complete { self.usage } else { self.estimated_usage() }
    }

    fn estimated_usage(&self) -> TokenUsage {
        let uncounted = token_estimate::estimate_tokens(self.uncounted_bytes as u64);
        let output_tokens = self.usage.output_tokens.saturating_add(uncounted);
        TokenUsage { output_tokens, estimated: true, ..self.usage }
    }

    /// True if no part of a response was received.
    pub fn is_empty(&self) -> bool {
        self.uncounted_bytes == 0 && !self.usage_reported && !self.stopped
    }

    /// Returns the text received so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the message. Calls with arguments that are not a JSON object are kept as
    /// malformed.
    pub fn into_completion(self) -> Completion {
        // The last call of a partial message may be incomplete.
        let cut = self.message_cut();
        let (usage, stop_reason) = (self.final_usage(), self.final_stop_reason());
        let last = self.calls.len().wrapping_sub(1);
        let propose = |(position, (_, draft)): (usize, (u32, CallDraft))| {
            draft.into_proposed_call(cut.filter(|_| position == last))
        };
        let calls = self.calls.into_iter().enumerate().map(propose).collect();
        let reasoning = self.reasoning.into_iter().map(|(_, block)| block).collect();
        let message = AssistantMessage { text: self.text, reasoning, calls };
        Completion { message, usage, stop_reason, dropped_calls: self.dropped_calls }
    }

    /// Returns the reason why the message is partial, if it is.
    fn message_cut(&self) -> Option<MessageCut> {
        if self.is_cut_short() && !self.finished {
            return Some(MessageCut::TextLimit);
        }
        match self.stop_reason {
            StopReason::MaxTokens => Some(MessageCut::TokenLimit),
            StopReason::Refusal | StopReason::ContentFilter => Some(MessageCut::Refusal),
            StopReason::EndTurn
            | StopReason::ToolUse
            | StopReason::TextLimit
            | StopReason::StopSequence => None,
        }
    }

    fn final_stop_reason(&self) -> StopReason {
        match self.stop_reason {
            StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence
                if self.excess_text_bytes > 0 =>
            {
                StopReason::TextLimit
            }
            StopReason::EndTurn
            | StopReason::ToolUse
            | StopReason::MaxTokens
            | StopReason::TextLimit
            | StopReason::Refusal
            | StopReason::ContentFilter
            | StopReason::StopSequence => self.stop_reason,
        }
    }

    /// Returns the usage of a complete message: as the provider reported it, or an estimate.
    fn final_usage(&self) -> TokenUsage {
        if self.finished && self.usage_reported { self.usage } else { self.usage() }
    }

    /// Returns the kept part of a message that was stopped: its text and usage. An incomplete thinking
    /// block has no signature, and an incomplete call must not run.
    pub fn into_partial_completion(self) -> Completion {
        let (usage, stop_reason) = (self.usage(), self.stop_reason);
        let message = AssistantMessage { text: self.text, ..AssistantMessage::default() };
        Completion { message, usage, stop_reason, dropped_calls: 0 }
    }

    fn thinking(&mut self, index: u32) -> &mut Reasoning {
        // A delta without a start opens the block: some compatible servers send no start.
        let existing = self.reasoning.iter().rposition(|(other, _)| *other == index);
        let position = existing.unwrap_or_else(|| {
            let block = Reasoning::Thinking { text: String::new(), signature: None };
            self.reasoning.push((index, block));
            self.reasoning.len() - 1
        });
        &mut self.reasoning[position].1
    }

    /// Returns the call and its position in the message; `None` if the message has too many calls.
    fn call(&mut self, index: u32) -> Option<(usize, &mut CallDraft)> {
        let existing = self.calls.iter().position(|(other, _)| *other == index);
        if existing.is_none() && self.calls.len() >= limits::CALLS_PER_MESSAGE_MAX {
            return None;
        }
        let position = existing.unwrap_or_else(|| {
            self.calls.push((index, CallDraft::default()));
            self.calls.len() - 1
        });
        Some((position, &mut self.calls[position].1))
    }
}

/// The reason why a message is partial.
#[derive(Clone, Copy)]
enum MessageCut {
    TokenLimit,
    TextLimit,
    Refusal,
}

impl MessageCut {
    /// Returns the problem of arguments that the cut left incomplete.
    fn describe(self) -> &'static str {
        match self {
            Self::TokenLimit => {
                "the message was truncated at the token limit, so the arguments are incomplete"
            }
            Self::TextLimit => {
                "the message was ended at the text limit, so the arguments are incomplete"
            }
            Self::Refusal => "the message was cut off, so the arguments are incomplete",
        }
    }
}

impl CallDraft {
    /// Adds arguments of a call that will not run. Only the beginning of them is kept.
    fn push_excess_arguments(&mut self, fragment: &str) {
        let room = limits::EXCESS_ARGUMENTS_BYTES_MAX.saturating_sub(self.arguments.len());
        let kept = if self.is_cut { "" } else { truncate(fragment, room) };
        self.arguments.push_str(kept);
        self.is_cut |= kept.len() < fragment.len();
    }

    /// Returns the call. `cut` is set for the last call of a partial message.
    fn into_proposed_call(self, cut: Option<MessageCut>) -> ProposedCall {
        // Empty arguments mean an empty object, not malformed JSON: providers send no fragment for an
        // empty object.
        let is_empty = self.arguments.trim().is_empty() && cut.is_none();
        let text = if is_empty { "{}" } else { &self.arguments };
        let arguments = match parse_arguments(text) {
            Ok(value) => Arguments::Json(value),
            Err(error) => {
                let error = match cut {
                    Some(cut) => cut.describe().to_owned(),
                    None if self.is_cut => {
                        "only the beginning of the arguments was kept".to_owned()
                    }
                    None => error,
                };
                let raw = truncate(text, limits::MALFORMED_ARGUMENTS_BYTES_MAX);
                Arguments::Malformed { raw: raw.to_owned(), error }
            }
        };
        let call_id = crate::ids::CallId(uuid::Uuid::nil());
        ProposedCall { call_id, provider_id: self.provider_id, tool: self.tool, arguments }
    }
}

fn parse_arguments(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| format!("the arguments are not valid JSON: {error}"))?;
    validate_value(&value).map_err(|problem| format!("the arguments are {problem}"))?;
    validate_object(&value).map_err(|problem| format!("the arguments are {problem}"))?;
    Ok(value)
}

fn check_limit(item: &str, size: usize, limit: usize) -> Result<(), ModelFailure> {
    if size <= limit {
        return Ok(());
    }
    Err(ModelFailure::permanent(format!("the model's response has more than {limit} {item}")))
}

#[cfg(test)]
#[path = "completion_tests.rs"]
mod tests;
