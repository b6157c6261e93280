//! Problem details: the only place that maps errors to `application/problem+json`.
//!
//! Every handler returns `Result<_, Problem>`. The conversions from the errors of lower layers are
//! defined here, each with its status and stable `code`. `docs/protocol.md` lists the codes.

use super::problem_codes;
use crate::redaction::Redactor;
use actix_web::{
    HttpResponse, HttpResponseBuilder, ResponseError,
    http::{StatusCode, header},
};
use greenroom_actors::{ports::JournalError, runtime::CursorError, session::CommandError};
use greenroom_core::{
    approval::{PlanStepDecision, RecordedAnswer},
    cursor::InvalidCursor,
    policy::{CeilingExceeded, SettingsError, TooManyEntries, WideningError},
    session::Rejection,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt;
use utoipa::ToSchema;

/// An error response as defined by RFC 9457.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// Stable code for programs.
    pub code: &'static str,
    /// Explanation for humans.
    pub detail: String,
    /// Seconds after which the client may retry.
    pub retry_after: Option<u64>,
    /// The methods that the resource supports, for the `Allow` header of a 405.
    pub allow: Option<String>,
    /// Additional members for programs.
    pub extra: Map<String, Value>,
}

/// A problem document (RFC 9457). Additional members depend on `code`, such as `field`, the name of
/// the invalid field.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemDocument<'a> {
    /// `urn:greenroom:problem:` followed by the code.
    #[serde(rename = "type")]
    kind: String,
    /// The reason phrase of the status.
    title: &'a str,
    /// The HTTP status.
    status: u16,
    /// Explanation for humans.
    detail: &'a str,
    /// Stable code for programs.
    code: &'a str,
}

