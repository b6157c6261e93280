//! Many lives, one after the other, for a given number of steps.
//!
//! `GREENROOM_SIM_STEPS` says how many, `GREENROOM_SIM_SEED` where to begin. A life that breaks a
//! promise prints its seed; with that seed it is the first one, and breaks again in the same way.

use crate::{chance::Chance, world::World};

const STEPS_DEFAULT: u64 = 200_000;
const STEPS_PER_LIFE: u64 = 500;
const SEED_DEFAULT: u64 = 1;

#[test]
fn no_promise_breaks_in_a_long_run() {
    let steps = from_environment("GREENROOM_SIM_STEPS", STEPS_DEFAULT);
    let mut seed = from_environment("GREENROOM_SIM_SEED", SEED_DEFAULT);
    let mut alone = 0;
    for _ in 0..steps.div_ceil(STEPS_PER_LIFE) {
        let shown = ShownOnPanic { seed };
        let chance = &mut Chance::new(seed);
        let mut world = World::new(seed);
        world.create(chance);
        for _ in 0..STEPS_PER_LIFE {
            world.step(chance.next());
        }
        alone += world.turns.began_alone();
        world.finish(chance.next());
        drop(shown);
        seed = chance.next();
    }
    // T8 would hold in a world in which no turn ever comes.
    assert!(alone > 0 || steps < STEPS_DEFAULT, "no exclusive call ever began");
}

fn from_environment(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text}"))
}

struct ShownOnPanic {
    seed: u64,
}

impl Drop for ShownOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.seed;
            eprintln!("replay: GREENROOM_SIM_SEED={seed} GREENROOM_SIM_STEPS={STEPS_PER_LIFE}");
        }
    }
}
