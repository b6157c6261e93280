//! Summaries of what was said before (C4).

use super::*;
use crate::{
    context::{assemble_request, describe_request},
    session::ConversationSummary,
};

/// A session with little room for its conversation, in which this was said.
fn with_rounds(rounds: usize) -> SessionHarness {
    let mut scene = SessionHarness::new();
    scene.rules.context.context_windows = Arc::new([("small".to_owned(), 1)].into());
    for number in 0..rounds {
        scene.apply(submit(&format!("u{number}"))).unwrap();
        scene.apply(scene.model_answers(&"said ".repeat(50))).unwrap();
    }
    scene
}

/// A round is 2 + 8 and 84 + 8 tokens; 70 % of the room are 1,400.
const ROUNDS_BEFORE_COMPACTION: usize = 14;

#[test]
fn c4_the_conversation_is_summarised_before_the_window_is_full() {
    let mut scene = with_rounds(ROUNDS_BEFORE_COMPACTION);
    assert_eq!(scene.state.summary, None);
    scene.check(
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
    let mut scene = with_rounds(ROUNDS_BEFORE_COMPACTION);
    scene.apply(submit("more")).unwrap();
    let asked = assemble_request(&scene.state, &scene.rules, "small".to_owned());
    assert!(asked.tools.is_empty() && asked.messages.len() == 1);
    scene.apply(scene.model_answers(" They talked. ")).unwrap();
    let compacted = scene.state.summary.clone().unwrap();
    assert_eq!(&*compacted.summary, "They talked.");
    let told = assemble_request(&scene.state, &scene.rules, "small".to_owned());
    let Message::User { text, .. } = &told.messages[0] else { panic!("{told:?}") };
    assert!(text.ends_with("They talked."), "{text}");
    assert!(told.messages.len() < 14, "{}", told.messages.len());
    let manifest = describe_request(&scene.state, &scene.rules, "small".to_owned());
    let conversation = manifest.sections.last().unwrap();
    assert_eq!(conversation.summarised as u64, compacted.through);
    assert_eq!(conversation.left_out, 0);
    // What the log has, the conversation has.
    assert_eq!(scene.state.conversation.len(), 2 * ROUNDS_BEFORE_COMPACTION + 1);
    scene.apply(scene.model_answers("Done.")).unwrap();
    let spent = scene.state.usage.tokens.input_tokens;
    assert_eq!(
        spent,
        (ROUNDS_BEFORE_COMPACTION as u64 + 2) * 10,
        "M6: the call for the summary counts"
    );

    let mut first = true;
    for number in 0..ROUNDS_BEFORE_COMPACTION {
        scene.apply(submit(&format!("v{number}"))).unwrap();
        if scene.state.active.run.as_ref().unwrap().compacting_through().is_some() {
            let asked = assemble_request(&scene.state, &scene.rules, "small".to_owned());
            assert!(format!("{:?}", asked.messages).contains("They talked."), "built on it");
            assert!(std::mem::replace(&mut first, false), "once is enough");
            scene.apply(scene.model_answers("They talked more.")).unwrap();
        }
        scene.apply(scene.model_answers(&"said ".repeat(50))).unwrap();
    }
    let later = scene.state.summary.clone().unwrap();
    assert!(later.through > compacted.through && &*later.summary == "They talked more.");
}

#[test]
fn c4_without_a_summary_the_run_goes_on() {
    for failed in [
        |scene: &SessionHarness| scene.model_answers("  "),
        |scene: &SessionHarness| {
            scene.model_fails(ModelFailure::from_status(400, "too long", None), false)
        },
    ] {
        let mut scene = with_rounds(ROUNDS_BEFORE_COMPACTION);
        scene.apply(submit("more")).unwrap();
        let decision = scene.apply(failed(&scene)).unwrap();
        let names: Vec<_> = decision.events.iter().map(|it| format!("{:?}", it.event)).collect();
        assert!(names[0].starts_with("ContextCompactionFailed"), "{names:?}");
        assert!(names[1].starts_with("StepStarted"), "{names:?}");
        scene.apply(scene.model_calls(&scripted_calls(["read"]))).unwrap();
        let decision = scene.apply(scene.tool_finishes("c1", completed())).unwrap();
        let again = format!("{:?}", decision.events);
        assert!(again.contains("compacting: None"), "not again in this run: {again}");
        scene.apply(scene.model_answers("Done.")).unwrap();
        assert_eq!(scene.state.summary, None);
    }
}

#[test]
fn c4_d2_a_crash_in_the_middle_asks_again_and_a_cancel_ends_it() {
    let mut scene = with_rounds(ROUNDS_BEFORE_COMPACTION);
    scene.apply(submit("more")).unwrap();
    let before = scene.state.active.run.as_ref().unwrap().compacting_through();
    scene.apply(Input::Rehydrated { user_settings: None }).unwrap();
    assert_eq!(scene.state.active.run.as_ref().unwrap().compacting_through(), before);
    scene.apply(scene.model_answers("They talked.")).unwrap();
    assert_eq!(scene.state.summary.as_ref().map(|it| it.through), before);
    scene.apply(scene.model_answers("Done.")).unwrap();

    let mut scene = with_rounds(ROUNDS_BEFORE_COMPACTION);
    scene.apply(submit("more")).unwrap();
    let by = user("ann");
    scene.apply(Input::CancelRun { run_id: None, by, partial: None }).unwrap();
    assert!(scene.state.is_idle() && scene.state.summary.is_none());
}

#[test]
fn c4_summaries_do_not_separate_calls_from_results() {
    for rounds in 1..40 {
        let mut scene = SessionHarness::new().with_agent(|agent| agent.max_steps = 100);
        scene.rules.context.context_windows = Arc::new([("small".to_owned(), 1)].into());
        scene.apply(submit("u1")).unwrap();
        for _ in 0..rounds {
            if scene.state.active.run.as_ref().unwrap().compacting_through().is_some() {
                scene.apply(scene.model_answers("They looked.")).unwrap();
            }
            scene
                .apply(scene.model_completes("Looking. ", &scripted_calls(["read", "read"])))
                .unwrap();
            let calls: Vec<_> = scene.state.active.run.as_ref().unwrap().calls.clone();
            for call in calls {
                let crate::call::CallPhase::Running { attempt_id, .. } = call.phase else {
                    panic!("{call:?}");
                };
                let text = "found ".repeat(30);
                let outcome = ToolOutcome::Completed(ToolOutput { text, ..ToolOutput::default() });
                let call_id = call.call_id;
                scene.apply(Input::ToolFinished { call_id, attempt_id, outcome }).unwrap();
            }
        }
        let Some(ConversationSummary { through, .. }) = scene.state.summary else {
            assert!(rounds < 16, "{rounds}");
            continue;
        };
        let next = scene.state.conversation.messages()[usize::try_from(through).unwrap()];
        assert!(!matches!(next, Message::ToolResults(_)), "{rounds}: {next:?}");
    }
}
