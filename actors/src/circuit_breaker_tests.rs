use super::*;
use crate::testing::{ManualClock, ModelReply, ScriptedModel, StreamAction};

struct Fixture {
    models: GuardedModelClient,
    script: Arc<ScriptedModel>,
    clock: Arc<ManualClock>,
    board: StatusBoard,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::paused());
        let time: Arc<dyn Clock> = clock.clone();
        let board = StatusBoard::new(time.clone());
        let script = Arc::new(ScriptedModel::with_replies([]));
        let models = GuardedModelClient::new(script.clone(), ["small".to_owned()], &board, &time);
        Self { models, script, clock, board }
    }

    /// The failure that asking the model ends with, if it does.
    async fn send_with_reply(&self, reply: ModelReply) -> Option<ModelFailure> {
        self.script.push(reply);
        self.send().await
    }

    async fn send(&self) -> Option<ModelFailure> {
        let mut stream = self
            .models
            .stream(ModelRequest { model: "small".to_owned(), ..ModelRequest::default() });
        let mut failure = None;
        while let Some(item) = stream.next().await {
            failure = item.err();
        }
        failure
    }

    async fn open_circuit(&self) {
        for _ in 0..CIRCUIT_FAILURES_MAX {
            assert_eq!(
                self.send_with_reply(failing_reply(Some(503))).await.unwrap().kind,
                ModelFailureKind::Temporary
            );
        }
    }

    fn status(&self) -> (String, Option<String>, Option<String>) {
        let shown = self.board.snapshot("/circuits/models/small").unwrap();
        (shown.state, shown.waiting.map(|waiting| waiting.for_whom), shown.last_error)
    }
}

fn failing_reply(status: Option<u16>) -> ModelReply {
    let failure = match status {
        Some(status) => ModelFailure::from_status(status, "no", None),
        None => ModelFailure::temporary("no"),
    };
    ModelReply::new().then(StreamAction::Fail(failure))
}

#[tokio::test]
async fn r4_open_circuit_rejects_requests_with_the_last_error() {
    let scene = Fixture::new();
    scene.open_circuit().await;
    let asked = scene.script.requests().len();
    let failure = scene.send().await.expect("the circuit is open");
    assert_eq!(failure.kind, ModelFailureKind::CircuitOpen);
    assert_eq!(failure.retry_after_ms, Some(10_000));
    assert_eq!(
        failure.message,
        "the model `small` is not asked now, because it failed 5 times in a row or more (circuit \
         open, next try in 10 s); it failed with: no"
    );
    assert_eq!(scene.script.requests().len(), asked, "it is fast: nothing was sent");
    let (state, waits, error) = scene.status();
    assert_eq!(state, "open");
    assert_eq!(waits.unwrap(), "its next try, at 2026-01-01T00:00:10.000Z");
    assert_eq!(error.unwrap(), "no");
}

#[tokio::test]
async fn r4_successful_probe_closes_the_circuit() {
    let scene = Fixture::new();
    scene.open_circuit().await;
    scene.clock.advance(CIRCUIT_OPEN_DURATION);
    assert_eq!(scene.send_with_reply(ModelReply::text("hello")).await, None);
    assert_eq!(scene.status().0, "closed");
}

#[tokio::test]
async fn r4_dropped_probe_lets_the_next_request_probe() {
    let scene = Fixture::new();
    scene.open_circuit().await;
    scene.clock.advance(CIRCUIT_OPEN_DURATION);
    scene.script.push(ModelReply::new().then(StreamAction::Hang));
    let request = ModelRequest { model: "small".to_owned(), ..ModelRequest::default() };
    let probe = scene.models.stream(request);
    assert_eq!(scene.status().0, "half_open");
    assert_eq!(scene.send().await.unwrap().kind, ModelFailureKind::CircuitOpen);
    drop(probe);
    assert_eq!(scene.status().0, "open");
    scene.send_with_reply(ModelReply::text("hello")).await;
    assert_eq!(scene.status().0, "closed");
}

#[tokio::test]
async fn r4_client_errors_and_rate_limits_do_not_open_the_circuit() {
    for status in [400, 401, 404, 409, 429] {
        let scene = Fixture::new();
        for _ in 0..10 {
            let failure = scene.send_with_reply(failing_reply(Some(status))).await.unwrap();
            assert_ne!(failure.kind, ModelFailureKind::CircuitOpen, "{status}");
        }
    }
    for status in [None, Some(408), Some(500), Some(529)] {
        let scene = Fixture::new();
        for _ in 0..CIRCUIT_FAILURES_MAX {
            scene.send_with_reply(failing_reply(status)).await;
        }
        assert_eq!(scene.status().0, "open", "{status:?}");
    }
    // A stream that is cut in the middle was a stream.
    let scene = Fixture::new();
    for _ in 0..10 {
        let cut =
            ModelReply::new().delta("hel").then(StreamAction::Fail(ModelFailure::temporary("cut")));
        assert_eq!(scene.send_with_reply(cut).await.unwrap().kind, ModelFailureKind::Temporary);
    }
}
