//! Decides the outcome of an input: events, effects and a reply. Pure; commits nothing.
//!
//! | module | inputs |
//! |---|---|
//! | [`lifecycle`] | creating, changing and closing a session; feedback |
//! | [`messages`] | submitted messages; starts runs |
//! | [`queue`] | changes and withdrawals of queued messages |
//! | [`steps`] | the end of a model attempt; starts and retries steps |
//! | [`calls`] | the end and the progress of a tool attempt; proposes and schedules calls |
//! | [`authorization`] | none; authorizes calls when they are proposed and before each attempt |
//! | [`approvals`] | answers and passed deadlines |
//! | [`plans`] | answers to plans |
//! | [`critical_calls`] | none; checks who may approve critical calls |
//! | [`delegation`] | child sessions and their events |
//! | [`compaction`] | none; summarises the conversation between steps |
//! | [`preflight`] | answers to preflights; requests the plan before the first step |
//! | [`budgets`] | answers to budget approvals; checks and reserves costs |
//! | [`ceilings`] | none; the ceiling in force |
//! | [`exclusive_locks`] | granted locks |
//! | [`elicitations`] | elicitations of running tools and their answers |
//! | [`unknown_outcomes`] | answers about calls whose outcome is unknown |
//! | [`grants`] | requests to grant later calls and to revoke grants |
//! | [`cancel`] | cancellation of a run |
//! | [`rehydration`] | the state was rebuilt from the log |
//!
//! Most inputs end in [`DecisionBuilder::advance`], which starts everything that may start now.

mod approvals;
mod authorization;
mod budgets;
mod calls;
mod cancel;
mod ceilings;
mod compaction;
mod critical_calls;
mod delegation;
mod elicitations;
mod exclusive_locks;
mod grants;
mod lifecycle;
mod messages;
mod plans;
mod preflight;
mod queue;
mod rehydration;
mod rejection;
mod steps;
#[cfg(test)]
mod tests;
mod unknown_outcomes;

use super::{
    ActiveState, Effect, EventRecord, Input, Lifecycle, QueuedMessageStatus, RunFailureCode,
    SessionEvent, SessionState, StepPhase,
};
use crate::{
    budget::SpendingPrecondition,
    delegation::Parent,
    env::Env,
    ids::{CallId, RunId, Seq, UserId},
    message::Message,
    preflight::PreflightPhase,
    usage::ModelUsage,
};
use approvals::Respondent;
use std::sync::Arc;

pub use rejection::Rejection;

/// The outcome of an input.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The events, to be committed atomically. May be empty.
    pub events: Vec<EventRecord>,
    /// Conditions on the user's spending that must hold at the commit. If one fails, the input is
    /// decided again.
    pub preconditions: Vec<SpendingPrecondition>,
    /// The effects, to be performed once the events are committed.
    pub effects: Vec<Effect>,
    /// The reply to the sender of the input.
    pub reply: Reply,
}

/// The reply to the sender of an input, sent once the events are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The input was handled, or there was nothing to do.
    Done,
    /// The message was accepted or queued (S5).
    Submitted {
        /// The run that answers the message.
        run_id: RunId,
        /// The event that recorded the message.
        seq: Seq,
    },
    /// The message had been submitted before (S5).
    Repeated {
        /// The run that answers the message.
        run_id: RunId,
        /// The event that recorded the message.
        seq: Seq,
        /// Set if the message was changed or removed while it was queued (S10).
        queued_status: Option<QueuedMessageStatus>,
    },
    /// The queued message was changed or withdrawn (S10).
    QueueUpdated {
        /// The run of the message: its own run, or the run that it steers.
        run_id: RunId,
        /// True if the message had been changed in the same way or withdrawn before.
        repeated: bool,
    },
    /// The message was added to the active run (S4).
    Steered {
        /// The active run.
        run_id: RunId,
        /// The event that recorded the message.
        seq: Seq,
        /// True if an approval is open, so that the model reads the message after the decision.
        after_decision: bool,
    },
    /// The answer was accepted (G11).
    Answered {
        /// True if the approval is now completely decided.
        closed: bool,
        /// True if the same answer had been given before.
        repeated: bool,
    },
    /// The run was cancelled.
    Cancelled {
        /// The cancelled run.
        run_id: RunId,
    },
}

