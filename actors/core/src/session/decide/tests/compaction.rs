//! Compaction: summaries of the older part of a conversation (C4).

use super::*;
use crate::{
    context::{assemble_request, describe_request},
    session::ConversationSummary,
};

/// Returns a session with a small context window and this number of completed runs.
fn with_rounds(rounds: usize) -> SessionHarness {
    let mut harness = SessionHarness::new();
    harness.rules.context.context_windows = Arc::new([("small".to_owned(), 1)].into());
    for number in 0..rounds {
        harness.apply(submit(&format!("u{number}"))).unwrap();
        harness.apply(harness.model_answers(&"said ".repeat(50))).unwrap();
    }
    harness
}

/// Number of runs after which the next step compacts. A run has 2 + 8 and 84 + 8 tokens; 70 % of the
/// available tokens are 1,400.
const ROUNDS_BEFORE_COMPACTION: usize = 14;

#[test]
fn c4_conversation_is_summarised_before_window_is_full() {
    let mut harness = with_rounds(ROUNDS_BEFORE_COMPACTION);
    assert_eq!(harness.state.summary, None);
    harness.check(
        submit("more"),
        "
        message_accepted more @r15
        run_started more @r15
        step_started a15 #1 small compacting 18 @r15
        > start_model a15 - @r15.0
        = submitted r15 seq 100
    ",
    );
}

#[test]
fn c4_later_summaries_include_earlier_ones() {
    let mut harness = with_rounds(ROUNDS_BEFORE_COMPACTION);
    harness.apply(submit("more")).unwrap();
    let request = assemble_request(&harness.state, &harness.rules, "small".to_owned());
    assert!(request.tools.is_empty() && request.messages.len() == 1);
    harness.apply(harness.model_answers(" They talked. ")).unwrap();
    let first_summary = harness.state.summary.clone().unwrap();
    assert_eq!(&*first_summary.summary, "They talked.");
    let request = assemble_request(&harness.state, &harness.rules, "small".to_owned());
    let Message::User { text, .. } = &request.messages[0] else { panic!("{request:?}") };
    assert!(text.ends_with("They talked."), "{text}");
    assert!(request.messages.len() < 14, "{}", request.messages.len());
    let manifest = describe_request(&harness.state, &harness.rules, "small".to_owned());
    let conversation = manifest.sections.last().unwrap();
    assert_eq!(conversation.summarised as u64, first_summary.through);
    assert_eq!(conversation.left_out, 0);
    // The conversation keeps the messages that the summary replaces.
    assert_eq!(harness.state.conversation.len(), 2 * ROUNDS_BEFORE_COMPACTION + 1);
    harness.apply(harness.model_answers("Done.")).unwrap();
    let spent = harness.state.usage.tokens.input_tokens;
    assert_eq!(
        spent,
        (ROUNDS_BEFORE_COMPACTION as u64 + 2) * 10,
        "M6: the call for the summary counts"
    );

    let mut is_first = true;
    for number in 0..ROUNDS_BEFORE_COMPACTION {
        harness.apply(submit(&format!("v{number}"))).unwrap();
        if harness.state.active.run.as_ref().unwrap().compacting_through().is_some() {
            let request = assemble_request(&harness.state, &harness.rules, "small".to_owned());
            assert!(
                format!("{:?}", request.messages).contains("They talked."),
                "the request contains the first summary"
            );
            assert!(std::mem::replace(&mut is_first, false), "compacted once");
            harness.apply(harness.model_answers("They talked more.")).unwrap();
        }
        harness.apply(harness.model_answers(&"said ".repeat(50))).unwrap();
    }
    let second_summary = harness.state.summary.clone().unwrap();
    assert!(
        second_summary.through > first_summary.through
            && &*second_summary.summary == "They talked more."
    );
}

#[test]
fn c4_run_continues_without_summary() {
    for failed in [
        |harness: &SessionHarness| harness.model_answers("  "),
        |harness: &SessionHarness| harness.model_stops("I can't.", &[], StopReason::Refusal),
        |harness: &SessionHarness| {
            harness.model_fails(ModelFailure::from_status(400, "too long", None), false)
        },
    ] {
        let mut harness = with_rounds(ROUNDS_BEFORE_COMPACTION);
        harness.apply(submit("more")).unwrap();
        let decision = harness.apply(failed(&harness)).unwrap();
        let names: Vec<_> =
            decision.events.iter().map(|record| format!("{:?}", record.event)).collect();
        assert!(names[0].starts_with("ContextCompactionFailed"), "{names:?}");
        assert!(names[1].starts_with("StepStarted"), "{names:?}");
        harness.apply(harness.model_calls(&scripted_calls(["read"]))).unwrap();
        let decision = harness.apply(harness.tool_finishes("c1", completed())).unwrap();
        let events = format!("{:?}", decision.events);
        assert!(
            events.contains("compacting: None"),
            "compaction is not repeated in this run: {events}"
        );
        harness.apply(harness.model_answers("Done.")).unwrap();
        assert_eq!(harness.state.summary, None);
    }
}

#[test]
fn c4_d2_interrupted_compaction_is_retried_and_can_be_cancelled() {
    let mut harness = with_rounds(ROUNDS_BEFORE_COMPACTION);
    harness.apply(submit("more")).unwrap();
    let before = harness.state.active.run.as_ref().unwrap().compacting_through();
    harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    assert_eq!(harness.state.active.run.as_ref().unwrap().compacting_through(), before);
    harness.apply(harness.model_answers("They talked.")).unwrap();
    assert_eq!(harness.state.summary.as_ref().map(|summary| summary.through), before);
    harness.apply(harness.model_answers("Done.")).unwrap();

    let mut harness = with_rounds(ROUNDS_BEFORE_COMPACTION);
    harness.apply(submit("more")).unwrap();
    let by = user("ann");
    harness.apply(Input::CancelRun { run_id: None, by, partial: None }).unwrap();
    assert!(harness.state.is_idle() && harness.state.summary.is_none());
}

#[test]
fn c4_summaries_do_not_separate_calls_from_results() {
    for rounds in 1..40 {
        let mut harness = SessionHarness::new().with_agent(|agent| agent.max_steps = 100);
        harness.rules.context.context_windows = Arc::new([("small".to_owned(), 1)].into());
        harness.apply(submit("u1")).unwrap();
        for _ in 0..rounds {
            if harness.state.active.run.as_ref().unwrap().compacting_through().is_some() {
                harness.apply(harness.model_answers("They looked.")).unwrap();
            }
            harness
                .apply(harness.model_completes("Looking. ", &scripted_calls(["read", "read"])))
                .unwrap();
            let calls: Vec<_> = harness.state.active.run.as_ref().unwrap().calls.clone();
            for call in calls {
                let crate::call::CallPhase::Running { attempt_id, .. } = call.phase else {
                    panic!("{call:?}");
                };
                let text = "found ".repeat(30);
                let outcome = ToolOutcome::Completed(ToolOutput { text, ..ToolOutput::default() });
                let call_id = call.call_id;
                harness.apply(Input::ToolFinished { call_id, attempt_id, outcome }).unwrap();
            }
        }
        let Some(ConversationSummary { through, .. }) = harness.state.summary else {
            assert!(rounds < 16, "{rounds}");
            continue;
        };
        let next = harness.state.conversation.messages()[usize::try_from(through).unwrap()];
        assert!(!matches!(next, Message::ToolResults(_)), "{rounds}: {next:?}");
    }
}
