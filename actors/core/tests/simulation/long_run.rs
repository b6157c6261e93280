//! Many lives, side by side, for a given number of steps.
//!
//! `GREENROOM_SIM_STEPS` says how many, `GREENROOM_SIM_SEED` where to begin. A life that breaks a
//! promise prints its seed; with that seed it is the first one, and breaks again in the same way.

use crate::{rng::SeededRng, session_simulation::SessionSimulation};
use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    thread,
};

const STEPS_DEFAULT: u64 = 1_000_000;
const STEPS_PER_SESSION: u64 = 500;
const SEED_DEFAULT: u64 = 1;
/// Steps of a session that goes on from the middle of another.
const STEPS_PER_FORK: u64 = 60;

#[test]
fn invariants_hold_in_a_long_run() {
    let steps = env_or("GREENROOM_SIM_STEPS", STEPS_DEFAULT);
    let first = env_or("GREENROOM_SIM_SEED", SEED_DEFAULT);
    let lives = usize::try_from(steps.div_ceil(STEPS_PER_SESSION)).expect("there is time for them");
    let seeds = std::iter::successors(Some(first), |seed| Some(SeededRng::new(*seed).next()));
    let seeds: Vec<_> = seeds.take(lives).collect();
    let (next, alone) = (AtomicUsize::new(0), AtomicU64::new(0));
    let lead = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Relaxed)) {
            alone.fetch_add(simulate_session(*seed), Relaxed);
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(lead)).collect();
        for ended in threads.into_iter().map(thread::ScopedJoinHandle::join) {
            ended.unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    // T8 would hold in a world in which no turn ever comes.
    assert!(alone.into_inner() > 0 || steps < STEPS_DEFAULT, "no exclusive call ever began");
}

/// One life; how many exclusive calls began in it.
fn simulate_session(seed: u64) -> u64 {
    let shown = PrintSeedOnPanic { seed };
    let chance = &mut SeededRng::new(seed);
    let mut world = SessionSimulation::new(seed);
    world.create(chance);
    for _ in 0..STEPS_PER_SESSION {
        world.step(chance.next());
    }
    let alone = world.locks.exclusive_starts();
    if chance.one_in(4) {
        let mut fork = world.fork(chance);
        for _ in 0..STEPS_PER_FORK {
            fork.step(chance.next());
        }
        fork.finish(chance.next());
    }
    world.finish(chance.next());
    drop(shown);
    u64::from(alone)
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
