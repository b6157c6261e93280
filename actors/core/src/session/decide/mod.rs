//! Deciding: from a state and an input to events, effects and a reply. Pure; commits nothing.
//!
//! | family | inputs |
//! |---|---|
//! | [`lifecycle`] | create, settings, close, feedback |
//! | [`messages`] | submit; starting runs |
//! | [`steps`] | a model attempt ended; starting and retrying steps |
//! | [`calls`] | proposing, scheduling; a tool attempt ended or progressed |
//! | [`judging`] | whether a call may run, and whether it still may |
//! | [`approvals`] | a person decided; a deadline passed |
//! | [`plans`] | which calls a person lets run |
//! | [`delegation`] | tasks for other agents; a child's news |
//! | [`compaction`] | a summary of what was said, between steps |
//! | [`preflight`] | a plan before the first step, and what a person makes of it |
//! | [`budgets`] | what may be spent; raising it |
//! | [`turns`] | a call's turn came |
//! | [`elicitations`] | what a running tool asks of people |
//! | [`unknown`] | what became of a call that nobody knows the end of |
//! | [`grants`] | what holds for the session |
//! | [`cancel`] | cancel |
//! | [`restart`] | rehydrated |
//!
//! Every family ends in [`Deciding::advance`], which starts whatever may start now.

mod approvals;
mod authorization;
mod budgets;
mod calls;
mod cancel;
mod compaction;
mod delegation;
mod elicitations;
mod exclusive_locks;
mod grants;
mod lifecycle;
mod messages;
mod plans;
mod preflight;
mod rehydration;
mod steps;
#[cfg(test)]
mod tests;
mod unknown_outcomes;

use super::{
    ActiveState, Effect, EventRecord, Input, Lifecycle, RunFailureCode, SessionEvent, SessionState,
    StepPhase,
};
use crate::{
    approval::{PlanStepDecision, RecordedAnswer, Role},
    budget::SpendingPrecondition,
    delegation::Parent,
    env::Env,
    ids::{ApprovalId, CallId, GrantId, MessageId, RunId, Seq, SessionId, UserId},
    message::Message,
    preflight::PreflightPhase,
    usage::ModelUsage,
};
use approvals::Respondent;
use std::sync::Arc;

/// What an input leads to.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// To be committed, as one. May be empty.
    pub events: Vec<EventRecord>,
    /// What must hold of the user's spending when they are committed; else it is decided anew.
    pub preconditions: Vec<SpendingPrecondition>,
    /// To be performed once the events are committed.
    pub effects: Vec<Effect>,
    /// For whoever asked.
    pub reply: Reply,
}

/// What the asker is told once the events are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done, or there was nothing to do.
    Done,
    /// The message is taken (S5).
    Submitted {
        /// Its run.
        run_id: RunId,
        /// The event that took it.
        seq: Seq,
        /// Whether it had been taken before.
        repeated: bool,
    },
    /// The message steers the run that is going (S4).
    Steered {
        /// That run.
        run_id: RunId,
        /// The event that took it.
        seq: Seq,
        /// Whether a plan waits: the model reads the message after the decision.
        after_decision: bool,
    },
    /// The answer is taken (G11).
    Answered {
        /// Whether every step is decided now.
        closed: bool,
        /// Whether the same answer had been given before.
        repeated: bool,
    },
    /// The run is cancelled.
    Cancelled {
        /// Which.
        run_id: RunId,
    },
}

