use super::*;
use crate::model::failure::ModelFailureKind;
use proptest::prelude::*;
use serde_json::json;

fn build(deltas: impl IntoIterator<Item = Delta>) -> Result<Completion, ModelFailure> {
    let mut builder = MessageBuilder::default();
    deltas.into_iter().try_for_each(|delta| builder.push(delta))?;
    Ok(builder.into_completion())
}

fn started(index: u32, provider_id: &str, tool: &str) -> Delta {
    let (provider_id, tool) = (provider_id.to_owned(), tool.to_owned());
    Delta::CallStarted { index, provider_id, tool }
}

fn fragment(index: u32, fragment: &str) -> Delta {
    Delta::CallArguments { index, fragment: fragment.to_owned() }
}

/// Returns the arguments of the only call, sent in `pieces`.
fn arguments(pieces: &[&str], stop_reason: StopReason) -> Arguments {
    let pieces = pieces.iter().map(|piece| fragment(0, piece));
    let deltas = [started(0, "a", "add")].into_iter().chain(pieces);
    let completion = build(deltas.chain([Delta::Stopped(stop_reason)])).unwrap();
    let [call] = completion.message.calls.try_into().expect("one call");
    call.arguments
}

#[test]
fn x4_arguments_nested_too_deep_are_malformed() {
    let nested =
        |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert!(matches!(arguments(&[&nested(64)], StopReason::ToolUse), Arguments::Json(_)));
    let too_deep = arguments(&[&nested(65)], StopReason::ToolUse);
    let Arguments::Malformed { error, .. } = too_deep else { panic!("{too_deep:?}") };
    assert_eq!(error, "the arguments are nested deeper than 64 levels");
}

#[test]
fn m2_arguments_that_are_no_object_are_malformed() {
    for (text, kind) in [
        ("null", "null"),
        ("true", "a boolean"),
        ("1", "a number"),
        ("\"{}\"", "a string"),
        (" [1] ", "an array"),
    ] {
        let error = format!("the arguments are not a JSON object but {kind}");
        let expected = Arguments::Malformed { raw: text.to_owned(), error };
        assert_eq!(arguments(&[text], StopReason::ToolUse), expected);
    }
}

#[test]
fn m2_numbers_of_arguments_keep_every_digit() {
    for number in
        ["123456789012345678901234567890", "0.1000000000000000055511151231257827", "-0", "1e+400"]
    {
        let text = format!("{{\"n\":{number}}}");
        let Arguments::Json(value) = arguments(&[&text], StopReason::ToolUse) else {
            panic!("{text}");
        };
        assert_eq!(value.to_string(), text);
    }
    let long = format!("{{\"n\":{}}}", "1".repeat(limits::NUMBER_BYTES_MAX + 1));
    let malformed = arguments(&[&long], StopReason::ToolUse);
    let Arguments::Malformed { error, .. } = malformed else { panic!("{malformed:?}") };
    assert!(error.ends_with("a number has 1001 characters; the limit is 1000"), "{error}");
}

#[test]
fn m2_deltas_are_folded_into_message_in_order() {
    let usage = |input_tokens, output_tokens, cached_tokens| {
        Delta::Usage(TokenUsage { input_tokens, output_tokens, cached_tokens, estimated: false })
    };
    let reasoning = |text: &str| Delta::Reasoning { index: 0, text: text.to_owned() };
    let completion = build([
        usage(30, 1, 20),
        Delta::ReasoningStarted { index: 0, redacted: None },
        reasoning("h"),
        Delta::ReasoningSignature { index: 0, signature: "si".to_owned() },
        Delta::ReasoningStarted { index: 5, redacted: Some("x".to_owned()) },
        reasoning("m"),
        Delta::ReasoningSignature { index: 0, signature: "g".to_owned() },
        Delta::Text("a".to_owned()),
        started(7, "c1", "get_"),
        started(2, "c2", "sum"),
        fragment(2, "{}"),
        started(7, "", "time"),
        Delta::Text("b".to_owned()),
        usage(0, 9, 0),
        Delta::Stopped(StopReason::EndTurn),
        Delta::Stopped(StopReason::ToolUse),
        Delta::Finished,
    ])
    .unwrap();
    let call = |provider_id: &str, tool: &str| ProposedCall {
        call_id: crate::ids::CallId(uuid::Uuid::nil()),
        provider_id: provider_id.to_owned(),
        tool: tool.to_owned(),
        arguments: Arguments::Json(json!({})),
    };
    let thinking = Reasoning::Thinking { text: "hm".into(), signature: Some("sig".into()) };
    let expected = Completion {
        message: AssistantMessage {
            text: "ab".to_owned(),
            reasoning: vec![thinking, Reasoning::Redacted { payload: "x".to_owned() }],
            calls: vec![call("c1", "get_time"), call("c2", "sum")],
        },
        usage: TokenUsage {
            input_tokens: 30,
            output_tokens: 9,
            cached_tokens: 20,
            estimated: false,
        },
        stop_reason: StopReason::ToolUse,
        dropped_calls: 0,
    };
    assert_eq!(completion, expected);
}

