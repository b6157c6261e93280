//! An established connection to an MCP server, over any transport. Created by `connector`, used by the
//! connection's actor. `call` implements tool calls.

use crate::redaction::Redactor;
use futures::future::{BoxFuture, FutureExt};
use greenroom_actors::{
    ports::{Progress, ServerPrompt, ServerResource, ToolCall},
    tool_connection::ToolClient,
};
use greenroom_core::{
    call::{ToolOutcome, ToolOutput},
    limits::PROGRESS_MESSAGE_BYTES_MAX,
    policy::{RemoteTool, ToolAnnotations},
};
use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        ClientConfig, ElicitRequestParams, ElicitResult, Implementation, PaginatedRequestParams,
        ProgressNotificationParam, ProgressToken, ProtocolVersion, SubscriptionFilter, Tool,
    },
    service::{NotificationContext, Peer, RequestContext, RunningService, ServiceError},
};
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, mpsc},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    LIST_PAGES_MAX, TOOLS_LISTED_MAX, call,
    child_process::ProcessExit,
    elicitation::{self, ActiveCalls},
    late_results::AbandonedCalls,
    prompts, resources,
    result::safe_text,
};

/// Time to wait for the exit status of a process after its pipes are closed.
const EXIT_REASON_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection to an MCP server. Dropping it closes the connection.
pub(super) struct McpClient(pub(super) Arc<McpConnection>);

/// The state shared by the calls of a connection and its observers.
pub(super) struct McpConnection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) routes: Arc<NotificationRoutes>,
    /// Cancelled when no further responses will arrive.
    pub(super) closed: CancellationToken,
    /// The reason of the closing, if a call determined it.
    close_reason: OnceLock<String>,
    /// Cancelled when the SDK has released the transport.
    transport_closed: CancellationToken,
    stop: CancellationToken,
    process_exit: Option<ProcessExit>,
    list_timeout: Duration,
    redactor: Arc<Redactor>,
    _stop_on_drop: DropGuard,
}

impl McpClient {
    /// Creates a client of a session that has completed its handshake.
    pub(super) fn new(
        running: RunningService<RoleClient, McpClientHandler>,
        stop: CancellationToken,
        closed: CancellationToken,
        process_exit: Option<ProcessExit>,
        list_timeout: Duration,
        redactor: Arc<Redactor>,
    ) -> Self {
        let routes = running.service().routes.clone();
        let transport_closed = CancellationToken::new();
        let connection = Arc::new(McpConnection {
            peer: running.peer().clone(),
            routes,
            closed: closed.clone(),
            close_reason: OnceLock::new(),
            transport_closed: transport_closed.clone(),
            _stop_on_drop: stop.clone().drop_guard(),
            stop: stop.clone(),
            process_exit,
            list_timeout,
            redactor,
        });
        if needs_list_subscription(&connection.peer) {
            let (peer, routes) = (connection.peer.clone(), connection.routes.clone());
            tokio::spawn(stop.run_until_cancelled_owned(watch_tool_list(peer, routes)));
        }
        tokio::spawn(async move {
            if let Err(error) = running.waiting().await {
                tracing::error!(%error, "the connection to a tool server failed");
            }
            closed.cancel();
            transport_closed.cancel();
        });
        Self(connection)
    }
}

impl McpConnection {
    /// Closes the connection for `reason`.
    pub(super) fn close_with_reason(&self, reason: String) {
        self.close_reason.get_or_init(|| self.redactor.redact_text(&reason).into_owned());
        self.closed.cancel();
    }

    /// Returns the reason of the closing. Waits up to [`EXIT_REASON_TIMEOUT`] for the exit status.
    pub(super) async fn close_reason(&self) -> String {
        if let Some(reason) = self.close_reason.get() {
            return reason.clone();
        }
        let Some(exit) = &self.process_exit else { return "the connection was closed".to_owned() };
        // The wait fails for a process that closed its standard output and continues to run.
        let has_exited = timeout(EXIT_REASON_TIMEOUT, exit.wait()).await.is_ok();
        let closed = if has_exited { "" } else { "the server closed its standard output; " };
        let reason = format!("{closed}{}", exit.describe());
        self.redactor.redact_text(&reason).into_owned()
    }

    async fn list_tools(&self) -> Result<Vec<RemoteTool>, String> {
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..LIST_PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page =
                self.peer.list_tools(Some(page)).await.map_err(|error| list_error_text(&error))?;
            tools.extend(page.tools.into_iter().map(to_remote_tool));
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() || tools.len() >= TOOLS_LISTED_MAX {
                break;
            }
        }
        tools.truncate(TOOLS_LISTED_MAX);
        Ok(tools)
    }
}