/// Why an input changes nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// There is no such session.
    #[error("there is no such session")]
    UnknownSession,
    /// The session exists already.
    #[error("the session exists already")]
    SessionExists,
    /// The session is read-only.
    #[error("the session is closed and can only be read")]
    SessionClosed,
    /// A run is going and the message was not to wait (S4).
    #[error("a run is going: {run_id}")]
    Busy {
        /// The run that is going.
        run_id: RunId,
    },
    /// The session does another one's task and takes no other (S8).
    #[error("the session works for session {parent}; it takes messages only to steer its run")]
    IsChildSession {
        /// That session.
        parent: SessionId,
    },
    /// A child's settings may only be narrowed (S8).
    #[error("{problem}")]
    ChildSettingsWidened {
        /// What would be wider.
        problem: String,
    },
    /// Too many messages wait already.
    #[error("{limit} messages wait already")]
    QueueFull {
        /// The limit.
        limit: usize,
    },
    /// The message id was used for another body (S5).
    #[error("message_id {message_id} was used for another message")]
    MessageIdReused {
        /// The id.
        message_id: MessageId,
    },
    /// Nothing runs that could be cancelled.
    #[error("no run is going")]
    NoActiveRun,
    /// The named run neither runs nor waits.
    #[error("run {run_id} is not going")]
    RunNotActive {
        /// The run.
        run_id: RunId,
    },
    /// There is no such question.
    #[error("there is no such approval: {approval_id}")]
    UnknownApproval {
        /// The id.
        approval_id: ApprovalId,
    },
    /// Somebody decided otherwise before (G11), or for the session otherwise.
    #[error("this was already decided; the same again must say the same of `for_session`, too")]
    AlreadyDecided {
        /// What was decided first of a plan.
        decisions: Vec<PlanStepDecision>,
        /// What was said first to a question without steps.
        answer: Option<Box<RecordedAnswer>>,
    },
    /// The decision is none that answers this kind of question.
    #[error("a decision on this is {allowed}")]
    UnsupportedAnswer {
        /// Those that do.
        allowed: &'static str,
    },
    /// The answer can't be carried out; the question waits still.
    #[error("the answer can't be taken: {problem}")]
    InvalidAnswer {
        /// Why.
        problem: String,
    },
    /// Nobody answered in time, and the question went to others (G10).
    #[error("nobody answered in time; only somebody with the role `{role}` may answer now")]
    RoleRequired {
        /// Who may.
        role: Role,
    },
    /// The time to answer has passed (G10).
    #[error("the approval has expired; nobody answered in time")]
    ApprovalExpired,
    /// The run was cancelled before, or the tool that asked no longer waits.
    #[error("the approval was cancelled: nothing waits for it any more")]
    ApprovalCancelled,
    /// The answer names a call that the plan does not have, or none at all.
    #[error("the plan has no undecided step for call {call_id}")]
    UnknownStep {
        /// The call.
        call_id: CallId,
    },
    /// A person's change of the arguments can't be passed (G8); the plan waits still.
    #[error("the edited arguments of call {call_id} can't be used: {problem}")]
    InvalidEdit {
        /// The call.
        call_id: CallId,
        /// What is wrong with them.
        problem: String,
    },
    /// A person's word can't hold for the session like this (G9).
    #[error("this can't be approved for the session: {problem}")]
    InvalidGrant {
        /// Why.
        problem: String,
    },
    /// People have said enough about this session.
    #[error("feedback was given {limit} times already")]
    FeedbackLimitReached {
        /// The limit.
        limit: u32,
    },
    /// There is no such grant.
    #[error("there is no such grant: {grant_id}")]
    UnknownGrant {
        /// The id.
        grant_id: GrantId,
    },
    /// The answer decides nothing, or a step twice.
    #[error("the answer must decide at least one step, and none of them twice")]
    AmbiguousAnswer,
}

