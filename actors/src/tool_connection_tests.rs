//! The connection's life with a server that does as it is told.

use super::*;
use crate::{
    observation::Board,
    ports::{People, ToolHost},
    tool_host::{ServerSpec, ServerStatus, Tools},
};
use futures::FutureExt;
use greenroom_core::{Timestamp, call::ToolOutput, policy::Catalog};
use serde_json::json;
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use tokio::sync::Notify;

struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn seed(&self) -> u64 {
        0
    }
}

/// A server whose every connection behaves as the next entry of a script says.
struct Scripted {
    script: Mutex<Vec<Result<Arc<FakeLink>, String>>>,
    connects: AtomicUsize,
}

#[derive(Default)]
struct FakeLink {
    tools: Mutex<Vec<&'static str>>,
    change: Notify,
    end: CancellationToken,
    closes: AtomicUsize,
}

impl ToolServer for Arc<Scripted> {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn ToolLink>, String>> {
        self.connects.fetch_add(1, SeqCst);
        let mut script = self.script.lock().unwrap();
        let next = (!script.is_empty()).then(|| script.remove(0));
        async move {
            match next {
                Some(link) => link.map(|link| Arc::new(link) as Arc<dyn ToolLink>),
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}

impl ToolLink for Arc<FakeLink> {
    fn list(&self) -> BoxFuture<'static, Result<Vec<RemoteTool>, String>> {
        let names = self.tools.lock().unwrap().clone();
        let tool = |name: &str| RemoteTool {
            name: name.to_owned(),
            input_schema: json!({"type": "object"}),
            ..RemoteTool::default()
        };
        let listed = match names.as_slice() {
            ["unreadable"] => Err("it can't be read".to_owned()),
            names => Ok(names.iter().map(|name| tool(name)).collect()),
        };
        futures::future::ready(listed).boxed()
    }

    fn call(
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
        let link = self.clone();
        async move { link.change.notified().await }.boxed()
    }

    fn closed(&self) -> BoxFuture<'static, String> {
        let link = self.clone();
        async move {
            link.end.cancelled().await;
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

fn link(tools: &[&'static str]) -> Arc<FakeLink> {
    Arc::new(FakeLink { tools: Mutex::new(tools.to_vec()), ..FakeLink::default() })
}

fn start(script: Vec<Result<Arc<FakeLink>, String>>) -> (Tools, Arc<Scripted>, Board) {
    let server =
        Arc::new(Scripted { script: Mutex::new(script), connects: AtomicUsize::default() });
    let clock: Arc<dyn Clock> = Arc::new(StillClock);
    let board = Board::new(clock.clone());
    let spec =
        ServerSpec { name: "s".to_owned(), trusted: false, server: Arc::new(server.clone()) };
    (Tools::start(Catalog::default(), [spec], &board, &clock), server, board)
}

fn run(test: impl Future<Output = ()>) {
    actix_rt::System::new().block_on(test);
}

fn status(tools: &Tools) -> ServerStatus {
    tools.status().remove(0)
}

async fn wait(tools: &Tools, is_so: impl Fn(&ServerStatus) -> bool) {
    let mut versions = tools.versions();
    while !is_so(&status(tools)) {
        versions.changed().await.unwrap();
    }
}

async fn call(tools: &Tools, tool: &str) -> ToolOutcome {
    let call = ToolCall {
        caller: None,
        tool: tool.to_owned(),
        arguments: json!({}),
        idempotency_key: String::new(),
        timeout: None,
        result_bytes_max: 100,
        people: People::default(),
        late: Default::default(),
    };
    tools.call(call, mpsc::channel(1).0, CancellationToken::new()).await
}

#[test]
fn t2_tools_stay_known_while_their_server_is_away() {
    run(async {
        let (first, second) = (link(&["a"]), link(&["b"]));
        let (tools, ..) = start(vec![Ok(first.clone()), Ok(second)]);
        let not_sent = |error: &str| ToolOutcome::NotSent { error: error.to_owned() };
        assert_eq!(status(&tools).state, ServerState::Starting);
        tools.ready().await;
        let output = ToolOutput { text: "a".to_owned(), ..ToolOutput::default() };
        assert_eq!(call(&tools, "a").await, ToolOutcome::Completed(output));

        first.end.cancel();
        wait(&tools, |status| status.state == ServerState::BackingOff).await;
        let unavailable = tools.book().get("a").unwrap().unavailable.clone();
        assert_eq!(unavailable.as_deref(), Some("it died"));
        let expected = not_sent("tool server `s` is unavailable: it died");
        assert_eq!(call(&tools, "a").await, expected);

        wait(&tools, |status| status.state == ServerState::Ready).await;
        let expected = ServerStatus {
            circuit: greenroom_core::breaker::State::Closed,
            name: "s".to_owned(),
            state: ServerState::Ready,
            reason: None,
            tools: 1,
            restarts: 1,
        };
        assert_eq!(status(&tools), expected);
        assert_eq!(call(&tools, "a").await, not_sent("there is no tool `a`"));
        assert_eq!(first.closes.load(SeqCst), 1, "what is left of it was cleared away");
    });
}

#[test]
fn t2_a_failed_start_settles_and_goes_on() {
    run(async {
        let (tools, server, board) = start(vec![Err("no".to_owned()), Ok(link(&["unreadable"]))]);
        tools.ready().await;
        assert_eq!(status(&tools).reason.as_deref(), Some("no"));
        wait(&tools, |status| status.state == ServerState::BackingOff && status.restarts == 1)
            .await;
        let expected = "its tools can't be listed: it can't be read";
        assert_eq!(status(&tools).reason.as_deref(), Some(expected));
        // The third connection never comes about.
        wait(&tools, |status| status.state == ServerState::Starting && status.restarts == 2).await;
        assert_eq!(status(&tools).reason.as_deref(), Some(expected), "the reason stays in sight");
        assert_eq!(server.connects.load(SeqCst), 3);
        let seen = board.snapshot("/tools/s").unwrap();
        assert_eq!(seen.state, "starting");
        assert_eq!(seen.waiting.unwrap().for_whom, "the server s");
        assert_eq!((seen.failed, seen.restarts), (2, 2));
        assert_eq!(seen.last_error.as_deref(), Some(expected));
    });
}

#[test]
fn t1_a_changed_list_replaces_the_book_unless_it_cannot_be_read() {
    run(async {
        let link = link(&["a"]);
        let (tools, _, board) = start(vec![Ok(link.clone())]);
        tools.ready().await;
        *link.tools.lock().unwrap() = vec!["b", "c"];
        link.change.notify_one();
        wait(&tools, |status| status.tools == 2).await;
        assert!(tools.book().get("c").is_some() && tools.book().get("a").is_none());
        *link.tools.lock().unwrap() = vec!["unreadable"];
        link.change.notify_one();
        while board.snapshot("/tools/s").unwrap().failed == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(status(&tools).tools, 2);
    });
}

#[test]
fn r4_a_server_that_does_not_answer_is_left_alone_until_it_is_restarted() {
    use greenroom_core::breaker::State;
    run(async {
        let (first, second) = (link(&["silent", "a"]), link(&["a"]));
        let (tools, _, board) = start(vec![Ok(first), Ok(second)]);
        tools.ready().await;
        let answer = ToolOutcome::Completed(ToolOutput { text: "a".into(), ..Default::default() });
        for _ in 0..4 {
            assert_eq!(call(&tools, "silent").await, ToolOutcome::TimedOut { after_ms: 7 });
        }
        assert_eq!(call(&tools, "a").await, answer, "an answer counts anew");
        for _ in 0..5 {
            assert_eq!(status(&tools).circuit, State::Closed);
            call(&tools, "silent").await;
        }
        assert_eq!(status(&tools).circuit, State::Open);
        let ToolOutcome::NotSent { error } = call(&tools, "a").await else { panic!("it was sent") };
        assert_eq!(
            error,
            "the tool server `s` is not asked now, because it failed 5 times in a row or more \
             (circuit open, next try in 10 s); it failed with: no answer within 7 ms"
        );
        assert_eq!(board.snapshot("/circuits/tools/s").unwrap().state, "open");
        assert!(tools.restart("s"));
        wait(&tools, |status| status.state == ServerState::Ready && status.restarts == 1).await;
        assert_eq!(call(&tools, "a").await, answer);
    });
}

#[test]
fn stopping_closes_the_link_and_ends_for_good() {
    run(async {
        let link = link(&["a"]);
        let (tools, server, _) = start(vec![Ok(link.clone())]);
        tools.ready().await;
        tools.shutdown().await;
        wait(&tools, |status| status.state == ServerState::Stopped).await;
        assert_eq!(link.closes.load(SeqCst), 1);
        assert!(!tools.restart("s"));
        tools.shutdown().await;
        assert_eq!(server.connects.load(SeqCst), 1);
    });
}

#[test]
fn a_restart_that_is_asked_for_comes_at_once() {
    run(async {
        let (first, second) = (link(&["a"]), link(&["b"]));
        let (tools, ..) = start(vec![Ok(first.clone()), Ok(second)]);
        tools.ready().await;
        assert!(tools.restart("s") && !tools.restart("t"));
        wait(&tools, |status| status.state == ServerState::Ready && status.restarts == 1).await;
        assert!(tools.book().get("b").is_some());
        assert_eq!(first.closes.load(SeqCst), 1);
    });
}

#[test]
fn delays_double_up_to_the_cap_and_half_of_them_is_chance() {
    let millis = |failures, seed| delay(failures, seed).as_millis();
    assert_eq!([millis(0, 0), millis(0, 999), millis(1, 0)], [250, 499, 500]);
    assert_eq!([millis(6, 0), millis(600, 0), millis(u32::MAX, 999)], [15_000, 15_000, 29_985]);
}
