//! The effects of a decision: work outside the state machine, to be performed once the decision's
//! events are committed.

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
    /// Call the model with the current conversation.
    StartModel {
        /// The run's id.
        run_id: RunId,
        /// The step's number; 0 for the planning call of a preflight.
        step: u32,
        /// The attempt's id, its fencing token.
        attempt_id: AttemptId,
        /// The message that the deltas belong to; `None` for a preflight plan or a summary, whose
        /// text is not streamed to clients (G14, C4).
        message_id: Option<MessageId>,
        /// The model's name in configuration.
        model: String,
    },
    /// Stop a model attempt; its result is no longer needed.
    StopModel {
        /// The attempt's id.
        attempt_id: AttemptId,
    },
    /// Run a tool.
    StartTool {
        /// The run's id.
        run_id: RunId,
        /// The call's id; also the idempotency key of all its attempts.
        call_id: CallId,
        /// The attempt's id, its fencing token.
        attempt_id: AttemptId,
        /// The tool's name.
        tool: String,
        /// The arguments, exactly those that the recorded allowance is bound to.
        arguments: Arc<Arguments>,
    },
    /// Acquire an exclusive lock for the call, which may run once no other call with that key runs
    /// in any session (T8). Every decision repeats the effect until the lock is granted.
    AcquireExclusiveLock {
        /// The call's id.
        call_id: CallId,
        /// The key of the lock.
        key: String,
    },
    /// Send the answer of an elicitation to the running tool (T1).
    AnswerElicitation {
        /// The id of the attempt that requested the elicitation.
        attempt_id: AttemptId,
        /// The number of the elicitation within the attempt, from 1.
        elicitation_number: u32,
        /// The answer.
        answer: ElicitationAnswer,
    },
    /// Delegate a task to a child session (S8): start the child if it does not exist, deliver its
    /// events from `after_seq` on, and end the attempt with its answer.
    StartChild {
        /// The attempt's id, its fencing token. The task names the call.
        attempt_id: AttemptId,
        /// The child's task.
        task: Arc<ChildTask>,
        /// The last event of the child that is already mirrored.
        after_seq: Seq,
    },
    /// Narrow the settings of a child.
    NarrowChild {
        /// The child's session id.
        child: SessionId,
        /// The parent's settings.
        parent_settings: Arc<Settings>,
    },
    /// Close a child. Its answer is no longer needed, but its remaining events are.
    CloseChild {
        /// The child's session id.
        child: SessionId,
        /// The call that the child works for.
        call_id: CallId,
        /// The last event of the child that is already mirrored.
        after_seq: Seq,
        /// The user on whose behalf the child is closed.
        by: UserId,
    },
    /// Stop a tool attempt with an MCP cancellation; its result is no longer needed.
    StopTool {
        /// The call's id.
        call_id: CallId,
        /// The attempt's id.
        attempt_id: AttemptId,
    },
}
