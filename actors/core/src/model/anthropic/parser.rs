//! Reads what Anthropic Messages answers: event streams and whole bodies, tolerantly.
//!
//! Unknown events, blocks and fields are skipped; missing and null ones are as good as absent.

use crate::{
    limits,
    model::{
        completion::Completion,
        delta::{Delta, StopReason},
        failure,
        failure::ModelFailure,
        sse::SseEvent,
        stream_parser::{self, EventDecoder},
    },
    usage::TokenUsage,
};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

/// Parses a streamed answer.
pub type Parser = stream_parser::StreamParser<AnthropicDecoder>;

/// Parses an answer that is one JSON body.
pub fn parse_message(body: &[u8]) -> Result<Completion, ModelFailure> {
    let text = stream_parser::body_text(body);
    let Some(message) = stream_parser::parse_json::<WireMessage>(&text)? else {
        return Err(stream_parser::unexpected(&text));
    };
    if message.error.is_some() {
        return Err(failure_in(&text));
    }
    let Some(content) = message.content else { return Err(stream_parser::unexpected(&text)) };
    let (mut reader, mut out) = (AnthropicDecoder::default(), Vec::new());
    for (position, block) in content.into_iter().enumerate() {
        reader.start_block(u32::try_from(position).ok(), block, &mut out)?;
        reader.finish_blocks(&mut out);
    }
    push_usage(message.usage, &mut out);
    push_stop_reason(message.stop_reason, &mut out);
    stream_parser::fold(out)
}

/// What is known of the stream so far.
#[derive(Debug, Default)]
pub struct AnthropicDecoder {
    blocks: Vec<OpenBlock>,
}

/// A block that is no plain text.
#[derive(Debug)]
struct OpenBlock {
    /// The index on the wire; lax servers repeat it.
    wire_index: u32,
    /// Ours: the same, or a free one.
    index: u32,
    is_call: bool,
    /// Arguments that came whole at the block's start: they count if no pieces follow.
    input: Option<String>,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct EventType<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct WireEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    index: Option<u32>,
    #[serde(borrow)]
    delta: Option<WireDelta<'a>>,
    content_block: Option<WireBlock>,
    message: Option<WireMessage>,
    usage: Option<WireUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct WireDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    stop_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct WireBlock {
    #[serde(rename = "type")]
    kind: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
}

#[derive(Deserialize)]
struct WireMessage {
    content: Option<Vec<WireBlock>>,
    stop_reason: Option<String>,
    usage: Option<WireUsage>,
    error: Option<Value>,
}

#[derive(Clone, Copy, Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl EventDecoder for AnthropicDecoder {
    fn decode(&mut self, event: &SseEvent<'_>, out: &mut Vec<Delta>) -> Result<(), ModelFailure> {
        let data: &str = &event.data;
        if data.trim() == stream_parser::DONE {
            return Ok(());
        }
        let Some(WireEvent { kind, index, delta, content_block, message, usage, error }) =
            stream_parser::parse_json::<WireEvent<'_>>(data)?
        else {
            return check_unparsed_event(event);
        };
        let kind = kind.map_or(Cow::Borrowed(&*event.name), |kind| kind.0);
        match &*kind {
            "content_block_delta" => {
                if let Some(delta) = delta {
                    self.apply_delta(index, delta, out);
                }
            }
            "content_block_start" => {
                self.start_block(index, content_block.unwrap_or_default(), out)?
            }
            "content_block_stop" => self.finish_blocks(out),
            "message_start" => push_usage(message.and_then(|message| message.usage), out),
            "message_delta" => {
                push_usage(usage, out);
                push_stop_reason(delta.and_then(|delta| delta.stop_reason), out);
            }
            "message_stop" => {
                self.finish_blocks(out);
                out.push(Delta::Finished);
            }
            "error" => return Err(failure_in(data)),
            // Pings, and whatever is added later.
            _ if error.is_some() => return Err(failure_in(data)),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<Delta>) {
        // A message without `message_stop` was cut: no server we know leaves it out.
    }
}

impl AnthropicDecoder {
    fn start_block(
        &mut self,
        wire: Option<u32>,
        block: WireBlock,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        match block.kind.as_deref().unwrap_or_default() {
            "tool_use" => {
                // An empty object stands for arguments that are yet to come.
                let input = block.input.filter(|input| {
                    !input.is_null() && input.as_object().is_none_or(|object| !object.is_empty())
                });
                let input = input.map(|input| input.to_string());
                let index = self.open_block(wire, true, input)?;
                let provider_id = block.id.unwrap_or_default();
                let tool = block.name.unwrap_or_default();
                out.push(Delta::CallStarted { index, provider_id, tool });
            }
            "thinking" => {
                let index = self.open_block(wire, false, None)?;
                out.push(Delta::ReasoningStarted { index, redacted: None });
                if let Some(text) = filled(block.thinking) {
                    out.push(Delta::Reasoning { index, text });
                }
                if let Some(signature) = filled(block.signature) {
                    out.push(Delta::ReasoningSignature { index, signature });
                }
            }
            "redacted_thinking" => {
                let index = self.open_block(wire, false, None)?;
                let redacted = Some(block.data.unwrap_or_default());
                out.push(Delta::ReasoningStarted { index, redacted });
            }
            "text" => out.extend(filled(block.text).map(Delta::Text)),
            // A tool that the provider runs itself, its result, and whatever is added later. Its
            // pieces must not be taken for those of an earlier call with the same index.
            _ => {
                self.open_block(wire, false, None)?;
            }
        }
        Ok(())
    }

