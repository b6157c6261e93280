//! The session machine in a random world: people, models, tools, time, crashes. Whatever they do
//! in whatever order, [`watch`] and [`world`] hold the log and the state to their invariants.
//!
//! [`properties`] draws short lives and shrinks those that break one, [`long_run`] lives for as
//! many steps as it is told, [`interleavings`] lets everybody decide on one plan at once, and
//! [`histories`] keeps one rich life on file.

mod asking;
mod chance;
mod histories;
mod interleavings;
mod long_run;
mod people;
mod properties;
mod rules;
mod turns;
mod watch;
mod workers;
mod world;
