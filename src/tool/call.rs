//! Runs one attempt of a tool call over MCP and determines what is known of its effect (R1, S6).
//! Used by `mcp_client`.

use futures::stream::{FuturesUnordered, StreamExt as _};
use greenroom_actors::ports::{ElicitationChannel, LateResultHandler, Progress, ToolCall};
use greenroom_core::{
    call::{ToolOutcome, outcome::RetryHint},
    limits::TOOL_ERROR_BYTES_MAX,
    trace_context::TraceContext,
};
use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
        ClientRequest, RequestId, RequestMetaObject, ServerResult,
    },
    service::{Peer, PeerRequestOptions, ServiceError},
    transport::streamable_http_client::StreamableHttpError,
};
use serde_json::Value;
use std::{error::Error, sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    elicitation::{self, CollectedInput, RequiredInput},
    mcp_client::McpConnection,
    result::{outcome_from_result, safe_text},
    stdio::WriteError,
};

/// `_meta` key of a request: the idempotency key, the same for all attempts of a call (D3).
const META_IDEMPOTENCY_KEY: &str = "greenroom/idempotency_key";
/// `_meta` key of a request: the attempt's trace context in W3C format (A4).
const META_TRACE: &str = "traceparent";
/// Maximum number of requests of one attempt. Each request but the first supplies required input.
const REQUESTS_PER_ATTEMPT_MAX: usize = 16;
/// The error code of a server that requires the user to visit a page first.
const CODE_URL_ELICITATION_REQUIRED: i32 = -32042;
/// Timeout for sending a cancellation to a server.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// Runs an attempt to its end. Repeats the request with the input that the server requires.
pub(super) async fn run_attempt(
    connection: Arc<McpConnection>,
    call: ToolCall,
    progress: mpsc::Sender<Progress>,
    cancel: CancellationToken,
) -> ToolOutcome {
    if cancel.is_cancelled() {
        return ToolOutcome::NotSent { error: "cancelled".to_owned() };
    }
    if connection.closed.is_cancelled() {
        return ToolOutcome::NotSent { error: connection.close_reason().await };
    }
    let mut params = CallToolRequestParams::new(call.tool);
    params.arguments = match call.arguments {
        Value::Object(arguments) => Some(arguments),
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return failed_outcome("the arguments of a tool must be a JSON object");
        }
    };
    let mut attempt = Attempt {
        connection,
        idempotency_key: call.idempotency_key,
        trace: call.caller.map(|caller| caller.trace),
        timeout: call.timeout,
        remaining_time: call.timeout,
        result_bytes_max: call.result_bytes_max,
        elicitation: call.elicitation,
        late_result: call.late_result,
        progress,
        cancel,
    };
    for _ in 0..REQUESTS_PER_ATTEMPT_MAX {
        let required = match attempt.send_request(params.clone()).await {
            CallResponse::Finished(outcome) => return outcome,
            CallResponse::InputRequired(required) => required,
        };
        let CollectedInput { responses, state } = match attempt.collect_input(required).await {
            Ok(input) => input,
            Err(outcome) => return outcome,
        };
        params.input_responses = responses;
        params.request_state = state;
    }
    failed_outcome(&format!(
        "the tool required input more than {REQUESTS_PER_ATTEMPT_MAX} times without a result"
    ))
}

/// The response to one request of an attempt.
pub(super) enum CallResponse {
    /// The outcome of the attempt.
    Finished(ToolOutcome),
    /// The request must be repeated with this input.
    InputRequired(RequiredInput),
}

/// One attempt, which consists of one or more requests.
struct Attempt {
    connection: Arc<McpConnection>,
    idempotency_key: String,
    trace: Option<TraceContext>,
    timeout: Option<Duration>,
    /// The remaining time; `None` if there is no timeout. Not reduced while elicitations are pending
    /// (T4).
    remaining_time: Option<Duration>,
    result_bytes_max: usize,
    elicitation: ElicitationChannel,
    late_result: LateResultHandler,
    progress: mpsc::Sender<Progress>,
    cancel: CancellationToken,
}

