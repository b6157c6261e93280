//! One attempt of one tool call over MCP, and what is known of its effect when it ends (R1, S6).
//! Used by `link`.

use greenroom_actors::ports::{Progress, ToolCall};
use greenroom_core::{
    call::{ToolOutcome, outcome::RepeatHint},
    limits::TOOL_ERROR_BYTES_MAX,
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
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    link::Conversation,
    result::{outcome, safe_text},
    stdio::WriteError,
};

/// `_meta` key of a request: the same for every attempt of one call (D3).
const META_IDEMPOTENCY_KEY: &str = "greenroom/idempotency_key";
/// Time for telling a server that its answer is not wanted any more.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// Runs the attempt to its end.
pub(super) async fn call(
    conversation: Arc<Conversation>,
    call: ToolCall,
    progress: mpsc::Sender<Progress>,
    cancel: CancellationToken,
) -> ToolOutcome {
    if cancel.is_cancelled() {
        return ToolOutcome::NotSent { error: "cancelled".to_owned() };
    }
    if conversation.ended.is_cancelled() {
        return ToolOutcome::NotSent { error: conversation.reason().await };
    }
    let mut params = CallToolRequestParams::new(call.tool);
    params.arguments = match call.arguments {
        Value::Object(arguments) => Some(arguments),
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return failed("a tool's arguments must be a JSON object");
        }
    };
    let mut meta = RequestMetaObject::default();
    meta.insert(META_IDEMPOTENCY_KEY.to_owned(), Value::String(call.idempotency_key));
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let options = PeerRequestOptions::no_options().with_meta(meta);
    let handle = match conversation.peer.send_cancellable_request(request, options).await {
        Ok(handle) => handle,
        Err(error) => return ToolOutcome::NotSent { error: error.to_string() },
    };
    let _route = conversation.routes.route(handle.progress_token.clone(), progress);
    let mut unanswered = Unanswered::new(handle.peer.clone(), handle.id.clone());
    let limit = call.timeout;
    let time_is_up = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        answer = handle.rx => {
            unanswered.answered();
            match answer {
                Ok(Ok(result)) => of_result(result, call.result_bytes_max),
                Ok(Err(error)) => of_error(&conversation, error).await,
                Err(_) => crashed(&conversation).await,
            }
        }
        () = cancel.cancelled() => {
            unanswered.tell("cancelled by the user").await;
            failed("cancelled")
        }
        () = conversation.ended.cancelled() => {
            unanswered.answered();
            crashed(&conversation).await
        }
        () = time_is_up => {
            unanswered.tell("timeout").await;
            let after = limit.unwrap_or_default().as_millis();
            ToolOutcome::TimedOut { after_ms: u64::try_from(after).unwrap_or(u64::MAX) }
        }
    }
}

/// A request whose answer is still to come. Dropped while it is, it tells the server.
struct Unanswered {
    request: Option<(Peer<RoleClient>, RequestId)>,
}

impl Unanswered {
    fn new(peer: Peer<RoleClient>, id: RequestId) -> Self {
        Self { request: Some((peer, id)) }
    }

    fn answered(&mut self) {
        self.request = None;
    }

    /// Tells the server that the answer is not wanted any more (S6).
    async fn tell(&mut self, reason: &'static str) {
        if let Some((peer, id)) = self.request.take() {
            cancelled(peer, id, reason).await;
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some((peer, id)) = self.request.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(cancelled(peer, id, "the call was abandoned"));
        }
    }
}

async fn cancelled(peer: Peer<RoleClient>, id: RequestId, reason: &'static str) {
    let params = CancelledNotificationParam::new(Some(id), Some(reason.to_owned()));
    let telling = peer.send_notification(CancelledNotification::new(params).into());
    match timeout(CANCEL_TIME, telling).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a tool server can't be told of a cancellation"),
        Err(_) => tracing::debug!("a tool server is too slow to be told of a cancellation"),
    }
}

