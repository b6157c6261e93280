//! One attempt of one tool call over MCP, and what is known of its effect when it ends (R1, S6).
//! Used by `link`.

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

/// `_meta` key of a request: the same for every attempt of one call (D3).
const META_IDEMPOTENCY_KEY: &str = "greenroom/idempotency_key";
/// `_meta` key of a request: the attempt's place in its trace, as the W3C writes it (A4).
const META_TRACE: &str = "traceparent";
/// Requests of one attempt: how often a tool may ask for more before it answers.
const REQUESTS_PER_ATTEMPT_MAX: usize = 16;
/// The error by which a server says that a person must visit a page first.
const CODE_URL_ELICITATION_REQUIRED: i32 = -32042;
/// Time for telling a server that its answer is not wanted any more.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// Runs the attempt to its end: the call, and as often as it needs something of people, once more.
pub(super) async fn run_attempt(
    conversation: Arc<McpConnection>,
    call: ToolCall,
    progress: mpsc::Sender<Progress>,
    cancel: CancellationToken,
) -> ToolOutcome {
    if cancel.is_cancelled() {
        return ToolOutcome::NotSent { error: "cancelled".to_owned() };
    }
    if conversation.closed.is_cancelled() {
        return ToolOutcome::NotSent { error: conversation.close_reason().await };
    }
    let mut params = CallToolRequestParams::new(call.tool);
    params.arguments = match call.arguments {
        Value::Object(arguments) => Some(arguments),
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return failed_outcome("a tool's arguments must be a JSON object");
        }
    };
    let mut attempt = Attempt {
        conversation,
        idempotency_key: call.idempotency_key,
        trace: call.caller.map(|caller| caller.trace),
        timeout: call.timeout,
        time_left: call.timeout,
        result_bytes_max: call.result_bytes_max,
        people: call.elicitation,
        late: call.late_result,
        progress,
        cancel,
    };
    for _ in 0..REQUESTS_PER_ATTEMPT_MAX {
        let needed = match attempt.send_request(params.clone()).await {
            CallResponse::Finished(outcome) => return outcome,
            CallResponse::InputRequired(needed) => needed,
        };
        let CollectedInput { responses, state } = match attempt.collect_input(needed).await {
            Ok(given) => given,
            Err(outcome) => return outcome,
        };
        params.input_responses = responses;
        params.request_state = state;
    }
    failed_outcome(&format!(
        "the tool asked for more than {REQUESTS_PER_ATTEMPT_MAX} times and never answered"
    ))
}

/// What a request led to.
pub(super) enum CallResponse {
    /// The attempt's end.
    Finished(ToolOutcome),
    /// The call is to be made again, with this.
    InputRequired(RequiredInput),
}

/// One attempt, whatever requests it takes.
struct Attempt {
    conversation: Arc<McpConnection>,
    idempotency_key: String,
    trace: Option<TraceContext>,
    timeout: Option<Duration>,
    /// What is left of the time; it stands still while people are asked (T4).
    time_left: Option<Duration>,
    result_bytes_max: usize,
    people: ElicitationChannel,
    late: LateResultHandler,
    progress: mpsc::Sender<Progress>,
    cancel: CancellationToken,
}

