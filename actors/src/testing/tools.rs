//! A tool host whose tools behave according to a script.

use super::{Gate, lock};
use crate::ports::{Progress, ToolCall, ToolHost};
use futures::{FutureExt, future::BoxFuture};
use greenroom_core::{
    approval::Elicitation,
    call::{ToolOutcome, ToolOutput},
    delegation,
    policy::{
        BUILT_IN_SERVER, Catalog, RemoteTool, Risk, ServerProfile, ServerTools, ToolRegistry,
        UnknownToolPolicy,
        catalog::{CatalogEntry, RetryEntry},
    },
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// One action of a scripted tool attempt.
#[derive(Clone, Debug)]
pub enum ToolAction {
    /// Reports progress.
    Progress(Progress),
    /// Waits at the gate. A cancellation ends the attempt there.
    Wait(Gate),
    /// Waits until the attempt is cancelled.
    Hang,
    /// Sends an elicitation and completes with its answer.
    Elicit(Elicitation),
    /// Panics.
    Panic,
    /// Reports this outcome late, after the attempt was cancelled.
    LateResult(ToolOutcome),
    /// Ends the attempt with this outcome.
    Finish(ToolOutcome),
}

/// The actions of one attempt. Without an end, the attempt completes with `ok`.
#[derive(Clone, Debug, Default)]
pub struct ToolScript(Vec<ToolAction>);

impl ToolScript {
    /// Creates a script that completes with `ok`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an action.
    pub fn with_action(mut self, action: ToolAction) -> Self {
        self.0.push(action);
        self
    }

    /// Appends a wait at the gate.
    pub fn wait(self, gate: &Gate) -> Self {
        self.with_action(ToolAction::Wait(gate.clone()))
    }

    /// Appends a completion with this text.
    pub fn finished(self, text: &str) -> Self {
        let output = ToolOutput { text: text.to_owned(), ..ToolOutput::default() };
        self.with_action(ToolAction::Finish(ToolOutcome::Completed(output)))
    }
}

/// A recorded attempt.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub arguments: Value,
    /// The key shared by all attempts of a call.
    pub idempotency_key: String,
    /// Cancelled when the attempt must stop.
    pub cancel: CancellationToken,
}

type Behaviour = Box<dyn FnMut(&ToolCall) -> ToolScript + Send>;

/// The server of the tools that are not built in.
const SERVER: &str = "test";

/// Tools with one behaviour function each. Records all calls.
pub struct FakeTools {
    entries: Vec<(String, CatalogEntry)>,
    remote_tools: Vec<RemoteTool>,
    built_in: Vec<RemoteTool>,
    registry: Arc<ToolRegistry>,
    behaviours: Mutex<BTreeMap<String, Behaviour>>,
    calls: watch::Sender<Vec<RecordedCall>>,
}

