//! What must happen in the world, once the events that say so are committed.

use crate::{
    approval::ElicitationAnswer,
    delegation::ChildTask,
    ids::{AttemptId, CallId, MessageId, RunId, Seq, SessionId, UserId},
    message::Arguments,
    policy::Settings,
};
use std::sync::Arc;

/// One effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Call the model with the conversation as it stands.
    StartModel {
        /// The run.
        run_id: RunId,
        /// The step of that run; 0 for a plan.
        step: u32,
        /// The fence.
        attempt_id: AttemptId,
        /// The message its deltas belong to; `None` for a plan, of which clients hear once a person
        /// is asked (G14).
        message_id: Option<MessageId>,
        /// The model, by its name in configuration.
        model: String,
    },
    /// Stop a model attempt; its answer is no longer wanted.
    StopModel {
        /// Which.
        attempt_id: AttemptId,
    },
    /// Run a tool.
    StartTool {
        /// The run.
        run_id: RunId,
        /// The call; also its idempotency key.
        call_id: CallId,
        /// The fence.
        attempt_id: AttemptId,
        /// The tool.
        tool: String,
        /// What to pass: exactly what the recorded allowance is bound to.
        arguments: Arc<Arguments>,
    },
    /// Get the call its turn: it may run once no other call with that key does, in any session
    /// (T8). Comes again with every decision until the turn is granted.
    AcquireExclusiveLock {
        /// The call.
        call_id: CallId,
        /// The key.
        key: String,
    },
    /// Tell a running tool what became of its question (T1).
    AnswerElicitation {
        /// The attempt that asked.
        attempt_id: AttemptId,
        /// Which of its questions.
        elicitation_number: u32,
        /// The answer.
        answer: ElicitationAnswer,
    },
    /// Have another session do it (S8): it is started if it is not there, what happens in it is told
    /// from `after` on, and its answer ends the attempt.
    StartChild {
        /// The attempt's fence; its call is the errand's.
        attempt_id: AttemptId,
        /// What is to be done, and by whom.
        task: Arc<ChildTask>,
        /// The last of its events that is known.
        after_seq: Seq,
    },
    /// A child allows no more than this from now on.
    NarrowChild {
        /// The child.
        child: SessionId,
        /// What its parent allows.
        parent_settings: Arc<Settings>,
    },
    /// Close a child; its answer is no longer wanted, but its end is to be told.
    CloseChild {
        /// The child.
        child: SessionId,
        /// The call that it works for.
        call_id: CallId,
        /// The last of its events that is known.
        after_seq: Seq,
        /// For whom it is closed.
        by: UserId,
    },
    /// Stop a tool attempt (MCP cancellation); its answer is no longer wanted.
    StopTool {
        /// The call.
        call_id: CallId,
        /// Which.
        attempt_id: AttemptId,
    },
}
