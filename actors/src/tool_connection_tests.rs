//! Tests of the connection's life cycle with a scripted server.

use super::*;
use crate::{
    ports::{ElicitationChannel, ToolHost},
    status_board::StatusBoard,
    tool_servers::{ServerStatus, ToolServerSpec, ToolServers},
};
use futures::FutureExt;
use greenroom_core::{
    Timestamp,
    call::ToolOutput,
    policy::{Catalog, NameOwners},
};
use serde_json::json;
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use tokio::sync::Notify;

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn seed(&self) -> u64 {
        0
    }
}

/// A server whose connections behave according to the entries of a script, in order.
struct ScriptedServer {
    script: Mutex<Vec<Result<Arc<FakeClient>, String>>>,
    connects: AtomicUsize,
}

#[derive(Default)]
struct FakeClient {
    tools: Mutex<Vec<&'static str>>,
    change: Notify,
    end: CancellationToken,
    closes: AtomicUsize,
}

impl ToolServer for Arc<ScriptedServer> {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn ToolClient>, String>> {
        self.connects.fetch_add(1, SeqCst);
        let mut script = self.script.lock().unwrap();
        let next = (!script.is_empty()).then(|| script.remove(0));
        async move {
            match next {
                Some(client) => client.map(|client| Arc::new(client) as Arc<dyn ToolClient>),
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}

impl ToolClient for Arc<FakeClient> {
    fn list_tools(&self) -> BoxFuture<'static, Result<Vec<RemoteTool>, String>> {
        let names = self.tools.lock().unwrap().clone();
        let tool = |name: &str| RemoteTool {
            name: name.to_owned(),
            input_schema: json!({"type": "object"}),
            ..RemoteTool::default()
        };
        let result = match names.as_slice() {
            ["unreadable"] => Err("unreadable list".to_owned()),
            names => Ok(names.iter().map(|name| tool(name)).collect()),
        };
        futures::future::ready(result).boxed()
    }

    fn call_tool(
        &self,
        call: ToolCall,
        _: mpsc::Sender<Progress>,
        _: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        if call.tool == "silent" {
            return futures::future::ready(ToolOutcome::TimedOut { after_ms: 7 }).boxed();
        }
        let output = ToolOutput { text: call.tool, ..ToolOutput::default() };
        futures::future::ready(ToolOutcome::Completed(output)).boxed()
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        let client = self.clone();
        async move { client.change.notified().await }.boxed()
    }

    fn closed(&self) -> BoxFuture<'static, String> {
        let client = self.clone();
        async move {
            client.end.cancelled().await;
            "it died".to_owned()
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.closes.fetch_add(1, SeqCst);
        self.end.cancel();
        futures::future::ready(()).boxed()
    }
}

fn fake_client(tools: &[&'static str]) -> Arc<FakeClient> {
    Arc::new(FakeClient { tools: Mutex::new(tools.to_vec()), ..FakeClient::default() })
}

fn start(
    script: Vec<Result<Arc<FakeClient>, String>>,
) -> (ToolServers, Arc<ScriptedServer>, StatusBoard) {
    let server =
        Arc::new(ScriptedServer { script: Mutex::new(script), connects: AtomicUsize::default() });
    let clock: Arc<dyn Clock> = Arc::new(FixedClock);
    let board = StatusBoard::new(clock.clone());
    let spec =
        ToolServerSpec { name: "s".to_owned(), trusted: false, server: Arc::new(server.clone()) };
    (
        ToolServers::start(Catalog::default(), NameOwners::default(), [spec], &board, &clock),
        server,
        board,
    )
}

fn run(test: impl Future<Output = ()>) {
    actix_rt::System::new().block_on(test);
}

fn status(tools: &ToolServers) -> ServerStatus {
    tools.statuses().remove(0)
}

async fn wait_for_status(tools: &ToolServers, is_expected: impl Fn(&ServerStatus) -> bool) {
    let mut versions = tools.subscribe_changes();
    while !is_expected(&status(tools)) {
        versions.changed().await.unwrap();
    }
}

async fn call(tools: &ToolServers, tool: &str) -> ToolOutcome {
    let call = ToolCall {
        caller: None,
        tool: tool.to_owned(),
        arguments: json!({}),
        idempotency_key: String::new(),
        timeout: None,
        result_bytes_max: 100,
        elicitation: ElicitationChannel::default(),
        late_result: Default::default(),
    };
    tools.call_tool(call, mpsc::channel(1).0, CancellationToken::new()).await
}

#[test]
fn t2_registry_keeps_the_tools_of_a_disconnected_server() {
    run(async {
        let (first, second) = (fake_client(&["a"]), fake_client(&["b"]));
        let (tools, ..) = start(vec![Ok(first.clone()), Ok(second)]);
        let not_sent = |error: &str| ToolOutcome::NotSent { error: error.to_owned() };
        assert_eq!(status(&tools).state, ServerState::Starting);
        tools.wait_until_started().await;
        let output = ToolOutput { text: "a".to_owned(), ..ToolOutput::default() };
        assert_eq!(call(&tools, "a").await, ToolOutcome::Completed(output));

        first.end.cancel();
        wait_for_status(&tools, |status| status.state == ServerState::BackingOff).await;
        let unavailable = tools.tool_registry().get("a").unwrap().unavailable_reason.clone();
        assert_eq!(unavailable.as_deref(), Some("it died"));
        let expected = not_sent("tool server `s` is unavailable: it died");
        assert_eq!(call(&tools, "a").await, expected);

        wait_for_status(&tools, |status| status.state == ServerState::Ready).await;
        let expected = ServerStatus {
            circuit: greenroom_core::circuit_breaker::CircuitState::Closed,
            name: "s".to_owned(),
            state: ServerState::Ready,
            reason: None,
            tools: 1,
            restarts: 1,
        };
        assert_eq!(status(&tools), expected);
        assert_eq!(call(&tools, "a").await, not_sent("there is no tool `a`"));
        assert_eq!(first.closes.load(SeqCst), 1, "the lost connection was closed");
    });
}

#[test]
fn t2_failed_start_is_reported_and_retried() {
    run(async {
        let (tools, server, board) =
            start(vec![Err("no".to_owned()), Ok(fake_client(&["unreadable"]))]);
        tools.wait_until_started().await;
        assert_eq!(status(&tools).reason.as_deref(), Some("no"));
        wait_for_status(&tools, |status| {
            status.state == ServerState::BackingOff && status.restarts == 1
        })
        .await;
        let expected = "can't list tools: unreadable list";
        assert_eq!(status(&tools).reason.as_deref(), Some(expected));
        // The third connection never completes.
        wait_for_status(&tools, |status| {
            status.state == ServerState::Starting && status.restarts == 2
        })
        .await;
        assert_eq!(status(&tools).reason.as_deref(), Some(expected), "the reason is kept");
        assert_eq!(server.connects.load(SeqCst), 3);
        let snapshot = board.snapshot("/tools/s").unwrap();
        assert_eq!(snapshot.state, "starting");
        assert_eq!(snapshot.waiting.unwrap().awaited, "the server s");
        assert_eq!((snapshot.failed, snapshot.restarts), (2, 2));
        assert_eq!(snapshot.last_error.as_deref(), Some(expected));
    });
}

#[test]
fn t1_changed_tool_list_replaces_the_registry_unless_unreadable() {
    run(async {
        let client = fake_client(&["a"]);
        let (tools, _, board) = start(vec![Ok(client.clone())]);
        tools.wait_until_started().await;
        *client.tools.lock().unwrap() = vec!["b", "c"];
        client.change.notify_one();
        wait_for_status(&tools, |status| status.tools == 2).await;
        assert!(
            tools.tool_registry().get("c").is_some() && tools.tool_registry().get("a").is_none()
        );
        *client.tools.lock().unwrap() = vec!["unreadable"];
        client.change.notify_one();
        while board.snapshot("/tools/s").unwrap().failed == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(status(&tools).tools, 2);
    });
}

#[test]
fn r4_timeouts_open_the_circuit_until_the_server_is_restarted() {
    use greenroom_core::circuit_breaker::CircuitState;
    run(async {
        let (first, second) = (fake_client(&["silent", "a"]), fake_client(&["a"]));
        let (tools, _, board) = start(vec![Ok(first), Ok(second)]);
        tools.wait_until_started().await;
        let answer = ToolOutcome::Completed(ToolOutput { text: "a".into(), ..Default::default() });
        for _ in 0..4 {
            assert_eq!(call(&tools, "silent").await, ToolOutcome::TimedOut { after_ms: 7 });
        }
        assert_eq!(call(&tools, "a").await, answer, "an answer resets the count");
        for _ in 0..5 {
            assert_eq!(status(&tools).circuit, CircuitState::Closed);
            call(&tools, "silent").await;
        }
        assert_eq!(status(&tools).circuit, CircuitState::Open);
        let ToolOutcome::NotSent { error } = call(&tools, "a").await else { panic!("it was sent") };
        assert_eq!(
            error,
            "the tool server `s` is unavailable: circuit open after 5 or more consecutive \
             failures, next attempt in 10 s; last error: no answer within 7 ms"
        );
        assert_eq!(board.snapshot("/circuits/tools/s").unwrap().state, "open");
        assert!(tools.restart("s"));
        wait_for_status(&tools, |status| {
            status.state == ServerState::Ready && status.restarts == 1
        })
        .await;
        assert_eq!(call(&tools, "a").await, answer);
    });
}

#[test]
fn shutdown_closes_the_client_and_prevents_restart() {
    run(async {
        let client = fake_client(&["a"]);
        let (tools, server, _) = start(vec![Ok(client.clone())]);
        tools.wait_until_started().await;
        tools.shut_down().await;
        wait_for_status(&tools, |status| status.state == ServerState::Stopped).await;
        assert_eq!(client.closes.load(SeqCst), 1);
        assert!(!tools.restart("s"));
        tools.shut_down().await;
        assert_eq!(server.connects.load(SeqCst), 1);
    });
}

#[test]
fn requested_restart_reconnects_immediately() {
    run(async {
        let (first, second) = (fake_client(&["a"]), fake_client(&["b"]));
        let (tools, ..) = start(vec![Ok(first.clone()), Ok(second)]);
        tools.wait_until_started().await;
        assert!(tools.restart("s") && !tools.restart("t"));
        wait_for_status(&tools, |status| {
            status.state == ServerState::Ready && status.restarts == 1
        })
        .await;
        assert!(tools.tool_registry().get("b").is_some());
        assert_eq!(first.closes.load(SeqCst), 1);
    });
}

#[test]
fn reconnect_delay_doubles_up_to_the_cap_with_half_jitter() {
    let millis = |failures, seed| reconnect_delay(failures, seed).as_millis();
    assert_eq!([millis(0, 0), millis(0, 999), millis(1, 0)], [250, 499, 500]);
    assert_eq!([millis(6, 0), millis(600, 0), millis(u32::MAX, 999)], [15_000, 15_000, 29_985]);
}

#[test]
fn g19_first_owner_of_a_name_keeps_it_in_any_order_of_connections() {
    run(async {
        let scripted = |script| {
            Arc::new(ScriptedServer {
                script: Mutex::new(script),
                connects: AtomicUsize::default(),
            })
        };
        let (evil, lab) = (fake_client(&["both"]), fake_client(&["both"]));
        let start = |names: NameOwners, servers: [(&str, Arc<ScriptedServer>); 2]| {
            let clock: Arc<dyn Clock> = Arc::new(FixedClock);
            let specs = servers.map(|(name, server)| ToolServerSpec {
                name: name.to_owned(),
                trusted: false,
                server: Arc::new(server),
            });
            let board = StatusBoard::new(clock.clone());
            ToolServers::start(Catalog::default(), names, specs, &board, &clock)
        };
        let names = |tools: &ToolServers| -> Vec<String> {
            let registry = tools.tool_registry();
            registry.iter().map(|tool| format!("{} of {}", tool.name, tool.server)).collect()
        };
        // The first start of `evil` fails, so `lab` is the first that has the name.
        let connections = [
            ("evil", scripted(vec![Err("late".to_owned()), Ok(evil.clone())])),
            ("lab", scripted(vec![Ok(lab.clone())])),
        ];
        let tools = start(NameOwners::default(), connections);
        tools.wait_until_started().await;
        assert_eq!(names(&tools), ["both of lab"]);
        let mut versions = tools.subscribe_changes();
        while names(&tools).len() < 2 {
            versions.changed().await.unwrap();
        }
        let expected = ["both of lab", "evil__both of evil"];
        assert_eq!(names(&tools), expected);
        // The owner drops the tool.
        *lab.tools.lock().unwrap() = Vec::new();
        lab.change.notify_one();
        while names(&tools).len() == 2 {
            versions.changed().await.unwrap();
        }
        assert_eq!(names(&tools), ["evil__both of evil"]);
        // After a restart only `evil` connects at first, with the names that were stored.
        let stored = tools.subscribe_names().borrow().clone();
        let stored = NameOwners::from_stored(stored.changes_since(&NameOwners::default()));
        let connections = [
            ("evil", scripted(vec![Ok(fake_client(&["both"]))])),
            ("lab", scripted(vec![Err("late".to_owned()), Ok(fake_client(&["both"]))])),
        ];
        let tools = start(stored, connections);
        tools.wait_until_started().await;
        assert_eq!(names(&tools), ["evil__both of evil"]);
        let mut versions = tools.subscribe_changes();
        while names(&tools).len() < 2 {
            versions.changed().await.unwrap();
        }
        assert_eq!(names(&tools), expected);
    });
}
