//! Failures of model calls, and whether a retry may succeed (M3).
//!
//! Also parses the errors of providers: error bodies of HTTP responses and error events of streams, in
//! the shapes that providers and compatible servers use. The message is the provider's text, truncated
//! and with API keys masked. The HTTP client calls [`from_response`] and [`parse_retry_after`]; the
//! parsers call the rest.

use crate::{limits, scrub::REDACTED, text, time::Timestamp};
use chrono::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// Maximum bytes of malformed data that a failure quotes.
const EXCERPT_BYTES_MAX: usize = 120;
/// Words in an error's type or code that mean that a retry cannot succeed.
const PERMANENT_WORDS: [&str; 12] = [
    "invalid",
    "badrequest",
    "authentication",
    "unauthorized",
    "permission",
    "forbidden",
    "not_found",
    "notfound",
    "billing",
    "quota",
    "context_length",
    "too_large",
];

/// Prefixes of API keys.
const KEY_PREFIXES: [&str; 6] = ["AIza", "gsk_", "key-", "sk-", "sk_", "xai-"];
/// Minimum number of letters and digits in an API key.
const KEY_CHARS_MIN: usize = 8;

/// A failed model call (M3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ModelFailure {
    /// Decides whether the call is retried.
    pub kind: ModelFailureKind,
    /// The provider's message, or Greenroom's. Contains no secrets.
    pub message: String,
    /// The HTTP status, if there was a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Time that the provider asks to wait before a retry (`retry-after`), in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// True if the request did not reach the provider.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsent: bool,
}

/// The kind of a failed model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFailureKind {
    /// A retry may succeed: 408, 409, 429, 5xx, overloaded, connection failed or cut.
    Temporary,
    /// The request was not sent, because the circuit breaker is open after repeated failures (R4). A
    /// later attempt may succeed.
    CircuitOpen,
    /// A retry cannot succeed: 400, 401, 403, 404, or a response that is not a stream.
    Permanent,
}

impl ModelFailure {
    /// Creates a failure that a retry may resolve.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self {
            kind: ModelFailureKind::Temporary,
            message: message.into(),
            status: None,
            retry_after_ms: None,
            unsent: false,
        }
    }

    /// Creates the failure of a request that an open circuit breaker rejected (R4). `wait` is the time
    /// until the circuit breaker admits a request again.
    pub fn circuit_open(message: impl Into<String>, wait: Duration) -> Self {
        Self {
            kind: ModelFailureKind::CircuitOpen,
            retry_after_ms: u64::try_from(wait.as_millis()).ok(),
            unsent: true,
            ..Self::temporary(message)
        }
    }

    /// Creates a failure that a retry cannot resolve.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            kind: ModelFailureKind::Permanent,
            message: message.into(),
            status: None,
            retry_after_ms: None,
            unsent: false,
        }
    }

    /// Creates the failure for an HTTP response with an error status.
    pub fn from_status(
        status: u16,
        message: impl Into<String>,
        retry_after: Option<Duration>,
    ) -> Self {
        let temporary = matches!(status, 408 | 409 | 429 | 500..=599);
        Self {
            kind: if temporary { ModelFailureKind::Temporary } else { ModelFailureKind::Permanent },
            message: message.into(),
            status: Some(status),
            retry_after_ms: retry_after.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
            unsent: false,
        }
    }

    /// Marks the request as not sent.
    #[must_use]
    pub fn into_unsent(self) -> Self {
        Self { unsent: true, ..self }
    }

    /// True if the provider spent no tokens on a request of which no part of a response was received:
    /// it was not sent, or rejected with an error status.
    pub fn is_free(&self) -> bool {
        self.unsent || self.status.is_some()
    }

    /// Creates the failure for a response that succeeded but is not an event stream. `body` is its
    /// start. An error object in it is shown; any other body is quoted. A retry gets the same
    /// response, because the address or the server is wrong.
    pub fn not_event_stream(media_type: &str, body: &[u8]) -> Self {
        let error = serde_json::from_slice::<Value>(body).ok();
        let error = error.as_ref().filter(|body| body.get("error").is_some());
        let shown = match error.and_then(find_message) {
            Some(message) => mask_keys(message),
            None => quote_excerpt(&String::from_utf8_lossy(body)),
        };
        let media_type = text::truncate(media_type, EXCERPT_BYTES_MAX);
        Self::permanent(format!(
            "the provider responded with {media_type} instead of an event stream: {shown}"
        ))
    }

    /// Adds to the message that the provider asks to wait longer than `limit`.
    pub fn append_wait(&mut self, requested: Duration, limit: Duration) {
        let seconds = |duration: Duration| text::group_digits(duration.as_millis().div_ceil(1000));
        self.message.push_str(&format!(
            "; the provider asks to wait {} s; the limit is {} s",
            seconds(requested),
            seconds(limit)
        ));
    }
}

