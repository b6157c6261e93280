//! Tools that are part of Greenroom: one more server, whose tools are functions in this process. So
//! the catalog, the policy, time limits, retries and the book treat them like any other tool.
//!
//! A tool is a [`BuiltInTool`]; [`server`] makes the server of all there are.

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

/// A tool of our own.
pub trait BuiltInTool: Send + Sync + 'static {
    /// What models and the catalog are told of it. Its annotations are believed.
    fn describe(&self) -> RemoteTool;

    /// Runs one attempt to its end. Its time, and the length of its result, are bounded around it.
    fn call(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome>;
}

/// The tool `delegate` (S8), as lists and the catalog see it. A session that calls it starts another
/// session, which no tool can; so nobody else can call it.
pub struct DelegateTool(RemoteTool);

impl DelegateTool {
    /// The tool, described so.
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
        let error = "only a session can hand on a task".to_owned();
        ready(ToolOutcome::NotSent { error }).boxed()
    }
}

/// The server of these tools; `None` where there are none.
pub fn built_in_server(tools: Vec<Arc<dyn BuiltInTool>>) -> Option<ToolServerSpec> {
    if tools.is_empty() {
        return None;
    }
    let server = Arc::new(BuiltInServer(tools.into()));
    Some(ToolServerSpec { name: BUILT_IN_SERVER.to_owned(), trusted: true, server })
}

struct BuiltInServer(Arc<[Arc<dyn BuiltInTool>]>);

/// A connection to ourselves.
struct BuiltInClient {
    tools: Arc<[Arc<dyn BuiltInTool>]>,
    end: CancellationToken,
}

impl ToolServer for BuiltInServer {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn ToolClient>, String>> {
        let link = BuiltInClient { tools: self.0.clone(), end: CancellationToken::new() };
        ready(Ok(Arc::new(link) as Arc<dyn ToolClient>)).boxed()
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
        let (limit, bytes_max) = (call.timeout, call.result_bytes_max);
        let answer = tool.call(call, progress, cancel);
        async move {
            match limit {
                None => truncate_outcome(answer.await, bytes_max),
                Some(limit) => match timeout(limit, answer).await {
                    Ok(outcome) => truncate_outcome(outcome, bytes_max),
                    Err(_) => ToolOutcome::TimedOut { after_ms: millis(limit) },
                },
            }
        }
        .boxed()
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        pending().boxed()
    }

    fn closed(&self) -> BoxFuture<'static, String> {
        let end = self.end.clone();
        async move {
            end.cancelled().await;
            "it was closed".to_owned()
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.end.cancel();
        ready(()).boxed()
    }
}

/// The outcome with at most so many bytes of text (T4).
pub(crate) fn truncate_outcome(outcome: ToolOutcome, bytes_max: usize) -> ToolOutcome {
    let ToolOutcome::Completed(mut output) = outcome else { return outcome };
    if output.text.len() > bytes_max {
        let marker = format!("\n[cut: the whole result has {} bytes]", output.text.len());
        let kept = truncate(&output.text, bytes_max.saturating_sub(marker.len()));
        output.text = format!("{kept}{marker}");
        output.truncated = true;
    }
    ToolOutcome::Completed(output)
}

/// A failure that another attempt does not help.
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
        policy::{Catalog, Risk, ToolAnnotations},
    };
    use serde_json::json;

    struct Echo;

    impl BuiltInTool for Echo {
        fn describe(&self) -> RemoteTool {
            RemoteTool {
                name: "echo".to_owned(),
                description: "Says it again".to_owned(),
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
    async fn t7_a_built_in_tool_is_a_tool_like_any_other() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::paused());
        let board = StatusBoard::new(clock.clone());
        assert!(built_in_server(Vec::new()).is_none());
        let tools = ToolServers::start(
            Catalog::default(),
            built_in_server(vec![Arc::new(Echo)]),
            &board,
            &clock,
        );
        tools.wait_until_started().await;
        let book = tools.tool_registry();
        let echo = book.get("echo").unwrap();
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
        assert!(output.text.ends_with("[cut: the whole result has 200 bytes]"), "{}", output.text);
        assert_eq!(call(json!({})).await, ToolOutcome::TimedOut { after_ms: 1 });
        tools.shut_down().await;
    }
}