/// Decides the outcome of `input`.
pub fn decide(state: &SessionState, input: Input, env: &Env<'_>) -> Result<Decision, Rejection> {
    let mut builder = DecisionBuilder::new(state, env);
    let d = &mut builder;
    let exists = state.active.lifecycle != Lifecycle::NotCreated;
    let reply = match input {
        Input::CreateSession { .. } | Input::ForkSession { .. } | Input::CreateChild { .. }
            if exists =>
        {
            return Err(Rejection::SessionExists);
        }
        Input::CreateChild { task } => d.decide_create_child(&task),
        Input::CreateSession { owner, agent, title, settings } => {
            d.decide_create_session(owner, agent, title, settings)
        }
        Input::ForkSession { from, at_seq, owner, agent, title, settings, conversation, spent } => {
            d.emit(SessionEvent::SessionForked {
                from,
                at_seq,
                owner,
                agent,
                title,
                settings: settings.into(),
                conversation,
                spent,
            });
            Reply::Done
        }
        _ if !exists => return Err(Rejection::UnknownSession),
        Input::NarrowSettings { parent_settings } => d.decide_narrow_settings(&parent_settings),
        Input::ChangeSettings { patch, title, by } => d.decide_change_settings(patch, title, by)?,
        Input::CloseSession { by, partial } => d.decide_close_session(by, partial),
        Input::SubmitMessage { message, on_busy } => d.decide_submit_message(message, on_busy)?,
        Input::Interrupt { message, by, partial } => d.decide_interrupt(message, &by, partial)?,
        Input::ChangeQueuedMessage { message_id, change, by } => {
            d.decide_change_queued_message(message_id, change, by)?
        }
        Input::WithdrawQueuedMessage { message_id, by } => {
            d.decide_withdraw_queued_message(message_id, by)?
        }
        Input::CancelRun { run_id, by, partial } => d.decide_cancel_run(run_id, by, partial)?,
        Input::AnswerApproval { approval_id, answer, for_session, by, role, surface } => {
            let respondent = Respondent { by, role, surface };
            d.decide_answer_approval(approval_id, answer, for_session, &respondent)?
        }
        Input::RevokeGrants { grant_id, by } => d.decide_revoke_grants(grant_id, &by)?,
        Input::GiveFeedback { feedback, run_id, by } => {
            d.decide_give_feedback(feedback, run_id, by)?
        }
        Input::ModelFinished { attempt_id, result } => d.decide_model_finished(attempt_id, result),
        Input::ToolFinished { call_id, attempt_id, outcome } => {
            d.decide_tool_finished(call_id, attempt_id, outcome)
        }
        Input::ToolProgressed { call_id, attempt_id, progress, total, message } => {
            d.decide_tool_progressed(call_id, attempt_id, progress, total, message)
        }
        Input::ElicitationRequested { call_id, attempt_id, elicitation_number, elicitation } => {
            d.decide_elicitation_requested(call_id, attempt_id, elicitation_number, elicitation)
        }
        Input::ElicitationWithdrawn { attempt_id, elicitation_number } => {
            d.decide_elicitation_withdrawn(attempt_id, elicitation_number)
        }
        Input::ChildEventsReceived { child, records } => {
            d.decide_child_events_received(child, &records)
        }
        Input::ChildGone { child } => d.decide_child_gone(child),
        Input::ExclusiveLockGranted { call_id, key } => {
            d.decide_exclusive_lock_granted(call_id, key)
        }
        Input::Wake => d.decide_wake(),
        Input::Rehydrated { user_settings } => d.decide_rehydrated(user_settings.as_deref()),
    };
    Ok(builder.finish(reply))
}

/// Builds a decision. Works on a copy of the active state and applies each event to it when the
/// event is emitted, so that later parts of the decision see the new state.
struct DecisionBuilder<'a> {
    session: &'a SessionState,
    env: &'a Env<'a>,
    active: ActiveState,
    last_seq: Seq,
    events: Vec<EventRecord>,
    /// The messages that `events` add to the conversation.
    new_messages: Vec<Message>,
    preconditions: Vec<SpendingPrecondition>,
    /// The conditions that keep the ceiling's budgets. No approval lifts them.
    ceiling_preconditions: Vec<SpendingPrecondition>,
    effects: Vec<Effect>,
    /// Model usage of the runs that ended in this decision.
    ended_usage: ModelUsage,
    /// The exclusive lock granted by the input, not yet used: its call and key (T8).
    granted_lock: Option<(CallId, String)>,
    /// For a child: its owner and its parent (S8).
    owner_and_parent: Option<(UserId, Arc<Parent>)>,
}

impl<'a> DecisionBuilder<'a> {
    fn new(session: &'a SessionState, env: &'a Env<'a>) -> Self {
        let active = session.active.clone();
        let (last_seq, ended_usage) = (session.last_seq, ModelUsage::default());
        let (events, new_messages, preconditions, effects) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let metadata = session.metadata.as_ref();
        let owner_and_parent =
            metadata.and_then(|metadata| Some((metadata.owner.clone(), metadata.parent.clone()?)));
        Self {
            session,
            env,
            active,
            last_seq,
            events,
            new_messages,
            preconditions,
            ceiling_preconditions: Vec::new(),
            effects,
            ended_usage,
            granted_lock: None,
            owner_and_parent,
        }
    }

    fn finish(self, reply: Reply) -> Decision {
        debug_assert_eq!(
            self.active,
            self.replay_events(),
            "the active state differs from the replayed state"
        );
        Decision {
            events: self.events,
            preconditions: [self.preconditions, self.ceiling_preconditions].concat(),
            effects: self.effects,
            reply,
        }
    }