/// Parses an HTTP response with an error status.
pub fn from_response(status: u16, body: &[u8], retry_after: Option<Duration>) -> ModelFailure {
    let generic = format!("the model provider responded with status {status}");
    let message = match serde_json::from_slice::<Value>(body) {
        Ok(value) => find_message(&value).map(mask_keys),
        Err(_) => plain_text_message(body).map(|text| format!("{generic}: {text}")),
    };
    ModelFailure::from_status(status, message.unwrap_or(generic), retry_after)
}

/// True if an error response means that the server does not know the requested model. The texts and
/// codes differ: `model_not_found` of OpenAI, `not_found_error` with "model: NAME" of Anthropic,
/// "model 'NAME' not found" of Ollama, "The model `NAME` does not exist." of vLLM.
pub fn is_unknown_model(status: u16, body: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return false };
    let value = value.get(0).unwrap_or(&value);
    let code = value.get("error").and_then(|error| error.get("code")).and_then(Value::as_str);
    let names_model = || {
        find_message(value).is_some_and(|message| message.to_ascii_lowercase().contains("model"))
    };
    code == Some("model_not_found") || (status == 404 && names_model())
}

/// Returns the time that a response asks to wait: the header `retry-after-ms` if it is valid, else
/// `retry-after`, which is in seconds or an HTTP date.
pub fn parse_retry_after(
    retry_after_ms: Option<&str>,
    retry_after: Option<&str>,
    now: Timestamp,
) -> Option<Duration> {
    let number = |text: &str| {
        let number = text.trim().parse().ok();
        number.filter(|number: &f64| number.is_finite() && *number >= 0.0)
    };
    // A time that is too long for the type must not become a retry at once.
    let duration = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    if let Some(ms) = retry_after_ms.and_then(number) {
        return Some(duration(ms / 1e3));
    }
    let text = retry_after?.trim();
    if let Some(seconds) = number(text) {
        return Some(duration(seconds));
    }
    let date = DateTime::parse_from_rfc2822(text).ok()?;
    Some(Timestamp(date.timestamp_millis()).saturating_duration_since(now))
}

/// Creates the failure for an error object in a response. `value` is the whole body or event data; the
/// error object is its member `error`, or `value` itself.
pub(super) fn from_error_value(value: &Value) -> ModelFailure {
    let message =
        find_message(value).map_or_else(|| "the model provider failed".to_owned(), mask_keys);
    let error = value.get("error").filter(|error| error.is_object()).unwrap_or(value);
    let status =
        ["code", "status", "status_code"].iter().find_map(|key| parse_status(error.get(key)?));
    if let Some(status) = status {
        return ModelFailure::from_status(status, message, None);
    }
    let labels = ["type", "code", "status"].map(|key| error.get(key).and_then(Value::as_str));
    let is_permanent = labels.iter().flatten().any(|label| {
        let label = label.to_ascii_lowercase();
        PERMANENT_WORDS.iter().any(|word| label.contains(word))
    });
    let kind = if is_permanent { ModelFailureKind::Permanent } else { ModelFailureKind::Temporary };
    ModelFailure { kind, ..ModelFailure::temporary(message) }
}

/// Returns the start of `text` for quotation in a failure.
pub(super) fn quote_excerpt(text: &str) -> String {
    // Masked before it is cut: the start of a key is not recognised.
    let masked = mask_keys(text);
    let start = text::truncate(&masked, EXCERPT_BYTES_MAX);
    let suffix = if start.len() < masked.len() { "…" } else { "" };
    format!("`{start}`{suffix}")
}

/// Returns the message of an error body, which has one of the shapes `{"error": {"message"}}`,
/// `{"error": "…"}`, `{"message"}` and `{"detail"}`, or is a list of any of these.
fn find_message(value: &Value) -> Option<&str> {
    let value = value.get(0).unwrap_or(value);
    let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
    let message = error.as_str().or_else(|| {
        ["message", "detail", "msg"].iter().find_map(|key| {
            let member = error.get(key)?;
            member.as_str().or_else(|| find_message(member))
        })
    });
    message.map(str::trim).filter(|message| !message.is_empty())
}