/// Decides what `input` leads to.
pub fn decide(state: &SessionState, input: Input, env: &Env<'_>) -> Result<Decision, Rejection> {
    let mut deciding = DecisionBuilder::new(state, env);
    let d = &mut deciding;
    let exists = state.active.lifecycle != Lifecycle::NotCreated;
    let reply = match input {
        Input::CreateSession { .. } | Input::ForkSession { .. } | Input::CreateChild { .. }
            if exists =>
        {
            return Err(Rejection::SessionExists);
        }
        Input::CreateChild { task: errand } => d.decide_create_child(&errand),
        Input::CreateSession { owner, agent, title, settings } => {
            d.decide_create_session(owner, agent, title, settings)
        }
        Input::ForkSession { from, at_seq, owner, agent, title, settings, conversation } => {
            d.emit(SessionEvent::SessionForked {
                from,
                at_seq,
                owner,
                agent,
                title,
                settings: settings.into(),
                conversation,
            });
            Reply::Done
        }
        _ if !exists => return Err(Rejection::UnknownSession),
        Input::NarrowSettings { parent_settings: within } => d.decide_narrow_settings(&within),
        Input::ChangeSettings { patch: change, title, by } => {
            d.decide_change_settings(change, title, by)?
        }
        Input::CloseSession { by, partial } => d.decide_close_session(by, partial),
        Input::SubmitMessage { message, on_busy } => d.decide_submit_message(message, on_busy)?,
        Input::Interrupt { message, by, partial } => d.decide_interrupt(message, &by, partial)?,
        Input::CancelRun { run_id, by, partial } => d.decide_cancel_run(run_id, by, partial)?,
        Input::AnswerApproval { approval_id, answer, for_session, by, role, surface } => {
            let person = Respondent { by, role, surface };
            d.decide_answer_approval(approval_id, answer, for_session, &person)?
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
        Input::ElicitationRequested {
            call_id,
            attempt_id,
            elicitation_number: ask,
            elicitation,
        } => d.decide_elicitation_requested(call_id, attempt_id, ask, elicitation),
        Input::ElicitationWithdrawn { attempt_id, elicitation_number: ask } => {
            d.decide_elicitation_withdrawn(attempt_id, ask)
        }
        Input::ChildEventsReceived { child, records } => {
            d.decide_child_events_received(child, &records)
        }
        Input::ChildGone { child } => d.decide_child_gone(child),
        Input::ExclusiveLockGranted { call_id, key } => {
            d.decide_exclusive_lock_granted(call_id, key)
        }
        Input::Wake => d.decide_wake(),
        Input::Rehydrated { user_settings: within } => d.decide_rehydrated(within.as_deref()),
    };
    Ok(deciding.finish(reply))
}

/// A decision in the making: a copy of what is going on, to which its own events are applied as
/// they are decided, so that what follows sees them.
struct DecisionBuilder<'a> {
    session: &'a SessionState,
    env: &'a Env<'a>,
    active: ActiveState,
    last_seq: Seq,
    events: Vec<EventRecord>,
    /// What they add to the conversation.
    new_messages: Vec<Message>,
    preconditions: Vec<SpendingPrecondition>,
    effects: Vec<Effect>,
    /// What models have cost in runs that ended in this decision.
    ended_usage: ModelUsage,
    /// The call whose turn it is, and the key (T8).
    granted_lock: Option<(CallId, String)>,
    /// Whose child it is, and its user (S8).
    owner_and_parent: Option<(UserId, Arc<Parent>)>,
}

impl<'a> DecisionBuilder<'a> {
    fn new(session: &'a SessionState, env: &'a Env<'a>) -> Self {
        let active = session.active.clone();
        let (last_seq, ended_usage) = (session.last_seq, ModelUsage::default());
        let (events, new_messages, preconditions, effects) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let identity = session.metadata.as_ref();
        let owner_and_parent = identity.and_then(|it| Some((it.owner.clone(), it.parent.clone()?)));
        Self {
            session,
            env,
            active,
            last_seq,
            events,
            new_messages,
            preconditions,
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
            "decided on another state than was recorded"
        );
        Decision {
            events: self.events,
            preconditions: self.preconditions,
            effects: self.effects,
            reply,
        }
    }

    /// What the recorded events make of the session: the same as `active`, or a decision was made
    /// on a state that no replay finds again.
    fn replay_events(&self) -> ActiveState {
        let mut active = self.session.active.clone();
        self.events.iter().for_each(|record| active.apply(record));
        active
    }

    /// Records an event of the run that is going.
    fn emit(&mut self, event: SessionEvent) {
        let run = self.active.run.as_ref();
        let run_id = run.map(|run| run.run_id);
        let step = run.map(|run| run.step).filter(|step| *step > 0);
        self.emit_for(run_id, step, event);
    }

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

    /// Notes what the record adds to the conversation, before it is applied.
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

    /// Starts whatever may start now: the attempt that is due, the calls whose turn it is, the
    /// next step, the next run. Ends when everything going on waits for somebody else; and before
    /// anything begins that the end of the process would cut off (D8): that begins when the session
    /// is back.
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

    /// Every call has its result: the next step, or the end.
    fn finish_step(&mut self) {
        let Some(run) = &self.active.run else { return };
        let usage = run.usage;
        if run.calls.is_empty() {
            let message_id = run.last_message_id.clone().unwrap_or_else(|| run.message_id.clone());
            self.emit(SessionEvent::RunCompleted { message_id, usage });
        } else if self.is_last_step() {
            let code = RunFailureCode::MaxIterations;
            let error = "maximum iterations reached without final answer".to_owned();
            self.emit(SessionEvent::RunFailed { code, error, usage });
        } else {
            self.start_step(run.step + 1);
        }
    }

    /// Whether no step can follow this one: it is the answer, or the run's last.
    fn is_last_step(&self) -> bool {
        let run = self.active.run.as_ref();
        let max_steps = self.env.rules.agent.max_steps;
        run.is_none_or(|run| run.calls.is_empty() || run.step >= max_steps)
    }

    fn decide_wake(&mut self) -> Reply {
        self.expire_overdue();
        self.advance();
        Reply::Done
    }
}