#[test]
fn m2_stopped_message_keeps_only_text() {
    let mut builder = MessageBuilder::default();
    let reasoning = Delta::Reasoning { index: 0, text: "hm".to_owned() };
    for delta in [reasoning, Delta::Text("so".to_owned()), started(1, "c", "buy")] {
        builder.push(delta).unwrap();
    }
    assert!(!builder.is_finished());
    let message = AssistantMessage { text: "so".to_owned(), ..AssistantMessage::default() };
    assert_eq!(builder.into_partial_completion().message, message);
}

#[test]
fn g6_uncounted_output_tokens_are_estimated() {
    let reported = |output_tokens| {
        Delta::Usage(TokenUsage {
            input_tokens: 30,
            output_tokens,
            cached_tokens: 20,
            estimated: false,
        })
    };
    let text = |bytes| Delta::Text("x".repeat(bytes));
    let reasoning = Delta::Reasoning { index: 0, text: "x".repeat(30) };
    for (deltas, output_tokens) in [
        // Anthropic reports the first token, and the total at the end.
        (vec![reported(1), text(300)], 101),
        (vec![reported(1), text(300), reported(60)], 60),
        (vec![reported(1), text(300), reported(60), text(9)], 63),
        // Compatible servers may report no usage.
        (vec![text(300), reasoning, started(1, "id", "buy"), fragment(1, "{\"n\":1")], 113),
        (vec![reported(0), text(3), reported(0)], 1),
        (vec![], 0),
    ] {
        let mut builder = MessageBuilder::default();
        deltas.iter().cloned().try_for_each(|delta| builder.push(delta)).unwrap();
        assert_eq!(builder.usage().output_tokens, output_tokens, "{deltas:?}");
        assert_eq!(
            builder.into_partial_completion().usage.output_tokens,
            output_tokens,
            "{deltas:?}"
        );
    }
    let complete = build([reported(1), text(300), reported(2), Delta::Finished]).unwrap();
    assert_eq!(
        complete.usage,
        TokenUsage { input_tokens: 30, output_tokens: 2, cached_tokens: 20, estimated: false }
    );
    let unreported = build([text(300), Delta::Finished]).unwrap().usage;
    let expected = TokenUsage { output_tokens: 100, estimated: true, ..TokenUsage::default() };
    assert_eq!(unreported, expected);
}

#[test]
fn m6_usage_of_a_cut_message_is_known_only_after_its_last_report() {
    let reported = |output_tokens| {
        Delta::Usage(TokenUsage { input_tokens: 30, output_tokens, ..TokenUsage::default() })
    };
    let (text, stopped) = (Delta::Text("Hi".to_owned()), Delta::Stopped(StopReason::EndTurn));
    for (deltas, estimated) in [
        (vec![], true),
        (vec![reported(1)], true),
        (vec![reported(1), text.clone()], true),
        // OpenAI reports the usage after the stop reason.
        (vec![text.clone(), stopped.clone()], true),
        (vec![text.clone(), stopped.clone(), reported(1)], false),
        // Anthropic reports the usage with the stop reason.
        (vec![reported(1), text, reported(2), stopped], false),
    ] {
        let mut builder = MessageBuilder::default();
        deltas.iter().cloned().try_for_each(|delta| builder.push(delta)).unwrap();
        assert_eq!(builder.usage().estimated, estimated, "{deltas:?}");
        assert_eq!(builder.is_empty(), deltas.is_empty(), "{deltas:?}");
    }
}

