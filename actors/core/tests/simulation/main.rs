//! Simulation of a session: random users, models, tools, time and crashes. For every order of their
//! actions, [`invariants`] and [`session_simulation`] check the log and the state.
//!
//! [`properties`] runs short simulations and shrinks failing ones, [`long_run`] runs a configurable
//! number of steps, [`interleavings`] lets several users decide on one plan concurrently, and
//! [`histories`] replays recorded logs, and [`digest_forms`] continues some of them.

mod ceilings;
mod critical_calls;
mod digest_forms;
mod elicitation_history;
mod exclusive_locks;
mod histories;
mod interleavings;
mod invariants;
mod long_run;
mod properties;
mod queue;
mod rng;
mod rules;
mod session_simulation;
mod users;
mod workers;
