//! Runs that are started with a workflow (C3).

use super::*;
use crate::context::{StartedWorkflow, assemble_request};

fn submit_with_workflow(text: &str, change: impl FnOnce(&mut StartedWorkflow)) -> Input {
    let mut workflow = StartedWorkflow {
        name: "restock".to_owned(),
        inputs: serde_json::Map::new(),
        text: "Buy 10.".into(),
        tools: None,
        autonomy: None,
        preflight: false,
    };
    change(&mut workflow);
    let mut input = submit(text);
    if let Input::SubmitMessage { message: NewMessage { workflow: wanted, .. }, .. } = &mut input {
        *wanted = Some(Arc::new(workflow));
    }
    input
}

#[test]
fn s1_a_workflow_without_a_message_names_its_session() {
    for (text, title) in [("", "/restock"), ("For Jita.", "For Jita.")] {
        let mut scene = SessionHarness::new();
        let mut input = submit_with_workflow("u1", |_| {});
        if let Input::SubmitMessage { message, .. } = &mut input {
            message.text = text.into();
        }
        scene.apply(input).unwrap();
        assert_eq!(scene.state.active.title.as_deref(), Some(title));
    }
}

#[test]
fn c3_a_workflow_narrows_its_run_and_the_next_is_free_again() {
    let mut scene = SessionHarness::new();
    let narrow = |it: &mut StartedWorkflow| {
        it.tools = Some(vec!["low".to_owned(), "read".to_owned()]);
        it.autonomy = Some(Autonomy::ReadOnly);
    };
    scene.check(
        submit_with_workflow("u1", narrow),
        "
        message_accepted u1 @r1
        run_started u1 workflow restock @r1
        step_started a1 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a1 M1 @r1.1
        = submitted r1 seq 2
    ",
    );
    let told = assemble_request(&scene.state, &scene.rules, "small".to_owned());
    let names: Vec<_> = told.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["low", "read"]);
    assert!(told.system.per_run.ends_with("Carry it out:\n\nBuy 10."), "{}", told.system.per_run);
    scene.apply(scene.model_calls(&scripted_calls(["read", "low", "high"]))).unwrap();
    let ends = scene.log.iter().rev().take(5).map(|record| format!("{:?}", record.event));
    let ends = ends.collect::<Vec<_>>().join("\n");
    // Reading is allowed at L0, writing is not, and what is not named is not there.
    assert!(ends.contains("AuthorizationDenied") && ends.contains("READ_ONLY"), "{ends}");
    assert!(ends.contains("UnknownTool"), "{ends}");
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.apply(scene.model_answers("Done.")).unwrap();

    scene.apply(submit("u2")).unwrap();
    assert_eq!(scene.state.active.workflow_settings, None);
    let told = assemble_request(&scene.state, &scene.rules, "small".to_owned());
    assert!(told.tools.len() > 2 && told.system.per_run.is_empty());
}

#[test]
fn c3_a_workflow_never_widens() {
    let mut scene = SessionHarness::new();
    let wide = |it: &mut StartedWorkflow| it.autonomy = Some(Autonomy::Supervised);
    scene.apply(submit_with_workflow("u1", wide)).unwrap();
    let level = |scene: &SessionHarness| scene.state.active.effective_settings().autonomy_level;
    assert_eq!(level(&scene), Autonomy::Assisted, "the session's");
    // Settings that change while it runs stay below it.
    let narrow = |it: &mut StartedWorkflow| it.autonomy = Some(Autonomy::Recommendations);
    let mut scene = SessionHarness::new();
    scene.apply(submit_with_workflow("u1", narrow)).unwrap();
    assert_eq!(level(&scene), Autonomy::Recommendations);
    for (autonomy_level, in_force) in [
        (Autonomy::Supervised, Autonomy::Recommendations),
        (Autonomy::ReadOnly, Autonomy::ReadOnly),
    ] {
        let settings = Settings { autonomy_level, ..Settings::default() };
        scene
            .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
            .unwrap();
        assert_eq!(level(&scene), in_force);
    }
}

#[test]
fn c3_g14_a_workflow_that_wants_a_plan_gets_one_also_from_the_queue() {
    let mut scene = SessionHarness::with_streaming_step();
    let planned = |it: &mut StartedWorkflow| it.preflight = true;
    let mut queued = submit_with_workflow("u2", planned);
    if let Input::SubmitMessage { message: NewMessage { preflight, .. }, .. } = &mut queued {
        *preflight = Some(false);
    }
    scene.apply(queued).unwrap();
    scene.apply(scene.model_answers("Done.")).unwrap();
    let run = scene.state.active.run.as_ref().unwrap();
    assert!(run.is_planning());
    assert_eq!(run.workflow.as_ref().unwrap().name, "restock");
}
