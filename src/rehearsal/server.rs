//! The HTTP server of the rehearsal: routes, keys, limits, the request log, and streaming.
//!
//! Owns all I/O of the rehearsal. `reply` decides the reply, `anthropic` and `openai` encode it, and
//! `faults` injects faults.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, RETRY_AFTER};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures::stream::{self, Stream};
use serde::Serialize;
use serde_json::{Value, json};

use super::decoded_request::{DecodedRequest, ProviderProtocol};
use super::faults::{AttemptCounter, ScriptedFault, SocketAction, schedule};
use super::reply::{self, Reply};
use super::script::{Script, StatusFault, StreamBreak, StreamPacing};
use super::wire::{ProviderError, ResponseMeta};
use super::{anthropic, openai};

/// Maximum bytes of a request body.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum number of recorded requests; the oldest is dropped.
pub const REQUESTS_MAX: usize = 1_000;
/// Maximum duration of a stalled stream. The connection is closed afterwards.
pub(super) const STALL_MAX: Duration = Duration::from_secs(600);
/// A key that is always rejected.
pub const INVALID_KEY: &str = "bad";

/// A received request and its response, for tests and the log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordedRequest {
    /// The provider API.
    pub wire: ProviderProtocol,
    /// The path of the request.
    pub path: String,
    /// True if the header `x-api-key` was sent.
    pub x_api_key: bool,
    /// True if the header `authorization` was sent.
    pub authorization: bool,
    /// The `traceparent` header.
    pub traceparent: Option<String>,
    /// The body; null if it is not JSON.
    pub body: Value,
    /// The name of the rule that matched.
    pub rule: Option<String>,
    /// The status of the response.
    pub status: u16,
}

/// The state that all requests share.
pub(super) struct RehearsalState {
    script: Script,
    attempts: Mutex<AttemptCounter>,
    requests: Mutex<VecDeque<RecordedRequest>>,
}

impl RehearsalState {
    pub(super) fn new(script: Script) -> Self {
        Self { script, attempts: Mutex::default(), requests: Mutex::default() }
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.requests).iter().cloned().collect()
    }

    fn record(&self, received: RecordedRequest) {
        tracing::info!(
            wire = ?received.wire, rule = received.rule, status = received.status,
            "rehearsal request completed"
        );
        let mut requests = lock(&self.requests);
        if requests.len() == REQUESTS_MAX {
            requests.pop_front();
        }
        requests.push_back(received);
    }
}

/// Locks `mutex`, ignoring poisoning: after a panic, a count is at most one too low.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the routes.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .route("/v1/messages", web::post().to(messages))
        .route("/v1/chat/completions", web::post().to(completions))
        .route("/v1/models", web::get().to(models))
        .default_service(web::to(not_found));
}

async fn messages(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<RehearsalState>,
) -> HttpResponse {
    handle_request(ProviderProtocol::Anthropic, &request, payload, &state).await
}

async fn completions(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<RehearsalState>,
) -> HttpResponse {
    handle_request(ProviderProtocol::OpenAi, &request, payload, &state).await
}

async fn models() -> HttpResponse {
    HttpResponse::Ok().json(json!({
        "object": "list",
        "data": [{"id": "rehearsal", "object": "model", "created": 0, "owned_by": "greenroom"}],
    }))
}

async fn not_found(request: HttpRequest) -> HttpResponse {
    let wire = if request.headers().contains_key("anthropic-version") {
        ProviderProtocol::Anthropic
    } else {
        ProviderProtocol::OpenAi
    };
    let problem = ProviderError::new(
        404,
        format!("Unknown request URL: {} {}", request.method(), request.path()),
    );
    error_response(wire, &problem, None)
}

async fn handle_request(
    wire: ProviderProtocol,
    request: &HttpRequest,
    payload: web::Payload,
    state: &RehearsalState,
) -> HttpResponse {
    let header = |name| request.headers().get(name).and_then(|v| v.to_str().ok());
    let mut received = RecordedRequest {
        wire,
        path: request.path().to_owned(),
        x_api_key: header("x-api-key").is_some(),
        authorization: header("authorization").is_some(),
        traceparent: header("traceparent").map(str::to_owned),
        body: Value::Null,
        rule: None,
        status: 200,
    };
    let response = match read_request(wire, request, payload, state, &mut received.body).await {
        Ok(prompt) => respond(wire, &prompt, state, &mut received.rule).await,
        Err(problem) => error_response(wire, &problem, None),
    };
    received.status = response.status().as_u16();
    state.record(received);
    response
}

