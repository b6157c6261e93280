//! Short random lives, shrunk when one breaks. `PROPTEST_CASES` raises their number.

use crate::{chance::Chance, world::World};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};

fn live(seed: u64, steps: &[u64]) {
    let mut world = World::new(seed);
    world.create(&mut Chance::new(seed));
    for entropy in steps {
        world.step(*entropy);
    }
    world.finish(seed);
}

proptest! {
    #![proptest_config(Config {
        rng_seed: RngSeed::Fixed(20_260_901),
        failure_persistence: None,
        ..Config::default()
    })]

    #[test]
    fn every_life_keeps_every_promise(
        seed in any::<u64>(),
        steps in prop::collection::vec(any::<u64>(), 1..200),
    ) {
        live(seed, &steps);
    }
}