fn of_result(result: ServerResult, bytes_max: usize) -> ToolOutcome {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the SDK's enum, and most of it is no answer"
    )]
    match result {
        ServerResult::CallToolResult(result) => outcome(result, bytes_max),
        // MCP lets a tool answer with nothing at all.
        ServerResult::EmptyResult(_) => ToolOutcome::Completed(Default::default()),
        ServerResult::InputRequiredResult(_) => {
            failed("the tool asks for more input, which can't be given yet")
        }
        ServerResult::CreateTaskResult(_) => {
            failed("the tool made a task of the call, which was not offered")
        }
        _ => failed("the server's answer is not the result of a tool"),
    }
}

async fn of_error(conversation: &Conversation, error: ServiceError) -> ToolOutcome {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    match error {
        ServiceError::McpError(error) => {
            failed(&format!("{} (JSON-RPC error {})", error.message, error.code.0))
        }
        ServiceError::TransportSend(error) => match of_sending(conversation, &*error.error) {
            Some(outcome) => outcome,
            None => crashed(conversation).await,
        },
        ServiceError::UnexpectedResponse => {
            failed("the server's answer is not the result of a tool")
        }
        _ => crashed(conversation).await,
    }
}

/// Sending failed: over a pipe that means what it says; over HTTP it may mean the answer. Nothing
/// means that the connection is lost with the call on its way.
fn of_sending(conversation: &Conversation, error: &(dyn Error + 'static)) -> Option<ToolOutcome> {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(error) = current.downcast_ref::<WriteError>() {
            return (!error.begun).then(|| ToolOutcome::NotSent { error: error.to_string() });
        }
        if let Some(error) = current.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            return Some(of_http(conversation, error));
        }
        cause = current.source();
    }
    Some(ToolOutcome::Crashed { error: described(error) })
}

fn of_http(
    conversation: &Conversation,
    error: &StreamableHttpError<reqwest::Error>,
) -> ToolOutcome {
    let text = described(error);
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    match error {
        StreamableHttpError::Client(error) if error.is_connect() => {
            conversation.give_up(text.clone());
            ToolOutcome::NotSent { error: text }
        }
        StreamableHttpError::HttpStatus(status) => match status.status {
            429 => ToolOutcome::Failed { error: text, hint: RepeatHint::DidNotRun },
            // A proxy may have given up on a tool that ran.
            500.. => ToolOutcome::Crashed { error: text },
            _ => failed(&text),
        },
        // The SDK tells of these in words only. Whoever redirects or refuses did not run a tool.
        StreamableHttpError::UnexpectedServerResponse(words)
            if (words.starts_with("HTTP 3") || words.starts_with("HTTP 4"))
                && !words.starts_with("HTTP 408") =>
        {
            failed(&text)
        }
        StreamableHttpError::SessionExpired | StreamableHttpError::ReinitializationFailed(_) => {
            conversation.give_up(text.clone());
            ToolOutcome::NotSent { error: text }
        }
        StreamableHttpError::ResponseBodyTooLarge { max_size } => failed(&format!(
            "the tool answered, but its answer has more than {max_size} bytes and was not read"
        )),
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            failed(&format!("the server asks for authorization: {text}"))
        }
        StreamableHttpError::ReservedHeaderConflict(_) => ToolOutcome::NotSent { error: text },
        _ => ToolOutcome::Crashed { error: text },
    }
}

async fn crashed(conversation: &Conversation) -> ToolOutcome {
    ToolOutcome::Crashed { error: conversation.reason().await }
}

fn failed(error: &str) -> ToolOutcome {
    ToolOutcome::Failed { error: safe_text(error, TOOL_ERROR_BYTES_MAX), hint: RepeatHint::Unsaid }
}

/// An error with its causes, each said once.
pub(super) fn described(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = cause_of(error);
    while let Some(current) = cause {
        let more = current.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = cause_of(current);
    }
    safe_text(&text, TOOL_ERROR_BYTES_MAX)
}

/// The cause of an error; the SDK hides that of an HTTP client's.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(cause)) => Some(cause),
        Some(_) | None => error.source(),
    }
}
