//! Parses responses of Anthropic Messages: event streams and complete bodies.
//!
//! Tolerant: unknown events, blocks and fields are ignored; a null field is treated as absent.

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

/// Parses a streamed response.
pub type Parser = stream_parser::StreamParser<AnthropicDecoder>;

/// Parses a response that is one JSON body.
pub fn parse_message(body: &[u8]) -> Result<Completion, ModelFailure> {
    let text = stream_parser::decode_body(body);
    let Some(message) = stream_parser::parse_json::<WireMessage>(&text)? else {
        return Err(stream_parser::unexpected_shape(&text));
    };
    if message.error.is_some() {
        return Err(parse_failure(&text));
    }
    let Some(content) = message.content else {
        return Err(stream_parser::unexpected_shape(&text));
    };
    let (mut decoder, mut out) = (AnthropicDecoder::default(), Vec::new());
    for (position, block) in content.into_iter().enumerate() {
        decoder.start_block(u32::try_from(position).ok(), block, &mut out)?;
        decoder.finish_blocks(&mut out);
    }
    push_usage(message.usage, &mut out);
    push_stop_reason(message.stop_reason, &mut out);
    stream_parser::fold_deltas(out)
}

/// State of a stream between events.
#[derive(Debug, Default)]
pub struct AnthropicDecoder {
    blocks: Vec<OpenBlock>,
}

/// A block other than text.
#[derive(Debug)]
struct OpenBlock {
    /// Index on the wire. Some servers repeat it for several blocks.
    wire_index: u32,
    /// Index in [`Delta`]s, unique in the message: the wire index, or a free one if that is taken.
    index: u32,
    kind: BlockKind,
    /// Complete arguments from the block's start; used if no fragments follow.
    input: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Call,
    /// A call beyond the number of calls that are kept. Only the latest one is tracked, so that its
    /// deltas are not added to another call.
    DroppedCall,
    Other,
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
            return validate_unparsed_event(event);
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
            "error" => return Err(parse_failure(data)),
            // Pings and unknown events.
            _ if error.is_some() => return Err(parse_failure(data)),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<Delta>) {
        // A message without `message_stop` was cut: every known server sends it.
    }
}

impl AnthropicDecoder {
    fn start_block(
        &mut self,
        wire_index: Option<u32>,
        block: WireBlock,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        match block.kind.as_deref().unwrap_or_default() {
            "tool_use" if self.count_blocks(BlockKind::Call) >= limits::CALLS_PER_MESSAGE_MAX => {
                self.blocks.retain(|block| block.kind != BlockKind::DroppedCall);
                self.push_block(wire_index, BlockKind::DroppedCall, None);
                out.push(Delta::CallDropped);
            }
            "tool_use" => {
                // An empty object is a placeholder: the arguments follow as fragments.
                let input = block.input.filter(|input| {
                    !input.is_null() && input.as_object().is_none_or(|object| !object.is_empty())
                });
                let input = input.map(|input| input.to_string());
                let index = self.push_block(wire_index, BlockKind::Call, input);
                let provider_id = block.id.unwrap_or_default();
                let tool = block.name.unwrap_or_default();
                out.push(Delta::CallStarted { index, provider_id, tool });
            }
            "thinking" => {
                let index = self.open_block(wire_index)?;
                out.push(Delta::ReasoningStarted { index, redacted: None });
                if let Some(text) = non_empty(block.thinking) {
                    out.push(Delta::Reasoning { index, text });
                }
                if let Some(signature) = non_empty(block.signature) {
                    out.push(Delta::ReasoningSignature { index, signature });
                }
            }
            "redacted_thinking" => {
                let index = self.open_block(wire_index)?;
                let redacted = Some(block.data.unwrap_or_default());
                out.push(Delta::ReasoningStarted { index, redacted });
            }
            "text" => out.extend(non_empty(block.text).map(Delta::Text)),
            // A tool that the provider runs itself, its result, or an unknown block. It is opened so
            // that its deltas are not added to an earlier call with the same index.
            _ => {
                self.open_block(wire_index)?;
            }
        }
        Ok(())
    }