impl Problem {
    /// Creates a problem without additional members. `code` must be in [`problem_codes::ALL`].
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        debug_assert!(problem_codes::is_known(code, status.as_u16()), "unlisted {status} `{code}`");
        let (detail, extra) = (detail.into(), Map::new());
        Self { status, code, detail, retry_after: None, allow: None, extra }
    }

    /// Adds a member.
    pub fn with_member(mut self, name: &str, value: impl serde::Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.extra.insert(name.to_owned(), value);
        self
    }

    /// Renames the field, in `field` and in the detail, to the form that the client uses.
    pub(super) fn with_renamed_field(mut self, name: &str, renamed: &str) -> Self {
        if self.extra.get("field").is_some_and(|field| field == name) {
            self.extra.insert("field".to_owned(), renamed.into());
            self.detail = self.detail.replace(name, renamed);
        }
        self
    }

    /// Converts the rejection of an answer. The earlier answer in it is redacted with the server's
    /// redactor, and its digests are keyed.
    pub(super) fn from_rejected_answer(rejection: Rejection, redactor: &Redactor) -> Self {
        let Rejection::AlreadyDecided { decisions, answer } = &rejection else {
            return Self::from(rejection);
        };
        let first = redact_first_answer(decisions, answer.as_deref(), redactor);
        Self::from(rejection).with_member("first", first)
    }

    /// Sets the `Retry-After` header.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// 400: the request is malformed.
    pub fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// 422: the request is well-formed but invalid. `field` names the invalid field, if not empty.
    pub fn invalid(field: &str, detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request", detail);
        if field.is_empty() { problem } else { problem.with_member("field", field) }
    }

    /// 422: the body has both `field` and `other`, two forms of one field.
    pub(super) fn given_twice(field: &str, other: &str) -> Self {
        let detail =
            format!("`{field}` and `{other}` are two forms of one field; send one of them");
        Self::invalid(field, detail)
    }

    /// 422: the text of `field` is too long. `unit` is `bytes` or `characters`.
    pub(super) fn too_long(field: &str, length: usize, max: usize, unit: &str) -> Self {
        Self::invalid(field, format!("`{field}`: {length} {unit}; the limit is {max}"))
    }

    /// 401: the credential is missing or not valid.
    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    /// 403: the caller lacks a right.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// 404: the session does not exist or the caller may not see it; both look the same.
    pub fn session_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "session_not_found", "session not found")
    }

    /// 404: the approval does not exist or the caller may not see it; both look the same.
    pub fn approval_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "approval_not_found", "approval not found")
    }

    /// 413: the request exceeds a limit of `max` bytes.
    pub fn too_large(code: &'static str, detail: impl Into<String>, max: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, code, detail).with_member("max", max)
    }

    /// 429: the limit `max` is reached.
    pub fn too_many(code: &'static str, detail: impl Into<String>, max: u64) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, code, detail).with_member("limit", max)
    }

    /// Returns the problem document.
    pub fn to_json(&self) -> Value {
        let mut body = json!(ProblemDocument {
            kind: format!("urn:greenroom:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            code: self.code,
        });
        if let Value::Object(body) = &mut body {
            for (name, value) in &self.extra {
                body.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        body
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Problem {}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponseBuilder::new(self.status);
        response.insert_header((header::CONTENT_TYPE, "application/problem+json"));
        response.insert_header((header::CACHE_CONTROL, "no-store"));
        if self.status == StatusCode::UNAUTHORIZED {
            response.insert_header((header::WWW_AUTHENTICATE, "Bearer realm=\"greenroom\""));
        }
        if let Some(seconds) = self.retry_after {
            response.insert_header((header::RETRY_AFTER, seconds.to_string()));
        }
        if let Some(methods) = &self.allow {
            response.insert_header((header::ALLOW, methods.as_str()));
        }
        response.body(self.to_json().to_string())
    }
}

/// 503 with `Retry-After: 1`.
fn unavailable(code: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).retry_after(1)
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        use Rejection as R;
        let detail = rejection.to_string();
        let conflict = |code| Self::new(StatusCode::CONFLICT, code, detail.clone());
        let invalid = |code| Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail.clone());
        match rejection {
            R::UnknownSession => Self::session_not_found(),
            R::SessionExists => conflict("session_exists"),
            R::SessionClosed => conflict("session_closed"),
            R::IsChildSession { parent } => conflict("child_session").with_member("parent", parent),
            R::ChildSettingsWidened { .. } => invalid("settings_widened"),
            R::CeilingExceeded(error) => error.into(),
            R::Busy { run_id } => conflict("session_busy").with_member("run_id", run_id),
            R::QueueFull { limit } => {
                Self::too_many("queue_full", detail, limit as u64).retry_after(1)
            }
            R::MessageIdReused { message_id } => {
                invalid("message_id_reused").with_member("message_id", message_id)
            }
            R::UnknownMessage { .. } => {
                Self::new(StatusCode::NOT_FOUND, "message_not_found", detail.clone())
            }
            R::MessageStarted { .. } => conflict("message_started"),
            R::MessageWithdrawn { .. } => conflict("message_withdrawn"),
            R::MessageCancelled { .. } => conflict("message_cancelled"),
            R::RedactedMessage => Self::invalid("message", detail),
            R::NoActiveRun => conflict("no_run"),
            R::RunNotActive { run_id } => conflict("run_not_active").with_member("run_id", run_id),
            R::UnknownApproval { .. } => Self::approval_not_found(),
            R::AlreadyDecided { decisions, answer } => {
                let first =
                    redact_first_answer(&decisions, answer.as_deref(), &Redactor::default());
                conflict("already_decided").with_member("first", first)
            }
            R::UnsupportedAnswer { .. } => invalid("wrong_decision"),
            R::InvalidAnswer { .. } => invalid("invalid_answer"),
            R::RoleRequired { role } => {
                Self::new(StatusCode::FORBIDDEN, "role_required", detail.clone())
                    .with_member("role", role)
            }
            R::ApproverRequired { .. } => {
                Self::new(StatusCode::FORBIDDEN, "approver_required", detail.clone())
            }
            R::FourEyes { .. } => Self::new(StatusCode::FORBIDDEN, "four_eyes", detail.clone()),
            R::ApprovalExpired => conflict("approval_expired"),
            R::ApprovalCancelled => conflict("approval_cancelled"),
            R::UnknownStep { call_id } => invalid("unknown_step").with_member("call_id", call_id),
            R::InvalidEdit { call_id, .. } => {
                invalid("invalid_edit").with_member("call_id", call_id)
            }
            R::InvalidGrant { .. } => invalid("invalid_grant"),
            R::UnknownGrant { .. } => {
                Self::new(StatusCode::NOT_FOUND, "grant_not_found", detail.clone())
            }
            R::FeedbackLimitReached { limit } => {
                Self::too_many("too_much_feedback", detail, u64::from(limit))
            }
            R::AmbiguousAnswer => invalid("unclear_answer"),
        }
    }
}