/// Returns a body that is plain text, not HTML or JSON.
fn plain_text_message(body: &[u8]) -> Option<String> {
    let start = &body[..body.len().min(limits::PROVIDER_ERROR_BYTES_MAX)];
    let text = String::from_utf8_lossy(start);
    let text = text.trim();
    (!text.is_empty() && !text.starts_with(['<', '{', '['])).then(|| mask_keys(text))
}

fn parse_status(value: &Value) -> Option<u16> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

/// Returns `message` truncated, on one line, and with everything that looks like an API key masked:
/// providers quote a key that they reject.
fn mask_keys(message: &str) -> String {
    let message = text::truncate(message, limits::PROVIDER_ERROR_BYTES_MAX);
    let message = message.replace(|c: char| c.is_control() && !c.is_whitespace(), "");
    let mut masked = String::with_capacity(message.len());
    let mut follows_bearer = false;
    for (position, word) in message.split_whitespace().enumerate() {
        if position > 0 {
            masked.push(' ');
        }
        let is_key = |part: &str| {
            let is_long = part.bytes().filter(u8::is_ascii_alphanumeric).count() >= KEY_CHARS_MIN;
            let has_prefix = KEY_PREFIXES.iter().any(|prefix| part.starts_with(prefix))
                && part.bytes().any(|byte| byte.is_ascii_digit());
            is_long && (follows_bearer || has_prefix)
        };
        let separator = |c: char| !(c.is_ascii_alphanumeric() || "-_*.".contains(c));
        for piece in word.split_inclusive(separator) {
            let part = piece.trim_end_matches(separator);
            match is_key(part) {
                true => {
                    masked.push_str(REDACTED);
                    masked.push_str(&piece[part.len()..]);
                }
                false => masked.push_str(piece),
            }
        }
        follows_bearer = word.eq_ignore_ascii_case("bearer");
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(status: u16, body: &str) -> String {
        from_response(status, body.as_bytes(), None).message
    }

    #[test]
    fn m3_provider_message_is_found_in_every_error_shape() {
        let bodies = [
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"too long"}}"#,
            r#"{"error":{"message":"too long","type":"invalid_request_error","code":null}}"#,
            r#"{"error":"too long"}"#,
            r#"{"object":"error","message":" too\n long ","code":400}"#,
            r#"{"detail":"too long"}"#,
            r#"{"detail":[{"loc":["body"],"msg":"too long"}]}"#,
            r#"[{"error":{"code":400,"message":"too long","status":"INVALID_ARGUMENT"}}]"#,
        ];
        for body in bodies {
            assert_eq!(message(400, body), "too long", "{body}");
        }
        let expected = "the model provider responded with status 502: bad gateway";
        assert_eq!(message(502, "bad gateway"), expected);
        for body in ["", "{}", "null", "<html>503</html>", "{\"error\":{}}", "{\"error\":"] {
            assert_eq!(
                message(503, body),
                "the model provider responded with status 503",
                "{body}"
            );
        }
        assert!(message(500, &"€".repeat(5000)).len() <= limits::PROVIDER_ERROR_BYTES_MAX + 64);
    }

    #[test]
    fn m1_unknown_model_is_recognised_in_every_error_shape() {
        for (status, body, expected) in [
            (
                404,
                r#"{"error":{"message":"The model `x` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
                true,
            ),
            (400, r#"{"error":{"message":"x","code":"model_not_found"}}"#, true),
            (
                404,
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"}}"#,
                true,
            ),
            (
                404,
                r#"{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error","param":null,"code":null}}"#,
                true,
            ),
            (
                404,
                r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}"#,
                true,
            ),
            (404, r#"{"detail":"Not Found"}"#, false),
            (404, "404 page not found", false),
            (400, r#"{"error":{"message":"the model has a context of 8192 tokens"}}"#, false),
            (503, r#"{"error":{"message":"the model is loading"}}"#, false),
        ] {
            assert_eq!(is_unknown_model(status, body.as_bytes()), expected, "{status} {body}");
        }
    }

    #[test]
    fn m3_status_determines_failure_kind() {
        for status in [408, 409, 429, 500, 502, 503, 504, 529] {
            let failure = from_response(status, b"", Some(Duration::from_millis(1500)));
            assert_eq!(failure.kind, ModelFailureKind::Temporary, "{status}");
            assert_eq!((failure.status, failure.retry_after_ms), (Some(status), Some(1500)));
        }
        for status in [400, 401, 403, 404, 413, 422] {
            assert_eq!(
                from_response(status, b"", None).kind,
                ModelFailureKind::Permanent,
                "{status}"
            );
        }
    }

    #[test]
    fn m3_error_object_without_status_is_classified_by_type() {
        let kind = |error: &str| from_error_value(&serde_json::from_str(error).unwrap()).kind;
        for label in ["overloaded_error", "api_error", "rate_limit_error", "server_error", "odd"] {
            let error = format!(r#"{{"error":{{"type":"{label}","message":"m"}}}}"#);
            assert_eq!(kind(&error), ModelFailureKind::Temporary, "{label}");
        }
        for label in [
            "invalid_request_error",
            "authentication_error",
            "permission_error",
            "not_found_error",
            "billing_error",
            "request_too_large",
            "BadRequestError",
        ] {
            let error = format!(r#"{{"error":{{"type":"{label}","message":"m"}}}}"#);
            assert_eq!(kind(&error), ModelFailureKind::Permanent, "{label}");
        }
        assert_eq!(kind(r#"{"message":"m","code":"400"}"#), ModelFailureKind::Permanent);
        assert_eq!(kind(r#"{"error":{"code":503,"type":"invalid"}}"#), ModelFailureKind::Temporary);
    }

    #[test]
    fn m3_keys_are_masked() {
        let body = r#"{"error":{"message":"Incorrect API key: sk-proj-abc_DEF123456, see (sk-1).\u0000"}}"#;
        assert_eq!(message(401, body), "Incorrect API key: [redacted], see (sk-1).");
        let body = r#"{"error":"token Bearer abcdefgh12345678 refused"}"#;
        assert_eq!(message(401, body), "token Bearer [redacted] refused");
    }

    #[test]
    fn m3_retry_after_is_parsed_as_seconds_milliseconds_or_date() {
        let now = Timestamp(1_445_412_470_000);
        let date = Some("Wed, 21 Oct 2015 07:28:00 GMT");
        let seconds = |seconds| Some(Duration::from_secs_f64(seconds));
        assert_eq!(parse_retry_after(None, Some(" 7 "), now), seconds(7.0));
        assert_eq!(parse_retry_after(Some("250"), Some("7"), now), seconds(0.25));
        assert_eq!(parse_retry_after(Some("x"), Some("0.5"), now), seconds(0.5));
        assert_eq!(parse_retry_after(None, date, now), seconds(10.0));
        assert_eq!(
            parse_retry_after(None, date, now.saturating_add(Duration::from_secs(60))),
            seconds(0.0)
        );
        for invalid in ["", "-1", "soon", "NaN", "inf", "1e400"] {
            assert_eq!(parse_retry_after(Some(invalid), Some(invalid), now), None, "{invalid}");
        }
        for endless in ["1e300", "99999999999999999999"] {
            let wait = parse_retry_after(None, Some(endless), now);
            assert_eq!(wait, Some(Duration::MAX), "{endless}");
        }
    }

    #[test]
    fn m3_json_instead_of_a_stream_is_one_permanent_failure() {
        let not_stream = |media_type, body: &str| {
            let failure = ModelFailure::not_event_stream(media_type, body.as_bytes());
            assert_eq!((failure.kind, failure.status), (ModelFailureKind::Permanent, None));
            failure.message
        };
        let start = "the provider responded with application/json instead of an event stream: ";
        for (body, shown) in [
            (r#"{"choices":[]}"#, r#"`{"choices":[]}`"#),
            (r#"{"key":"sk-proj-abc_DEF123456"}"#, r#"`{"key":"[redacted]"}`"#),
            (r#"{"error":{"message":"no such model","code":503}}"#, "no such model"),
            (r#"{"error":"Bearer abcdefgh12345678"}"#, "Bearer [redacted]"),
            (r#"{"message":"hello"}"#, r#"`{"message":"hello"}`"#),
            ("", "``"),
        ] {
            assert_eq!(not_stream("application/json", body), format!("{start}{shown}"));
        }
        let long = not_stream("text/html", &"€".repeat(5000));
        let expected = "the provider responded with text/html instead of an event stream: ";
        assert_eq!(long, format!("{expected}`{}`…", "€".repeat(40)));
    }
}