impl ToolClient for McpClient {
    fn list_tools(&self) -> BoxFuture<'static, Result<Vec<RemoteTool>, String>> {
        let connection = self.0.clone();
        async move {
            let limit = connection.list_timeout;
            tokio::select! {
                biased;
                listed = timeout(limit, connection.list_tools()) => listed
                    .unwrap_or_else(|_| Err(format!("no list of tools within {limit:?}"))),
                () = connection.closed.cancelled() => Err(connection.close_reason().await),
            }
        }
        .boxed()
    }

    fn call_tool(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        call::run_attempt(self.0.clone(), call, progress, cancel).boxed()
    }

    fn list_prompts(&self) -> BoxFuture<'static, Vec<ServerPrompt>> {
        prompts::list(self.0.clone()).boxed()
    }

    fn get_prompt(
        &self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, String>> {
        prompts::get(self.0.clone(), name.to_owned(), arguments).boxed()
    }

    fn list_resources(&self) -> BoxFuture<'static, Vec<ServerResource>> {
        resources::list(self.0.clone()).boxed()
    }

    fn read_resource(
        &self,
        uri: &str,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<ToolOutput, String>> {
        resources::read(self.0.clone(), uri.to_owned(), bytes_max).boxed()
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        let routes = self.0.routes.clone();
        async move { routes.tools_changed.notified().await }.boxed()
    }

    fn closed(&self) -> BoxFuture<'static, String> {
        let connection = Arc::downgrade(&self.0);
        let closed = self.0.closed.clone();
        async move {
            closed.cancelled().await;
            match connection.upgrade() {
                Some(connection) => connection.close_reason().await,
                None => "the connection was closed".to_owned(),
            }
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let connection = self.0.clone();
        async move {
            connection.stop.cancel();
            connection.transport_closed.cancelled().await;
            if let Some(exit) = &connection.process_exit {
                exit.wait().await;
            }
        }
        .boxed()
    }
}

fn list_error_text(error: &ServiceError) -> String {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    match error {
        ServiceError::TransportSend(error) => call::describe_error(&*error.error),
        ServiceError::McpError(error) => error.message.to_string(),
        ServiceError::UnexpectedResponse => {
            "the server's list is malformed, or longer than the message limit".to_owned()
        }
        other => call::describe_error(other),
    }
}

fn to_remote_tool(tool: Tool) -> RemoteTool {
    let annotations = tool.annotations.map(|hints| ToolAnnotations {
        read_only_hint: hints.read_only_hint,
        destructive_hint: hints.destructive_hint,
        idempotent_hint: hints.idempotent_hint,
        open_world_hint: hints.open_world_hint,
    });
    RemoteTool {
        name: tool.name.into_owned(),
        description: tool.description.or(tool.title.map(Into::into)).unwrap_or_default().into(),
        input_schema: Value::Object(Arc::unwrap_or_clone(tool.input_schema)),
        annotations: annotations.unwrap_or_default(),
    }
}

/// True if the client must subscribe to changes of the tool list: since revision 2026-07-28.
fn needs_list_subscription(peer: &Peer<RoleClient>) -> bool {
    peer.peer_info().is_some_and(|info| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize()
            && tools.and_then(|tools| tools.list_changed) == Some(true)
    })
}

/// Receives notifications of list changes until the server ends the subscription.
async fn watch_tool_list(peer: Peer<RoleClient>, routes: Arc<NotificationRoutes>) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let mut subscription = match peer.listen(filter).await {
        Ok(subscription) => subscription,
        Err(error) => {
            tracing::debug!(%error, "a tool server rejected the subscription to list changes");
            return;
        }
    };
    // The subscription contains only list changes.
    while let Ok(Some(_)) = subscription.next().await {
        routes.tools_changed.notify_one();
    }
}

/// The receivers of a server's notifications and requests.
#[derive(Default)]
pub(super) struct NotificationRoutes {
    progress: Mutex<HashMap<ProgressToken, mpsc::Sender<Progress>>>,
    tools_changed: Notify,
    /// The running calls, which receive the server's elicitations.
    pub(super) active_calls: ActiveCalls,
    /// The abandoned calls, which receive late responses.
    pub(super) abandoned_calls: AbandonedCalls,
}

impl NotificationRoutes {
    /// Sends the progress of a call to `sender` until the guard is dropped.
    pub(super) fn register_progress(
        self: &Arc<Self>,
        token: ProgressToken,
        sender: mpsc::Sender<Progress>,
    ) -> ProgressGuard {
        self.lock_progress().insert(token.clone(), sender);
        ProgressGuard { routes: self.clone(), token }
    }

