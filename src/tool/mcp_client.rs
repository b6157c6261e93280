//! A live conversation with an MCP server, whatever carries it. Made by `mcp`, used by the
//! connection's actor; calls themselves are in `call`.

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

/// Time that is spent on finding out how a process ended, once its pipes are closed.
const EXIT_REASON_TIMEOUT: Duration = Duration::from_millis(500);

/// The conversation. Dropping it ends it.
pub(super) struct McpClient(pub(super) Arc<McpConnection>);

/// What calls and watchers share.
pub(super) struct McpConnection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) routes: Arc<NotificationRoutes>,
    /// Fires when no more answers will come.
    pub(super) closed: CancellationToken,
    /// Why it ended, where a call found out.
    close_reason: OnceLock<String>,
    /// Fires when the SDK has let go of the transport.
    transport_closed: CancellationToken,
    stop: CancellationToken,
    process_exit: Option<ProcessExit>,
    list_timeout: Duration,
    redactor: Arc<Redactor>,
    _stop_on_drop: DropGuard,
}

impl McpClient {
    /// Takes over a conversation that has just begun.
    pub(super) fn new(
        running: RunningService<RoleClient, McpClientHandler>,
        stop: CancellationToken,
        ended: CancellationToken,
        fate: Option<ProcessExit>,
        list_timeout: Duration,
        redactor: Arc<Redactor>,
    ) -> Self {
        let routes = running.service().routes.clone();
        let finished = CancellationToken::new();
        let conversation = Arc::new(McpConnection {
            peer: running.peer().clone(),
            routes,
            closed: ended.clone(),
            close_reason: OnceLock::new(),
            transport_closed: finished.clone(),
            _stop_on_drop: stop.clone().drop_guard(),
            stop: stop.clone(),
            process_exit: fate,
            list_timeout,
            redactor,
        });
        if needs_list_subscription(&conversation.peer) {
            let (peer, routes) = (conversation.peer.clone(), conversation.routes.clone());
            tokio::spawn(stop.run_until_cancelled_owned(watch_tool_list(peer, routes)));
        }
        tokio::spawn(async move {
            if let Err(error) = running.waiting().await {
                tracing::error!(%error, "a conversation with a tool server failed");
            }
            ended.cancel();
            finished.cancel();
        });
        Self(conversation)
    }
}

impl McpConnection {
    /// Gives it up because it is of no use any more.
    pub(super) fn close_with_reason(&self, reason: String) {
        self.close_reason.get_or_init(|| self.redactor.redact_text(&reason).into_owned());
        self.closed.cancel();
    }

