//! Streams of providers and compatible servers, each with the expected message.

use greenroom_core::{
    ids::CallId,
    message::{Arguments, AssistantMessage, ProposedCall, Reasoning},
    model::{
        anthropic,
        completion::{Completion, MessageBuilder},
        delta::{Delta, StopReason},
        failure::ModelFailure,
        openai,
    },
    usage::TokenUsage,
};
use serde_json::Value;
use uuid::Uuid;

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Anthropic,
    OpenAi,
}

/// A stream and its expected message.
pub(crate) struct Fixture {
    pub(crate) name: &'static str,
    pub(crate) wire: Wire,
    pub(crate) stream: Vec<u8>,
    pub(crate) expected: Completion,
}

/// Feeds `pieces` to a parser of the wire format and folds the deltas.
pub(crate) fn parse<'a>(
    wire: Wire,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Delta>, Result<Completion, ModelFailure>) {
    let mut deltas = Vec::new();
    let mut outcome = Ok(());
    match wire {
        Wire::Anthropic => {
            let mut parser = anthropic::Parser::new();
            for piece in pieces {
                outcome = outcome.and(parser.push(piece, &mut deltas));
            }
            outcome = outcome.and(parser.finish(&mut deltas));
        }
        Wire::OpenAi => {
            let mut parser = openai::Parser::new();
            for piece in pieces {
                outcome = outcome.and(parser.push(piece, &mut deltas));
            }
            outcome = outcome.and(parser.finish(&mut deltas));
        }
    }
    let mut builder = MessageBuilder::default();
    let folded = deltas.iter().try_for_each(|delta| builder.push(delta.clone()));
    (deltas, outcome.and(folded).map(|()| builder.into_completion()))
}

/// Encodes a stream with `event:` lines, as Anthropic sends it.
pub(crate) fn anthropic(events: &[&str]) -> Vec<u8> {
    let mut stream = String::new();
    for data in events {
        let value: Value = serde_json::from_str(data).expect("fixtures are JSON");
        let kind = value["type"].as_str().expect("fixtures have types");
        stream.push_str(&format!("event: {kind}\ndata: {data}\n\n"));
    }
    stream.into_bytes()
}

/// Encodes a stream of chunks followed by `[DONE]`, as OpenAI sends it.
pub(crate) fn openai(chunks: &[&str]) -> Vec<u8> {
    let mut stream: String = chunks.iter().map(|data| format!("data: {data}\n\n")).collect();
    stream.push_str("data: [DONE]\n\n");
    stream.into_bytes()
}

/// Creates a complete message without calls. Without input tokens, the usage is not reported, and the
/// output tokens are an estimate.
pub(crate) fn text_completion(text: &str, usage: [u64; 3], stop_reason: StopReason) -> Completion {
    let [input_tokens, output_tokens, cached_tokens] = usage;
    let message = AssistantMessage { text: text.to_owned(), ..AssistantMessage::default() };
    let usage =
        TokenUsage { input_tokens, output_tokens, cached_tokens, estimated: input_tokens == 0 };
    Completion { message, usage, stop_reason, dropped_calls: 0 }
}

/// Creates a proposed call with the given arguments.
pub(crate) fn call(provider_id: &str, tool: &str, arguments: &str) -> ProposedCall {
    ProposedCall {
        call_id: CallId(Uuid::nil()),
        provider_id: provider_id.to_owned(),
        tool: tool.to_owned(),
        arguments: Arguments::Json(serde_json::from_str(arguments).expect("fixtures are JSON")),
    }
}

fn calls_completion(usage: [u64; 3], calls: Vec<ProposedCall>) -> Completion {
    let mut completion = text_completion("", usage, StopReason::ToolUse);
    completion.message.calls = calls;
    completion
}

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":300,"output_tokens":1,"service_tier":"standard"}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

/// Returns every valid stream.
pub(crate) fn all_streams() -> Vec<Fixture> {
    let mut all = anthropic_streams();
    all.extend(openai_streams());
    all.extend(nonconforming_streams());
    all
}