async fn read_request(
    wire: ProviderProtocol,
    request: &HttpRequest,
    payload: web::Payload,
    state: &RehearsalState,
    body: &mut Value,
) -> Result<DecodedRequest, ProviderError> {
    let bytes = match payload.to_bytes_limited(REQUEST_BYTES_MAX).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => {
            return Err(ProviderError::invalid(format!(
                "the request body could not be read: {error}"
            )));
        }
        Err(_) => return Err(ProviderError::new(413, default_message(wire, 413))),
    };
    let header = |name| request.headers().get(name).and_then(|v| v.to_str().ok());
    let key = header("x-api-key")
        .or_else(|| header("authorization").map(|value| value.trim_start_matches("Bearer ")));
    match key {
        Some(INVALID_KEY) => return Err(ProviderError::new(401, default_message(wire, 401))),
        None if state.script.require_key => {
            let message = match wire {
                ProviderProtocol::Anthropic => "x-api-key header is required",
                ProviderProtocol::OpenAi => "You didn't provide an API key.",
            };
            return Err(ProviderError::new(401, message));
        }
        Some(_) | None => {}
    }
    if wire == ProviderProtocol::Anthropic && header("anthropic-version").is_none() {
        return Err(ProviderError::invalid("anthropic-version: header is required"));
    }
    *body = serde_json::from_slice(&bytes).map_err(|error| {
        ProviderError::invalid(match wire {
            ProviderProtocol::Anthropic => format!("The request body is not valid JSON: {error}"),
            ProviderProtocol::OpenAi => {
                format!("We could not parse the JSON body of your request. ({error})")
            }
        })
    })?;
    match wire {
        ProviderProtocol::Anthropic => anthropic::decode(body),
        ProviderProtocol::OpenAi => openai::decode(body),
    }
}

async fn respond(
    wire: ProviderProtocol,
    prompt: &DecodedRequest,
    state: &RehearsalState,
    name: &mut Option<String>,
) -> HttpResponse {
    let Some((position, rule)) = reply::find_rule(&state.script, prompt) else {
        return build_response(
            wire,
            prompt,
            &reply::echo_reply(prompt),
            &StreamPacing::default(),
            None,
        );
    };
    *name = Some(rule.name.clone());
    let fault = lock(&state.attempts).next(position, prompt.history_digest(), &rule.faults);
    if rule.pacing.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(rule.pacing.delay_ms)).await;
    }
    match &fault {
        Some(ScriptedFault::Fail(fail)) => {
            error_response(wire, &status_fault_error(wire, fail), fail.retry_after)
        }
        Some(ScriptedFault::Error(error)) if !prompt.stream => {
            error_response(wire, &stream_break_error(wire, error), None)
        }
        Some(ScriptedFault::Error(_) | ScriptedFault::Cut(_) | ScriptedFault::Stall(_)) | None => {
            build_response(
                wire,
                prompt,
                &reply::render_reply(rule, prompt),
                &rule.pacing,
                fault.as_ref(),
            )
        }
    }
}

fn build_response(
    wire: ProviderProtocol,
    prompt: &DecodedRequest,
    reply: &Reply,
    pacing: &StreamPacing,
    fault: Option<&ScriptedFault>,
) -> HttpResponse {
    let meta = ResponseMeta {
        id: uuid::Uuid::new_v4().simple().to_string()[..24].to_owned(),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        model: prompt.model.clone(),
    };
    let request_id = format!("req_{}", meta.id);
    let mut response = HttpResponse::Ok();
    set_request_id(&mut response, wire, &request_id);
    if !prompt.stream {
        let body = match wire {
            ProviderProtocol::Anthropic => anthropic::encode_message(reply, &meta),
            ProviderProtocol::OpenAi => openai::encode_completion(reply, &meta, pacing),
        };
        let text = body.to_string();
        return match fault {
            None | Some(ScriptedFault::Fail(_) | ScriptedFault::Error(_)) => {
                response.content_type("application/json").body(text)
            }
            Some(fault @ (ScriptedFault::Cut(_) | ScriptedFault::Stall(_))) => {
                let half = Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
                let end = if matches!(fault, ScriptedFault::Cut(_)) {
                    SocketAction::Cut
                } else {
                    SocketAction::Stall
                };
                let actions = VecDeque::from([SocketAction::Write(half), end]);
                response.content_type("application/json").streaming(stream_actions(actions))
            }
        };
    }
    let frames = match wire {
        ProviderProtocol::Anthropic => anthropic::encode_stream(reply, &meta, pacing),
        ProviderProtocol::OpenAi => {
            openai::encode_stream(reply, &meta, pacing, prompt.include_usage)
        }
    };
    let error = match fault {
        Some(ScriptedFault::Error(error)) => Some(match wire {
            ProviderProtocol::Anthropic => {
                anthropic::encode_error_frame(&stream_break_error(wire, error), &request_id)
            }
            ProviderProtocol::OpenAi => {
                openai::encode_error_frame(&stream_break_error(wire, error))
            }
        }),
        Some(ScriptedFault::Fail(_) | ScriptedFault::Cut(_) | ScriptedFault::Stall(_)) | None => {
            None
        }
    };
    response
        .content_type("text/event-stream; charset=utf-8")
        .insert_header((CACHE_CONTROL, "no-cache"))
        .streaming(stream_actions(schedule(frames, pacing, fault, error)))
}

