//! A point that whoever comes by does not pass before the test says so.

use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// A gate. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    permits: Semaphore,
    arrivals: watch::Sender<usize>,
}

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self(Arc::new(GateState { permits: Semaphore::new(0), arrivals: watch::Sender::new(0) }))
    }

    /// Lets one through, now or when it comes.
    pub fn release_one(&self) {
        self.0.permits.add_permits(1);
    }

    /// Lets everyone through from now on.
    pub fn open(&self) {
        self.0.permits.close();
    }

    /// Waits until the gate lets the caller through.
    pub async fn wait(&self) {
        self.0.arrivals.send_modify(|count| *count += 1);
        if let Ok(permit) = self.0.permits.acquire().await {
            permit.forget();
        }
    }

    /// Waits until so many have come to the gate since it was made.
    ///
    /// # Panics
    ///
    /// When they don't come within [`super::PATIENCE`].
    pub async fn wait_for_arrivals(&self, count: usize) {
        let mut arrivals = self.0.arrivals.subscribe();
        let come = arrivals.wait_for(|come| *come >= count);
        super::with_timeout("somebody at a gate", come).await.expect("the gate holds the sender");
    }
}
