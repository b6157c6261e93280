//! Stream parsers yield the expected message, independent of how the bytes are split (M2, M3).

mod model_fixtures;

use greenroom_core::{
    limits::CALLS_PER_MESSAGE_MAX,
    model::{
        anthropic,
        delta::{Delta, StopReason},
        failure::{ModelFailure, ModelFailureKind},
        openai,
    },
};
use model_fixtures::{
    Wire, all_streams, anthropic as anthropic_stream, call, openai as openai_stream, parse,
    text_completion,
};
use proptest::prelude::*;

const WIRES: [Wire; 2] = [Wire::Anthropic, Wire::OpenAi];

#[test]
fn m2_every_stream_yields_its_message() {
    for fixture in all_streams() {
        let (deltas, outcome) = parse(fixture.wire, [fixture.stream.as_slice()]);
        assert_eq!(outcome, Ok(fixture.expected), "{}", fixture.name);
        assert_eq!(deltas.last(), Some(&Delta::Finished), "{}", fixture.name);
    }
}

#[test]
fn m2_single_bytes_yield_same_deltas() {
    for fixture in all_streams() {
        let unsplit = parse(fixture.wire, [fixture.stream.as_slice()]);
        assert_eq!(parse(fixture.wire, fixture.stream.chunks(1)), unsplit, "{}", fixture.name);
    }
}

proptest! {
    #[test]
    fn m2_every_split_yields_same_deltas(
        fixture_index in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
    ) {
        let fixtures = all_streams();
        let fixture = fixture_index.get(&fixtures);
        let stream = &fixture.stream;
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
        prop_assert_eq!(parse(fixture.wire, pieces), parse(fixture.wire, [stream.as_slice()]));
    }
}

#[test]
fn m2_delta_is_emitted_when_its_event_is_complete() {
    let mut parser = openai::Parser::new();
    let mut deltas = Vec::new();
    let piece = "data: {\"choices\":[{\"delta\":{\"content\":\"now\"}}]}\n";
    parser.push(piece.as_bytes(), &mut deltas).unwrap();
    assert_eq!(deltas, []);
    parser.push(b"\n", &mut deltas).unwrap();
    assert_eq!(deltas, [Delta::Text("now".to_owned())]);
}

#[test]
fn m3_truncated_stream_is_temporary_failure_unless_complete() {
    // M3: a stream that is cut in the middle restarts the step.
    for fixture in all_streams() {
        let mut complete = 0;
        for end in 0..fixture.stream.len() {
            let (deltas, outcome) = parse(fixture.wire, [&fixture.stream[..end]]);
            match outcome {
                Ok(completion) => {
                    complete += 1;
                    assert_eq!(completion.message, fixture.expected.message, "{}", fixture.name);
                    assert_eq!(deltas.last(), Some(&Delta::Finished));
                }
                Err(failure) => {
                    assert_eq!(failure.kind, ModelFailureKind::Temporary, "{}", fixture.name);
                    assert!(failure.message.contains("cut"), "{failure}");
                    assert!(!deltas.contains(&Delta::Finished));
                }
            }
        }
        // Only the data after the text may be missing: the end markers, and with OpenAI the usage.
        let complete_max = if fixture.wire == Wire::OpenAi { 200 } else { 3 };
        assert!(complete <= complete_max, "{}: {complete} cuts count as complete", fixture.name);
    }
}

#[test]
fn m2_data_after_the_end_is_ignored() {
    for fixture in all_streams() {
        let stream =
            [&fixture.stream, b"\n\ndata: nonsense\n\n".as_slice(), &fixture.stream].concat();
        let (_, outcome) = parse(fixture.wire, [stream.as_slice()]);
        if fixture.name.starts_with("no [DONE]") {
            continue;
        }
        assert_eq!(outcome, Ok(fixture.expected), "{}", fixture.name);
        let long = vec![b'x'; greenroom_core::limits::STREAM_LINE_BYTES_MAX + 1];
        let (_, outcome) = parse(fixture.wire, [fixture.stream.as_slice(), &long]);
        assert!(outcome.is_ok(), "{}", fixture.name);
    }
}