fn anthropic_streams() -> Vec<Fixture> {
    let wire = Wire::Anthropic;
    let mut thinking = calls_completion([425, 90, 300], vec![call("toolu_1", "get_time", "{}")]);
    thinking.message.text = "Let me look.".to_owned();
    thinking.message.reasoning = vec![
        Reasoning::Thinking {
            text: "They want the time.".to_owned(),
            signature: Some("EqQBCg==".to_owned()),
        },
        Reasoning::Redacted { payload: "EmwKAhgB".to_owned() },
    ];
    vec![
        Fixture {
            name: "text, with pings, spaces and an unknown event",
            wire,
            stream: anthropic(&[
                START,
                r#"{"type": "ping"}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Héllo"}}"#,
                r#"{"type":"new_thing","delta":"odd","index":"x"}"#,
                r#"{ "delta" : { "text" : ", \u4e16\u754c \ud83d\ude00 😀\n" , "type" : "text_delta", "new": [1] }, "index": 0, "type":"content_block_delta" }"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"type":"x"}}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}"#,
                STOP,
            ]),
            expected: text_completion("Héllo, 世界 😀 😀\n", [425, 15, 300], StopReason::EndTurn),
        },
        Fixture {
            name: "thinking, text and a call without arguments",
            wire,
            stream: anthropic(&[
                START,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"They want "}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"the time."}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQBCg=="}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"EmwKAhgB"}}"#,
                r#"{"type":"content_block_stop","index":1}"#,
                r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
                r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Let me look."}}"#,
                r#"{"type":"content_block_stop","index":2}"#,
                r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"get_time","input":{}}}"#,
                r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}"#,
                r#"{"type":"content_block_stop","index":3}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"input_tokens":25,"output_tokens":90}}"#,
                STOP,
            ]),
            expected: thinking,
        },
        Fixture {
            name: "interleaved calls, arguments split inside escapes, a server-side tool",
            wire,
            stream: anthropic(&[
                START,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"note","input":{}}}"#,
                r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_2","name":"sum","input":{}}}"#,
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"text\": \"\\ud8"}}"#,
                r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"of\": [1,"}}"#,
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"3d\\u"}}"#,
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"de00 \\"}}"#,
                r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":" 2.5e1]}"}}"#,
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"é\"}"}}"#,
                r#"{"type":"content_block_stop","index":1}"#,
                r#"{"type":"content_block_stop","index":2}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":40}}"#,
                STOP,
            ]),
            expected: calls_completion(
                [425, 40, 300],
                vec![
                    call("toolu_1", "note", r#"{"text":"😀 \"é"}"#),
                    call("toolu_2", "sum", r#"{"of":[1,2.5e1]}"#),
                ],
            ),
        },
        Fixture {
            name: "a refusal",
            wire,
            stream: anthropic(&[
                START,
                r#"{"type":"message_delta","delta":{"stop_reason":"refusal"},"usage":{"output_tokens":2}}"#,
                STOP,
            ]),
            expected: text_completion("", [425, 2, 300], StopReason::Refusal),
        },
    ]
}

