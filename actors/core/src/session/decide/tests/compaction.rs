//! Summaries of what was said before (C4).

use super::*;
use crate::{
    context::{assemble, inspect},
    session::Compacted,
};

/// A session with little room for its conversation, in which this was said.
fn long(rounds: usize) -> Scene {
    let mut scene = Scene::new();
    scene.rules.context.windows = Arc::new([("small".to_owned(), 1)].into());
    for number in 0..rounds {
        scene.does(submit(&format!("u{number}"))).unwrap();
        scene.does(scene.model_says(&"said ".repeat(50))).unwrap();
    }
    scene
}

/// A round is 2 + 8 and 84 + 8 tokens; 70 % of the room are 1,400.
const FULL: usize = 14;

#[test]
fn c4_what_was_said_is_summarised_before_there_is_no_room() {
    let mut scene = long(FULL);
    assert_eq!(scene.state.compacted, None);
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
fn c4_a_summary_stands_for_it_and_later_ones_build_on_it() {
    let mut scene = long(FULL);
    scene.does(submit("more")).unwrap();
    let asked = assemble(&scene.state, &scene.rules, "small".to_owned());
    assert!(asked.tools.is_empty() && asked.messages.len() == 1);
    scene.does(scene.model_says(" They talked. ")).unwrap();
    let compacted = scene.state.compacted.clone().unwrap();
    assert_eq!(&*compacted.summary, "They talked.");
    let told = assemble(&scene.state, &scene.rules, "small".to_owned());
    let Message::User { text, .. } = &told.messages[0] else { panic!("{told:?}") };
    assert!(text.ends_with("They talked."), "{text}");
    assert!(told.messages.len() < 14, "{}", told.messages.len());
    let manifest = inspect(&scene.state, &scene.rules, "small".to_owned());
    let conversation = manifest.sections.last().unwrap();
    assert_eq!(conversation.summarised as u64, compacted.through);
    assert_eq!(conversation.left_out, 0);
    // What the log has, the conversation has.
    assert_eq!(scene.state.conversation.len(), 2 * FULL + 1);
    scene.does(scene.model_says("Done.")).unwrap();
    let spent = scene.state.usage.tokens.input_tokens;
    assert_eq!(spent, (FULL as u64 + 2) * 10, "M6: the call for the summary counts");

    let mut first = true;
    for number in 0..FULL {
        scene.does(submit(&format!("v{number}"))).unwrap();
        if scene.state.active.run.as_ref().unwrap().compacting().is_some() {
            let asked = assemble(&scene.state, &scene.rules, "small".to_owned());
            assert!(format!("{:?}", asked.messages).contains("They talked."), "built on it");
            assert!(std::mem::replace(&mut first, false), "once is enough");
            scene.does(scene.model_says("They talked more.")).unwrap();
        }
        scene.does(scene.model_says(&"said ".repeat(50))).unwrap();
    }
    let later = scene.state.compacted.clone().unwrap();
    assert!(later.through > compacted.through && &*later.summary == "They talked more.");
}

#[test]
fn c4_without_a_summary_the_run_goes_on() {
    for failed in [
        |scene: &Scene| scene.model_says("  "),
        |scene: &Scene| scene.model_fails(ModelFailure::of_status(400, "too long", None), false),
    ] {
        let mut scene = long(FULL);
        scene.does(submit("more")).unwrap();
        let decision = scene.does(failed(&scene)).unwrap();
        let names: Vec<_> = decision.events.iter().map(|it| format!("{:?}", it.event)).collect();
        assert!(names[0].starts_with("ContextCompactionFailed"), "{names:?}");
        assert!(names[1].starts_with("StepStarted"), "{names:?}");
        scene.does(scene.model_calls(&wants(["read"]))).unwrap();
        let decision = scene.does(scene.tool("c1", completed())).unwrap();
        let again = format!("{:?}", decision.events);
        assert!(again.contains("compacting: None"), "not again in this run: {again}");
        scene.does(scene.model_says("Done.")).unwrap();
        assert_eq!(scene.state.compacted, None);
    }
}

#[test]
fn c4_d2_a_crash_in_the_middle_asks_again_and_a_cancel_ends_it() {
    let mut scene = long(FULL);
    scene.does(submit("more")).unwrap();
    let before = scene.state.active.run.as_ref().unwrap().compacting();
    scene.does(Input::Rehydrated { within: None }).unwrap();
    assert_eq!(scene.state.active.run.as_ref().unwrap().compacting(), before);
    scene.does(scene.model_says("They talked.")).unwrap();
    assert_eq!(scene.state.compacted.as_ref().map(|it| it.through), before);
    scene.does(scene.model_says("Done.")).unwrap();

    let mut scene = long(FULL);
    scene.does(submit("more")).unwrap();
    let by = user("ann");
    scene.does(Input::Cancel { run_id: None, by, partial: None }).unwrap();
    assert!(scene.state.is_idle() && scene.state.compacted.is_none());
}

#[test]
fn c4_no_call_is_parted_from_its_result() {
    for rounds in 1..40 {
        let mut scene = Scene::new().agent(|agent| agent.max_steps = 100);
        scene.rules.context.windows = Arc::new([("small".to_owned(), 1)].into());
        scene.does(submit("u1")).unwrap();
        for _ in 0..rounds {
            if scene.state.active.run.as_ref().unwrap().compacting().is_some() {
                scene.does(scene.model_says("They looked.")).unwrap();
            }
            scene.does(scene.model_completes("Looking. ", &wants(["read", "read"]))).unwrap();
            let calls: Vec<_> = scene.state.active.run.as_ref().unwrap().calls.clone();
            for call in calls {
                let crate::call::CallPhase::Running { attempt_id, .. } = call.phase else {
                    panic!("{call:?}");
                };
                let text = "found ".repeat(30);
                let outcome = ToolOutcome::Completed(ToolOutput { text, ..ToolOutput::default() });
                let call_id = call.call_id;
                scene.does(Input::ToolFinished { call_id, attempt_id, outcome }).unwrap();
            }
        }
        let Some(Compacted { through, .. }) = scene.state.compacted else {
            assert!(rounds < 16, "{rounds}");
            continue;
        };
        let next = scene.state.conversation.messages()[usize::try_from(through).unwrap()];
        assert!(!matches!(next, Message::ToolResults(_)), "{rounds}: {next:?}");
    }
}