fn parse_failure(wire: Wire, stream: &str) -> ModelFailure {
    let (deltas, outcome) = parse(wire, [stream.as_bytes()]);
    assert!(!deltas.contains(&Delta::Finished), "{stream}");
    let singles = parse(wire, stream.as_bytes().chunks(1));
    assert_eq!(singles, (deltas, outcome.clone()));
    outcome.expect_err(stream)
}

#[test]
fn m3_stream_error_has_provider_message_and_kind() {
    use ModelFailureKind::{Permanent, Temporary};
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}"#;
    let invalid =
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"too long"}}"#;
    let server = r#"{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}"#;
    let status = r#"{"error":{"message":"bad","code":400,"type":"BadRequestError"},"choices":[]}"#;
    let plain = r#"{"object":"error","message":"no such model","type":"NotFoundError","code":404}"#;
    let cases = [
        (Wire::Anthropic, overloaded, Temporary, "Overloaded"),
        (Wire::Anthropic, invalid, Permanent, "too long"),
        (Wire::Anthropic, server, Temporary, "The server had an error"),
        (Wire::OpenAi, server, Temporary, "The server had an error"),
        (Wire::OpenAi, status, Permanent, "bad"),
        (Wire::OpenAi, plain, Permanent, "no such model"),
        (Wire::OpenAi, overloaded, Temporary, "Overloaded"),
    ];
    for (wire, error, kind, message) in cases {
        let failure = parse_failure(wire, &format!("data: {error}\n\ndata: more\n\n"));
        assert_eq!((failure.kind, &*failure.message), (kind, message), "{error}");
        let failure = parse_failure(wire, &format!("event: error\ndata: {error}\n\n"));
        assert_eq!((failure.kind, &*failure.message), (kind, message), "{error}");
    }
    let failure = parse_failure(Wire::OpenAi, "event: error\ndata: {\"message\":\"gone\"}\n\n");
    assert_eq!(failure.message, "gone");
    let aborted = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n\n";
    assert_eq!(parse_failure(Wire::OpenAi, aborted).kind, Temporary);
}

#[test]
fn m3_failure_quotes_data_that_is_not_json() {
    for wire in WIRES {
        let failure = parse_failure(wire, "data: {\"choices\": oops\n\n");
        assert_eq!(failure.kind, ModelFailureKind::Temporary);
        assert!(failure.message.contains("`{\"choices\": oops`"), "{failure}");
        let long = parse_failure(wire, &format!("data: {}\n\n", "€".repeat(10_000)));
        assert!(long.message.len() < 400, "{long}");
        let failure = parse_failure(wire, "data: [1]\n\n");
        assert!(failure.message.contains("unexpected shape"), "{failure}");
        let failure = parse_failure(wire, "<html>busy</html>");
        assert!(failure.message.contains("cut"), "{failure}");
    }
    let text = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}"#;
    let failure = parse_failure(Wire::Anthropic, &format!("data: {text}\n\n"));
    assert!(failure.message.contains("unexpected shape"), "{failure}");
}

#[test]
fn m3_failed_parser_stays_failed() {
    let mut parser = anthropic::Parser::new();
    let mut deltas = Vec::new();
    let failure = parser.push(b"data: x\n\n", &mut deltas).expect_err("not JSON");
    assert_eq!(parser.push(b"data: {\"type\":\"message_stop\"}\n\n", &mut deltas), Ok(()));
    assert_eq!(parser.finish(&mut deltas), Err(failure.clone()));
    assert_eq!(parser.finish(&mut deltas), Err(failure));
    assert_eq!(deltas, []);
}

