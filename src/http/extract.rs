//! Parses request bodies, queries, headers and ids; the problems name the invalid field.

use super::{Problem, State};
use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::{StatusCode, header},
    rt::time::timeout,
    web::{Bytes, BytesMut},
};
use futures::{Stream, StreamExt as _, future::LocalBoxFuture};
use greenroom_core::{
    cursor::{Cursor, InvalidCursor, StreamStart},
    ids::{InvalidId, UserId},
    text::truncate,
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;
use serde_path_to_error::Segment;
use std::{str::FromStr, time::Duration};

/// Maximum time for reading a request body.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum bytes of a field's path and of a message in a problem. Both may repeat the client's text.
const PROBLEM_TEXT_BYTES_MAX: usize = 512;

/// The fields of bodies and frames that have an alias, each with the alias.
const ALIASES: [(&str, &str); 5] = [
    ("user_id", "character_id"),
    ("user_id", "user"),
    ("plan_id", "approval_id"),
    ("approval_id", "plan_id"),
    ("toolName", "tool_name"),
];

/// Extractor of a JSON body. An empty body counts as an empty object.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned + 'static> FromRequest for Json<T> {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let mut payload = payload.take();
        Box::pin(async move {
            let max = request.app_data::<State>().map_or(0, |state| state.limits.body_bytes_max);
            let declared = request.headers().get(header::CONTENT_LENGTH);
            let declared = declared.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
            if declared.is_some_and(|length| length > max as u64) {
                return Err(too_large(max));
            }
            let body = with_timeout(BODY_READ_TIMEOUT, read_body(&mut payload, max)).await?;
            if !body.is_empty() {
                check_content_type(&request)?;
            }
            parse_json(&body).map(Self)
        })
    }
}

fn too_large(max: usize) -> Problem {
    let detail = format!("the request body exceeds the limit of {max} bytes");
    Problem::too_large("body_too_large", detail, max)
}

/// Reads a complete body of at most `max` bytes.
async fn read_body<E>(
    chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    max: usize,
) -> Result<BytesMut, Problem> {
    let mut body = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let incomplete = |_| Problem::bad_request("body_cut", "the request body is incomplete");
        let chunk = chunk.map_err(incomplete)?;
        if body.len() + chunk.len() > max {
            return Err(too_large(max));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Awaits `body` for at most `time`. Without this limit, a body that never ends would occupy its
/// connection forever.
async fn with_timeout<T>(
    time: Duration,
    body: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    timeout(time, body).await.unwrap_or_else(|_| {
        let detail = format!("reading the request body took longer than {} s", time.as_secs());
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", detail))
    })
}

fn check_content_type(request: &HttpRequest) -> Result<(), Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).map(|kind| kind.to_str());
    let media_type = match kind {
        None => return Ok(()),
        Some(Ok(kind)) => kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase(),
        Some(Err(_)) => String::new(),
    };
    if media_type == "application/json" || media_type.ends_with("+json") {
        return Ok(());
    }
    let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    Err(Problem::new(status, "unsupported_media_type", "`Content-Type` must be `application/json`"))
}

/// Parses a JSON object. The problem contains line and column of a syntax error, or the field of
/// another error.
pub(super) fn parse_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    let text = if text.trim_ascii().is_empty() { b"{}" } else { text };
    let value: Value = serde_json::from_slice(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Problem::bad_request("malformed_json", format!("the body is not valid JSON: {error}"))
            .with_member("line", line)
            .with_member("column", column)
    })?;
    // Serde would accept an array as the fields in their order.
    if !value.is_object() {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid_request",
            "the body must be a JSON object",
        ));
    }
    deserialize_value(value)
}

/// Deserializes a JSON value; the problem names the invalid field.
pub(super) fn deserialize_value<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(&value).map_err(|error| match find_alias(&value, &error) {
        Some((field, other)) => Problem::given_twice(&field, &other),
        None => invalid_value(error),
    })
}