impl Attempt {
    /// Sends one request and waits for its response.
    async fn send_request(&mut self, params: CallToolRequestParams) -> CallResponse {
        let connection = self.connection.clone();
        let is_first = params.input_responses.is_none() && params.request_state.is_none();
        let mut meta = RequestMetaObject::default();
        let key = Value::String(self.idempotency_key.clone());
        meta.insert(META_IDEMPOTENCY_KEY.to_owned(), key);
        if let Some(trace) = self.trace {
            meta.insert(META_TRACE.to_owned(), Value::String(trace.to_string()));
        }
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options().with_meta(meta);
        // Registered before the request is sent, because the server may send an elicitation before
        // sending returns.
        let (mut active_call, mut elicitations) = connection.routes.active_calls.register();
        let sent = connection.peer.send_cancellable_request(request, options).await;
        let mut handle = match sent {
            Ok(handle) => handle,
            Err(error) => {
                active_call.mark_answered();
                let error = error.to_string();
                // After an earlier request of the attempt, the effect is unknown.
                let outcome = match is_first {
                    true => ToolOutcome::NotSent { error },
                    false => ToolOutcome::Crashed { error },
                };
                return CallResponse::Finished(outcome);
            }
        };
        let _progress_guard = connection
            .routes
            .register_progress(handle.progress_token.clone(), self.progress.clone());
        let mut cancel_guard = CancelGuard::new(handle.peer.clone(), handle.id.clone());
        let mut pending_elicitations = FuturesUnordered::new();
        loop {
            let since = Instant::now();
            // The time limit is suspended while an elicitation is open.
            let is_limited = pending_elicitations.is_empty();
            let remaining = self.remaining_time.filter(|_| is_limited);
            let timed_out = async {
                match remaining {
                    Some(remaining) => tokio::time::sleep(remaining).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    cancel_guard.disarm();
                    active_call.mark_answered();
                    if is_limited {
                        self.deduct_elapsed(since);
                    }
                    return match answer {
                        Ok(Ok(result)) => response_from_result(result, self.result_bytes_max),
                        Ok(Err(error)) => response_from_error(&connection, error, is_first).await,
                        Err(_) => CallResponse::Finished(crashed_outcome(&connection).await),
                    };
                }
                () = self.cancel.cancelled() => {
                    self.register_late_result(&handle.id);
                    cancel_guard.cancel("cancelled by the user").await;
                    return CallResponse::Finished(failed_outcome("cancelled"));
                }
                () = connection.closed.cancelled() => {
                    cancel_guard.disarm();
                    active_call.mark_answered();
                    return CallResponse::Finished(crashed_outcome(&connection).await);
                }
                Some(elicitation) = elicitations.recv() => {
                    pending_elicitations.push(elicitation.forward(self.elicitation.clone()));
                }
                Some(()) = pending_elicitations.next() => {}
                () = timed_out => {
                    self.register_late_result(&handle.id);
                    cancel_guard.cancel("timeout").await;
                    let timeout_ms = self.timeout.unwrap_or_default().as_millis();
                    let after_ms = u64::try_from(timeout_ms).unwrap_or(u64::MAX);
                    return CallResponse::Finished(ToolOutcome::TimedOut { after_ms });
                }
            }
            if is_limited {
                self.deduct_elapsed(since);
            }
        }
    }

    /// Registers the request, so that a late response is reported to the call's late result handler.
    fn register_late_result(&self, request: &RequestId) {
        let (handler, bytes_max) = (self.late_result.clone(), self.result_bytes_max);
        self.connection.routes.abandoned_calls.add(request.clone(), handler, bytes_max);
    }

    /// Deducts the time since `since` from the remaining time.
    fn deduct_elapsed(&mut self, since: Instant) {
        if let Some(remaining) = &mut self.remaining_time {
            *remaining = remaining.saturating_sub(since.elapsed());
        }
    }

    /// Collects the required input. An error is the outcome of the attempt.
    async fn collect_input(&self, required: RequiredInput) -> Result<CollectedInput, ToolOutcome> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(failed_outcome("cancelled")),
            () = self.connection.closed.cancelled() => Err(crashed_outcome(&self.connection).await),
            input = elicitation::collect_input(required, &self.elicitation) => input.map_err(|error| failed_outcome(&error)),
        }
    }
}

/// Guards a request without a response: sends a cancellation to the server when it is dropped.
struct CancelGuard {
    request: Option<(Peer<RoleClient>, RequestId)>,
}

impl CancelGuard {
    fn new(peer: Peer<RoleClient>, id: RequestId) -> Self {
        Self { request: Some((peer, id)) }
    }

    fn disarm(&mut self) {
        self.request = None;
    }

    /// Sends a cancellation to the server (S6).
    async fn cancel(&mut self, reason: &'static str) {
        if let Some((peer, id)) = self.request.take() {
            send_cancellation(peer, id, reason).await;
        }
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if let Some((peer, id)) = self.request.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(send_cancellation(peer, id, "the call was abandoned"));
        }
    }
}

async fn send_cancellation(peer: Peer<RoleClient>, id: RequestId, reason: &'static str) {
    let params = CancelledNotificationParam::new(Some(id), Some(reason.to_owned()));
    let sending = peer.send_notification(CancelledNotification::new(params).into());
    match timeout(CANCEL_TIME, sending).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "can't send a cancellation to a tool server"),
        Err(_) => tracing::debug!("timeout while sending a cancellation to a tool server"),
    }
}

pub(super) fn response_from_result(result: ServerResult, bytes_max: usize) -> CallResponse {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the SDK's enum, and most variants are not responses to tool calls"
    )]
    CallResponse::Finished(match result {
        ServerResult::CallToolResult(result) => outcome_from_result(result, bytes_max),
        // MCP allows an empty result.
        ServerResult::EmptyResult(_) => ToolOutcome::Completed(Default::default()),
        ServerResult::InputRequiredResult(result) => {
            let requests = result.input_requests.unwrap_or_default();
            return CallResponse::InputRequired(RequiredInput::Requests {
                requests,
                state: result.request_state,
            });
        }
        ServerResult::CreateTaskResult(_) => {
            failed_outcome("the tool created a task, which the client does not support")
        }
        _ => failed_outcome("the server's response is not a tool result"),
    })
}

