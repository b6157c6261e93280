//! Circuit breakers of models and tool servers (R4), each with a clock and a status board entry.
//!
//! A breaker is not an actor: callers check it and continue immediately, so its small state is
//! behind a lock that is never held across a wait. The state machine is in `greenroom_core`.

use crate::{
    limits::{
        CIRCUIT_CONSECUTIVE_FAILURES_MAX, CIRCUIT_OPEN_DURATION, CIRCUIT_OPEN_DURATION_MAX,
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

/// The prefix of every circuit's path on the status board.
pub const CIRCUIT_PATH_PREFIX: &str = "/circuits/";

const BREAKER_POLICY: BreakerConfig = BreakerConfig {
    failures_max: CIRCUIT_CONSECUTIVE_FAILURES_MAX,
    open_duration: CIRCUIT_OPEN_DURATION,
    open_duration_max: CIRCUIT_OPEN_DURATION_MAX,
    probe_timeout: CIRCUIT_PROBE_TIMEOUT,
};

/// The circuit breaker of one endpoint.
pub struct EndpointBreaker {
    /// The endpoint in messages: "the model `small`", "the tool server `market`".
    endpoint: String,
    breaker: Mutex<EndpointState>,
    clock: Arc<dyn Clock>,
    status_entry: StatusEntry,
}

struct EndpointState {
    breaker: CircuitBreaker,
    last_error: String,
}

/// The endpoint's circuit is open after consecutive failures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{endpoint} is unavailable: circuit open after {CIRCUIT_CONSECUTIVE_FAILURES_MAX} or more consecutive failures, next attempt in {} s; last error: {last_error}", retry_after.as_secs_f64().ceil())]
pub struct EndpointUnavailableError {
    endpoint: String,
    last_error: String,
    /// Time until the next request may be sent.
    pub retry_after: Duration,
}

impl EndpointBreaker {
    /// Creates a breaker with a closed circuit. `path` is relative to [`CIRCUIT_PATH_PREFIX`].
    pub fn new(
        path: &str,
        endpoint: String,
        board: &StatusBoard,
        clock: &Arc<dyn Clock>,
    ) -> Arc<Self> {
        let status_entry = board.register(format!("{CIRCUIT_PATH_PREFIX}{path}"), "Circuit");
        let state = EndpointState {
            breaker: CircuitBreaker::new(BREAKER_POLICY),
            last_error: String::new(),
        };
        let breaker =
            Self { endpoint, breaker: Mutex::new(state), clock: clock.clone(), status_entry };
        breaker.update_status(&breaker.lock());
        Arc::new(breaker)
    }

    /// Returns a permit to send one request, or the error if the circuit does not allow one.
    pub fn try_acquire(self: &Arc<Self>) -> Result<RequestPermit, EndpointUnavailableError> {
        let now = self.clock.now();
        let mut state = self.lock();
        let permit = state.breaker.try_acquire(now);
        self.update_status(&state);
        match permit {
            Ok(permit) => Ok(RequestPermit { breaker: self.clone(), permit: Some(permit) }),
            Err(rejection) => Err(EndpointUnavailableError {
                endpoint: self.endpoint.clone(),
                last_error: state.last_error.clone(),
                retry_after: rejection.retry_at.saturating_duration_since(now),
            }),
        }
    }

    /// Returns the state of the circuit.
    pub fn state(&self) -> CircuitState {
        self.lock().breaker.state()
    }

    /// Closes the circuit.
    pub fn reset(&self) {
        let mut state = self.lock();
        state.breaker.reset();
        self.update_status(&state);
    }

    fn report(&self, permit: CircuitPermit, outcome: RequestOutcome, error: Option<&str>) {
        let mut state = self.lock();
        let old_state = state.breaker.state();
        if let Some(error) = error {
            truncate(error, LAST_ERROR_BYTES_MAX).clone_into(&mut state.last_error);
            self.status_entry.record_failure(error);
        }
        state.breaker.report(permit, outcome, self.clock.now());
        self.status_entry.record_handled();
        self.update_status(&state);
        let new_state = state.breaker.state();
        if old_state != new_state {
            let (from, to) = (old_state.name(), new_state.name());
            tracing::warn!(endpoint = %self.endpoint, from, to, "circuit state changed");
        }
    }

    fn update_status(&self, state: &EndpointState) {
        let waiting_for = state.breaker.open_until().map(|until| match state.breaker.state() {
            CircuitState::HalfOpen => format!("the current probe, until {until} at most"),
            CircuitState::Closed | CircuitState::Open => format!("the next probe at {until}"),
        });
        self.status_entry.set_state(state.breaker.state().name(), waiting_for);
    }

    fn lock(&self) -> MutexGuard<'_, EndpointState> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum bytes of an endpoint's last error.
const LAST_ERROR_BYTES_MAX: usize = 256;

/// Permission to send one request. Dropping the permit reports that the result is unknown.
pub struct RequestPermit {
    breaker: Arc<EndpointBreaker>,
    permit: Option<CircuitPermit>,
}

impl RequestPermit {
    /// Reports that the endpoint answered. Only the first report has an effect.
    pub fn record_success(&mut self) {
        self.finish(RequestOutcome::Success, None);
    }

    /// Reports that the endpoint failed. Only the first report has an effect.
    pub fn record_failure(&mut self, error: &str) {
        self.finish(RequestOutcome::Failure, Some(error));
    }

    fn finish(&mut self, outcome: RequestOutcome, error: Option<&str>) {
        if let Some(permit) = self.permit.take() {
            self.breaker.report(permit, outcome, error);
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.finish(RequestOutcome::Unknown, None);
    }
}

/// A model client that checks a model's circuit before each request.
pub struct GuardedModelClient {
    models: Arc<dyn ModelClient>,
    circuits: BTreeMap<String, Arc<EndpointBreaker>>,
}

impl GuardedModelClient {
    /// Wraps `models`. Each model in `names` gets a circuit; the others are not guarded.
    pub fn new(
        models: Arc<dyn ModelClient>,
        names: impl IntoIterator<Item = String>,
        board: &StatusBoard,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let with_breaker = |name: String| {
            let (path, endpoint) = (format!("models/{name}"), format!("the model `{name}`"));
            let breaker = EndpointBreaker::new(&path, endpoint, board, clock);
            (name, breaker)
        };
        Self { models, circuits: names.into_iter().map(with_breaker).collect() }
    }
}

impl ModelClient for GuardedModelClient {
    fn stream(
        &self,
        request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        let Some(breaker) = self.circuits.get(&request.model) else {
            return self.models.stream(request);
        };
        let mut permit = match breaker.try_acquire() {
            Ok(permit) => permit,
            Err(unavailable) => {
                let failure =
                    ModelFailure::circuit_open(unavailable.to_string(), unavailable.retry_after);
                return stream::once(async { Err(failure) }).boxed();
            }
        };
        let report_item = move |item: &Result<Vec<Delta>, ModelFailure>| match item {
            Err(failure) if is_endpoint_failure(failure) => permit.record_failure(&failure.message),
            // The endpoint answered. The content of the answer does not matter here.
            Ok(_) | Err(_) => permit.record_success(),
        };
        self.models.stream(request).inspect(report_item).boxed()
    }
}

/// True if a failure shows a problem of the endpoint: no answer, or an invalid one. A client error
/// or a rate limit does not.
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
