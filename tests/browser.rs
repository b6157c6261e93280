//! Tests of the dashboard in Chromium with a live server.
//!
//! Each test runs a scenario of `tests/browser/scenarios` with node. Run `scripts/test-deps.sh` and
//! `scripts/web.sh` first. A failed scenario leaves screenshots in `target/browser`.

#[path = "support/node_script.rs"]
mod node_script;

use node_script::run_node_script;
use std::path::Path;

/// Runs a scenario and asserts that it passes.
fn run_scenario(scenario: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (required_path, script) in [
        ("web/dist/index.html", "scripts/web.sh"),
        ("tests/browser/node_modules/playwright-core", "scripts/test-deps.sh"),
    ] {
        assert!(root.join(required_path).exists(), "{required_path} is missing: run {script}");
    }
    run_node_script("tests/browser/run.mjs", scenario, "1 passed, 0 failed");
}

#[test]
fn w1_tour_of_the_readme_completes() {
    run_scenario("tour");
}

#[test]
fn w1_g11_answer_in_one_browser_closes_approval_in_all_browsers() {
    run_scenario("two_browsers");
}

#[test]
fn w7_d2_open_page_survives_server_crash() {
    run_scenario("server_restart");
}

#[test]
fn w1_pane_content_fits_into_its_pane() {
    run_scenario("pane_layout");
}

#[test]
fn w1_session_search_covers_older_sessions() {
    run_scenario("session_search");
}

#[test]
fn w1_markdown_is_rendered() {
    run_scenario("markdown");
}

#[test]
fn m2_numbers_are_shown_and_edited_with_every_digit() {
    run_scenario("exact_numbers");
}

#[test]
fn w7_e6_untrusted_content_does_not_run() {
    run_scenario("untrusted_content");
}

#[test]
fn x5_unsafe_characters_are_shown_as_escapes() {
    run_scenario("unsafe_characters");
}

#[test]
fn w1_approvals_of_every_kind_are_answered() {
    run_scenario("approval_kinds");
}

#[test]
fn w1_t1_elicitation_is_answered_by_form_or_url() {
    run_scenario("elicitation");
}

#[test]
fn w1_c5_s1_feedback_fork_compaction_and_purge_are_shown() {
    run_scenario("feedback_fork_purge");
}

#[test]
fn w1_press_during_a_stream_is_a_click() {
    run_scenario("press_while_streaming");
}

#[test]
fn w4_a2_actors_are_stopped_and_restarted() {
    run_scenario("actor_actions");
}

#[test]
fn w2_event_list_shows_a_hundred_thousand_events() {
    run_scenario("many_events");
}

#[test]
fn s10_queued_messages_are_edited_and_withdrawn() {
    run_scenario("queued_messages");
}

#[test]
fn w7_pages_have_no_accessibility_violations_in_both_themes() {
    run_scenario("accessibility");
}

#[test]
fn w7_pages_show_empty_loading_and_error_states() {
    run_scenario("page_states");
}

#[test]
fn w7_pages_fit_a_phone_screen() {
    run_scenario("mobile_layout");
}

#[test]
fn w7_dashboard_is_usable_by_keyboard() {
    run_scenario("keyboard");
}

#[test]
fn x3_sign_in_works_initially_and_after_expiry() {
    run_scenario("sign_in");
}

#[test]
fn w7_x2_roles_see_only_their_pages() {
    run_scenario("roles");
}

#[test]
fn g17_w6_ceilings_are_shown_and_changed() {
    run_scenario("ceilings");
}

#[test]
fn s8_w1_child_session_is_shown_below_its_call() {
    run_scenario("delegation");
}

#[test]
fn api_page_shows_every_operation_and_calls_one() {
    run_scenario("api_docs");
}
