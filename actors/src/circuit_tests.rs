use super::*;
use crate::testing::{Beat, ManualClock, Reply, ScriptedModel};

struct Scene {
    models: GuardedModels,
    script: Arc<ScriptedModel>,
    clock: Arc<ManualClock>,
    board: Board,
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::standing());
        let time: Arc<dyn Clock> = clock.clone();
        let board = Board::new(time.clone());
        let script = Arc::new(ScriptedModel::saying([]));
        let models = GuardedModels::new(script.clone(), ["small".to_owned()], &board, &time);
        Self { models, script, clock, board }
    }

    /// The failure that asking the model ends with, if it does.
    async fn asks(&self, reply: Reply) -> Option<ModelFailure> {
        self.script.push(reply);
        self.asks_once_more().await
    }

    async fn asks_once_more(&self) -> Option<ModelFailure> {
        let mut stream = self
            .models
            .stream(ModelRequest { model: "small".to_owned(), ..ModelRequest::default() });
        let mut failure = None;
        while let Some(item) = stream.next().await {
            failure = item.err();
        }
        failure
    }

    async fn opens(&self) {
        for _ in 0..CIRCUIT_FAILURES_MAX {
            assert_eq!(self.asks(fails(Some(503))).await.unwrap().kind, FailureKind::Temporary);
        }
    }

    fn shown(&self) -> (String, Option<String>, Option<String>) {
        let shown = self.board.snapshot("/circuits/models/small").unwrap();
        (shown.state, shown.waiting.map(|waiting| waiting.for_whom), shown.last_error)
    }
}

fn fails(status: Option<u16>) -> Reply {
    let failure = match status {
        Some(status) => ModelFailure::of_status(status, "no", None),
        None => ModelFailure::temporary("no"),
    };
    Reply::new().then(Beat::Fail(failure))
}

#[tokio::test]
async fn r4_a_model_that_fails_again_and_again_is_not_asked_and_it_says_so() {
    let scene = Scene::new();
    scene.opens().await;
    let asked = scene.script.requests().len();
    let failure = scene.asks_once_more().await.expect("the circuit is open");
    assert_eq!(failure.kind, FailureKind::CircuitOpen);
    assert_eq!(failure.retry_after_ms, Some(10_000));
    assert_eq!(
        failure.message,
        "the model `small` is not asked now, because it failed 5 times in a row or more (circuit \
         open, next try in 10 s); it failed with: no"
    );
    assert_eq!(scene.script.requests().len(), asked, "it is fast: nothing was sent");
    let (state, waits, error) = scene.shown();
    assert_eq!(state, "open");
    assert_eq!(waits.unwrap(), "its next try, at 2026-01-01T00:00:10.000Z");
    assert_eq!(error.unwrap(), "no");
}

#[tokio::test]
async fn r4_after_a_rest_one_tries_and_its_answer_closes_the_circuit() {
    let scene = Scene::new();
    scene.opens().await;
    scene.clock.advance(CIRCUIT_REST);
    assert_eq!(scene.asks(Reply::text("hello")).await, None);
    assert_eq!(scene.shown().0, "closed");
}

#[tokio::test]
async fn r4_one_that_was_dropped_leaves_its_place_to_the_next() {
    let scene = Scene::new();
    scene.opens().await;
    scene.clock.advance(CIRCUIT_REST);
    scene.script.push(Reply::new().then(Beat::Hang));
    let request = ModelRequest { model: "small".to_owned(), ..ModelRequest::default() };
    let probe = scene.models.stream(request);
    assert_eq!(scene.shown().0, "half_open");
    assert_eq!(scene.asks_once_more().await.unwrap().kind, FailureKind::CircuitOpen);
    drop(probe);
    assert_eq!(scene.shown().0, "open");
    scene.asks(Reply::text("hello")).await;
    assert_eq!(scene.shown().0, "closed");
}

#[tokio::test]
async fn r4_what_refuses_or_asks_to_be_slower_is_there() {
    for status in [400, 401, 404, 409, 429] {
        let scene = Scene::new();
        for _ in 0..10 {
            let failure = scene.asks(fails(Some(status))).await.unwrap();
            assert_ne!(failure.kind, FailureKind::CircuitOpen, "{status}");
        }
    }
    for status in [None, Some(408), Some(500), Some(529)] {
        let scene = Scene::new();
        for _ in 0..CIRCUIT_FAILURES_MAX {
            scene.asks(fails(status)).await;
        }
        assert_eq!(scene.shown().0, "open", "{status:?}");
    }
    // A stream that is cut in the middle was a stream.
    let scene = Scene::new();
    for _ in 0..10 {
        let cut = Reply::new().say("hel").then(Beat::Fail(ModelFailure::temporary("cut")));
        assert_eq!(scene.asks(cut).await.unwrap().kind, FailureKind::Temporary);
    }
}