fn openai_streams() -> Vec<Fixture> {
    let wire = Wire::OpenAi;
    let mut reasoned = text_completion("42", [12, 30, 0], StopReason::MaxTokens);
    reasoned.message.reasoning =
        vec![Reasoning::Thinking { text: "Six by seven".to_owned(), signature: None }];
    vec![
        Fixture {
            name: "text with usage in the last chunk",
            wire,
            stream: openai(&[
                r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}"#,
                r#"{"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Grüße \ud83d\ude00"},"finish_reason":null}],"usage":null}"#,
                r#"{"choices":[{"index":1,"delta":{"content":"another choice"}},{"index":0,"delta":{"content":"!\n"},"finish_reason":""}]}"#,
                r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":16,"audio_tokens":0}}}"#,
            ]),
            expected: text_completion("Grüße 😀!\n", [19, 10, 16], StopReason::EndTurn),
        },
        Fixture {
            name: "interleaved calls",
            wire,
            stream: openai(&[
                r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"get_weather","arguments":""}}]},"finish_reason":null}]}"#,
                r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"note","arguments":""}}]}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}},{"index":1,"function":{"arguments":"{\"t\":\"\\ud83"}}]}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"d\\ude00\"}"}},{"index":0,"function":{"arguments":"\"Köln\"}"}}]}}]}"#,
                r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}"#,
            ]),
            expected: calls_completion(
                [5, 6, 0],
                vec![
                    call("call_a", "get_weather", r#"{"city":"Köln"}"#),
                    call("call_b", "note", r#"{"t":"😀"}"#),
                ],
            ),
        },
        Fixture {
            name: "the legacy function_call",
            wire,
            stream: openai(&[
                r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"function_call":{"name":"add","arguments":""}}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"function_call":{"arguments":"{\"a\":1,"}}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"function_call":{"arguments":"\"b\":2}"}}}]}"#,
                r#"{"choices":[{"index":0,"delta":{},"finish_reason":"function_call"}]}"#,
            ]),
            expected: calls_completion([0, 6, 0], vec![call("", "add", r#"{"a":1,"b":2}"#)]),
        },
        Fixture {
            name: "a refusal",
            wire,
            stream: openai(&[
                r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":"I can't "}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"refusal":"do that."}}]}"#,
                r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            ]),
            expected: text_completion("I can't do that.", [0, 6, 0], StopReason::Refusal),
        },
        Fixture {
            name: "a call that the content filter cut off",
            wire,
            stream: openai(&[
                r#"{"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c","function":{"name":"add","arguments":"{\"a\":1}"}}]}}]}"#,
                r#"{"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}"#,
            ]),
            expected: Completion {
                stop_reason: StopReason::ContentFilter,
                ..calls_completion([0, 4, 0], vec![call("c", "add", r#"{"a":1}"#)])
            },
        },
        Fixture {
            name: "reasoning under both names, truncated by the limit",
            wire,
            stream: openai(&[
                r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":"Six "}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"content":null,"reasoning":"by seven","reasoning_content":null}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"content":"42","reasoning_content":null}}]}"#,
                r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":{"prompt_tokens":12,"completion_tokens":30}}"#,
            ]),
            expected: reasoned,
        },
    ]
}

/// Returns streams of servers that deviate from both formats.
fn nonconforming_streams() -> Vec<Fixture> {
    let openai_wire = Wire::OpenAi;
    let two_calls = || {
        let calls = vec![call("a", "add", r#"{"x":1}"#), call("b", "add", r#"{"x":2}"#)];
        calls_completion([0, 7, 0], calls)
    };
    vec![
        Fixture {
            name: "no [DONE], no spaces, CRLF, no blank line at the end",
            wire: openai_wire,
            stream: b"\xEF\xBB\xBF: hi\r\ndata:{\"choices\":[{\"delta\":{\"content\":\"ok\"}}]}\r\n\r\ndata:{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n".to_vec(),
            expected: text_completion("ok", [0, 1, 0], StopReason::EndTurn),
        },
        Fixture {
            name: "complete calls that all have index 0, ending with stop",
            wire: openai_wire,
            stream: openai(&[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"add","arguments":"{\"x\":1}"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"add","arguments":"{\"x\":2}"}}]}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            ]),
            expected: two_calls(),
        },
        Fixture {
            name: "calls without an index, distinguished by id",
            wire: openai_wire,
            stream: openai(&[
                r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"add","arguments":"{\"x\""}},{"id":"b","function":{"name":"add","arguments":"{\"x\":2"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"arguments":":1}"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"arguments":"}"}}]}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
            ]),
            expected: two_calls(),
        },
        Fixture {
            name: "id and name with every piece, arguments as an object",
            wire: openai_wire,
            stream: openai(&[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"add","arguments":"{\"x\":"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"add","arguments":"1}"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"add","arguments":{"x":2}}}]}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
            ]),
            expected: two_calls(),
        },
        Fixture {
            name: "a new id with every piece, a name in two pieces, no ids",
            wire: openai_wire,
            stream: openai(&[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"ad"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"","function":{"name":"d"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"z","function":{"arguments":"{\"x\":1}"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"get"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{\"y\":2}"}}]}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
            ]),
            expected: calls_completion([0, 7, 0], vec![
                call("a", "add", r#"{"x":1}"#),
                call("", "get", r#"{"y":2}"#),
            ]),
        },
        Fixture {
            name: "content as parts",
            wire: openai_wire,
            stream: openai(&[
                r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            ]),
            expected: text_completion("ab", [0, 1, 0], StopReason::EndTurn),
        },
        Fixture {
            name: "complete inputs at the block's start, and every block at index 0",
            wire: Wire::Anthropic,
            stream: anthropic(&[
                r#"{"type":"message_start","message":null}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"add","input":{"x":1}}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"b","name":"add","input":{"x":0}}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"x\":2}"}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":null}"#,
                STOP,
            ]),
            expected: two_calls(),
        },
        Fixture {
            name: "no event lines, no indexes, no end of the block",
            wire: Wire::Anthropic,
            stream: b"data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"o\"}}\r\rdata:{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"k\"}}\r\rdata: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"add\",\"input\":{\"x\":1}}}\r\revent: message_stop\rdata: {}\r\r".to_vec(),
            expected: {
                let mut expected = text_completion("ok", [0, 4, 0], StopReason::EndTurn);
                expected.message.calls = vec![call("a", "add", r#"{"x":1}"#)];
                expected
            },
        },
    ]
}