impl Default for FakeTools {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeTools {
    /// Creates a host without tools.
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            remote_tools: Vec::new(),
            built_in: Vec::new(),
            registry: Arc::default(),
            behaviours: Mutex::default(),
            calls: watch::Sender::new(Vec::new()),
        }
    }

    /// Adds a tool of the given risk. `behave` is called for each attempt. Retries follow after 1
    /// ms.
    pub fn with_tool(
        self,
        name: &str,
        risk: Risk,
        behave: impl FnMut(&ToolCall) -> ToolScript + Send + 'static,
    ) -> Self {
        use greenroom_core::duration::ConfigDuration;
        let delay = Some(ConfigDuration(Duration::from_millis(1)));
        let retry = Some(RetryEntry { retries_max: None, base: delay, cap: delay });
        let entry = CatalogEntry { risk: Some(risk), retry, ..CatalogEntry::default() };
        self.with_catalog_entry(name, entry, behave)
    }

    /// Adds a tool with this catalog entry.
    pub fn with_catalog_entry(
        mut self,
        name: &str,
        mut entry: CatalogEntry,
        behave: impl FnMut(&ToolCall) -> ToolScript + Send + 'static,
    ) -> Self {
        entry.server = Some(SERVER.to_owned());
        self.entries.push((name.to_owned(), entry));
        self.remote_tools.push(RemoteTool {
            name: name.to_owned(),
            description: format!("The tool {name}"),
            input_schema: json!({"type": "object"}),
            ..RemoteTool::default()
        });
        lock(&self.behaviours).insert(name.to_owned(), Box::new(behave));
        self.rebuild_registry()
    }

    /// Adds the tool that delegates tasks to child sessions (S8).
    pub fn with_delegate(mut self) -> Self {
        self.built_in.push(delegation::delegate_tool([]));
        self.rebuild_registry()
    }

    fn rebuild_registry(mut self) -> Self {
        let catalog = Catalog::new(self.entries.clone(), UnknownToolPolicy::default());
        let server = ServerProfile { name: SERVER.to_owned(), ..ServerProfile::default() };
        let server_tools = ServerTools { server, tools: self.remote_tools.clone() };
        let server = ServerProfile {
            name: BUILT_IN_SERVER.to_owned(),
            trusted: true,
            unavailable_reason: None,
        };
        let built_in = ServerTools { server, tools: self.built_in.clone() };
        self.registry = Arc::new(catalog.build_registry([&server_tools, &built_in]));
        self
    }

    /// Returns the attempts so far.
    pub fn recorded_calls(&self) -> Vec<RecordedCall> {
        self.calls.borrow().clone()
    }

    /// Waits until there are `count` attempts and returns them.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer within [`super::TEST_TIMEOUT`].
    pub async fn wait_for_calls(&self, count: usize) -> Vec<RecordedCall> {
        let mut calls = self.calls.subscribe();
        let recorded = calls.wait_for(|calls| calls.len() >= count);
        let recorded = super::with_timeout("tool calls", recorded).await;
        recorded.expect("the tools own the sender").clone()
    }
}

impl ToolHost for FakeTools {
    fn tool_registry(&self) -> Arc<ToolRegistry> {
        self.registry.clone()
    }

    fn call_tool(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        let ToolScript(actions) = match lock(&self.behaviours).get_mut(&call.tool) {
            Some(behave) => behave(&call),
            None => ToolScript::new(),
        };
        let ToolCall {
            tool, arguments, idempotency_key, elicitation: channel, late_result, ..
        } = call;
        let recorded = RecordedCall { tool, arguments, idempotency_key, cancel: cancel.clone() };
        self.calls.send_modify(|calls| calls.push(recorded));
        let cancelled = cancel.clone();
        let attempt = async move {
            for action in actions {
                match action {
                    ToolAction::Progress(report) => drop(progress.try_send(report)),
                    ToolAction::Wait(gate) => gate.wait().await,
                    ToolAction::Hang => std::future::pending().await,
                    ToolAction::Elicit(elicitation) => {
                        let text = format!("{:?}", channel.request(elicitation).await);
                        let output = ToolOutput { text, ..ToolOutput::default() };
                        return ToolOutcome::Completed(output);
                    }
                    ToolAction::LateResult(outcome) => {
                        let (cancelled, late_result) = (cancelled.clone(), late_result.clone());
                        actix::spawn(async move {
                            cancelled.cancelled_owned().await;
                            late_result.report(outcome);
                        });
                        std::future::pending().await
                    }
                    ToolAction::Panic => panic!("scripted panic of the tool"),
                    ToolAction::Finish(outcome) => return outcome,
                }
            }
            ToolOutcome::Completed(ToolOutput { text: "ok".to_owned(), ..ToolOutput::default() })
        };
        async move {
            let cancelled = || ToolOutcome::Crashed { error: "the call was cancelled".to_owned() };
            cancel.run_until_cancelled(attempt).await.unwrap_or_else(cancelled)
        }
        .boxed()
    }
}
