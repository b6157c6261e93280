//! In-memory implementations of every port for tests, with faults and gates.
//!
//! The tests of this crate and of others use them; a server does not. They satisfy the contracts of
//! [`crate::ports`], and can violate each of them at a chosen moment. Tests do not sleep: they open
//! a [`Gate`], or wait for a condition with [`TestRuntime::wait_for`] and [`wait_until`].

mod clock;
mod gate;
mod journal;
mod model;
mod outlet;
mod runtime;
mod tools;

pub use clock::ManualClock;
pub use gate::Gate;
pub use journal::{JournalFault, JournalOperation, MemoryJournal};
pub use model::{ModelReply, ScriptedModel, StreamAction};
pub use outlet::CollectingOutlet;
pub use runtime::{TestRuntime, TestRuntimeBuilder, TestSubscriber};
pub use tools::{FakeTools, RecordedCall, ToolAction, ToolScript};

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Time after which a waiting test fails. Generous, because it measures nothing.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Polls `condition` until it is true. For conditions without a change notification.
///
/// # Panics
///
/// Panics if the condition is not true within [`TEST_TIMEOUT`]. `description` is part of the message.
pub async fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let polling = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    with_timeout(description, polling).await;
}

/// Returns the result of `work`.
///
/// # Panics
///
/// Panics if `work` does not complete within [`TEST_TIMEOUT`].
pub async fn with_timeout<T>(description: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TEST_TIMEOUT, work).await {
        Ok(result) => result,
        Err(_) => panic!("timed out after {TEST_TIMEOUT:?} while waiting for {description}"),
    }
}

/// Locks `mutex`, ignoring poisoning: scripts may panic on purpose, and the data stays valid.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
