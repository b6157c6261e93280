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
    if let Input::SubmitMessage { message: NewMessage { workflow: message_workflow, .. }, .. } =
        &mut input
    {
        *message_workflow = Some(Arc::new(workflow));
    }
    input
}

#[test]
fn s1_workflow_without_message_names_session() {
    for (text, title) in [("", "/restock"), ("For Jita.", "For Jita.")] {
        let mut harness = SessionHarness::new();
        let mut input = submit_with_workflow("u1", |_| {});
        if let Input::SubmitMessage { message, .. } = &mut input {
            message.text = text.into();
        }
        harness.apply(input).unwrap();
        assert_eq!(harness.state.active.title.as_deref(), Some(title));
    }
}

#[test]
fn c3_workflow_narrows_only_its_own_run() {
    let mut harness = SessionHarness::new();
    let narrow = |workflow: &mut StartedWorkflow| {
        workflow.tools = Some(vec!["low".to_owned(), "read".to_owned()]);
        workflow.autonomy = Some(Autonomy::ReadOnly);
    };
    harness.check(
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
    let request = assemble_request(&harness.state, &harness.rules, "small".to_owned());
    let names: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["low", "read"]);
    assert!(
        request.system.per_run.ends_with("Carry it out:\n\nBuy 10."),
        "{}",
        request.system.per_run
    );
    harness.apply(harness.model_calls(&scripted_calls(["read", "low", "high"]))).unwrap();
    let ends = harness.log.iter().rev().take(5).map(|record| format!("{:?}", record.event));
    let ends = ends.collect::<Vec<_>>().join("\n");
    // L0 allows reading and denies writing; a tool outside the workflow is unknown.
    assert!(ends.contains("AuthorizationDenied") && ends.contains("READ_ONLY"), "{ends}");
    assert!(ends.contains("UnknownTool"), "{ends}");
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.apply(harness.model_answers("Done.")).unwrap();

    harness.apply(submit("u2")).unwrap();
    assert_eq!(harness.state.active.workflow_settings, None);
    let request = assemble_request(&harness.state, &harness.rules, "small".to_owned());
    assert!(request.tools.len() > 2 && request.system.per_run.is_empty());
}

#[test]
fn c3_workflow_never_widens_settings() {
    let mut harness = SessionHarness::new();
    let wide = |workflow: &mut StartedWorkflow| workflow.autonomy = Some(Autonomy::Supervised);
    harness.apply(submit_with_workflow("u1", wide)).unwrap();
    let level = |harness: &SessionHarness| harness.state.active.effective_settings().autonomy_level;
    assert_eq!(level(&harness), Autonomy::Assisted, "the session's level");
    // Later changes of the settings do not exceed the workflow's limit.
    let narrow =
        |workflow: &mut StartedWorkflow| workflow.autonomy = Some(Autonomy::Recommendations);
    let mut harness = SessionHarness::new();
    harness.apply(submit_with_workflow("u1", narrow)).unwrap();
    assert_eq!(level(&harness), Autonomy::Recommendations);
    for (autonomy_level, in_force) in [
        (Autonomy::Supervised, Autonomy::Recommendations),
        (Autonomy::ReadOnly, Autonomy::ReadOnly),
    ] {
        let settings = Settings { autonomy_level, ..Settings::default() };
        harness
            .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
            .unwrap();
        assert_eq!(level(&harness), in_force);
    }
}

#[test]
fn c3_g14_workflow_preflight_applies_to_queued_message() {
    let mut harness = SessionHarness::with_streaming_step();
    let preflight_required = |workflow: &mut StartedWorkflow| workflow.preflight = true;
    let mut queued = submit_with_workflow("u2", preflight_required);
    if let Input::SubmitMessage { message: NewMessage { preflight, .. }, .. } = &mut queued {
        *preflight = Some(false);
    }
    harness.apply(queued).unwrap();
    harness.apply(harness.model_answers("Done.")).unwrap();
    let run = harness.state.active.run.as_ref().unwrap();
    assert!(run.is_planning());
    assert_eq!(run.workflow.as_ref().unwrap().name, "restock");
}