/// Returns a stream with this number of calls, with indexes of their own or all with index 0.
fn stream_with_calls(wire: Wire, count: usize, has_indexes: bool) -> Vec<u8> {
    let call = |number: usize| {
        let index = if has_indexes { number } else { 0 };
        match wire {
            Wire::OpenAi => vec![
                format!(
                    r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"id":"c{number}","function":{{"name":"f"}}}}]}}}}]}}"#
                ),
                format!(
                    r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"function":{{"arguments":"{{\"n\":{number}}}"}}}}]}}}}]}}"#
                ),
            ],
            Wire::Anthropic => vec![
                format!(
                    r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"c{number}","name":"f"}}}}"#
                ),
                format!(
                    r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"{{\"n\":{number}}}"}}}}"#
                ),
                format!(r#"{{"type":"content_block_stop","index":{index}}}"#),
            ],
        }
    };
    let mut events: Vec<_> = (0..count).flat_map(call).collect();
    match wire {
        Wire::OpenAi => {
            events.push(r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#.to_owned());
        }
        Wire::Anthropic => {
            events
                .push(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#.to_owned());
            events.push(r#"{"type":"message_stop"}"#.to_owned());
        }
    }
    let events: Vec<_> = events.iter().map(String::as_str).collect();
    match wire {
        Wire::OpenAi => openai_stream(&events),
        Wire::Anthropic => anthropic_stream(&events),
    }
}

#[test]
fn m2_calls_that_are_not_kept_are_counted() {
    for (wire, has_indexes, count, dropped_calls) in [
        (Wire::OpenAi, true, CALLS_PER_MESSAGE_MAX, 0),
        (Wire::OpenAi, true, CALLS_PER_MESSAGE_MAX + 9, 9),
        (Wire::OpenAi, false, CALLS_PER_MESSAGE_MAX + 9, 9),
        (Wire::Anthropic, true, CALLS_PER_MESSAGE_MAX, 0),
        (Wire::Anthropic, true, CALLS_PER_MESSAGE_MAX + 9, 9),
        (Wire::Anthropic, false, CALLS_PER_MESSAGE_MAX + 9, 9),
    ] {
        let stream = stream_with_calls(wire, count, has_indexes);
        let completion = parse(wire, [stream.as_slice()]).1.expect("a complete message");
        assert_eq!(completion.dropped_calls, dropped_calls, "{wire:?} {has_indexes}");
        let calls = completion.message.calls;
        assert_eq!(calls.len(), CALLS_PER_MESSAGE_MAX);
        // Only the calls within the limit keep their arguments without a bound.
        for (number, actual) in calls.into_iter().enumerate() {
            let expected = call(&format!("c{number}"), "f", &format!(r#"{{"n":{number}}}"#));
            assert_eq!(actual, expected);
        }
    }
}

#[test]
fn m2_too_many_blocks_are_rejected() {
    let block = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\"}}\n\n";
    let stream = block.repeat(greenroom_core::limits::MODEL_BLOCKS_MAX + 1);
    assert_eq!(parse_failure(Wire::Anthropic, &stream).kind, ModelFailureKind::Permanent);
}

#[test]
fn m2_complete_body_is_parsed_as_message() {
    let body = br#"{"id":"msg_1","type":"message","role":"assistant","content":[
        {"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"Hi"},
        {"type":"tool_use","id":"toolu_1","name":"add","input":{"x":1}},
        {"type":"tool_use","id":"toolu_2","name":"add","input":{}}],
        "stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4,"cache_read_input_tokens":5}}"#;
    let completion = anthropic::parse_message(body).unwrap();
    let mut expected = text_completion("Hi", [8, 4, 5], StopReason::ToolUse);
    expected.message.calls =
        vec![call("toolu_1", "add", r#"{"x":1}"#), call("toolu_2", "add", "{}")];
    expected.message.reasoning = completion.message.reasoning.clone();
    assert_eq!(completion.message.reasoning.len(), 1);
    assert_eq!(completion, expected);

    let body = br#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",
        "content":"Hi","refusal":null,"tool_calls":[
        {"id":"a","type":"function","function":{"name":"add","arguments":"{\"x\":1}"}},
        {"id":"b","type":"function","function":{"name":"add","arguments":"{\"x\":2}"}}]},
        "finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    let mut expected = text_completion("Hi", [1, 2, 0], StopReason::ToolUse);
    expected.message.calls = vec![call("a", "add", r#"{"x":1}"#), call("b", "add", r#"{"x":2}"#)];
    assert_eq!(openai::parse_message(body), Ok(expected));
}

#[test]
fn m3_body_without_message_is_temporary_failure() {
    let error = br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    for body in
        [error.as_slice(), b"", b"{}", b"null", b"[]", b"<html>", b"\xFF", b"{\"choices\":[]}"]
    {
        for outcome in [anthropic::parse_message(body), openai::parse_message(body)] {
            let failure = outcome.expect_err("no message");
            assert_eq!(failure.kind, ModelFailureKind::Temporary);
            assert_eq!(failure.message == "Overloaded", body == error);
        }
    }
}
