//! Tools that are part of Greenroom: one more tool server, whose tools are functions in this
//! process. The catalog, the policy, time limits, retries and the tool registry therefore treat
//! them like any other tool.
//!
//! A tool implements [`BuiltInTool`]; [`built_in_server`] builds the server of all of them.

use crate::{
    ports::{Progress, ToolCall},
    tool_connection::{ToolClient, ToolServer},
    tool_servers::ToolServerSpec,
};
use futures::future::{BoxFuture, FutureExt, pending, ready};
use greenroom_core::{
    call::{ToolOutcome, outcome::RetryHint},
    policy::{BUILT_IN_SERVER, RemoteTool},
    text::truncate,
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

/// A built-in tool.
pub trait BuiltInTool: Send + Sync + 'static {
    /// Returns the tool's definition. Its annotations are trusted.
    fn describe(&self) -> RemoteTool;

    /// Runs one attempt until it ends. The caller limits its time and the size of its result.
    fn call(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome>;
}

/// The tool `delegate` (S8), as lists and the catalog show it. A session that calls it starts a
/// child session instead of a tool attempt, so the tool itself always fails.
pub struct DelegateTool(RemoteTool);

impl DelegateTool {
    /// Creates the tool with this definition.
    pub fn new(description: RemoteTool) -> Self {
        Self(description)
    }
}

impl BuiltInTool for DelegateTool {
    fn describe(&self) -> RemoteTool {
        self.0.clone()
    }

    fn call(
        &self,
        _: ToolCall,
        _: mpsc::Sender<Progress>,
        _: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        let error = "`delegate` can only be called within a session".to_owned();
        ready(ToolOutcome::NotSent { error }).boxed()
    }
}

/// Builds the server of these tools; `None` if there are none.
pub fn built_in_server(tools: Vec<Arc<dyn BuiltInTool>>) -> Option<ToolServerSpec> {
    if tools.is_empty() {
        return None;
    }
    let server = Arc::new(BuiltInServer(tools.into()));
    Some(ToolServerSpec { name: BUILT_IN_SERVER.to_owned(), trusted: true, server })
}

struct BuiltInServer(Arc<[Arc<dyn BuiltInTool>]>);

/// An in-process client of the built-in server.
struct BuiltInClient {
    tools: Arc<[Arc<dyn BuiltInTool>]>,
    closed: CancellationToken,
}

impl ToolServer for BuiltInServer {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn ToolClient>, String>> {
        let client = BuiltInClient { tools: self.0.clone(), closed: CancellationToken::new() };
        ready(Ok(Arc::new(client) as Arc<dyn ToolClient>)).boxed()
    }
}

impl ToolClient for BuiltInClient {
    fn list_tools(&self) -> BoxFuture<'static, Result<Vec<RemoteTool>, String>> {
        ready(Ok(self.tools.iter().map(|tool| tool.describe()).collect())).boxed()
    }

    fn call_tool(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        let Some(tool) = self.tools.iter().find(|tool| tool.describe().name == call.tool) else {
            let error = format!("there is no tool `{}`", call.tool);
            return ready(ToolOutcome::NotSent { error }).boxed();
        };
        let (timeout_after, bytes_max) = (call.timeout, call.result_bytes_max);
        let answer = tool.call(call, progress, cancel);
        async move {
            match timeout_after {
                None => truncate_outcome(answer.await, bytes_max),
                Some(timeout_after) => match timeout(timeout_after, answer).await {
                    Ok(outcome) => truncate_outcome(outcome, bytes_max),
                    Err(_) => ToolOutcome::TimedOut { after_ms: millis(timeout_after) },
                },
            }
        }
        .boxed()
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        pending().boxed()
    }

    fn closed(&self) -> BoxFuture<'static, String> {
        let closed = self.closed.clone();
        async move {
            closed.cancelled().await;
            "the connection was closed".to_owned()
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.closed.cancel();
        ready(()).boxed()
    }
}