/// Returns the paths of a field and of its alias if `error` is that `value` has both.
fn find_alias(
    value: &Value,
    error: &serde_path_to_error::Error<serde_json::Error>,
) -> Option<(String, String)> {
    let message = error.inner().to_string();
    let name = message.strip_prefix("duplicate field `")?.split('`').next()?;
    let container = error.path().iter().try_fold(value, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    })?;
    let mut aliases = ALIASES.iter().filter(|(field, _)| *field == name).map(|(_, alias)| alias);
    let alias = aliases.find(|alias| container.get(alias).is_some())?;
    let path = match error.path().to_string().as_str() {
        "." => String::new(),
        path => format!("{path}."),
    };
    Some((format!("{path}{name}"), format!("{path}{alias}")))
}

/// 422: a value is invalid; the problem names its field.
pub(super) fn invalid_value(error: serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let (field, detail) = locate_error(error);
    Problem::invalid(&field, detail)
}

/// Returns the path of the invalid field, which is empty if it is unknown, and the error message.
fn locate_error(error: serde_path_to_error::Error<impl std::error::Error>) -> (String, String) {
    let path = shorten(&error.path().to_string());
    let message = shorten(&error.into_inner().to_string());
    // An error at the top level has no path, but its message names the field.
    match path.as_str() {
        "." | "?" => (field_in_message(&message).unwrap_or_default().to_owned(), message),
        path => (path.to_owned(), format!("`{path}`: {message}")),
    }
}

/// Cuts a text that may repeat what the client sent.
pub(super) fn shorten(text: &str) -> String {
    match truncate(text, PROBLEM_TEXT_BYTES_MAX) {
        whole if whole.len() == text.len() => whole.to_owned(),
        start => format!("{start}…"),
    }
}

/// Returns the field that serde's message quotes, as in "missing field `message`".
fn field_in_message(message: &str) -> Option<&str> {
    let rest = message.strip_prefix("missing field `").or_else(|| {
        message
            .strip_prefix("unknown field `")
            .or_else(|| message.strip_prefix("duplicate field `"))
    });
    rest?.split('`').next()
}

/// Parses the query string; the problem names the invalid parameter.
pub(super) fn parse_query<T: DeserializeOwned>(request: &HttpRequest) -> Result<T, Problem> {
    let pairs = form_urlencoded::parse(request.query_string().as_bytes());
    let query = serde_urlencoded::Deserializer::new(pairs);
    serde_path_to_error::deserialize(query).map_err(|error| {
        let (field, detail) = locate_error(error);
        invalid_query(&field, detail)
    })
}

/// 400: the query is invalid. `field` names the parameter, if not empty.
pub(super) fn invalid_query(field: &str, detail: impl Into<String>) -> Problem {
    let problem = Problem::bad_request("invalid_query", detail);
    if field.is_empty() { problem } else { problem.with_member("field", field) }
}

/// Parses the path parameter `field` as an id; the problem names the parameter.
pub(super) fn path_id<T: FromStr<Err = InvalidId>>(
    request: &HttpRequest,
    field: &'static str,
) -> Result<T, Problem> {
    parse_id(field, request.match_info().query(field))
}

/// Parses `text` as an id; the problem names the field.
pub(super) fn parse_id<T: FromStr<Err = InvalidId>>(
    field: &'static str,
    text: &str,
) -> Result<T, Problem> {
    text.parse().map_err(|error: InvalidId| {
        Problem::bad_request("invalid_id", format!("`{field}` {error}")).with_member("field", field)
    })
}

/// True if the client accepts an event stream.
pub(super) fn accepts_event_stream(request: &HttpRequest) -> bool {
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| {
        accept.split(',').any(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("text/event-stream")
        })
    })
}

/// Parses the start of a stream: a cursor, or `now`. The `Last-Event-ID` header, which browsers send
/// when they reconnect and which is a cursor, takes precedence over `?after=`, which is still the
/// one of the first request.
pub(super) fn parse_stream_start(
    request: &HttpRequest,
    after: Option<&str>,
) -> Result<StreamStart, Problem> {
    match last_event_id(request)? {
        Some(cursor) => Ok(StreamStart::After(cursor)),
        None => Ok(after.map(str::parse).transpose()?.unwrap_or_default()),
    }
}

