//! Tools that do what a test wrote down.

use super::{Gate, lock};
use crate::ports::{Progress, ToolCall, ToolHost};
use futures::{FutureExt, future::BoxFuture};
use greenroom_core::{
    approval::Elicitation,
    call::{ToolOutcome, ToolOutput},
    delegation,
    policy::{
        BUILT_IN, Catalog, RemoteTool, Risk, ServerFacts, ServerTools, ToolBook, UnknownTools,
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
pub enum Act {
    /// It tells how far it is.
    Report(Progress),
    /// It waits at the gate; a cancellation ends the attempt there.
    Wait(Gate),
    /// It never ends by itself; a cancellation ends it.
    Hang,
    /// It asks a person, and completes with what they say.
    Ask(Elicitation),
    /// It panics.
    Panic,
    /// It says so too late: when it is told that nobody wants it any more.
    Late(ToolOutcome),
    /// It ends so.
    End(ToolOutcome),
}

/// What a tool does in one attempt. Without an end it completes with `ok`.
#[derive(Clone, Debug, Default)]
pub struct Turn(Vec<Act>);

impl Turn {
    /// It completes with `ok`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Then this happens.
    pub fn then(mut self, act: Act) -> Self {
        self.0.push(act);
        self
    }

    /// Then it waits at the gate.
    pub fn wait(self, gate: &Gate) -> Self {
        self.then(Act::Wait(gate.clone()))
    }

    /// Then it completes with that text.
    pub fn done(self, text: &str) -> Self {
        let output = ToolOutput { text: text.to_owned(), ..ToolOutput::default() };
        self.then(Act::End(ToolOutcome::Completed(output)))
    }
}

/// An attempt as the tools saw it.
#[derive(Clone, Debug)]
pub struct CallSeen {
    /// The tool.
    pub tool: String,
    /// What was passed.
    pub arguments: Value,
    /// The same for every attempt of a call.
    pub idempotency_key: String,
    /// Fires when the attempt is to stop.
    pub cancel: CancellationToken,
}

type Behaviour = Box<dyn FnMut(&ToolCall) -> Turn + Send>;

/// Tools that each do what a function decides, and remember how they were called.
pub struct FakeTools {
    entries: Vec<(String, CatalogEntry)>,
    listed: Vec<RemoteTool>,
    built_in: Vec<RemoteTool>,
    book: Arc<ToolBook>,
    behaviours: Mutex<BTreeMap<String, Behaviour>>,
    calls: watch::Sender<Vec<CallSeen>>,
}

impl Default for FakeTools {
    fn default() -> Self {
        Self::none()
    }
}

impl FakeTools {
    /// No tools.
    pub fn none() -> Self {
        Self {
            entries: Vec::new(),
            listed: Vec::new(),
            built_in: Vec::new(),
            book: Arc::default(),
            behaviours: Mutex::default(),
            calls: watch::Sender::new(Vec::new()),
        }
    }

    /// One more tool, of that risk; `behave` decides about each attempt. Retries follow at once.
    pub fn with(
        self,
        name: &str,
        risk: Risk,
        behave: impl FnMut(&ToolCall) -> Turn + Send + 'static,
    ) -> Self {
        use greenroom_core::duration::Span;
        let moment = Some(Span(Duration::from_millis(1)));
        let retry = Some(RetryEntry { retries_max: None, base: moment, cap: moment });
        let entry = CatalogEntry { risk: Some(risk), retry, ..CatalogEntry::default() };
        self.with_entry(name, entry, behave)
    }

    /// One more tool, as that entry of the catalog describes it.
    pub fn with_entry(
        mut self,
        name: &str,
        entry: CatalogEntry,
        behave: impl FnMut(&ToolCall) -> Turn + Send + 'static,
    ) -> Self {
        self.entries.push((name.to_owned(), entry));
        self.listed.push(RemoteTool {
            name: name.to_owned(),
            description: format!("The tool {name}"),
            input_schema: json!({"type": "object"}),
            ..RemoteTool::default()
        });
        lock(&self.behaviours).insert(name.to_owned(), Box::new(behave));
        self.listing()
    }

    /// The tool by which sessions hand tasks to others (S8).
    pub fn with_delegate(mut self) -> Self {
        self.built_in.push(delegation::tool([]));
        self.listing()
    }

    fn listing(mut self) -> Self {
        let catalog = Catalog::new(self.entries.clone(), UnknownTools::default());
        let server = ServerFacts { name: "test".to_owned(), ..ServerFacts::default() };
        let listed = ServerTools { server, tools: self.listed.clone() };
        let server = ServerFacts { name: BUILT_IN.to_owned(), trusted: true, unavailable: None };
        let built_in = ServerTools { server, tools: self.built_in.clone() };
        self.book = Arc::new(catalog.book([&listed, &built_in]));
        self
    }

    /// The attempts so far.
    pub fn calls(&self) -> Vec<CallSeen> {
        self.calls.borrow().clone()
    }

    /// Waits until there were `count` attempts, and returns them.
    ///
    /// # Panics
    ///
    /// When there are not so many within [`super::PATIENCE`].
    pub async fn wait_for_calls(&self, count: usize) -> Vec<CallSeen> {
        let mut calls = self.calls.subscribe();
        let seen = calls.wait_for(|calls| calls.len() >= count);
        let seen = super::within_patience("tool calls", seen).await;
        seen.expect("the tools hold the sender").clone()
    }
}

impl ToolHost for FakeTools {
    fn book(&self) -> Arc<ToolBook> {
        self.book.clone()
    }

    fn call(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        let Turn(acts) = match lock(&self.behaviours).get_mut(&call.tool) {
            Some(behave) => behave(&call),
            None => Turn::new(),
        };
        let ToolCall { tool, arguments, idempotency_key, people, late, .. } = call;
        let seen = CallSeen { tool, arguments, idempotency_key, cancel: cancel.clone() };
        self.calls.send_modify(|calls| calls.push(seen));
        let given_up = cancel.clone();
        let attempt = async move {
            for act in acts {
                match act {
                    Act::Report(report) => drop(progress.try_send(report)),
                    Act::Wait(gate) => gate.pass().await,
                    Act::Hang => std::future::pending().await,
                    Act::Ask(elicitation) => {
                        let text = format!("{:?}", people.ask(elicitation).await);
                        let output = ToolOutput { text, ..ToolOutput::default() };
                        return ToolOutcome::Completed(output);
                    }
                    Act::Late(outcome) => {
                        let (given_up, late) = (given_up.clone(), late.clone());
                        actix::spawn(async move {
                            given_up.cancelled_owned().await;
                            late.tell(outcome);
                        });
                        std::future::pending().await
                    }
                    Act::Panic => panic!("the test wants the tool to panic"),
                    Act::End(outcome) => return outcome,
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
