//! Fuzz tests of the stream parsers (M2): hostile and malformed streams cause no panic, use bounded
//! memory, and yield a message or a failure. `PROPTEST_CASES` sets the number of cases.

#[path = "../../../tests/support/hostile_input.rs"]
#[allow(dead_code, reason = "this test mutates streams only")]
mod hostile_input;
mod model_fixtures;

use greenroom_core::{
    limits,
    model::{
        anthropic, completion::Completion, delta::Delta, failure, failure::ModelFailure, openai,
    },
    time::Timestamp,
};
use hostile_input::{Mutation, mutate};
use model_fixtures::{Wire, all_streams, parse};
use proptest::prelude::*;

/// Fragments of which malformed streams are composed.
const FRAGMENTS: [&str; 24] = [
    "data:",
    "data: ",
    "event: ",
    "\n",
    "\n\n",
    "\r",
    "\r\n",
    ":",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "\\u",
    "d83d",
    "null",
    "-1",
    "4294967295",
    "1e999",
    "[DONE]",
    "error",
    "\u{FEFF}",
    "€",
];

/// Unusual events of both formats.
const EVENTS: [&str; 12] = [
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"b","input":{"c":1}}}"#,
    r#"{"type":"content_block_start","index":4294967295,"content_block":{"type":"thinking"}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"x"},"usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":1}}"#,
    r#"{"type":"message_stop"}"#,
    r#"{"choices":[{"delta":{"content":"x","tool_calls":[{"function":{"name":"f"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":4294967295,"id":"i","function":{"arguments":{"a":[]}}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"j","function":{"name":"g","arguments":"{\"k"}}]}}]}"#,
    r#"{"choices":[{"delta":{"function_call":{"name":"h"}},"finish_reason":"stop"}]}"#,
    r#"{"choices":[{"message":{"content":[{"text":"x"}]}}],"usage":{"prompt_tokens":-1}}"#,
    r#"{"error":{"code":599,"message":"m"}}"#,
];

/// Asserts the invariants of any stream, split into pieces of any size. Returns the parser's result.
fn check_stream(wire: Wire, stream: &[u8], piece: usize) -> Result<Completion, ModelFailure> {
    let unsplit = parse(wire, [stream]);
    assert_eq!(parse(wire, stream.chunks(piece)), unsplit);
    let (deltas, outcome) = unsplit;
    let finished = deltas.iter().filter(|delta| **delta == Delta::Finished).count();
    assert!(finished <= 1);
    assert!(finished == 0 || deltas.last() == Some(&Delta::Finished));
    match &outcome {
        Ok(completion) => {
            assert_eq!(finished, 1, "a completion of an unfinished stream");
            assert!(completion.message.calls.len() <= limits::CALLS_PER_MESSAGE_MAX);
        }
        Err(failure) => {
            assert!(!failure.message.is_empty());
            assert!(failure.message.len() <= limits::PROVIDER_ERROR_BYTES_MAX + 256);
        }
    }
    outcome
}

fn wires() -> impl Strategy<Value = Wire> {
    prop_oneof![Just(Wire::Anthropic), Just(Wire::OpenAi)]
}

fn fragment() -> impl Strategy<Value = &'static str> {
    prop_oneof![prop::sample::select(&FRAGMENTS[..]), prop::sample::select(&EVENTS[..])]
}

fn fragments() -> impl Strategy<Value = Vec<u8>> {
    let framed = prop::sample::select(&EVENTS[..]).prop_map(|data| format!("data: {data}\n\n"));
    let loose = fragment().prop_map(str::to_owned);
    prop::collection::vec(prop_oneof![2 => framed, 1 => loose], 0..24)
        .prop_map(|shards| shards.concat().into_bytes())
}

proptest! {
    #[test]
    fn m2_arbitrary_bytes_yield_bounded_failures(
        wire in wires(),
        bytes in prop::collection::vec(any::<u8>(), 0..2048),
        piece in 1usize..64,
    ) {
        check_stream(wire, &bytes, piece).ok();
        let bodies = [anthropic::parse_message(&bytes), openai::parse_message(&bytes)];
        prop_assert!(bodies.iter().all(Result::is_err));
        let failure = failure::from_response(500, &bytes, None);
        prop_assert!(failure.message.len() <= limits::PROVIDER_ERROR_BYTES_MAX + 64);
    }

    #[test]
    fn m2_shuffled_fragments_of_both_formats_are_parsed_consistently(
        wire in wires(),
        stream in fragments(),
        piece in 1usize..64,
    ) {
        check_stream(wire, &stream, piece).ok();
    }

    #[test]
    fn m2_mutated_streams_are_parsed_consistently(
        fixture_index in any::<prop::sample::Index>(),
        mutations in prop::collection::vec(any::<Mutation>(), 0..4),
        piece in 1usize..64,
    ) {
        let fixtures = all_streams();
        let fixture = fixture_index.get(&fixtures);
        let mut stream = fixture.stream.clone();
        mutations.iter().for_each(|mutation| mutate(&mut stream, mutation));
        let outcome = check_stream(fixture.wire, &stream, piece);
        if stream == fixture.stream {
            prop_assert_eq!(outcome.as_ref(), Ok(&fixture.expected), "{}", fixture.name);
        }
    }

    #[test]
    fn m3_error_bodies_of_json_fragments_yield_a_message(
        status in 400u16..600,
        fragments in prop::collection::vec(fragment(), 0..6),
        header in ".{0,24}",
    ) {
        let body = fragments.concat();
        anthropic::parse_message(body.as_bytes()).ok();
        openai::parse_message(body.as_bytes()).ok();
        prop_assert!(!failure::from_response(status, body.as_bytes(), None).message.is_empty());
        failure::parse_retry_after(Some(&header), Some(&header), Timestamp(0));
    }
}

#[test]
fn m2_deep_nesting_does_not_overflow_the_stack() {
    for depth in [100, 100_000] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for wire in [Wire::Anthropic, Wire::OpenAi] {
            for key in ["error", "input", "usage", "other"] {
                let event = format!("data: {{\"type\":\"ping\",\"{key}\":{nested}}}\n\n");
                check_stream(wire, event.as_bytes(), 4096).expect_err("never finished");
            }
        }
        failure::from_response(400, format!("{{\"detail\":{nested}}}").as_bytes(), None);
    }
}

#[test]
fn m2_endless_line_is_rejected_at_limit() {
    for wire in [Wire::Anthropic, Wire::OpenAi] {
        let start = b"data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"".as_slice();
        let endless = vec![b'x'; limits::STREAM_LINE_BYTES_MAX];
        let (deltas, outcome) = parse(wire, [start, &endless, &endless]);
        assert_eq!(deltas, []);
        assert!(outcome.expect_err("too long").message.contains("exceeds"));
    }
}
