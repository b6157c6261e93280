//! The session machine in a random world: people, models, tools, time, crashes. Whatever they do
//! in whatever order, [`watch`] and [`world`] hold the log and the state to their invariants.
//!
//! [`properties`] draws short lives and shrinks those that break one, [`long_run`] lives for as
//! many steps as it is told, [`interleavings`] lets everybody decide on one plan at once, and
//! [`histories`] keeps one rich life on file.

mod elicitation_history;
mod exclusive_locks;
mod histories;
mod interleavings;
mod invariants;
mod long_run;
mod properties;
mod rng;
mod rules;
mod session_simulation;
mod users;
mod workers;