/// Truncates the text of an outcome to at most `bytes_max` bytes (T4).
pub(crate) fn truncate_outcome(outcome: ToolOutcome, bytes_max: usize) -> ToolOutcome {
    let ToolOutcome::Completed(mut output) = outcome else { return outcome };
    if output.text.len() > bytes_max {
        let bytes = output.text.len();
        let marker = format!("\n[cut: the result had {bytes} bytes, the limit is {bytes_max}]");
        let kept = truncate(&output.text, bytes_max.saturating_sub(marker.len()));
        output.text = format!("{kept}{marker}");
        output.truncated = true;
    }
    ToolOutcome::Completed(output)
}

/// Returns a failure without a retry hint.
pub fn failed_outcome(error: impl Into<String>) -> ToolOutcome {
    ToolOutcome::Failed { error: error.into(), hint: RetryHint::Unspecified }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ports::Clock, ports::ToolHost, status_board::StatusBoard, testing::ManualClock,
        tool_servers::ToolServers,
    };
    use greenroom_core::{
        call::ToolOutput,
        policy::{Catalog, NameOwners, Risk, ToolAnnotations},
    };
    use serde_json::json;

    struct Echo;

    impl BuiltInTool for Echo {
        fn describe(&self) -> RemoteTool {
            RemoteTool {
                name: "echo".to_owned(),
                description: "Returns its input".to_owned(),
                input_schema: json!({"type": "object"}),
                annotations: ToolAnnotations {
                    read_only_hint: Some(true),
                    ..ToolAnnotations::default()
                },
            }
        }

        fn call(
            &self,
            call: ToolCall,
            _: mpsc::Sender<Progress>,
            _: CancellationToken,
        ) -> BoxFuture<'static, ToolOutcome> {
            match call.arguments["text"].as_str() {
                Some(text) => {
                    let text = text.to_owned();
                    ready(ToolOutcome::Completed(ToolOutput { text, ..Default::default() })).boxed()
                }
                None => pending().boxed(),
            }
        }
    }

    #[actix_rt::test]
    async fn t7_built_in_tool_behaves_like_any_other() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::paused());
        let board = StatusBoard::new(clock.clone());
        assert!(built_in_server(Vec::new()).is_none());
        let tools = ToolServers::start(
            Catalog::default(),
            NameOwners::default(),
            built_in_server(vec![Arc::new(Echo)]),
            &board,
            &clock,
        );
        tools.wait_until_started().await;
        let registry = tools.tool_registry();
        let echo = registry.get("echo").unwrap();
        assert_eq!((&*echo.server, echo.risk), (BUILT_IN_SERVER, Risk::ReadOnly));
        assert!(echo.repeatable && echo.parallel);
        let call = |arguments| {
            let call = ToolCall {
                caller: None,
                tool: "echo".to_owned(),
                arguments,
                idempotency_key: "k".to_owned(),
                elicitation: crate::ports::ElicitationChannel::default(),
                late_result: Default::default(),
                timeout: Some(Duration::from_millis(1)),
                result_bytes_max: 60,
            };
            tools.call_tool(call, mpsc::channel(1).0, CancellationToken::new())
        };
        let ToolOutcome::Completed(output) = call(json!({"text": "hi"})).await else { panic!() };
        assert_eq!(output, ToolOutput { text: "hi".to_owned(), ..Default::default() });
        let long = call(json!({"text": "é".repeat(100)})).await;
        let ToolOutcome::Completed(output) = long else { panic!("{long:?}") };
        assert!(output.truncated && output.text.len() <= 60);
        let marker = "[cut: the result had 200 bytes, the limit is 60]";
        assert!(output.text.ends_with(marker), "{}", output.text);
        assert_eq!(call(json!({})).await, ToolOutcome::TimedOut { after_ms: 1 });
        tools.shut_down().await;
    }
}
