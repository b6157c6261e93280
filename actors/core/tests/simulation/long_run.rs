//! Random simulations, in parallel, for a given number of steps.
//!
//! `GREENROOM_SIM_STEPS` sets the number of steps, `GREENROOM_SIM_SEED` the first seed. A simulation
//! that violates an invariant prints its seed; run with that seed, it is the first one and fails again
//! in the same way.

use crate::{rng::SeededRng, session_simulation::SessionSimulation};
use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    thread,
};

const STEPS_DEFAULT: u64 = 1_000_000;
const STEPS_PER_SESSION: u64 = 500;
const SEED_DEFAULT: u64 = 1;
/// Number of steps of a fork of another session.
const STEPS_PER_FORK: u64 = 60;

#[test]
fn invariants_hold_in_a_long_run() {
    let steps = env_or("GREENROOM_SIM_STEPS", STEPS_DEFAULT);
    let first = env_or("GREENROOM_SIM_SEED", SEED_DEFAULT);
    let sessions = usize::try_from(steps.div_ceil(STEPS_PER_SESSION)).expect("it fits into usize");
    let seeds = std::iter::successors(Some(first), |seed| Some(SeededRng::new(*seed).next()));
    let seeds: Vec<_> = seeds.take(sessions).collect();
    let (next, exclusive_starts) = (AtomicUsize::new(0), AtomicU64::new(0));
    let worker = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Relaxed)) {
            exclusive_starts.fetch_add(simulate_session(*seed), Relaxed);
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for result in threads.into_iter().map(thread::ScopedJoinHandle::join) {
            result.unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    // T8 would hold trivially if no exclusive lock were ever granted.
    assert!(
        exclusive_starts.into_inner() > 0 || steps < STEPS_DEFAULT,
        "no exclusive call was started"
    );
}

/// Simulates one session. Returns the number of exclusive calls that were started.
fn simulate_session(seed: u64) -> u64 {
    let seed_guard = PrintSeedOnPanic { seed };
    let chance = &mut SeededRng::new(seed);
    let mut simulation = SessionSimulation::new(seed);
    simulation.create(chance);
    for _ in 0..STEPS_PER_SESSION {
        simulation.step(chance.next());
    }
    let exclusive_starts = simulation.locks.exclusive_starts();
    if chance.one_in(4) {
        let mut fork = simulation.fork(chance);
        for _ in 0..STEPS_PER_FORK {
            fork.step(chance.next());
        }
        fork.finish(chance.next());
    }
    simulation.finish(chance.next());
    drop(seed_guard);
    u64::from(exclusive_starts)
}

fn env_or(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text}"))
}

struct PrintSeedOnPanic {
    seed: u64,
}

impl Drop for PrintSeedOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let seed = self.seed;
            eprintln!("replay: GREENROOM_SIM_SEED={seed} GREENROOM_SIM_STEPS={STEPS_PER_SESSION}");
        }
    }
}
