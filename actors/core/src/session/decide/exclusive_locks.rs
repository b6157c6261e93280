//! Exclusive locks (T8): calls that wait for calls with the same key in other sessions.
//!
//! This module does not know which call holds a lock. A decision requests the lock with an effect
//! and starts the call once the lock is granted. Nothing of this is recorded; after a restart the
//! call requests its lock again.

use super::{DecisionBuilder, Reply};
use crate::{
    ids::CallId,
    policy::{Denial, ExpressionContext},
    session::Effect,
};

impl DecisionBuilder<'_> {
    /// Starts the call that was granted its lock, if it may still run.
    pub(super) fn decide_exclusive_lock_granted(&mut self, call_id: CallId, key: String) -> Reply {
        self.granted_lock = Some((call_id, key));
        self.advance();
        Reply::Done
    }

    /// Starts an attempt, or requests the call's exclusive lock. Denies the call if its key can't
    /// be computed. Returns false if the call can't start and has ended.
    pub(super) fn start_or_acquire_lock(&mut self, call_id: CallId, attempt: u32) -> bool {
        match self.exclusive_key(call_id) {
            Ok(None) => return self.start_call(call_id, attempt),
            Ok(Some(key)) => {
                let lock = (call_id, key);
                if self.granted_lock.take_if(|granted| *granted == lock).is_some() {
                    return self.start_call(call_id, attempt);
                }
                let effect = Effect::AcquireExclusiveLock { call_id, key: lock.1 };
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

    /// Returns the key of the call's current arguments under the current rules, if it needs a lock.
    fn exclusive_key(&self, call_id: CallId) -> Result<Option<String>, String> {
        let Some(call) = self.call(call_id) else { return Ok(None) };
        // A tool that the rules do not list is never dispatched, so the call needs no lock.
        let Some(tool) = self.env.rules.tool(&call.tool) else { return Ok(None) };
        // A delegated call holds no lock, because the child's own calls may need it.
        if tool.exclusive.is_none() || self.is_delegation(call) {
            return Ok(None);
        }
        let inputs = self.judge_inputs(None);
        let arguments = call.effective_arguments().to_value();
        let context = ExpressionContext::new(&arguments, &self.judge_context(&inputs))?;
        tool.exclusive_key(&context)
    }

    fn deny_without_key(&mut self, call_id: CallId, problem: &str) {
        let Some(call) = self.call(call_id) else { return };
        let reason = format!("{} is denied: exclusive key: {problem}", call.tool);
        self.deny_call(call_id, Denial { reason, required_level: None });
    }
}