    /// Why it ended; waits a moment for the process to say how.
    pub(super) async fn close_reason(&self) -> String {
        if let Some(reason) = self.close_reason.get() {
            return reason.clone();
        }
        let Some(fate) = &self.process_exit else { return "the connection was closed".to_owned() };
        // Too late is an answer too: a process that closed its output and lives on.
        let known = timeout(EXIT_REASON_TIMEOUT, fate.wait()).await.is_ok();
        let closed = if known { "" } else { "it closed its standard output; " };
        let reason = format!("{closed}{}", fate.describe());
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
        let conversation = self.0.clone();
        async move {
            let limit = conversation.list_timeout;
            tokio::select! {
                biased;
                listed = timeout(limit, conversation.list_tools()) => listed
                    .unwrap_or_else(|_| Err(format!("no list of tools within {limit:?}"))),
                () = conversation.closed.cancelled() => Err(conversation.close_reason().await),
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
        let conversation = Arc::downgrade(&self.0);
        let ended = self.0.closed.clone();
        async move {
            ended.cancelled().await;
            match conversation.upgrade() {
                Some(conversation) => conversation.close_reason().await,
                None => "the connection was closed".to_owned(),
            }
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let conversation = self.0.clone();
        async move {
            conversation.stop.cancel();
            conversation.transport_closed.cancelled().await;
            if let Some(fate) = &conversation.process_exit {
                fate.wait().await;
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
            "its list is malformed, or longer than a message may be".to_owned()
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

/// Whether the server has to be asked to announce changes of its list: since 2026-07-28.
fn needs_list_subscription(peer: &Peer<RoleClient>) -> bool {
    peer.peer_info().is_some_and(|info| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize()
            && tools.and_then(|tools| tools.list_changed) == Some(true)
    })
}

/// Hears announcements until the server ends them.
async fn watch_tool_list(peer: Peer<RoleClient>, routes: Arc<NotificationRoutes>) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let mut subscription = match peer.listen(filter).await {
        Ok(subscription) => subscription,
        Err(error) => {
            tracing::debug!(%error, "a tool server refuses to announce changes of its list");
            return;
        }
    };
    // Only changes of the list were asked for, so whatever comes is one.
    while let Ok(Some(_)) = subscription.next().await {
        routes.tools_changed.notify_one();
    }
}

/// Where a server's notifications go.
#[derive(Default)]
pub(super) struct NotificationRoutes {
    progress: Mutex<HashMap<ProgressToken, mpsc::Sender<Progress>>>,
    tools_changed: Notify,
    /// The calls under way, each of which may ask people.
    pub(super) active_calls: ActiveCalls,
    /// The calls that nobody waits for any more.
    pub(super) abandoned_calls: AbandonedCalls,
}

impl NotificationRoutes {
    /// Sends progress of a call to `sender` until the guard is dropped.
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

/// The way of one call's progress.
pub(super) struct ProgressGuard {
    routes: Arc<NotificationRoutes>,
    token: ProgressToken,
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.routes.lock_progress().remove(&self.token);
    }
}

/// Our side of the protocol: what servers may ask of us and tell us.
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
        // A backlog means that nobody has had time to look: the next one will do as well.
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

    /// A server that asks a person something in the moment in which it hears of a call.
    struct EagerElicitingServer {
        routes: Arc<NotificationRoutes>,
        /// Is told whether anybody was asked.
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
                    let question: ElicitRequestParams = serde_json::from_value(json!({
                        "mode": "url", "message": "Look", "url": "https://example.org", "elicitationId": "1",
                    }))
                    .unwrap();
                    let put = self
                        .routes
                        .active_calls
                        .handle_elicitation(question, CancellationToken::new());
                    // Whoever is asked thinks; that nobody can be asked is said at once.
                    self.elicited.send(put.now_or_never().is_none()).unwrap();
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

    /// Else its question would be put to whoever's call was under way before, or to nobody. A
    /// conversation and a call of it live on threads of their own.
    #[test]
    fn t1_call_is_registered_before_it_is_sent() {
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = McpClientHandler::new(ProtocolVersion::V_2025_11_25);
        let (routes, (asked, was_asked)) = (client.routes.clone(), std::sync::mpsc::channel());
        let server = EagerElicitingServer {
            routes: routes.clone(),
            elicited: asked,
            answers: mpsc::channel(1),
        };
        let (linked, link) = std::sync::mpsc::channel();
        let stop = CancellationToken::new();
        let ended = stop.clone();
        let conversing = thread::spawn(move || {
            runtime().block_on(async {
                let running = serve_client(client, server).await.unwrap();
                let limit = Duration::from_secs(60);
                let redactor = Arc::default();
                let link = McpClient::new(running, stop, ended.clone(), None, limit, redactor);
                linked.send(link).unwrap();
                ended.cancelled().await;
            });
        });
        let link = link.recv().unwrap();
        let (people, _asks) = mpsc::channel(1);
        let call = ToolCall {
            caller: None,
            tool: "ask".to_owned(),
            arguments: Value::Null,
            idempotency_key: "1".to_owned(),
            timeout: None,
            result_bytes_max: 1024,
            elicitation: ElicitationChannel::new(people),
            late_result: LateResultHandler::default(),
        };
        // What comes after sending has to wait.
        let held = routes.lock_progress();
        let calling = thread::spawn(move || {
            let (progress, _) = mpsc::channel(1);
            runtime().block_on(link.call_tool(call, progress, CancellationToken::new()))
        });
        let was_asked = was_asked.recv().unwrap();
        drop(held);
        assert!(was_asked, "the call is not heard yet");
        assert!(matches!(calling.join().unwrap(), ToolOutcome::Completed(_)));
        conversing.join().unwrap();
    }
}
