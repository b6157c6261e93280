//! Tools that do what a test wrote down.

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

/// One thing that happens during an attempt.
#[derive(Clone, Debug)]
pub enum ToolAction {
    /// It tells how far it is.
    Progress(Progress),
    /// It waits at the gate; a cancellation ends the attempt there.
    Wait(Gate),
    /// It never ends by itself; a cancellation ends it.
    Hang,
    /// It asks a person, and completes with what they say.
    Elicit(Elicitation),
    /// It panics.
    Panic,
    /// It says so too late: when it is told that nobody wants it any more.
    LateResult(ToolOutcome),
    /// It ends so.
    Finish(ToolOutcome),
}

/// What a tool does in one attempt. Without an end it completes with `ok`.
#[derive(Clone, Debug, Default)]
pub struct ToolScript(Vec<ToolAction>);

impl ToolScript {
    /// It completes with `ok`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Then this happens.
    pub fn then(mut self, act: ToolAction) -> Self {
        self.0.push(act);
        self
    }

    /// Then it waits at the gate.
    pub fn wait(self, gate: &Gate) -> Self {
        self.then(ToolAction::Wait(gate.clone()))
    }

    /// Then it completes with that text.
    pub fn done(self, text: &str) -> Self {
        let output = ToolOutput { text: text.to_owned(), ..ToolOutput::default() };
        self.then(ToolAction::Finish(ToolOutcome::Completed(output)))
    }
}

/// An attempt as the tools saw it.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The tool.
    pub tool: String,
    /// What was passed.
    pub arguments: Value,
    /// The same for every attempt of a call.
    pub idempotency_key: String,
    /// Fires when the attempt is to stop.
    pub cancel: CancellationToken,
}

type Behaviour = Box<dyn FnMut(&ToolCall) -> ToolScript + Send>;

/// Tools that each do what a function decides, and remember how they were called.
pub struct FakeTools {
    entries: Vec<(String, CatalogEntry)>,
    listed: Vec<RemoteTool>,
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
    /// No tools.
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            listed: Vec::new(),
            built_in: Vec::new(),
            registry: Arc::default(),
            behaviours: Mutex::default(),
            calls: watch::Sender::new(Vec::new()),
        }
    }

    /// One more tool, of that risk; `behave` decides about each attempt. Retries follow at once.
    pub fn with_tool(
        self,
        name: &str,
        risk: Risk,
        behave: impl FnMut(&ToolCall) -> ToolScript + Send + 'static,
    ) -> Self {
        use greenroom_core::duration::ConfigDuration;
        let moment = Some(ConfigDuration(Duration::from_millis(1)));
        let retry = Some(RetryEntry { retries_max: None, base: moment, cap: moment });
        let entry = CatalogEntry { risk: Some(risk), retry, ..CatalogEntry::default() };
        self.with_catalog_entry(name, entry, behave)
    }

    /// One more tool, as that entry of the catalog describes it.
    pub fn with_catalog_entry(
        mut self,
        name: &str,
        entry: CatalogEntry,
        behave: impl FnMut(&ToolCall) -> ToolScript + Send + 'static,
    ) -> Self {
        self.entries.push((name.to_owned(), entry));
        self.listed.push(RemoteTool {
            name: name.to_owned(),
            description: format!("The tool {name}"),
            input_schema: json!({"type": "object"}),
            ..RemoteTool::default()
        });
        lock(&self.behaviours).insert(name.to_owned(), Box::new(behave));
        self.rebuild_registry()
    }

    /// The tool by which sessions hand tasks to others (S8).
    pub fn with_delegate(mut self) -> Self {
        self.built_in.push(delegation::delegate_tool([]));
        self.rebuild_registry()
    }

    fn rebuild_registry(mut self) -> Self {
        let catalog = Catalog::new(self.entries.clone(), UnknownToolPolicy::default());
        let server = ServerProfile { name: "test".to_owned(), ..ServerProfile::default() };
        let listed = ServerTools { server, tools: self.listed.clone() };
        let server = ServerProfile {
            name: BUILT_IN_SERVER.to_owned(),
            trusted: true,
            unavailable_reason: None,
        };
        let built_in = ServerTools { server, tools: self.built_in.clone() };
        self.registry = Arc::new(catalog.build_registry([&listed, &built_in]));
        self
    }

    /// The attempts so far.
    pub fn recorded_calls(&self) -> Vec<RecordedCall> {
        self.calls.borrow().clone()
    }

    /// Waits until there were `count` attempts, and returns them.
    ///
    /// # Panics
    ///
    /// When there are not so many within [`super::PATIENCE`].
    pub async fn wait_for_calls(&self, count: usize) -> Vec<RecordedCall> {
        let mut calls = self.calls.subscribe();
        let seen = calls.wait_for(|calls| calls.len() >= count);
        let seen = super::with_timeout("tool calls", seen).await;
        seen.expect("the tools hold the sender").clone()
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
        let ToolScript(acts) = match lock(&self.behaviours).get_mut(&call.tool) {
            Some(behave) => behave(&call),
            None => ToolScript::new(),
        };
        let ToolCall {
            tool,
            arguments,
            idempotency_key,
            elicitation: people,
            late_result: late,
            ..
        } = call;
        let seen = RecordedCall { tool, arguments, idempotency_key, cancel: cancel.clone() };
        self.calls.send_modify(|calls| calls.push(seen));
        let given_up = cancel.clone();
        let attempt = async move {
            for act in acts {
                match act {
                    ToolAction::Progress(report) => drop(progress.try_send(report)),
                    ToolAction::Wait(gate) => gate.wait().await,
                    ToolAction::Hang => std::future::pending().await,
                    ToolAction::Elicit(elicitation) => {
                        let text = format!("{:?}", people.request(elicitation).await);
                        let output = ToolOutput { text, ..ToolOutput::default() };
                        return ToolOutcome::Completed(output);
                    }
                    ToolAction::LateResult(outcome) => {
                        let (given_up, late) = (given_up.clone(), late.clone());
                        actix::spawn(async move {
                            given_up.cancelled_owned().await;
                            late.report(outcome);
                        });
                        std::future::pending().await
                    }
                    ToolAction::Panic => panic!("the test wants the tool to panic"),
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
