//! Circuits: a breaker for each model and each tool server (R4), with the clock it is asked by and
//! its entry on the board.
//!
//! A circuit is no actor: whoever calls an endpoint asks it and goes on at once, so its few words
//! of state are behind a lock that nobody holds while waiting. What a breaker does is the core's.

use crate::{
    limits::{CIRCUIT_FAILURES_MAX, CIRCUIT_PROBE_MAX, CIRCUIT_REST, CIRCUIT_REST_MAX},
    observation::{Board, Watch},
    ports::{Clock, ModelClient},
};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use greenroom_core::{
    breaker::{Breaker, Heard, Pass, Policy, State},
    model::{
        delta::Delta,
        failure::{FailureKind, ModelFailure},
        request::ModelRequest,
    },
    text::cut,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// What every circuit's path on the board starts with.
pub const CIRCUITS: &str = "/circuits/";

const POLICY: Policy = Policy {
    failures_max: CIRCUIT_FAILURES_MAX,
    rest: CIRCUIT_REST,
    rest_max: CIRCUIT_REST_MAX,
    probe_max: CIRCUIT_PROBE_MAX,
};

/// The circuit of one endpoint.
pub struct Circuit {
    /// "model `small`", "tool server `market`".
    what: String,
    breaker: Mutex<Tried>,
    clock: Arc<dyn Clock>,
    watch: Watch,
}

struct Tried {
    breaker: Breaker,
    last_error: String,
}

/// It is left alone: it failed again and again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not asked now, because it failed {CIRCUIT_FAILURES_MAX} times in a row or more (circuit open, next try in {} s); it failed with: {last_error}", wait.as_secs_f64().ceil())]
pub struct Open {
    what: String,
    last_error: String,
    /// How long until it is worth asking again.
    pub wait: Duration,
}

impl Circuit {
    /// A closed circuit; `path` is its place below [`CIRCUITS`].
    pub fn new(path: &str, what: String, board: &Board, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let watch = board.watch(format!("{CIRCUITS}{path}"), "Circuit");
        let tried = Tried { breaker: Breaker::new(POLICY), last_error: String::new() };
        let circuit = Self { what, breaker: Mutex::new(tried), clock: clock.clone(), watch };
        circuit.show(&circuit.lock());
        Arc::new(circuit)
    }

    /// Leave to try, or why there is none.
    pub fn enter(self: &Arc<Self>) -> Result<Trying, Open> {
        let now = self.clock.now();
        let mut tried = self.lock();
        let asked = tried.breaker.ask(now);
        self.show(&tried);
        match asked {
            Ok(pass) => Ok(Trying { circuit: self.clone(), pass: Some(pass) }),
            Err(refused) => Err(Open {
                what: self.what.clone(),
                last_error: tried.last_error.clone(),
                wait: refused.until.until_from(now),
            }),
        }
    }

    /// What it does with those who ask.
    pub fn state(&self) -> State {
        self.lock().breaker.state()
    }

    /// Lets all pass again.
    pub fn reset(&self) {
        let mut tried = self.lock();
        tried.breaker.reset();
        self.show(&tried);
    }

    fn hear(&self, pass: Pass, heard: Heard, error: Option<&str>) {
        let mut tried = self.lock();
        let before = tried.breaker.state();
        if let Some(error) = error {
            cut(error, ERROR_BYTES_MAX).clone_into(&mut tried.last_error);
            self.watch.fail(error);
        }
        tried.breaker.hear(pass, heard, self.clock.now());
        self.watch.tick();
        self.show(&tried);
        let after = tried.breaker.state();
        if before != after {
            let (from, to) = (before.name(), after.name());
            tracing::warn!(endpoint = %self.what, from, to, "a circuit has changed");
        }
    }

    fn show(&self, tried: &Tried) {
        let waits = tried.breaker.rests_until().map(|until| match tried.breaker.state() {
            State::HalfOpen => format!("the one that tries, until {until} at most"),
            State::Closed | State::Open => format!("its next try, at {until}"),
        });
        self.watch.set_state(tried.breaker.state().name(), waits);
    }

    fn lock(&self) -> MutexGuard<'_, Tried> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes kept of the last error of an endpoint.
const ERROR_BYTES_MAX: usize = 256;

/// One that was let through. Dropping it says that nothing was heard.
pub struct Trying {
    circuit: Arc<Circuit>,
    pass: Option<Pass>,
}

impl Trying {
    /// The endpoint answered. Only what is heard first counts.
    pub fn succeeded(&mut self) {
        self.end(Heard::Success, None);
    }

    /// It did not.
    pub fn failed(&mut self, error: &str) {
        self.end(Heard::Failure, Some(error));
    }

    fn end(&mut self, heard: Heard, error: Option<&str>) {
        if let Some(pass) = self.pass.take() {
            self.circuit.hear(pass, heard, error);
        }
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        self.end(Heard::Nothing, None);
    }
}

/// Models behind their circuits.
pub struct GuardedModels {
    models: Arc<dyn ModelClient>,
    circuits: BTreeMap<String, Arc<Circuit>>,
}

impl GuardedModels {
    /// `models`, of which those of these names have a circuit each.
    pub fn new(
        models: Arc<dyn ModelClient>,
        names: impl IntoIterator<Item = String>,
        board: &Board,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let circuit = |name: String| {
            let (path, what) = (format!("models/{name}"), format!("the model `{name}`"));
            let circuit = Circuit::new(&path, what, board, clock);
            (name, circuit)
        };
        Self { models, circuits: names.into_iter().map(circuit).collect() }
    }
}

impl ModelClient for GuardedModels {
    fn stream(
        &self,
        request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        let Some(circuit) = self.circuits.get(&request.model) else {
            return self.models.stream(request);
        };
        let mut trying = match circuit.enter() {
            Ok(trying) => trying,
            Err(open) => {
                let failure = ModelFailure::circuit_open(open.to_string(), open.wait);
                return stream::once(async { Err(failure) }).boxed();
            }
        };
        let heard = move |item: &Result<Vec<Delta>, ModelFailure>| match item {
            Err(failure) if is_of_the_endpoint(failure) => trying.failed(&failure.message),
            // It is there, and speaks; what it says is for others to judge.
            Ok(_) | Err(_) => trying.succeeded(),
        };
        self.models.stream(request).inspect(heard).boxed()
    }
}

/// Whether a failure says that the endpoint is in trouble: it does not answer, or not as it should.
/// One that refuses is not, nor one that asks to be slower.
fn is_of_the_endpoint(failure: &ModelFailure) -> bool {
    match failure.kind {
        FailureKind::Permanent | FailureKind::CircuitOpen => false,
        FailureKind::Temporary => {
            failure.status.is_none_or(|status| status >= 500 || status == 408)
        }
    }
}

#[cfg(test)]
#[path = "circuit_tests.rs"]
mod tests;