impl Attempt {
    /// Makes the call once.
    async fn send_request(&mut self, params: CallToolRequestParams) -> CallResponse {
        let conversation = self.conversation.clone();
        let is_first = params.input_responses.is_none() && params.request_state.is_none();
        let mut meta = RequestMetaObject::default();
        let key = Value::String(self.idempotency_key.clone());
        meta.insert(META_IDEMPOTENCY_KEY.to_owned(), key);
        if let Some(trace) = self.trace {
            meta.insert(META_TRACE.to_owned(), Value::String(trace.to_string()));
        }
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options().with_meta(meta);
        // Before it is sent: a server may ask before we have seen that it was.
        let (mut heard, mut asked) = conversation.routes.active_calls.register();
        let sent = conversation.peer.send_cancellable_request(request, options).await;
        let mut handle = match sent {
            Ok(handle) => handle,
            Err(error) => {
                heard.mark_answered();
                let error = error.to_string();
                // What it did before it asked nobody knows.
                let outcome = match is_first {
                    true => ToolOutcome::NotSent { error },
                    false => ToolOutcome::Crashed { error },
                };
                return CallResponse::Finished(outcome);
            }
        };
        let _route = conversation
            .routes
            .register_progress(handle.progress_token.clone(), self.progress.clone());
        let mut unanswered = CancelGuard::new(handle.peer.clone(), handle.id.clone());
        let mut asking = FuturesUnordered::new();
        loop {
            let (since, counts) = (Instant::now(), asking.is_empty());
            let left = self.time_left.filter(|_| counts);
            let time_is_up = async {
                match left {
                    Some(left) => tokio::time::sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    unanswered.disarm();
                    heard.mark_answered();
                    self.deduct_elapsed(since, counts);
                    return match answer {
                        Ok(Ok(result)) => response_from_result(result, self.result_bytes_max),
                        Ok(Err(error)) => response_from_error(&conversation, error, is_first).await,
                        Err(_) => CallResponse::Finished(crashed_outcome(&conversation).await),
                    };
                }
                () = self.cancel.cancelled() => {
                    self.register_late_result(&handle.id);
                    unanswered.cancel("cancelled by the user").await;
                    return CallResponse::Finished(failed_outcome("cancelled"));
                }
                () = conversation.closed.cancelled() => {
                    unanswered.disarm();
                    heard.mark_answered();
                    return CallResponse::Finished(crashed_outcome(&conversation).await);
                }
                Some(question) = asked.recv() => asking.push(question.forward(self.people.clone())),
                Some(()) = asking.next() => {}
                () = time_is_up => {
                    self.register_late_result(&handle.id);
                    unanswered.cancel("timeout").await;
                    let after = self.timeout.unwrap_or_default().as_millis();
                    let after_ms = u64::try_from(after).unwrap_or(u64::MAX);
                    return CallResponse::Finished(ToolOutcome::TimedOut { after_ms });
                }
            }
            self.deduct_elapsed(since, counts);
        }
    }

    /// What the server answers all the same is told to whoever hears what comes late.
    fn register_late_result(&self, request: &RequestId) {
        let (late, bytes_max) = (self.late.clone(), self.result_bytes_max);
        self.conversation.routes.abandoned_calls.add(request.clone(), late, bytes_max);
    }

    /// Time has passed since; it counts unless people were asked.
    fn deduct_elapsed(&mut self, since: Instant, counts: bool) {
        if let Some(left) = self.time_left.as_mut().filter(|_| counts) {
            *left = left.saturating_sub(since.elapsed());
        }
    }

    /// Gets what the call needs; errs with the attempt's end.
    async fn collect_input(&self, needed: RequiredInput) -> Result<CollectedInput, ToolOutcome> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(failed_outcome("cancelled")),
            () = self.conversation.closed.cancelled() => Err(crashed_outcome(&self.conversation).await),
            given = elicitation::collect_input(needed, &self.people) => given.map_err(|error| failed_outcome(&error)),
        }
    }
}

/// A request whose answer is still to come. Dropped while it is, it tells the server.
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

    /// Tells the server that the answer is not wanted any more (S6).
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
    let telling = peer.send_notification(CancelledNotification::new(params).into());
    match timeout(CANCEL_TIME, telling).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a tool server can't be told of a cancellation"),
        Err(_) => tracing::debug!("a tool server is too slow to be told of a cancellation"),
    }
}

pub(super) fn response_from_result(result: ServerResult, bytes_max: usize) -> CallResponse {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the SDK's enum, and most of it is no answer"
    )]
    CallResponse::Finished(match result {
        ServerResult::CallToolResult(result) => outcome_from_result(result, bytes_max),
        // MCP lets a tool answer with nothing at all.
        ServerResult::EmptyResult(_) => ToolOutcome::Completed(Default::default()),
        ServerResult::InputRequiredResult(result) => {
            let requests = result.input_requests.unwrap_or_default();
            return CallResponse::InputRequired(RequiredInput::Requests {
                requests,
                state: result.request_state,
            });
        }
        ServerResult::CreateTaskResult(_) => {
            failed_outcome("the tool made a task of the call, which was not offered")
        }
        _ => failed_outcome("the server's answer is not the result of a tool"),
    })
}