/// Returns the answer with which a later answer conflicts, redacted: the decisions on the steps, or
/// the answer to an approval without steps.
fn redact_first_answer(
    decisions: &[PlanStepDecision],
    answer: Option<&RecordedAnswer>,
    redactor: &Redactor,
) -> Value {
    match answer {
        None => redactor.redact_to_value(decisions),
        Some(answer) => redactor.redact_to_value(answer),
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Rejected(rejection) => rejection.into(),
            CommandError::MailboxFull => {
                let detail = "the session's mailbox is full";
                let status = StatusCode::TOO_MANY_REQUESTS;
                Self::new(status, "mailbox_full", detail).retry_after(1)
            }
            CommandError::Parked { error } => {
                let detail = format!("the session is parked after repeated failures: {error}");
                unavailable("session_parked", detail).retry_after(60)
            }
            CommandError::Unavailable(cause) => {
                tracing::warn!(error = %cause, "failed to store a command");
                unavailable("unavailable", "the request could not be stored and had no effect")
            }
            CommandError::Draining => unavailable("draining", "the server is shutting down"),
        }
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Self {
        tracing::warn!(error = %error, "journal operation failed");
        match error {
            JournalError::Conflict
            | JournalError::BudgetExceeded
            | JournalError::Unavailable(_) => {
                unavailable("unavailable", "the database is unavailable")
            }
            JournalError::Corrupt(_) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "corrupt",
                "stored data is corrupt; see the server's log",
            ),
        }
    }
}

impl From<CursorError> for Problem {
    fn from(error: CursorError) -> Self {
        match error {
            CursorError::Invalid => Self::bad_request(
                "cursor_invalid",
                "the cursor's offset is not a valid position in the open message",
            ),
            CursorError::BeyondHead { head } => {
                let detail = format!("the cursor is beyond the session's head, {head}");
                Self::new(StatusCode::CONFLICT, "cursor_ahead", detail).with_member("head", head)
            }
            CursorError::Journal(error) => error.into(),
        }
    }
}

impl From<InvalidCursor> for Problem {
    fn from(error: InvalidCursor) -> Self {
        Self::bad_request("cursor_invalid", error.to_string())
    }
}

impl From<TooManyEntries> for Problem {
    fn from(error: TooManyEntries) -> Self {
        let field = error.field;
        Self::invalid(field, error.to_string())
    }
}

impl From<WideningError> for Problem {
    fn from(error: WideningError) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self::new(status, "settings_widened", error.to_string()).with_member("field", error.field)
    }
}

impl From<SettingsError> for Problem {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::TooManyEntries(error) => error.into(),
            SettingsError::Widening(error) => error.into(),
            SettingsError::Ceiling(error) => error.into(),
        }
    }
}

