//! The dashboard in a real Chromium, with the real server behind it. Each test is a scenario of
//! `tests/browser/scenarios`, run by node; `scripts/test-deps.sh` and `scripts/web.sh` come before.
//! When one fails, what its browsers showed is in `target/browser`.

use std::{path::Path, process::Command};

/// Runs the scenario; its own words say what went wrong.
fn run_scenario(scenario: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (needed, made_by) in [
        ("web/dist/index.html", "scripts/web.sh"),
        ("tests/browser/node_modules/playwright-core", "scripts/test-deps.sh"),
    ] {
        assert!(root.join(needed).exists(), "{needed} is missing: run {made_by}");
    }
    let run = Command::new("node")
        .arg(root.join("tests/browser/run.mjs"))
        .arg(scenario)
        .env("GREENROOM_BINARY", env!("CARGO_BIN_EXE_greenroom"))
        .output()
        .expect("node can be started");
    let said = String::from_utf8_lossy(&run.stdout);
    let complained = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}{complained}");
    assert!(said.contains("1 passed, 0 failed"), "{said}{complained}");
}

#[test]
fn w1_the_tour_by_clicks() {
    run_scenario("tour");
}

#[test]
fn w1_g11_what_is_answered_in_one_browser_is_answered_in_all() {
    run_scenario("two_browsers");
}

#[test]
fn w7_d2_an_open_page_survives_the_death_of_the_server() {
    run_scenario("restart");
}

#[test]
fn w1_what_is_in_a_pane_fits_into_it() {
    run_scenario("panes");
}

#[test]
fn w1_a_search_reads_on_in_older_conversations() {
    run_scenario("search");
}

#[test]
fn w1_markdown_looks_like_what_it_says() {
    run_scenario("markdown");
}

#[test]
fn w7_e6_nothing_of_a_model_or_a_tool_runs_in_the_page() {
    run_scenario("hostile");
}

#[test]
fn x5_nothing_in_a_question_looks_like_something_else() {
    run_scenario("deceptive");
}

#[test]
fn w1_every_kind_of_question_is_answered_in_the_page() {
    run_scenario("questions");
}

#[test]
fn w1_t1_what_a_tool_asks_is_a_form_or_a_page() {
    run_scenario("asking");
}

#[test]
fn w1_c5_s1_opinions_forks_summaries_and_deleting_for_good() {
    run_scenario("opinions");
}

#[test]
fn w4_a2_actors_are_stopped_and_restarted() {
    run_scenario("orders");
}

#[test]
fn w2_a_hundred_thousand_events() {
    run_scenario("many_events");
}

#[test]
fn w7_every_room_in_light_and_dark_has_no_fault_that_axe_finds() {
    run_scenario("rooms");
}

#[test]
fn w7_every_room_says_what_it_waits_for_and_goes_on_by_itself() {
    run_scenario("states");
}

#[test]
fn w7_on_a_phone_nothing_is_wider_than_the_screen() {
    run_scenario("phone");
}

#[test]
fn w7_everything_can_be_done_by_keyboard() {
    run_scenario("keyboard");
}

#[test]
fn x3_one_signs_in_by_the_page_and_again_when_that_ends() {
    run_scenario("sign_in");
}

#[test]
fn w7_x2_each_role_sees_its_own_rooms() {
    run_scenario("roles");
}

#[test]
fn s8_w1_what_another_agent_does_stands_under_the_call_it_works_for() {
    run_scenario("delegation");
}

#[test]
fn the_page_of_the_api_shows_every_operation_and_calls_one() {
    run_scenario("docs");
}
