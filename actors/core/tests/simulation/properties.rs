//! Short random simulations; failing ones are shrunk. `PROPTEST_CASES` sets their number.

use crate::{rng::SeededRng, session_simulation::SessionSimulation};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};

fn simulate(seed: u64, steps: &[u64]) {
    let mut simulation = SessionSimulation::new(seed);
    simulation.create(&mut SeededRng::new(seed));
    for entropy in steps {
        simulation.step(*entropy);
    }
    simulation.finish(seed);
}

proptest! {
    #![proptest_config(Config {
        rng_seed: RngSeed::Fixed(20_260_901),
        failure_persistence: None,
        ..Config::default()
    })]

    #[test]
    fn invariants_hold_in_every_simulation(
        seed in any::<u64>(),
        steps in prop::collection::vec(any::<u64>(), 1..200),
    ) {
        simulate(seed, &steps);
    }
}
