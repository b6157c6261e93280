//! Calls that wait for calls of other sessions (T8). Whose turn it is, is not known here: the
//! decision asks, and begins the call when it is told. Nothing of it is recorded; after a restart
//! the call asks again.

use super::{DecisionBuilder, Reply};
use crate::{
    ids::CallId,
    policy::{Denial, ExpressionContext},
    session::Effect,
};

impl DecisionBuilder<'_> {
    /// The call begins, if it still may; if it doesn't, its turn is for others.
    pub(super) fn decide_exclusive_lock_granted(&mut self, call_id: CallId, key: String) -> Reply {
        self.granted_lock = Some((call_id, key));
        self.advance();
        Reply::Done
    }

    /// Begins the attempt, or asks for the call's turn. Where nobody can tell which turn that is,
    /// the call ends: then the answer is no.
    pub(super) fn start_or_acquire_lock(&mut self, call_id: CallId, attempt: u32) -> bool {
        match self.exclusive_key(call_id) {
            Ok(None) => return self.start_call(call_id, attempt),
            Ok(Some(key)) => {
                let wanted = (call_id, key);
                if self.granted_lock.take_if(|granted| *granted == wanted).is_some() {
                    return self.start_call(call_id, attempt);
                }
                let effect = Effect::AcquireExclusiveLock { call_id, key: wanted.1 };
                if !self.effects.contains(&effect) {
                    self.effects.push(effect);
                }
            }
            Err(problem) => {
                self.deny_without_key(call_id, &problem);
                return false;
            }
        }
        true
    }

    /// The key of what would be passed now, by the rules of now.
    fn exclusive_key(&self, call_id: CallId) -> Result<Option<String>, String> {
        let Some(call) = self.call(call_id) else { return Ok(None) };
        // What is not there by these rules is not sent, whatever begins.
        let Some(tool) = self.env.rules.tool(&call.tool) else { return Ok(None) };
        // A task's own calls have their turns; it must not keep them from it.
        if tool.exclusive.is_none() || self.is_delegation(call) {
            return Ok(None);
        }
        let session = self.session.session_id.to_string();
        let facts = ExpressionContext::new(
            &call.effective_arguments().to_value(),
            &self.judge_context(&session),
        )?;
        tool.exclusive_key(&facts)
    }

    fn deny_without_key(&mut self, call_id: CallId, problem: &str) {
        let Some(call) = self.call(call_id) else { return };
        let reason = format!("{} is denied: its exclusive key: {problem}", call.tool);
        self.deny_call(call_id, Denial { reason, required_level: None });
    }
}