#[test]
fn m2_missing_arguments_are_empty_object_unless_message_was_truncated() {
    for reason in [StopReason::ToolUse, StopReason::EndTurn, StopReason::StopSequence] {
        assert_eq!(arguments(&["", " "], reason), Arguments::Json(json!({})));
    }
    for reason in [StopReason::MaxTokens, StopReason::Refusal, StopReason::ContentFilter] {
        assert!(matches!(arguments(&[], reason), Arguments::Malformed { .. }));
        assert_eq!(arguments(&["{}"], reason), Arguments::Json(json!({})));
    }
    // Only the last call can lack its arguments.
    let stop = Delta::Stopped(StopReason::MaxTokens);
    let calls = build([started(0, "a", "f"), started(1, "b", "g"), stop]).unwrap().message.calls;
    assert_eq!(calls[0].arguments, Arguments::Json(json!({})));
    assert!(matches!(calls[1].arguments, Arguments::Malformed { .. }));
}

#[test]
fn m2_truncated_call_names_the_token_limit() {
    for (reason, error) in [
        (
            StopReason::MaxTokens,
            "the message was truncated at the token limit, so the arguments are incomplete",
        ),
        (StopReason::ContentFilter, "the message was cut off, so the arguments are incomplete"),
        (
            StopReason::ToolUse,
            "the arguments are not valid JSON: EOF while parsing an object at line 1 column 6",
        ),
    ] {
        let expected = Arguments::Malformed { raw: "{\"n\":1".to_owned(), error: error.to_owned() };
        assert_eq!(arguments(&["{\"n\":1"], reason), expected);
    }
}

#[test]
fn m2_message_size_is_limited() {
    let too_long = |length: usize| "x".repeat(length + 1);
    let blocks = (0..).map(|index| Delta::ReasoningStarted { index, redacted: None });
    let cases: [Vec<Delta>; 4] = [
        vec![Delta::Reasoning { index: 0, text: too_long(limits::REASONING_BYTES_MAX) }],
        vec![started(0, "a", &too_long(limits::TOOL_NAME_BYTES_MAX))],
        vec![fragment(0, &too_long(limits::ARGUMENTS_BYTES_MAX))],
        blocks.take(limits::MODEL_BLOCKS_MAX + 1).collect(),
    ];
    for deltas in cases {
        let failure = build(deltas).expect_err("too much");
        assert_eq!(failure.kind, ModelFailureKind::Permanent);
    }
}

/// Builds a message with at most 2 calls and 8 bytes of text.
fn build_limited(deltas: impl IntoIterator<Item = Delta>) -> Completion {
    let mut builder = MessageBuilder::new(MessageLimits { calls: 2, text_bytes: 8 });
    deltas.into_iter().for_each(|delta| builder.push(delta).unwrap());
    builder.into_completion()
}

#[test]
fn m2_text_beyond_the_limit_is_cut_off() {
    let text = |text: &str| Delta::Text(text.to_owned());
    for (deltas, kept, stop_reason) in [
        (vec![text("12345678")], "12345678", StopReason::EndTurn),
        (vec![text("1234"), text("56789")], "12345678", StopReason::TextLimit),
        // A character is not split, and the text has no gap.
        (vec![text("1234567é"), text("8")], "1234567", StopReason::TextLimit),
    ] {
        for (reported, expected) in [
            (StopReason::EndTurn, stop_reason),
            (StopReason::MaxTokens, StopReason::MaxTokens),
            (StopReason::Refusal, StopReason::Refusal),
        ] {
            let deltas = deltas.iter().cloned();
            let built = build_limited(deltas.chain([Delta::Stopped(reported), Delta::Finished]));
            assert_eq!((built.message.text.as_str(), built.stop_reason), (kept, expected));
        }
    }
    // Calls after the text are kept.
    let stop = [Delta::Stopped(StopReason::ToolUse), Delta::Finished];
    let built = build_limited([text("123456789"), started(0, "a", "f")].into_iter().chain(stop));
    assert_eq!((built.message.calls.len(), built.stop_reason), (1, StopReason::TextLimit));
}