    /// Returns the active state that results from replaying the emitted events. It must equal
    /// `active`; otherwise the decision relied on a state that no replay reproduces.
    fn replay_events(&self) -> ActiveState {
        let mut active = self.session.active.clone();
        self.events.iter().for_each(|record| active.apply(record));
        active
    }

    /// Emits an event that belongs to the active run and its current step, if there is one.
    fn emit(&mut self, event: SessionEvent) {
        let run = self.active.run.as_ref();
        let run_id = run.map(|run| run.run_id);
        let step = run.map(|run| run.step).filter(|step| *step > 0);
        self.emit_for(run_id, step, event);
    }

    /// Emits an event with the given run and step.
    fn emit_for(&mut self, run_id: Option<RunId>, step: Option<u32>, event: SessionEvent) {
        self.last_seq = self.last_seq.next();
        if let SessionEvent::RunCompleted { usage, .. }
        | SessionEvent::RunFailed { usage, .. }
        | SessionEvent::RunCancelled { usage, .. } = &event
        {
            self.ended_usage = self.ended_usage.plus(*usage);
        }
        let record = EventRecord { seq: self.last_seq, at: self.env.now, run_id, step, event };
        self.collect_messages(&record);
        self.active.apply(&record);
        self.events.push(record);
    }

    /// Collects the messages that the record adds to the conversation. Must be called before the
    /// record is applied.
    fn collect_messages(&mut self, record: &EventRecord) {
        if let SessionEvent::MessageAccepted { message_id, text, .. } = &record.event {
            let (message_id, text) = (message_id.clone(), text.clone());
            self.new_messages.push(Message::User { message_id, text });
        } else if let SessionEvent::StepStarted { .. }
        | SessionEvent::RunCompleted { .. }
        | SessionEvent::RunFailed { .. }
        | SessionEvent::RunCancelled { .. } = &record.event
        {
            self.new_messages.extend(self.active.step_messages_for_run(record.run_id));
        }
    }

    /// Starts everything that may start now: attempts that are due, calls, the next step and the
    /// next run. Returns when all remaining work waits for something outside the session. While the
    /// server drains, it starts no work that the shutdown would interrupt (D8); such work starts
    /// when the session is resumed.
    fn advance(&mut self) {
        let is_draining = self.env.is_draining;
        loop {
            let Some(run) = &self.active.run else {
                if self.close_if_child() {
                    return;
                }
                let Some(next) = self.active.queue.front().cloned() else { return };
                if self.active.lifecycle != Lifecycle::Open || is_draining {
                    return;
                }
                self.start_run(next);
                continue;
            };
            match run.phase {
                StepPhase::BetweenSteps | StepPhase::BackingOff { .. } if is_draining => return,
                StepPhase::BetweenSteps if self.waits_for_budget() => return,
                StepPhase::BetweenSteps if run.preflight == PreflightPhase::AwaitingApproval => {
                    return;
                }
                StepPhase::BetweenSteps if run.is_planning() => self.start_planning(),
                StepPhase::BetweenSteps => self.start_step(run.step + 1),
                StepPhase::Streaming { .. } => return,
                StepPhase::BackingOff { until, .. } if until > self.env.now => return,
                StepPhase::BackingOff { attempts, .. } => self.start_attempt(attempts + 1),
                StepPhase::RunningCalls => {
                    if !is_draining {
                        self.schedule_calls();
                    }
                    if !self.all_calls_finished() || self.waits_for_budget() {
                        return;
                    }
                    if is_draining && !self.is_last_step() {
                        return;
                    }
                    self.finish_step();
                }
            }
        }
    }

    /// Ends a step whose calls all have a result: starts the next step, or ends the run.
    fn finish_step(&mut self) {
        let Some(run) = &self.active.run else { return };
        let usage = run.usage;
        if run.calls.is_empty() || run.stop_reason.is_refused() {
            let message_id = run.last_message_id.clone().unwrap_or_else(|| run.message_id.clone());
            let stop_reason = Some(run.final_stop_reason());
            self.emit(SessionEvent::RunCompleted { message_id, usage, stop_reason });
        } else if self.is_last_step() {
            let code = RunFailureCode::MaxIterations;
            let error = "maximum iterations reached without final answer".to_owned();
            self.emit(SessionEvent::RunFailed { code, error, usage });
        } else {
            self.start_step(run.step + 1);
        }
    }

    /// Returns true if no step can follow this one: it has no calls, its message was refused, or the
    /// step limit is reached.
    fn is_last_step(&self) -> bool {
        let run = self.active.run.as_ref();
        let max_steps = self.env.rules.agent.max_steps;
        run.is_none_or(|run| {
            run.calls.is_empty() || run.stop_reason.is_refused() || run.step >= max_steps
        })
    }

    fn decide_wake(&mut self) -> Reply {
        self.expire_overdue();
        self.advance();
        Reply::Done
    }
}
