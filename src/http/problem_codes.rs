//! The stable codes of problems, each with its HTTP status. `docs/protocol.md` lists them;
//! `/openapi.json` lists the codes of each operation.

use super::error::ProblemDocument;
use std::collections::{BTreeMap, BTreeSet};
use utoipa::{
    ToSchema,
    openapi::{AllOfBuilder, ContentBuilder, ObjectBuilder, Ref, Response, ResponseBuilder, Type},
};

/// All codes, each with its HTTP status.
pub(super) const ALL: [(&str, u16); 75] = [
    ("malformed_json", 400),
    ("invalid_query", 400),
    ("invalid_id", 400),
    ("cursor_invalid", 400),
    ("unknown_dialect", 400),
    ("unknown_type", 400),
    ("surface_invalid", 400),
    ("websocket_required", 400),
    ("body_cut", 400),
    ("unauthorized", 401),
    ("forbidden", 403),
    ("origin_forbidden", 403),
    ("approver_required", 403),
    ("role_required", 403),
    ("four_eyes", 403),
    ("not_found", 404),
    ("session_not_found", 404),
    ("approval_not_found", 404),
    ("grant_not_found", 404),
    ("message_not_found", 404),
    ("call_not_found", 404),
    ("step_not_found", 404),
    ("actor_not_found", 404),
    ("key_not_found", 404),
    ("method_not_allowed", 405),
    ("session_closed", 409),
    ("child_session", 409),
    ("body_too_slow", 408),
    ("session_busy", 409),
    ("session_exists", 409),
    ("no_run", 409),
    ("run_not_active", 409),
    ("message_started", 409),
    ("message_withdrawn", 409),
    ("message_cancelled", 409),
    ("already_decided", 409),
    ("approval_expired", 409),
    ("approval_cancelled", 409),
    ("cursor_ahead", 409),
    ("order_refused", 409),
    ("version_conflict", 409),
    ("body_too_large", 413),
    ("message_too_large", 413),
    ("unsupported_media_type", 415),
    ("invalid_request", 422),
    ("unknown_agent", 422),
    ("settings_widened", 422),
    ("message_id_reused", 422),
    ("unknown_step", 422),
    ("unclear_answer", 422),
    ("wrong_decision", 422),
    ("invalid_answer", 422),
    ("invalid_edit", 422),
    ("invalid_grant", 422),
    ("unknown_workflow", 422),
    ("invalid_workflow_input", 422),
    ("workflow_unavailable", 422),
    ("rate_limited", 429),
    ("queue_full", 429),
    ("mailbox_full", 429),
    ("too_many_sessions", 429),
    ("too_many_runs", 429),
    ("too_many_subscribers", 429),
    ("too_many_subscriptions", 429),
    ("too_many_frames", 429),
    ("too_many_keys", 429),
    ("too_much_feedback", 429),
    ("internal", 500),
    ("corrupt", 500),
    ("run_failed", 502),
    ("unavailable", 503),
    ("session_parked", 503),
    ("draining", 503),
    ("stream_broken", 503),
    ("actor_busy", 503),
];

/// Codes that any request can return.
pub(super) const COMMON_PROBLEMS: [&str; 1] = ["origin_forbidden"];
/// Codes of every operation that requires a credential. Checking one reads the database.
pub(super) const ACCESS_PROBLEMS: [&str; 4] =
    ["unauthorized", "rate_limited", "corrupt", "unavailable"];
/// Codes of every operation with a body.
pub(super) const BODY_PROBLEMS: &[&str] = &[
    "malformed_json",
    "body_cut",
    "body_too_slow",
    "body_too_large",
    "unsupported_media_type",
    "invalid_request",
];
/// Codes of every operation that sends a command to a session.
pub(super) const COMMAND_PROBLEMS: &[&str] = &[
    "session_not_found",
    "session_closed",
    "mailbox_full",
    "internal",
    "session_parked",
    "draining",
    "unavailable",
];
/// Codes of every operation that submits a message.
pub(super) const MESSAGE_PROBLEMS: &[&str] = &[
    "child_session",
    "session_busy",
    "message_too_large",
    "message_id_reused",
    "queue_full",
    "too_many_runs",
    "unknown_workflow",
    "invalid_workflow_input",
    "workflow_unavailable",
];
/// Codes of every operation that changes or withdraws a queued message.
pub(super) const QUEUE_PROBLEMS: &[&str] =
    &["invalid_id", "message_not_found", "message_started", "message_cancelled"];
/// Codes of every operation that answers an approval.
pub(super) const ANSWER_PROBLEMS: &[&str] = &[
    "surface_invalid",
    "approver_required",
    "role_required",
    "four_eyes",
    "approval_not_found",
    "already_decided",
    "approval_expired",
    "approval_cancelled",
    "unknown_step",
    "unclear_answer",
    "wrong_decision",
    "invalid_answer",
    "settings_widened",
    "invalid_edit",
    "invalid_grant",
];
/// Codes of every operation that creates a session.
pub(super) const CREATE_SESSION_PROBLEMS: &[&str] =
    &["forbidden", "unknown_agent", "settings_widened", "too_many_sessions"];
/// Codes of every operation that streams a session from a cursor.
pub(super) const CURSOR_PROBLEMS: &[&str] = &["cursor_invalid", "cursor_ahead"];

/// True if `code` is listed with `status`.
pub(super) fn is_known(code: &str, status: u16) -> bool {
    ALL.contains(&(code, status))
}

/// Returns the OpenAPI responses of `codes`, by status.
pub(super) fn responses(codes: &BTreeSet<&'static str>) -> BTreeMap<String, Response> {
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for (code, status) in ALL.iter().filter(|(code, _)| codes.contains(code)) {
        by_status.entry(*status).or_default().push(code);
    }
    by_status.into_iter().map(|(status, codes)| (status.to_string(), response(&codes))).collect()
}

fn response(codes: &[&str]) -> Response {
    let code = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(codes.to_vec()));
    let schema = AllOfBuilder::new()
        .item(Ref::from_schema_name(ProblemDocument::name()))
        .item(ObjectBuilder::new().property("code", code));
    let listed: Vec<_> = codes.iter().map(|code| format!("`{code}`")).collect();
    ResponseBuilder::new()
        .description(listed.join(", "))
        .content("application/problem+json", ContentBuilder::new().schema(Some(schema)).build())
        .build()
}
