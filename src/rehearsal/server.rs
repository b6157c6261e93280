//! The HTTP side: routes, keys, limits, the request log, and playing a schedule to a socket.
//!
//! Owns all of the rehearsal's I/O. What to answer is decided by `reply`, how it looks by
//! `anthropic` and `openai`, what goes wrong by `faults`.

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

use super::faults::{Action, Attempts, Fault, schedule};
use super::prompt::{Prompt, Wire};
use super::reply::{self, Reply};
use super::script::{Break, Fail, Pace, Script};
use super::wire::{Envelope, Problem};
use super::{anthropic, openai};

/// Largest request body, in bytes.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most requests remembered; the oldest is forgotten.
pub const REQUESTS_MAX: usize = 1_000;
/// A stalled stream is cut in the end, so that it cannot hold its connection for ever.
pub(super) const STALL_MAX: Duration = Duration::from_secs(600);
/// The key that is never right.
pub const BAD_KEY: &str = "bad";

/// What one request was, for tests and for the log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Received {
    /// Which protocol.
    pub wire: Wire,
    /// The path asked for.
    pub path: String,
    /// Whether `x-api-key` was sent.
    pub x_api_key: bool,
    /// Whether `authorization` was sent.
    pub authorization: bool,
    /// The `traceparent` header.
    pub traceparent: Option<String>,
    /// The body; null if it was no JSON.
    pub body: Value,
    /// The rule that answered.
    pub rule: Option<String>,
    /// The status of the answer.
    pub status: u16,
}

/// What all requests share.
pub(super) struct Stage {
    script: Script,
    attempts: Mutex<Attempts>,
    requests: Mutex<VecDeque<Received>>,
}

impl Stage {
    pub(super) fn new(script: Script) -> Self {
        Self { script, attempts: Mutex::default(), requests: Mutex::default() }
    }

    pub(super) fn requests(&self) -> Vec<Received> {
        lock(&self.requests).iter().cloned().collect()
    }

    fn record(&self, received: Received) {
        tracing::info!(
            wire = ?received.wire, rule = received.rule, status = received.status,
            "rehearsal answered"
        );
        let mut requests = lock(&self.requests);
        if requests.len() == REQUESTS_MAX {
            requests.pop_front();
        }
        requests.push_back(received);
    }
}

/// A panic elsewhere leaves counters, at worst, one short.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mounts the routes.
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
    stage: web::Data<Stage>,
) -> HttpResponse {
    answer(Wire::Anthropic, &request, payload, &stage).await
}

async fn completions(
    request: HttpRequest,
    payload: web::Payload,
    stage: web::Data<Stage>,
) -> HttpResponse {
    answer(Wire::OpenAi, &request, payload, &stage).await
}

async fn models() -> HttpResponse {
    HttpResponse::Ok().json(json!({
        "object": "list",
        "data": [{"id": "rehearsal", "object": "model", "created": 0, "owned_by": "greenroom"}],
    }))
}

async fn not_found(request: HttpRequest) -> HttpResponse {
    let wire = if request.headers().contains_key("anthropic-version") {
        Wire::Anthropic
    } else {
        Wire::OpenAi
    };
    let problem =
        Problem::new(404, format!("Unknown request URL: {} {}", request.method(), request.path()));
    refuse(wire, &problem, None)
}

async fn answer(
    wire: Wire,
    request: &HttpRequest,
    payload: web::Payload,
    stage: &Stage,
) -> HttpResponse {
    let header = |name| request.headers().get(name).and_then(|v| v.to_str().ok());
    let mut received = Received {
        wire,
        path: request.path().to_owned(),
        x_api_key: header("x-api-key").is_some(),
        authorization: header("authorization").is_some(),
        traceparent: header("traceparent").map(str::to_owned),
        body: Value::Null,
        rule: None,
        status: 200,
    };
    let response = match read(wire, request, payload, stage, &mut received.body).await {
        Ok(prompt) => perform(wire, &prompt, stage, &mut received.rule).await,
        Err(problem) => refuse(wire, &problem, None),
    };
    received.status = response.status().as_u16();
    stage.record(received);
    response
}

async fn read(
    wire: Wire,
    request: &HttpRequest,
    payload: web::Payload,
    stage: &Stage,
    body: &mut Value,
) -> Result<Prompt, Problem> {
    let bytes = match payload.to_bytes_limited(REQUEST_BYTES_MAX).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => {
            return Err(Problem::invalid(format!("the request body could not be read: {error}")));
        }
        Err(_) => return Err(Problem::new(413, usual_message(wire, 413))),
    };
    let header = |name| request.headers().get(name).and_then(|v| v.to_str().ok());
    let key = header("x-api-key")
        .or_else(|| header("authorization").map(|value| value.trim_start_matches("Bearer ")));
    match key {
        Some(BAD_KEY) => return Err(Problem::new(401, usual_message(wire, 401))),
        None if stage.script.require_key => {
            let message = match wire {
                Wire::Anthropic => "x-api-key header is required",
                Wire::OpenAi => "You didn't provide an API key.",
            };
            return Err(Problem::new(401, message));
        }
        Some(_) | None => {}
    }
    if wire == Wire::Anthropic && header("anthropic-version").is_none() {
        return Err(Problem::invalid("anthropic-version: header is required"));
    }
    *body = serde_json::from_slice(&bytes).map_err(|error| {
        Problem::invalid(match wire {
            Wire::Anthropic => format!("The request body is not valid JSON: {error}"),
            Wire::OpenAi => format!("We could not parse the JSON body of your request. ({error})"),
        })
    })?;
    match wire {
        Wire::Anthropic => anthropic::decode(body),
        Wire::OpenAi => openai::decode(body),
    }
}