/// Interprets an error response. After an earlier request of the attempt, an unsent request does not
/// mean that the call had no effect.
async fn response_from_error(
    connection: &McpConnection,
    error: ServiceError,
    is_first: bool,
) -> CallResponse {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    let outcome = match error {
        ServiceError::McpError(error) => {
            if error.code.0 == CODE_URL_ELICITATION_REQUIRED
                && let Some(required) = RequiredInput::from_error_data(error.data.as_ref())
            {
                return CallResponse::InputRequired(required);
            }
            failed_outcome(&format!("{} (JSON-RPC error {})", error.message, error.code.0))
        }
        ServiceError::TransportSend(error) => {
            match outcome_from_send_error(connection, &*error.error) {
                Some(outcome) => outcome,
                None => crashed_outcome(connection).await,
            }
        }
        ServiceError::UnexpectedResponse => {
            failed_outcome("the server's response is not a tool result")
        }
        _ => crashed_outcome(connection).await,
    };
    CallResponse::Finished(match outcome {
        ToolOutcome::NotSent { error } if !is_first => ToolOutcome::Crashed { error },
        outcome @ (ToolOutcome::Completed(_)
        | ToolOutcome::Failed { .. }
        | ToolOutcome::NotSent { .. }
        | ToolOutcome::TimedOut { .. }
        | ToolOutcome::Crashed { .. }) => outcome,
    })
}

/// Interprets a failure to send a request. Over a pipe, the request was not sent or only partly; over
/// HTTP, the error may concern the response. `None` means that the connection was lost after the
/// request was sent.
fn outcome_from_send_error(
    connection: &McpConnection,
    error: &(dyn Error + 'static),
) -> Option<ToolOutcome> {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(error) = current.downcast_ref::<WriteError>() {
            return (!error.is_partial).then(|| ToolOutcome::NotSent { error: error.to_string() });
        }
        if let Some(error) = current.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            return Some(outcome_from_http_error(connection, error));
        }
        cause = current.source();
    }
    Some(ToolOutcome::Crashed { error: describe_error(error) })
}

fn outcome_from_http_error(
    connection: &McpConnection,
    error: &StreamableHttpError<reqwest::Error>,
) -> ToolOutcome {
    let text = describe_error(error);
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    match error {
        StreamableHttpError::Client(error) if error.is_connect() => {
            connection.close_with_reason(text.clone());
            ToolOutcome::NotSent { error: text }
        }
        StreamableHttpError::HttpStatus(status) => match status.status {
            429 => ToolOutcome::Failed { error: text, hint: RetryHint::DidNotRun },
            // A gateway may have timed out while the tool ran.
            500.. => ToolOutcome::Crashed { error: text },
            _ => failed_outcome(&text),
        },
        // The SDK reports these only as text. A redirect or a client error means that no tool ran.
        StreamableHttpError::UnexpectedServerResponse(message)
            if (message.starts_with("HTTP 3") || message.starts_with("HTTP 4"))
                && !message.starts_with("HTTP 408") =>
        {
            failed_outcome(&text)
        }
        StreamableHttpError::SessionExpired | StreamableHttpError::ReinitializationFailed(_) => {
            connection.close_with_reason(text.clone());
            ToolOutcome::NotSent { error: text }
        }
        StreamableHttpError::ResponseBodyTooLarge { max_size } => failed_outcome(&format!(
            "the tool's response exceeds the limit of {max_size} bytes and was not read"
        )),
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            failed_outcome(&format!("the server requires authorization: {text}"))
        }
        StreamableHttpError::ReservedHeaderConflict(_) => ToolOutcome::NotSent { error: text },
        _ => ToolOutcome::Crashed { error: text },
    }
}

async fn crashed_outcome(connection: &McpConnection) -> ToolOutcome {
    ToolOutcome::Crashed { error: connection.close_reason().await }
}

pub(super) fn failed_outcome(error: &str) -> ToolOutcome {
    ToolOutcome::Failed {
        error: safe_text(error, TOOL_ERROR_BYTES_MAX),
        hint: RetryHint::Unspecified,
    }
}

/// Formats an error and its causes without repetition. Replaces URLs with their origin, because paths
/// and queries may contain secrets (E7).
pub(super) fn describe_error(error: &(dyn Error + 'static)) -> String {
    let mut text = text_without_url(error);
    let mut cause = source_of(error);
    while let Some(current) = cause {
        let cause_text = text_without_url(current);
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        cause = source_of(current);
    }
    safe_text(&text, TOOL_ERROR_BYTES_MAX)
}

/// Returns an error's text with its URL replaced by the origin. Wrappers of an HTTP client's error
/// repeat the URL.
fn text_without_url(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(url) = current.downcast_ref().and_then(reqwest::Error::url) {
            return text.replace(url.as_str(), &url.origin().ascii_serialization());
        }
        cause = source_of(current);
    }
    text
}

/// Returns the cause of an error, including the HTTP client error that the SDK does not expose.
fn source_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(cause)) => Some(cause),
        Some(_) | None => error.source(),
    }
}