/// Performs the actions in order. Yields after each write so that the connection flushes it
/// separately.
fn stream_actions(actions: VecDeque<SocketAction>) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold((actions, false), |(mut actions, written)| async move {
        if written {
            tokio::task::yield_now().await;
        }
        loop {
            match actions.pop_front()? {
                SocketAction::Write(bytes) => return Some((Ok(bytes), (actions, true))),
                SocketAction::Wait(duration) => tokio::time::sleep(duration).await,
                SocketAction::Stall => {
                    tokio::time::sleep(STALL_MAX).await;
                    actions = VecDeque::from([SocketAction::Cut]);
                }
                SocketAction::Cut => {
                    let error = io::Error::new(io::ErrorKind::ConnectionReset, "cut by the script");
                    return Some((Err(error), (VecDeque::new(), false)));
                }
            }
        }
    })
}

fn status_fault_error(wire: ProviderProtocol, fail: &StatusFault) -> ProviderError {
    let default = if fail.context_length { 400 } else { 500 };
    let status = fail.status.unwrap_or(default);
    let mut problem = ProviderError::new(status, default_message(wire, status));
    if fail.context_length {
        problem.message = match wire {
            ProviderProtocol::Anthropic => {
                "prompt is too long: 204800 tokens > 200000 maximum".to_owned()
            }
            ProviderProtocol::OpenAi => {
                problem.code = Some("context_length_exceeded");
                problem.param = Some("messages");
                "This model's maximum context length is 128000 tokens. However, your messages \
                 resulted in 131072 tokens. Please reduce the length of the messages."
                    .to_owned()
            }
        };
    }
    if let Some(message) = &fail.message {
        problem.message.clone_from(message);
    }
    problem
}

fn stream_break_error(wire: ProviderProtocol, error: &StreamBreak) -> ProviderError {
    let status = error.status.unwrap_or(529);
    let default = default_message(wire, status);
    ProviderError::new(status, error.message.as_deref().unwrap_or(default))
}

fn default_message(wire: ProviderProtocol, status: u16) -> &'static str {
    match wire {
        ProviderProtocol::Anthropic => anthropic::default_message(status),
        ProviderProtocol::OpenAi => openai::default_message(status),
    }
}

fn error_response(
    wire: ProviderProtocol,
    problem: &ProviderError,
    retry_after: Option<u64>,
) -> HttpResponse {
    let request_id = format!("req_{}", uuid::Uuid::new_v4().simple());
    let (status, body) = match wire {
        ProviderProtocol::Anthropic => {
            (problem.status, anthropic::encode_error(problem, &request_id))
        }
        ProviderProtocol::OpenAi => (openai::status(problem.status), openai::encode_error(problem)),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status);
    set_request_id(&mut response, wire, &request_id);
    if let Some(seconds) = retry_after {
        response.insert_header((RETRY_AFTER, seconds.to_string()));
    }
    response.json(body)
}

fn set_request_id(
    response: &mut actix_web::HttpResponseBuilder,
    wire: ProviderProtocol,
    request_id: &str,
) {
    let name = match wire {
        ProviderProtocol::Anthropic => "request-id",
        ProviderProtocol::OpenAi => "x-request-id",
    };
    response.insert_header((name, request_id));
}
