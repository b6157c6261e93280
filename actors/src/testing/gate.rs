//! A synchronization point that blocks callers until a test releases them.

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
    /// Creates a closed gate.
    pub fn closed() -> Self {
        Self(Arc::new(GateState { permits: Semaphore::new(0), arrivals: watch::Sender::new(0) }))
    }

    /// Releases one caller, now or when it arrives.
    pub fn release_one(&self) {
        self.0.permits.add_permits(1);
    }

    /// Releases all callers from now on.
    pub fn open(&self) {
        self.0.permits.close();
    }

    /// Waits until the gate releases the caller.
    pub async fn wait(&self) {
        self.0.arrivals.send_modify(|count| *count += 1);
        if let Ok(permit) = self.0.permits.acquire().await {
            permit.forget();
        }
    }

    /// Waits until `count` callers have arrived since the gate was created.
    ///
    /// # Panics
    ///
    /// Panics if they do not arrive within [`super::TEST_TIMEOUT`].
    pub async fn wait_for_arrivals(&self, count: usize) {
        let mut arrivals = self.0.arrivals.subscribe();
        let arrived = arrivals.wait_for(|arrived| *arrived >= count);
        super::with_timeout("arrivals at a gate", arrived).await.expect("the gate owns the sender");
    }
}