/// What an error means. Of a call that was made before, nobody knows that it did nothing.
async fn response_from_error(
    conversation: &McpConnection,
    error: ServiceError,
    is_first: bool,
) -> CallResponse {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    let outcome = match error {
        ServiceError::McpError(error) => {
            if error.code.0 == CODE_URL_ELICITATION_REQUIRED
                && let Some(needed) = RequiredInput::from_error_data(error.data.as_ref())
            {
                return CallResponse::InputRequired(needed);
            }
            failed_outcome(&format!("{} (JSON-RPC error {})", error.message, error.code.0))
        }
        ServiceError::TransportSend(error) => {
            match outcome_from_send_error(conversation, &*error.error) {
                Some(outcome) => outcome,
                None => crashed_outcome(conversation).await,
            }
        }
        ServiceError::UnexpectedResponse => {
            failed_outcome("the server's answer is not the result of a tool")
        }
        _ => crashed_outcome(conversation).await,
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

/// Sending failed: over a pipe that means what it says; over HTTP it may mean the answer. Nothing
/// means that the connection is lost with the call on its way.
fn outcome_from_send_error(
    conversation: &McpConnection,
    error: &(dyn Error + 'static),
) -> Option<ToolOutcome> {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(error) = current.downcast_ref::<WriteError>() {
            return (!error.is_partial).then(|| ToolOutcome::NotSent { error: error.to_string() });
        }
        if let Some(error) = current.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            return Some(outcome_from_http_error(conversation, error));
        }
        cause = current.source();
    }
    Some(ToolOutcome::Crashed { error: describe_error(error) })
}

fn outcome_from_http_error(
    conversation: &McpConnection,
    error: &StreamableHttpError<reqwest::Error>,
) -> ToolOutcome {
    let text = describe_error(error);
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    match error {
        StreamableHttpError::Client(error) if error.is_connect() => {
            conversation.close_with_reason(text.clone());
            ToolOutcome::NotSent { error: text }
        }
        StreamableHttpError::HttpStatus(status) => match status.status {
            429 => ToolOutcome::Failed { error: text, hint: RetryHint::DidNotRun },
            // A proxy may have given up on a tool that ran.
            500.. => ToolOutcome::Crashed { error: text },
            _ => failed_outcome(&text),
        },
        // The SDK tells of these in words only. Whoever redirects or refuses did not run a tool.
        StreamableHttpError::UnexpectedServerResponse(words)
            if (words.starts_with("HTTP 3") || words.starts_with("HTTP 4"))
                && !words.starts_with("HTTP 408") =>
        {
            failed_outcome(&text)
        }
        StreamableHttpError::SessionExpired | StreamableHttpError::ReinitializationFailed(_) => {
            conversation.close_with_reason(text.clone());
            ToolOutcome::NotSent { error: text }
        }
        StreamableHttpError::ResponseBodyTooLarge { max_size } => failed_outcome(&format!(
            "the tool answered, but its answer has more than {max_size} bytes and was not read"
        )),
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            failed_outcome(&format!("the server asks for authorization: {text}"))
        }
        StreamableHttpError::ReservedHeaderConflict(_) => ToolOutcome::NotSent { error: text },
        _ => ToolOutcome::Crashed { error: text },
    }
}

async fn crashed_outcome(conversation: &McpConnection) -> ToolOutcome {
    ToolOutcome::Crashed { error: conversation.close_reason().await }
}

pub(super) fn failed_outcome(error: &str) -> ToolOutcome {
    ToolOutcome::Failed {
        error: safe_text(error, TOOL_ERROR_BYTES_MAX),
        hint: RetryHint::Unspecified,
    }
}

/// An error with its causes, each said once. Of addresses only where they lead to: what comes after
/// may be a secret (E7).
pub(super) fn describe_error(error: &(dyn Error + 'static)) -> String {
    let mut text = text_without_url(error);
    let mut cause = source_of(error);
    while let Some(current) = cause {
        let more = text_without_url(current);
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = source_of(current);
    }
    safe_text(&text, TOOL_ERROR_BYTES_MAX)
}

/// What an error says. Those around an HTTP client's error repeat its words.
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

/// The cause of an error; the SDK hides that of an HTTP client's.
fn source_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(cause)) => Some(cause),
        Some(_) | None => error.source(),
    }
}
