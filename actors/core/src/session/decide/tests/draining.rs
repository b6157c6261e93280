//! While the process is about to end: what has begun comes to its end, and nothing more begins (D8).

use super::*;

impl Scene {
    fn draining(mut self) -> Self {
        self.is_draining = true;
        self
    }

    /// Another process reads the log.
    #[track_caller]
    fn check_back(&mut self, expected: &str) {
        self.is_draining = false;
        self.check(Input::Rehydrated { within: None }, expected);
    }
}

#[test]
fn d8_an_answer_ends_its_run_and_the_next_waits() {
    let mut scene = Scene::streaming();
    scene.does(submit("u2")).unwrap();
    let mut scene = scene.draining();
    scene.check(
        scene.model_says("hello"),
        "
        message_completed M1 'hello' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
    ",
    );
    scene.check_back(
        "
        message_accepted u2 @r2
        run_started u2 @r2
        step_started a2 #1 small @r2.1
        message_started M2 @r2.1
        > start_model a2 M2 @r2.1
    ",
    );
}

#[test]
fn d8_calls_are_judged_and_begin_when_the_session_is_back() {
    let mut scene = Scene::streaming().draining();
    scene.check(
        scene.model_calls(&wants(["low", "high"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_low_risk @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_started c2 high write_high_risk @r1.1
        approval_requested p1 (Execute 1 tool) c2 write_high_risk within Some(60) @r1.1
    ",
    );
    // A person's word is taken, too.
    scene.check(
        scene.whole("p1", true, "ann"),
        "
        approval_decided p1 +c2 by ann closed @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        = decided closed
    ",
    );
    scene.check_back(
        "
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 low
    ",
    );
}

#[test]
fn d8_a_result_is_taken_and_the_next_step_waits() {
    let mut scene = Scene::calling(&wants(["low"])).draining();
    scene.check(scene.tool("c1", completed()), "tool_call_completed c1 '42' @r1.1");
    scene.check_back(
        "
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    // A run whose last step it was is over.
    let agent = |agent: &mut AgentProfile| agent.max_steps = 1;
    let mut scene = Scene::calling(&wants(["low"])).agent(agent).draining();
    let ended = scene.does(scene.tool("c1", completed())).unwrap();
    assert!(scene.state.active.run.is_none(), "{:?}", ended.events);
}

#[test]
fn d8_no_attempt_follows_one_that_failed() {
    let mut scene = Scene::calling(&wants(["read"])).draining();
    scene.does(scene.tool("c1", timed_out())).unwrap();
    scene.after(MINUTE).check(Input::Wake, "");
    let mut scene = Scene::streaming().draining();
    scene.does(scene.model_fails(ModelFailure::temporary("overloaded"), false)).unwrap();
    scene.after(MINUTE).check(Input::Wake, "");
    scene.check_back(
        "
        step_started a2 #2 small @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
}
