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
        let shared_clock: Arc<dyn Clock> = clock.clone();
        let board = StatusBoard::new(shared_clock.clone());
        let script = Arc::new(ScriptedModel::with_replies([]));
        let models =
            GuardedModelClient::new(script.clone(), ["small".to_owned()], &board, &shared_clock);
        Self { models, script, clock, board }
    }

    /// Queues `reply` and sends a request. Returns the failure that ended the stream, if any.
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
        for _ in 0..CIRCUIT_CONSECUTIVE_FAILURES_MAX {
            assert_eq!(
                self.send_with_reply(failing_reply(Some(503))).await.unwrap().kind,
                ModelFailureKind::Temporary
            );
        }
    }

    fn status(&self) -> (String, Option<String>, Option<String>) {
        let snapshot = self.board.snapshot("/circuits/models/small").unwrap();
        (snapshot.state, snapshot.waiting.map(|waiting| waiting.awaited), snapshot.last_error)
    }
}

fn failing_reply(status: Option<u16>) -> ModelReply {
    let failure = match status {
        Some(status) => ModelFailure::from_status(status, "no", None),
        None => ModelFailure::temporary("no"),
    };
    ModelReply::new().with_action(StreamAction::Fail(failure))
}

#[tokio::test]
async fn r4_open_circuit_rejects_requests_with_the_last_error() {
    let fixture = Fixture::new();
    fixture.open_circuit().await;
    let sent = fixture.script.requests().len();
    let failure = fixture.send().await.expect("the circuit is open");
    assert_eq!(failure.kind, ModelFailureKind::CircuitOpen);
    assert_eq!(failure.retry_after_ms, Some(10_000));
    assert_eq!(
        failure.message,
        "the model `small` is unavailable: circuit open after 5 or more consecutive failures, next \
         attempt in 10 s; last error: no"
    );
    assert_eq!(fixture.script.requests().len(), sent, "no request is sent");
    let (state, waiting_for, error) = fixture.status();
    assert_eq!(state, "open");
    assert_eq!(waiting_for.unwrap(), "the next probe at 2026-01-01T00:00:10.000Z");
    assert_eq!(error.unwrap(), "no");
}

#[tokio::test]
async fn r4_successful_probe_closes_the_circuit() {
    let fixture = Fixture::new();
    fixture.open_circuit().await;
    fixture.clock.advance(CIRCUIT_OPEN_DURATION);
    assert_eq!(fixture.send_with_reply(ModelReply::text("hello")).await, None);
    assert_eq!(fixture.status().0, "closed");
}

#[tokio::test]
async fn r4_dropped_probe_lets_the_next_request_probe() {
    let fixture = Fixture::new();
    fixture.open_circuit().await;
    fixture.clock.advance(CIRCUIT_OPEN_DURATION);
    fixture.script.push(ModelReply::new().with_action(StreamAction::Hang));
    let request = ModelRequest { model: "small".to_owned(), ..ModelRequest::default() };
    let probe = fixture.models.stream(request);
    assert_eq!(fixture.status().0, "half_open");
    assert_eq!(fixture.send().await.unwrap().kind, ModelFailureKind::CircuitOpen);
    drop(probe);
    assert_eq!(fixture.status().0, "open");
    fixture.send_with_reply(ModelReply::text("hello")).await;
    assert_eq!(fixture.status().0, "closed");
}

#[tokio::test]
async fn r4_client_errors_and_rate_limits_do_not_open_the_circuit() {
    for status in [400, 401, 404, 409, 429] {
        let fixture = Fixture::new();
        for _ in 0..10 {
            let failure = fixture.send_with_reply(failing_reply(Some(status))).await.unwrap();
            assert_ne!(failure.kind, ModelFailureKind::CircuitOpen, "{status}");
        }
    }
    for status in [None, Some(408), Some(500), Some(529)] {
        let fixture = Fixture::new();
        for _ in 0..CIRCUIT_CONSECUTIVE_FAILURES_MAX {
            fixture.send_with_reply(failing_reply(status)).await;
        }
        assert_eq!(fixture.status().0, "open", "{status:?}");
    }
    // A stream that fails after its first delta still counts as a success.
    let fixture = Fixture::new();
    for _ in 0..10 {
        let cut = ModelReply::new()
            .delta("hel")
            .with_action(StreamAction::Fail(ModelFailure::temporary("cut")));
        assert_eq!(fixture.send_with_reply(cut).await.unwrap().kind, ModelFailureKind::Temporary);
    }
}