    fn apply_delta(&mut self, wire: Option<u32>, delta: WireDelta<'_>, out: &mut Vec<Delta>) {
        match delta.kind.as_ref().map_or("", |kind| &*kind.0) {
            "text_delta" => out.extend(filled(delta.text).map(Delta::Text)),
            "input_json_delta" => {
                let Some(fragment) = filled(delta.partial_json) else { return };
                let Some(block) = self.block(wire).filter(|block| block.is_call) else { return };
                block.input = None;
                out.push(Delta::CallArguments { index: block.index, fragment });
            }
            "thinking_delta" => {
                let index = self.block(wire).map_or(0, |block| block.index);
                out.extend(filled(delta.thinking).map(|text| Delta::Reasoning { index, text }));
            }
            "signature_delta" => {
                let index = self.block(wire).map_or(0, |block| block.index);
                let signature = filled(delta.signature);
                out.extend(
                    signature.map(|signature| Delta::ReasoningSignature { index, signature }),
                );
            }
            _ => {}
        }
    }

    /// A block has ended: no pieces of what it brought whole will come. Blocks do not overlap, so
    /// that this goes for all.
    fn finish_blocks(&mut self, out: &mut Vec<Delta>) {
        for block in &mut self.blocks {
            if let Some(fragment) = block.input.take() {
                out.push(Delta::CallArguments { index: block.index, fragment });
            }
        }
    }

    fn open_block(
        &mut self,
        wire: Option<u32>,
        is_call: bool,
        input: Option<String>,
    ) -> Result<u32, ModelFailure> {
        let most = limits::MODEL_BLOCKS_MAX;
        if self.blocks.len() >= most {
            return Err(ModelFailure::permanent(format!(
                "the model's blocks exceed the limit of {most}"
            )));
        }
        let is_free = |index: &u32| self.blocks.iter().all(|block| block.index != *index);
        let index = wire.filter(is_free).or_else(|| (0..).find(is_free)).unwrap_or_default();
        let wire = wire.unwrap_or(index);
        self.blocks.push(OpenBlock { wire_index: wire, index, is_call, input });
        Ok(index)
    }

    /// The latest block of that index, or the latest of all where there is no index.
    fn block(&mut self, wire: Option<u32>) -> Option<&mut OpenBlock> {
        let mut blocks = self.blocks.iter_mut().rev();
        match wire {
            Some(wire) => blocks.find(|block| block.wire_index == wire),
            None => blocks.next(),
        }
    }
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn push_usage(usage: Option<WireUsage>, out: &mut Vec<Delta>) {
    let Some(usage) = usage else { return };
    let cached_tokens = usage.cache_read_input_tokens.unwrap_or(0);
    let input_tokens = usage
        .input_tokens
        .unwrap_or(0)
        .saturating_add(cached_tokens)
        .saturating_add(usage.cache_creation_input_tokens.unwrap_or(0));
    let output_tokens = usage.output_tokens.unwrap_or(0);
    out.push(Delta::Usage(TokenUsage { input_tokens, output_tokens, cached_tokens }));
}

fn push_stop_reason(reason: Option<String>, out: &mut Vec<Delta>) {
    let Some(reason) = filled(reason) else { return };
    out.push(Delta::Stopped(match &*reason {
        "tool_use" => StopReason::ToolUse,
        "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
        "refusal" => StopReason::Refusal,
        "stop_sequence" => StopReason::StopSequence,
        _ => StopReason::EndTurn,
    }));
}

/// JSON that does not fit our types: no matter in an event we don't know.
fn check_unparsed_event(event: &SseEvent<'_>) -> Result<(), ModelFailure> {
    let data: &str = &event.data;
    let kind = serde_json::from_str::<EventType<'_>>(data).ok().and_then(|kind| kind.kind);
    match kind.as_ref().map_or(&*event.name, |kind| &*kind.0) {
        "error" => Err(failure_in(data)),
        "message_start"
        | "message_delta"
        | "message_stop"
        | "content_block_start"
        | "content_block_delta"
        | "content_block_stop"
        | "" => Err(stream_parser::unexpected(data)),
        _ => Ok(()),
    }
}

fn failure_in(data: &str) -> ModelFailure {
    failure::from_error_value(&serde_json::from_str(data).unwrap_or_default())
}