    fn apply_delta(&mut self, wire_index: Option<u32>, delta: WireDelta<'_>, out: &mut Vec<Delta>) {
        match delta.kind.as_ref().map_or("", |kind| &*kind.0) {
            "text_delta" => out.extend(non_empty(delta.text).map(Delta::Text)),
            "input_json_delta" => {
                let Some(fragment) = non_empty(delta.partial_json) else { return };
                let Some(block) =
                    self.block(wire_index).filter(|block| block.kind == BlockKind::Call)
                else {
                    return;
                };
                block.input = None;
                out.push(Delta::CallArguments { index: block.index, fragment });
            }
            "thinking_delta" => {
                let index = self.block(wire_index).map_or(0, |block| block.index);
                out.extend(non_empty(delta.thinking).map(|text| Delta::Reasoning { index, text }));
            }
            "signature_delta" => {
                let index = self.block(wire_index).map_or(0, |block| block.index);
                let signature = non_empty(delta.signature);
                out.extend(
                    signature.map(|signature| Delta::ReasoningSignature { index, signature }),
                );
            }
            _ => {}
        }
    }

    /// Emits the complete arguments of blocks that received no fragments. Called when a block ends;
    /// applies to all blocks, because blocks do not overlap.
    fn finish_blocks(&mut self, out: &mut Vec<Delta>) {
        for block in &mut self.blocks {
            if let Some(fragment) = block.input.take() {
                out.push(Delta::CallArguments { index: block.index, fragment });
            }
        }
    }

    /// Opens a block that is not a call and returns its index.
    fn open_block(&mut self, wire_index: Option<u32>) -> Result<u32, ModelFailure> {
        let blocks_max = limits::MODEL_BLOCKS_MAX;
        if self.count_blocks(BlockKind::Other) >= blocks_max {
            return Err(ModelFailure::permanent(format!(
                "the model's response has more than {blocks_max} content blocks"
            )));
        }
        Ok(self.push_block(wire_index, BlockKind::Other, None))
    }

    fn push_block(
        &mut self,
        wire_index: Option<u32>,
        kind: BlockKind,
        input: Option<String>,
    ) -> u32 {
        let is_free = |index: &u32| self.blocks.iter().all(|block| block.index != *index);
        let index = wire_index.filter(is_free).or_else(|| (0..).find(is_free)).unwrap_or_default();
        let wire_index = wire_index.unwrap_or(index);
        self.blocks.push(OpenBlock { wire_index, index, kind, input });
        index
    }

    fn count_blocks(&self, kind: BlockKind) -> usize {
        self.blocks.iter().filter(|block| block.kind == kind).count()
    }

    /// Returns the latest block with `wire_index`, or the latest block if the index is missing.
    fn block(&mut self, wire_index: Option<u32>) -> Option<&mut OpenBlock> {
        let mut blocks = self.blocks.iter_mut().rev();
        match wire_index {
            Some(wire_index) => blocks.find(|block| block.wire_index == wire_index),
            None => blocks.next(),
        }
    }
}

fn non_empty(text: Option<String>) -> Option<String> {
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
    out.push(Delta::Usage(TokenUsage {
        input_tokens,
        output_tokens,
        cached_tokens,
        estimated: false,
    }));
}

fn push_stop_reason(reason: Option<String>, out: &mut Vec<Delta>) {
    let Some(reason) = non_empty(reason) else { return };
    out.push(Delta::Stopped(match &*reason {
        "tool_use" => StopReason::ToolUse,
        "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
        "refusal" => StopReason::Refusal,
        "stop_sequence" => StopReason::StopSequence,
        _ => StopReason::EndTurn,
    }));
}

/// Accepts an event whose JSON does not fit the wire types if its type is unknown; fails otherwise.
fn validate_unparsed_event(event: &SseEvent<'_>) -> Result<(), ModelFailure> {
    let data: &str = &event.data;
    let kind = serde_json::from_str::<EventType<'_>>(data).ok().and_then(|kind| kind.kind);
    match kind.as_ref().map_or(&*event.name, |kind| &*kind.0) {
        "error" => Err(parse_failure(data)),
        "message_start"
        | "message_delta"
        | "message_stop"
        | "content_block_start"
        | "content_block_delta"
        | "content_block_stop"
        | "" => Err(stream_parser::unexpected_shape(data)),
        _ => Ok(()),
    }
}

fn parse_failure(data: &str) -> ModelFailure {
    failure::from_error_value(&serde_json::from_str(data).unwrap_or_default())
}