/// As [`parse_stream_start`], without `now`.
pub(super) fn parse_cursor(request: &HttpRequest, after: Option<&str>) -> Result<Cursor, Problem> {
    match last_event_id(request)? {
        Some(cursor) => Ok(cursor),
        None => Ok(after.map(str::parse).transpose()?.unwrap_or_default()),
    }
}

fn last_event_id(request: &HttpRequest) -> Result<Option<Cursor>, Problem> {
    let last = request.headers().get("last-event-id");
    let last = last.map(|id| id.to_str().map_err(|_| InvalidCursor)).transpose()?;
    Ok(last.filter(|id| !id.is_empty()).map(str::parse).transpose()?)
}

/// Returns the requested page size, which must be between 1 and `max`, or the default.
pub(super) fn validate_page_size(
    field: &str,
    requested: Option<usize>,
    default: usize,
    max: usize,
) -> Result<usize, Problem> {
    match requested {
        None => Ok(default),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(_) => Err(invalid_query(field, format!("`{field}` must be between 1 and {max}"))),
    }
}

/// Parses the optional query parameter `field` as an id; the problem names the parameter.
pub(super) fn parse_optional_id<T: FromStr<Err = InvalidId>>(
    field: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, Problem> {
    text.map(|text| parse_id(field, text)).transpose()
}

/// Deserializes a user id, which some clients send as a number.
pub(super) fn deserialize_user_id<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<UserId>, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(None),
        // A rounded number could be another user's id.
        Value::Number(number) if number.is_u64() || number.is_i64() => number.to_string(),
        Value::String(text) => text,
        Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            let expected = "a user id must be an integer below 2^64 or a string";
            return Err(serde::de::Error::custom(expected));
        }
    };
    UserId::parse(&text).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;
    use futures::stream;
    use greenroom_core::ids::SessionId;
    use serde_json::json;

    #[derive(Debug, Deserialize, PartialEq)]
    struct TestBody {
        message: String,
        #[serde(default)]
        inner: Option<Inner>,
        #[serde(default, alias = "character_id", deserialize_with = "deserialize_user_id")]
        user_id: Option<UserId>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Inner {
        count: u8,
    }

    #[test]
    fn malformed_json_is_reported_with_line_and_column() {
        let problem = parse_json::<TestBody>(b"{\n  \"message\": oops}").unwrap_err();
        assert_eq!(problem.code, "malformed_json");
        let body = problem.to_json();
        assert_eq!((&body["line"], &body["column"]), (&json!(2), &json!(14)));
    }

    #[test]
    fn invalid_field_is_named() {
        for (text, field) in [
            (r#"{"message": 5}"#, "message"),
            (r#"{"message": "a", "inner": {"count": "x"}}"#, "inner.count"),
            (r#"{"message": "a", "inner": {"count": 300}}"#, "inner.count"),
            (r#"{"message": "a", "user_id": true}"#, "user_id"),
            (r#"{"message": "a", "user_id": 123456789012345678901234567890}"#, "user_id"),
            (r"{}", "message"),
            ("", "message"),
        ] {
            let problem = parse_json::<TestBody>(text.as_bytes()).unwrap_err();
            assert_eq!(problem.code, "invalid_request", "{text}");
            assert_eq!(problem.to_json()["field"], field, "{text}");
        }
    }

    #[test]
    fn body_that_is_not_an_object_is_rejected() {
        for text in [r#"["a"]"#, "5", "null"] {
            let problem = parse_json::<TestBody>(text.as_bytes()).unwrap_err();
            assert_eq!((problem.code, problem.status.as_u16()), ("invalid_request", 422), "{text}");
        }
    }

    #[actix_web::test]
    async fn x4_endless_body_is_rejected_after_timeout() {
        let chunk = |text: &'static str| Ok::<_, ()>(Bytes::from_static(text.as_bytes()));
        let chunks = stream::iter([chunk("{"), chunk("}")]);
        let time = Duration::from_secs(60);
        assert_eq!(with_timeout(time, read_body(&mut chunks.clone(), 2)).await.unwrap(), "{}");
        let problem = with_timeout(time, read_body(&mut chunks.clone(), 1)).await.unwrap_err();
        assert_eq!(problem.code, "body_too_large");
        let mut endless = chunks.chain(stream::pending());
        let problem = with_timeout(Duration::ZERO, read_body(&mut endless, 2)).await.unwrap_err();
        assert_eq!((problem.code, problem.status.as_u16()), ("body_too_slow", 408));
    }

    #[test]
    fn invalid_path_parameter_is_named() {
        let request = TestRequest::default().param("session_id", "x").to_http_request();
        let problem = path_id::<SessionId>(&request, "session_id").unwrap_err();
        assert_eq!((problem.code, &problem.extra["field"]), ("invalid_id", &json!("session_id")));
        assert_eq!(problem.detail, "`session_id` must be a UUID");
    }

    #[test]
    fn invalid_query_parameter_is_named() {
        let problem = parse_optional_id::<SessionId>("before", Some("x")).unwrap_err();
        assert_eq!((problem.code, &problem.extra["field"]), ("invalid_id", &json!("before")));
        assert_eq!(problem.detail, "`before` must be a UUID");
        assert!(matches!(parse_optional_id::<SessionId>("before", None), Ok(None)));
        let problem = validate_page_size("sessions", Some(501), 100, 500).unwrap_err();
        assert_eq!((problem.code, &problem.extra["field"]), ("invalid_query", &json!("sessions")));
        assert_eq!(problem.detail, "`sessions` must be between 1 and 500");
    }

    #[test]
    fn user_id_may_be_a_number_and_may_be_named_character_id() {
        for text in [r#"{"message":"m","user_id":91}"#, r#"{"message":"m","character_id":"91"}"#] {
            let body: TestBody = parse_json(text.as_bytes()).unwrap();
            assert_eq!(body.user_id, Some(UserId::parse("91").unwrap()));
        }
    }

    #[test]
    fn e3_last_event_id_takes_precedence_over_query() {
        let request = TestRequest::default().insert_header(("Last-Event-ID", "9.3"));
        let request = request.to_http_request();
        assert_eq!(parse_cursor(&request, Some("4")).unwrap().to_string(), "9.3");
        let without_header = TestRequest::default().to_http_request();
        assert_eq!(parse_cursor(&without_header, Some("4")).unwrap().to_string(), "4");
        assert_eq!(parse_cursor(&without_header, None).unwrap().to_string(), "0");
        assert_eq!(parse_cursor(&without_header, Some("x")).unwrap_err().code, "cursor_invalid");
        assert_eq!(parse_cursor(&without_header, Some("now")).unwrap_err().code, "cursor_invalid");

        let start = |request, after| parse_stream_start(request, Some(after)).unwrap();
        let reconnect = StreamStart::After("9.3".parse().unwrap());
        assert_eq!(start(&request, "now"), reconnect, "a browser that reconnects misses nothing");
        assert_eq!(start(&without_header, "now"), StreamStart::Now);
        assert_eq!(start(&without_header, "4"), StreamStart::After("4".parse().unwrap()));
        let invalid = TestRequest::default().insert_header(("Last-Event-ID", "now"));
        let problem = parse_stream_start(&invalid.to_http_request(), None).unwrap_err();
        assert_eq!(problem.code, "cursor_invalid");
    }

    #[test]
    fn event_stream_is_sent_if_accepted() {
        for (accept, stream) in [
            ("text/event-stream", true),
            ("application/json, Text/Event-Stream;q=0.9", true),
            ("*/*", false),
            ("application/json", false),
        ] {
            let request = TestRequest::default().insert_header(("Accept", accept));
            assert_eq!(accepts_event_stream(&request.to_http_request()), stream, "{accept}");
        }
    }
}