async fn perform(
    wire: Wire,
    prompt: &Prompt,
    stage: &Stage,
    name: &mut Option<String>,
) -> HttpResponse {
    let Some((position, rule)) = reply::find(&stage.script, prompt) else {
        return send(wire, prompt, &reply::echo(prompt), &Pace::default(), None);
    };
    *name = Some(rule.name.clone());
    let fault = lock(&stage.attempts).next(position, prompt.digest(), &rule.faults);
    if rule.pace.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(rule.pace.delay_ms)).await;
    }
    match &fault {
        Some(Fault::Fail(fail)) => refuse(wire, &failure(wire, fail), fail.retry_after),
        Some(Fault::Error(error)) if !prompt.stream => refuse(wire, &broken(wire, error), None),
        Some(Fault::Error(_) | Fault::Cut(_) | Fault::Stall(_)) | None => {
            send(wire, prompt, &reply::write(rule, prompt), &rule.pace, fault.as_ref())
        }
    }
}

fn send(
    wire: Wire,
    prompt: &Prompt,
    reply: &Reply,
    pace: &Pace,
    fault: Option<&Fault>,
) -> HttpResponse {
    let envelope = Envelope {
        id: uuid::Uuid::new_v4().simple().to_string()[..24].to_owned(),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        model: prompt.model.clone(),
    };
    let request_id = format!("req_{}", envelope.id);
    let mut response = HttpResponse::Ok();
    identify(&mut response, wire, &request_id);
    if !prompt.stream {
        let body = match wire {
            Wire::Anthropic => anthropic::message(reply, &envelope),
            Wire::OpenAi => openai::completion(reply, &envelope, pace),
        };
        let text = body.to_string();
        return match fault {
            None | Some(Fault::Fail(_) | Fault::Error(_)) => {
                response.content_type("application/json").body(text)
            }
            Some(fault @ (Fault::Cut(_) | Fault::Stall(_))) => {
                let half = Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
                let end = if matches!(fault, Fault::Cut(_)) { Action::Cut } else { Action::Stall };
                let actions = VecDeque::from([Action::Write(half), end]);
                response.content_type("application/json").streaming(play(actions))
            }
        };
    }
    let frames = match wire {
        Wire::Anthropic => anthropic::frames(reply, &envelope, pace),
        Wire::OpenAi => openai::frames(reply, &envelope, pace, prompt.include_usage),
    };
    let error = match fault {
        Some(Fault::Error(error)) => Some(match wire {
            Wire::Anthropic => anthropic::error_frame(&broken(wire, error), &request_id),
            Wire::OpenAi => openai::error_frame(&broken(wire, error)),
        }),
        Some(Fault::Fail(_) | Fault::Cut(_) | Fault::Stall(_)) | None => None,
    };
    response
        .content_type("text/event-stream; charset=utf-8")
        .insert_header((CACHE_CONTROL, "no-cache"))
        .streaming(play(schedule(frames, pace, fault, error)))
}

/// Plays actions one by one. Yielding after each write makes the connection flush it on its own.
fn play(actions: VecDeque<Action>) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold((actions, false), |(mut actions, written)| async move {
        if written {
            tokio::task::yield_now().await;
        }
        loop {
            match actions.pop_front()? {
                Action::Write(bytes) => return Some((Ok(bytes), (actions, true))),
                Action::Wait(duration) => tokio::time::sleep(duration).await,
                Action::Stall => {
                    tokio::time::sleep(STALL_MAX).await;
                    actions = VecDeque::from([Action::Cut]);
                }
                Action::Cut => {
                    let error = io::Error::new(io::ErrorKind::ConnectionReset, "cut by the script");
                    return Some((Err(error), (VecDeque::new(), false)));
                }
            }
        }
    })
}

fn failure(wire: Wire, fail: &Fail) -> Problem {
    let default = if fail.context_length { 400 } else { 500 };
    let status = fail.status.unwrap_or(default);
    let mut problem = Problem::new(status, usual_message(wire, status));
    if fail.context_length {
        problem.message = match wire {
            Wire::Anthropic => "prompt is too long: 204800 tokens > 200000 maximum".to_owned(),
            Wire::OpenAi => {
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

fn broken(wire: Wire, error: &Break) -> Problem {
    let status = error.status.unwrap_or(529);
    let usual = usual_message(wire, status);
    Problem::new(status, error.message.as_deref().unwrap_or(usual))
}

fn usual_message(wire: Wire, status: u16) -> &'static str {
    match wire {
        Wire::Anthropic => anthropic::usual_message(status),
        Wire::OpenAi => openai::usual_message(status),
    }
}

fn refuse(wire: Wire, problem: &Problem, retry_after: Option<u64>) -> HttpResponse {
    let request_id = format!("req_{}", uuid::Uuid::new_v4().simple());
    let (status, body) = match wire {
        Wire::Anthropic => (problem.status, anthropic::error_body(problem, &request_id)),
        Wire::OpenAi => (openai::status(problem.status), openai::error_body(problem)),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status);
    identify(&mut response, wire, &request_id);
    if let Some(seconds) = retry_after {
        response.insert_header((RETRY_AFTER, seconds.to_string()));
    }
    response.json(body)
}

fn identify(response: &mut actix_web::HttpResponseBuilder, wire: Wire, request_id: &str) {
    let name = match wire {
        Wire::Anthropic => "request-id",
        Wire::OpenAi => "x-request-id",
    };
    response.insert_header((name, request_id));
}
