//! The world outside, for tests: every port in memory, with faults and gates.
//!
//! Tests of this crate and of others build on it; nothing of it runs in a server. It keeps the
//! promises of [`crate::ports`] as the real parts do, so that what passes here means something,
//! and it can break each of them at a chosen moment. Nothing waits for time to pass: a test opens
//! a [`Gate`], or waits for a condition with [`World::wait_for`] and [`eventually`].

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

/// After so long a test that still waits has failed. Generous: it is no measure of anything.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until `condition` holds, for what tells nobody that it has changed.
///
/// # Panics
///
/// When it does not hold within [`PATIENCE`]; `what` says what was waited for.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let held = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    with_timeout(what, held).await;
}

/// `work`'s result.
///
/// # Panics
///
/// When there is none within [`PATIENCE`].
pub async fn with_timeout<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TEST_TIMEOUT, work).await {
        Ok(result) => result,
        Err(_) => panic!("waited {TEST_TIMEOUT:?} in vain for {what}"),
    }
}

/// Scripts may panic on purpose; what they leave behind is good all the same.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
