//! Circuits: a breaker for each model and each tool server (R4), with the clock it is asked by and
//! its entry on the board.
//!
//! A circuit is no actor: whoever calls an endpoint asks it and goes on at once, so its few words
//! of state are behind a lock that nobody holds while waiting. What a breaker does is the core's.

use crate::{
    limits::{
        CIRCUIT_FAILURES_MAX, CIRCUIT_OPEN_DURATION, CIRCUIT_OPEN_DURATION_MAX,
        CIRCUIT_PROBE_TIMEOUT,
    },
    ports::{Clock, ModelClient},
    status_board::{StatusBoard, StatusEntry},
};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use greenroom_core::{
    circuit_breaker::{BreakerConfig, CircuitBreaker, CircuitPermit, CircuitState, RequestOutcome},
    model::{
        delta::Delta,
        failure::{ModelFailure, ModelFailureKind},
        request::ModelRequest,
    },
    text::truncate,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// What every circuit's path on the board starts with.
pub const CIRCUIT_PATH_PREFIX: &str = "/circuits/";

const BREAKER_POLICY: BreakerConfig = BreakerConfig {
    failures_max: CIRCUIT_FAILURES_MAX,
    open_duration: CIRCUIT_OPEN_DURATION,
    open_duration_max: CIRCUIT_OPEN_DURATION_MAX,
    probe_timeout: CIRCUIT_PROBE_TIMEOUT,
};

/// The circuit of one endpoint.
pub struct EndpointBreaker {
    /// "model `small`", "tool server `market`".
    endpoint: String,
    breaker: Mutex<EndpointState>,
    clock: Arc<dyn Clock>,
    status_entry: StatusEntry,
}

struct EndpointState {
    breaker: CircuitBreaker,
    last_error: String,
}

/// It is left alone: it failed again and again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{endpoint} is not asked now, because it failed {CIRCUIT_FAILURES_MAX} times in a row or more (circuit open, next try in {} s); it failed with: {last_error}", retry_after.as_secs_f64().ceil())]
pub struct EndpointUnavailableError {
    endpoint: String,
    last_error: String,
    /// How long until it is worth asking again.
    pub retry_after: Duration,
}

impl EndpointBreaker {
    /// A closed circuit; `path` is its place below [`CIRCUITS`].
    pub fn new(path: &str, what: String, board: &StatusBoard, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let watch = board.register(format!("{CIRCUIT_PATH_PREFIX}{path}"), "Circuit");
        let tried = EndpointState {
            breaker: CircuitBreaker::new(BREAKER_POLICY),
            last_error: String::new(),
        };
        let circuit = Self {
            endpoint: what,
            breaker: Mutex::new(tried),
            clock: clock.clone(),
            status_entry: watch,
        };
        circuit.update_status(&circuit.lock());
        Arc::new(circuit)
    }

    /// Leave to try, or why there is none.
    pub fn try_acquire(self: &Arc<Self>) -> Result<RequestPermit, EndpointUnavailableError> {
        let now = self.clock.now();
        let mut tried = self.lock();
        let asked = tried.breaker.try_acquire(now);
        self.update_status(&tried);
        match asked {
            Ok(pass) => Ok(RequestPermit { circuit: self.clone(), pass: Some(pass) }),
            Err(refused) => Err(EndpointUnavailableError {
                endpoint: self.endpoint.clone(),
                last_error: tried.last_error.clone(),
                retry_after: refused.retry_at.saturating_duration_since(now),
            }),
        }
    }

    /// What it does with those who ask.
    pub fn state(&self) -> CircuitState {
        self.lock().breaker.state()
    }

    /// Lets all pass again.
    pub fn reset(&self) {
        let mut tried = self.lock();
        tried.breaker.reset();
        self.update_status(&tried);
    }

    fn report(&self, pass: CircuitPermit, heard: RequestOutcome, error: Option<&str>) {
        let mut tried = self.lock();
        let before = tried.breaker.state();
        if let Some(error) = error {
            truncate(error, LAST_ERROR_BYTES_MAX).clone_into(&mut tried.last_error);
            self.status_entry.record_failure(error);
        }
        tried.breaker.report(pass, heard, self.clock.now());
        self.status_entry.record_handled();
        self.update_status(&tried);
        let after = tried.breaker.state();
        if before != after {
            let (from, to) = (before.name(), after.name());
            tracing::warn!(endpoint = %self.endpoint, from, to, "a circuit has changed");
        }
    }

    fn update_status(&self, tried: &EndpointState) {
        let waits = tried.breaker.open_until().map(|until| match tried.breaker.state() {
            CircuitState::HalfOpen => format!("the one that tries, until {until} at most"),
            CircuitState::Closed | CircuitState::Open => format!("its next try, at {until}"),
        });
        self.status_entry.set_state(tried.breaker.state().name(), waits);
    }

    fn lock(&self) -> MutexGuard<'_, EndpointState> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes kept of the last error of an endpoint.
const LAST_ERROR_BYTES_MAX: usize = 256;

/// One that was let through. Dropping it says that nothing was heard.
pub struct RequestPermit {
    circuit: Arc<EndpointBreaker>,
    pass: Option<CircuitPermit>,
}

impl RequestPermit {
    /// The endpoint answered. Only what is heard first counts.
    pub fn record_success(&mut self) {
        self.finish(RequestOutcome::Success, None);
    }

    /// It did not.
    pub fn record_failure(&mut self, error: &str) {
        self.finish(RequestOutcome::Failure, Some(error));
    }

    fn finish(&mut self, heard: RequestOutcome, error: Option<&str>) {
        if let Some(pass) = self.pass.take() {
            self.circuit.report(pass, heard, error);
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.finish(RequestOutcome::Unknown, None);
    }
}

/// Models behind their circuits.
pub struct GuardedModelClient {
    models: Arc<dyn ModelClient>,
    circuits: BTreeMap<String, Arc<EndpointBreaker>>,
}

impl GuardedModelClient {
    /// `models`, of which those of these names have a circuit each.
    pub fn new(
        models: Arc<dyn ModelClient>,
        names: impl IntoIterator<Item = String>,
        board: &StatusBoard,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let circuit = |name: String| {
            let (path, what) = (format!("models/{name}"), format!("the model `{name}`"));
            let circuit = EndpointBreaker::new(&path, what, board, clock);
            (name, circuit)
        };
        Self { models, circuits: names.into_iter().map(circuit).collect() }
    }
}

impl ModelClient for GuardedModelClient {
    fn stream(
        &self,
        request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        let Some(circuit) = self.circuits.get(&request.model) else {
            return self.models.stream(request);
        };
        let mut trying = match circuit.try_acquire() {
            Ok(trying) => trying,
            Err(open) => {
                let failure = ModelFailure::circuit_open(open.to_string(), open.retry_after);
                return stream::once(async { Err(failure) }).boxed();
            }
        };
        let heard = move |item: &Result<Vec<Delta>, ModelFailure>| match item {
            Err(failure) if is_endpoint_failure(failure) => trying.record_failure(&failure.message),
            // It is there, and speaks; what it says is for others to judge.
            Ok(_) | Err(_) => trying.record_success(),
        };
        self.models.stream(request).inspect(heard).boxed()
    }
}

/// Whether a failure says that the endpoint is in trouble: it does not answer, or not as it should.
/// One that refuses is not, nor one that asks to be slower.
fn is_endpoint_failure(failure: &ModelFailure) -> bool {
    match failure.kind {
        ModelFailureKind::Permanent | ModelFailureKind::CircuitOpen => false,
        ModelFailureKind::Temporary => {
            failure.status.is_none_or(|status| status >= 500 || status == 408)
        }
    }
}

#[cfg(test)]
#[path = "circuit_breaker_tests.rs"]
mod tests;