impl From<CeilingExceeded> for Problem {
    fn from(error: CeilingExceeded) -> Self {
        let (status, detail) = (StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
        Self::new(status, "settings_widened", detail)
            .with_member("field", error.field)
            .with_member("ceiling", json!(error.scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use greenroom_core::approval::Role;
    use greenroom_core::ids::{ApprovalId, CallId, MessageId, RunId, Seq, SessionId};
    use greenroom_core::policy::CeilingScope;
    use uuid::Uuid;

    fn check(problem: impl Into<Problem>, status: u16, code: &str, extra: &Value) {
        let problem = problem.into();
        assert_eq!((problem.status.as_u16(), problem.code), (status, code));
        let body = problem.to_json();
        assert_eq!(body["status"], status);
        assert_eq!(body["code"], code);
        for (name, value) in extra.as_object().unwrap() {
            assert_eq!(&body[name], value, "{name} of {body}");
        }
    }

    #[test]
    fn every_rejection_maps_to_its_status_and_code() {
        let nil = Uuid::nil();
        let message_id = MessageId::parse("m").unwrap();
        let id = nil.to_string();
        let cases = [
            (Rejection::UnknownSession, 404, "session_not_found", json!({})),
            (Rejection::SessionExists, 409, "session_exists", json!({})),
            (Rejection::SessionClosed, 409, "session_closed", json!({})),
            (
                Rejection::IsChildSession { parent: SessionId(nil) },
                409,
                "child_session",
                json!({"parent": id}),
            ),
            (
                Rejection::ChildSettingsWidened { problem: "wider".to_owned() },
                422,
                "settings_widened",
                json!({}),
            ),
            (
                Rejection::CeilingExceeded(CeilingExceeded {
                    field: "value".to_owned(),
                    problem: "3 exceeds 1, the ceiling of role `user`".to_owned(),
                    scope: CeilingScope::Role(Role::User),
                }),
                422,
                "settings_widened",
                json!({"field": "value", "ceiling": {"scope": "role", "name": "user"}}),
            ),
            (Rejection::Busy { run_id: RunId(nil) }, 409, "session_busy", json!({"run_id": id})),
            (Rejection::QueueFull { limit: 64 }, 429, "queue_full", json!({"limit": 64})),
            (
                Rejection::MessageIdReused { message_id: message_id.clone() },
                422,
                "message_id_reused",
                json!({"message_id": "m"}),
            ),
            (
                Rejection::UnknownMessage { message_id: message_id.clone() },
                404,
                "message_not_found",
                json!({}),
            ),
            (
                Rejection::MessageStarted { message_id: message_id.clone() },
                409,
                "message_started",
                json!({}),
            ),
            (
                Rejection::MessageWithdrawn { message_id: message_id.clone() },
                409,
                "message_withdrawn",
                json!({}),
            ),
            (Rejection::MessageCancelled { message_id }, 409, "message_cancelled", json!({})),
            (Rejection::RedactedMessage, 422, "invalid_request", json!({"field": "message"})),
            (Rejection::NoActiveRun, 409, "no_run", json!({})),
            (
                Rejection::RunNotActive { run_id: RunId(nil) },
                409,
                "run_not_active",
                json!({"run_id": id}),
            ),
            (
                Rejection::UnknownApproval { approval_id: ApprovalId(nil) },
                404,
                "approval_not_found",
                json!({}),
            ),
            (
                Rejection::AlreadyDecided { decisions: vec![], answer: None },
                409,
                "already_decided",
                json!({"first": []}),
            ),
            (Rejection::ApprovalExpired, 409, "approval_expired", json!({})),
            (Rejection::ApprovalCancelled, 409, "approval_cancelled", json!({})),
            (
                Rejection::UnknownStep { call_id: CallId(nil) },
                422,
                "unknown_step",
                json!({"call_id": id}),
            ),
            (Rejection::AmbiguousAnswer, 422, "unclear_answer", json!({})),
        ];
        for (rejection, status, code, extra) in cases {
            check(rejection, status, code, &extra);
        }
    }

    #[test]
    fn temporary_problems_have_retry_after() {
        for (error, status, code) in [
            (CommandError::MailboxFull, 429, "mailbox_full"),
            (CommandError::Parked { error: "x".into() }, 503, "session_parked"),
            (CommandError::Unavailable("disk full".into()), 503, "unavailable"),
            (CommandError::Draining, 503, "draining"),
        ] {
            let problem = Problem::from(error);
            let response = problem.error_response();
            assert!(response.headers().contains_key(header::RETRY_AFTER), "{code}");
            check(problem, status, code, &json!({}));
        }
    }

    #[test]
    fn e3_invalid_cursor_maps_to_its_status_and_code() {
        check(InvalidCursor, 400, "cursor_invalid", &json!({}));
        check(CursorError::Invalid, 400, "cursor_invalid", &json!({}));
        let ahead = CursorError::BeyondHead { head: Seq(7) };
        check(ahead, 409, "cursor_ahead", &json!({"head": 7}));
    }

    #[test]
    fn problem_document_members_are_not_overwritten_by_extras() {
        let problem =
            Problem::invalid("message", "`message` must not be empty").with_member("code", "x");
        let expected = json!({
            "type": "urn:greenroom:problem:invalid_request",
            "title": "Unprocessable Entity",
            "status": 422,
            "detail": "`message` must not be empty",
            "code": "invalid_request",
            "field": "message",
        });
        assert_eq!(problem.to_json(), expected);
        let response = problem.error_response();
        let kind = response.headers().get(header::CONTENT_TYPE).unwrap();
        assert_eq!(kind, "application/problem+json");
    }
}
