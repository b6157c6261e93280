//! Fuzz tests of approvals as the server returns them. No response causes a panic.

use super::view::{ApprovalDetails, render_details, render_list};
use crate::{cli::terminal::ColorMode, hostile_input};
use greenroom_core::Timestamp;
use proptest::prelude::*;

const APPROVALS: &[&str] = &[
    r#"{"approval_id":"0198c0de-0000-7000-8000-000000000001","purpose":"p","max_risk_level":"critical","requested_at":"2026-09-21T14:13:20Z","deadline":"2026-09-21T15:13:20Z","kind":"elicitation","call_id":"0198c0de-0000-7000-8000-000000000002","tool":"t","server":"s","message":"m","mode":"form","schema":{"properties":{"a":{"type":"string"}}},"state":"pending","session_id":"0198c0de-0000-7000-8000-000000000001","run_id":"0198c0de-0000-7000-8000-000000000001","user_id":"ann","decisions":[],"closed_at":null}"#,
    r#"{"approval_id":"0198c0de-0000-7000-8000-000000000001","purpose":"p","max_risk_level":"write_high_risk","requested_at":"2026-09-21T14:13:20Z","deadline":null,"kind":"plan","steps":[{"call_id":"0198c0de-0000-7000-8000-000000000002","tool":"t","arguments":{"n":1},"digest":"bb82030dbc2bcaba32a90bf2e207a84a856fc5f033b77c480836ab6f77f40f19","risk":"critical","why":"w"}],"state":"decided","session_id":"0198c0de-0000-7000-8000-000000000001","run_id":"0198c0de-0000-7000-8000-000000000001","user_id":"ann","decisions":[],"closed_at":null}"#,
];

proptest! {
    /// No character of a rendered approval can control the terminal.
    #[test]
    fn g11_approvals_are_rendered_without_control_characters(
        approval in hostile_input::json(APPROVALS),
    ) {
        let Ok(approval) = ApprovalDetails::from_json(approval) else { return Ok(()) };
        let mut rendered = render_details(&approval, Timestamp(0), ColorMode::PLAIN);
        rendered.push_str(&render_list(&[approval], Timestamp(0), ColorMode::PLAIN));
        let is_unsafe = |c: char| c.is_control() && c != '\n';
        prop_assert!(!rendered.contains(is_unsafe), "{:?}", rendered);
    }
}