#[test]
fn m2_endless_text_ends_the_message() {
    let mut builder = MessageBuilder::new(MessageLimits { calls: 2, text_bytes: 8 });
    builder.push(started(0, "a", "f")).unwrap();
    let piece = "x".repeat(limits::MODEL_EXCESS_TEXT_BYTES_MAX / 4);
    for _ in 0..4 {
        builder.push_text(&piece);
        assert!(!builder.is_finished());
    }
    builder.push_text(&piece);
    assert!(builder.is_finished());
    let built = builder.into_completion();
    assert_eq!((built.message.text.len(), built.stop_reason), (8, StopReason::TextLimit));
    // The provider did not report the usage, so it is estimated.
    assert_eq!(built.usage.output_tokens, (piece.len() as u64 * 5 + 1).div_ceil(3));
    let Arguments::Malformed { error, .. } = &built.message.calls[0].arguments else { panic!() };
    assert_eq!(error, "the message was ended at the text limit, so the arguments are incomplete");
}

#[test]
fn m2_arguments_of_calls_beyond_the_limit_are_bounded() {
    let long = |index| fragment(index, &format!("{{\"n\":\"{}\"}}", "x".repeat(4096)));
    let deltas = (0..4).map(|index| started(index, "", "f"));
    let arguments = [fragment(2, "{}"), long(1), long(3), fragment(3, "{}")];
    let built = build_limited(deltas.chain(arguments));
    let calls: Vec<_> = built.message.calls.into_iter().map(|call| call.arguments).collect();
    let raw = format!("{{\"n\":\"{}", "x".repeat(limits::EXCESS_ARGUMENTS_BYTES_MAX - 6));
    let error = "only the beginning of the arguments was kept".to_owned();
    assert_eq!(
        calls,
        [
            Arguments::Json(json!({})),
            Arguments::Json(json!({"n": "x".repeat(4096)})),
            Arguments::Json(json!({})),
            Arguments::Malformed { raw, error },
        ]
    );
}

#[test]
fn m2_calls_that_are_not_kept_are_counted() {
    let calls_max = u32::try_from(limits::CALLS_PER_MESSAGE_MAX).unwrap();
    let deltas = (0..calls_max + 2)
        .flat_map(|index| [started(index, "", "f"), fragment(index, "{}")])
        .chain([Delta::CallDropped]);
    let built = build_limited(deltas);
    assert_eq!((built.message.calls.len(), built.dropped_calls), (calls_max as usize, 3));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Encodes `value` as ASCII JSON, so that it can be split inside every escape.
fn escaped(value: &Value) -> String {
    let escape = |c: char| match c.is_ascii() {
        true => c.to_string(),
        false => {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        }
    };
    value.to_string().chars().map(escape).collect()
}

proptest! {
    #[test]
    fn m2_truncated_arguments_are_malformed(
        map in prop::collection::btree_map(".{0,4}", values(), 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        end in any::<prop::sample::Index>(),
    ) {
        // M2: truncated tool JSON is an error result for that call; arguments are never guessed.
        let value = Value::Object(map.into_iter().collect());
        let text = escaped(&value);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(arguments(&pieces, StopReason::ToolUse), Arguments::Json(value));

        let start = &text[..1 + end.index(text.len() - 1)];
        match arguments(&[start], StopReason::MaxTokens) {
            Arguments::Json(value) => prop_assert!(false, "{start} became {value}"),
            Arguments::Malformed { raw, error } => {
                let kept = limits::MALFORMED_ARGUMENTS_BYTES_MAX;
                prop_assert_eq!(raw.as_str(), crate::text::truncate(start, kept));
                prop_assert!(error.starts_with("the message was truncated at the token limit"));
            }
        }
    }
}