    fn lock_progress(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<Progress>>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the progress route of one call registered.
pub(super) struct ProgressGuard {
    routes: Arc<NotificationRoutes>,
    token: ProgressToken,
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.routes.lock_progress().remove(&self.token);
    }
}

/// Handles the requests and notifications of a server.
pub(super) struct McpClientHandler {
    pub(super) routes: Arc<NotificationRoutes>,
    info: ClientConfig,
}

impl McpClientHandler {
    pub(super) fn new(version: ProtocolVersion) -> Self {
        let implementation = Implementation::new("greenroom", env!("CARGO_PKG_VERSION"));
        let info = ClientConfig::new(elicitation::client_capabilities(), implementation);
        Self { routes: Arc::default(), info: info.with_protocol_version(version) }
    }
}

impl ClientHandler for McpClientHandler {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let sender = self.routes.lock_progress().get(&params.progress_token).cloned();
        let Some(sender) = sender else { return };
        let message = params.message.map(|text| safe_text(&text, PROGRESS_MESSAGE_BYTES_MAX));
        let progress = Progress { progress: params.progress, total: params.total, message };
        // If the channel is full, this update is dropped; a later one replaces it.
        drop(sender.try_send(progress));
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(self.routes.active_calls.handle_elicitation(params, context.ct).await)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.routes.tools_changed.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        self.info.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use greenroom_actors::ports::{ElicitationChannel, LateResultHandler};
    use rmcp::{
        serve_client,
        service::{RxJsonRpcMessage, TxJsonRpcMessage},
        transport::Transport,
    };
    use serde_json::json;
    use std::{convert::Infallible, thread};

    /// A server that sends an elicitation as soon as it receives a call.
    struct EagerElicitingServer {
        routes: Arc<NotificationRoutes>,
        /// Receives true if the elicitation was forwarded to a call.
        elicited: std::sync::mpsc::Sender<bool>,
        answers: (mpsc::Sender<Value>, mpsc::Receiver<Value>),
    }

    impl Transport<RoleClient> for EagerElicitingServer {
        type Error = Infallible;

        fn send(
            &mut self,
            item: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
            let message = serde_json::to_value(&item).unwrap();
            let result = match message["method"].as_str() {
                Some("initialize") => Some(json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "hasty", "version": "1"},
                })),
                Some("tools/call") => {
                    let elicitation: ElicitRequestParams = serde_json::from_value(json!({
                        "mode": "url", "message": "Look", "url": "https://example.org", "elicitationId": "1",
                    }))
                    .unwrap();
                    let handling = self
                        .routes
                        .active_calls
                        .handle_elicitation(elicitation, CancellationToken::new());
                    // A forwarded elicitation is pending; a declined one is ready at once.
                    self.elicited.send(handling.now_or_never().is_none()).unwrap();
                    Some(json!({"content": []}))
                }
                _ => None,
            };
            if let Some(result) = result {
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                self.answers.0.try_send(answer).unwrap();
            }
            std::future::ready(Ok(()))
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            let answer = self.answers.1.recv().await?;
            Some(serde_json::from_value(answer).unwrap())
        }

        async fn close(&mut self) -> Result<(), Infallible> {
            Ok(())
        }
    }

    /// Otherwise an elicitation would be assigned to another call or declined. The connection and the
    /// call run on threads of their own.
    #[test]
    fn t1_call_is_registered_before_it_is_sent() {
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = McpClientHandler::new(ProtocolVersion::V_2025_11_25);
        let (routes, (elicited, was_elicited)) =
            (client.routes.clone(), std::sync::mpsc::channel());
        let server =
            EagerElicitingServer { routes: routes.clone(), elicited, answers: mpsc::channel(1) };
        let (client_sender, client_receiver) = std::sync::mpsc::channel();
        let stop = CancellationToken::new();
        let closed = stop.clone();
        let connection_thread = thread::spawn(move || {
            runtime().block_on(async {
                let running = serve_client(client, server).await.unwrap();
                let limit = Duration::from_secs(60);
                let redactor = Arc::default();
                let client = McpClient::new(running, stop, closed.clone(), None, limit, redactor);
                client_sender.send(client).unwrap();
                closed.cancelled().await;
            });
        });
        let client = client_receiver.recv().unwrap();
        let (elicitations, _elicitations_receiver) = mpsc::channel(1);
        let call = ToolCall {
            caller: None,
            tool: "ask".to_owned(),
            arguments: Value::Null,
            idempotency_key: "1".to_owned(),
            timeout: None,
            result_bytes_max: 1024,
            elicitation: ElicitationChannel::new(elicitations),
            late_result: LateResultHandler::default(),
        };
        // Blocks the call after sending, because it registers its progress route then.
        let progress_lock = routes.lock_progress();
        let call_thread = thread::spawn(move || {
            let (progress, _) = mpsc::channel(1);
            runtime().block_on(client.call_tool(call, progress, CancellationToken::new()))
        });
        let was_elicited = was_elicited.recv().unwrap();
        drop(progress_lock);
        assert!(was_elicited, "the call is not registered yet");
        assert!(matches!(call_thread.join().unwrap(), ToolOutcome::Completed(_)));
        connection_thread.join().unwrap();
    }
}
