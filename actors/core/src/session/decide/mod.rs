//! Deciding.
use super::*;
use crate::env::Env;
/// What a decision leads to.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /** e */
    pub events: Vec<EventRecord>,
    /** f */
    pub effects: Vec<Effect>,
    /** r */
    pub reply: Reply,
}
/// What the asker is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /** d */
    Done,
}
/// What will not happen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /** d */
    #[error("no")]
    No,
}
/// Decides.
pub fn decide(_state: &SessionState, _input: Input, _env: &Env<'_>) -> Result<Decision, Rejection> {
    Err(Rejection::No)
}
