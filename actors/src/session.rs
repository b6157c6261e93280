//! One session, live: decide → append → evolve → publish → dispatch, and nothing else.
//!
//! Brought to life by [`crate::session_registry`] from the log. Commands come from there, facts
//! from the workers it started. While an append is under way its mailbox waits, so inputs are
//! decided one after another on a state that never outruns the log. It knows no transport, no
//! store and no provider, only ports.

mod children;
mod commit;
mod dispatch;
mod orders;
mod outage;
mod publish;
mod stopping;
mod turns;

pub use turns::TurnCame;

use crate::{
    approval_desk::ApprovalDesk,
    delegation::Delegation,
    event_bus::EventBus,
    governance::Governance,
    limits::{LOG_PAGE_EVENTS, SESSION_MAILBOX_MAX},
    llm_stream::{self, LlmStream},
    mailbox::Mailbox,
    observation::{Board, Watch},
    order::Order,
    ports::{Clock, Journal, JournalError, Meter, ModelClient, ToolHost},
    session_registry::{Ended, Home, Idle, SessionRegistry},
    tool_executor::{self, ToolExecutor},
    turnstile::Turnstile,
};
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, SpawnHandle,
    WrapFuture,
};
use greenroom_core::{
    Rules,
    approval::{ApprovalKind, OpenApproval},
    call::Call,
    ids::{AgentName, AttemptId, Seq, SessionId},
    policy::Settings,
    session::{Identity, Input, Rejection, Reply, SessionState, StepPhase, evolve},
    usage::Usage,
};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

/// What every session works with.
pub struct Surroundings {
    /// The log.
    pub journal: Arc<dyn Journal>,
    /// The models.
    pub models: Arc<dyn ModelClient>,
    /// The tools.
    pub tools: Arc<dyn ToolHost>,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// Agents and policy.
    pub governance: Governance,
    /// The board.
    pub board: Board,
    /// Who counts.
    pub meter: Arc<dyn Meter>,
    /// Whose turn it is among calls that run alone.
    pub turnstile: Mailbox<Turnstile>,
    /// Where sessions live.
    pub homes: Arc<[Home]>,
    /// How long to stay in memory without work.
    pub idle_timeout: Duration,
    /// Whether nothing more begins, since the process is about to end (D8).
    pub draining: AtomicBool,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommandError {
    /// The session says no.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Too much is asked of this session at once.
    #[error("the session's mailbox is full")]
    MailboxFull,
    /// The session's actor failed again and again and rests until an administrator looks (A3).
    #[error("the session is parked: {error}")]
    Parked {
        /// The last failure.
        error: String,
    },
    /// It can't be stored now; nothing was done.
    #[error("the session is unavailable: {0}")]
    Unavailable(String),
    /// The server is shutting down and takes nothing new.
    #[error("the server is shutting down")]
    Draining,
}

/// The answer's way back.
pub type ReplySender = oneshot::Sender<Result<Reply, CommandError>>;

/// Something a client asks, or the desk's wake-up.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Command {
    /// What.
    pub input: Input,
    /// Who wants to know.
    pub reply: Option<ReplySender>,
}

/// Something a worker of this session reports.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Fact(pub Input);

/// Leave memory; the registry has made sure that nothing is on its way here.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Passivate;

/// The actor.
pub struct Session {
    around: Arc<Surroundings>,
    registry: Mailbox<SessionRegistry>,
    desk: Mailbox<ApprovalDesk>,
    bus: Mailbox<EventBus>,
    generation: u64,
    watch: Watch,
    state: SessionState,
    myself: Option<Mailbox<Session>>,
    stream: Option<(AttemptId, Mailbox<LlmStream>)>,
    /// The stream that was stopped for the command at hand, and whether it had said anything.
    stopped: Option<(AttemptId, bool, Usage)>,
    executors: HashMap<AttemptId, Mailbox<ToolExecutor>>,
    children: HashMap<SessionId, Mailbox<Delegation>>,
    turns: turns::Turns,
    outage: outage::Outage,
    commands_handled: u64,
    alarm: Option<SpawnHandle>,
    idle_check: Option<SpawnHandle>,
    /// How it ends, once it was ended.
    end: End,
}

/// How a session's actor ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// In order: it had nothing to do.
    Left,
    /// What it knows is not what the log says, or it could not read the log. No failure of its
    /// own: it is to be rebuilt.
    Outdated(String),
    /// It failed.
    Failed(String),
}

impl Session {
    /// The session of that id, to be rebuilt from its log when the actor starts.
    pub fn new(
        session_id: SessionId,
        generation: u64,
        around: Arc<Surroundings>,
        registry: Mailbox<SessionRegistry>,
        desk: Mailbox<ApprovalDesk>,
        bus: Mailbox<EventBus>,
        watch: Watch,
    ) -> Self {
        Self {
            around,
            registry,
            desk,
            bus,
            generation,
            watch,
            state: SessionState::vacant(session_id),
            myself: None,
            stream: None,
            stopped: None,
            executors: HashMap::new(),
            children: HashMap::new(),
            turns: turns::Turns::default(),
            outage: outage::Outage::default(),
            commands_handled: 0,
            alarm: None,
            idle_check: None,
            end: End::Left,
        }
    }

    /// The rules that `input` is decided by.
    fn rules_for(&self, input: &Input) -> Rules {
        let (governance, tools) = (&self.around.governance, self.around.tools.as_ref());
        if let Some(Identity { agent, parent, .. }) = &self.state.identity {
            return governance.rules(agent, parent.as_deref(), tools);
        }
        if let Input::CreateChild { errand } = input {
            return governance.rules(&errand.agent, Some(&errand.parent), tools);
        }
        let unknown = AgentName::parse("default").expect("a plain word is an agent's name");
        governance.rules(&unknown, None, tools)
    }

    /// Rebuilds the state from the log, then heals what a crash interrupted.
    fn rehydrate(&mut self, ctx: &mut Context<Self>) {
        let journal = self.around.journal.clone();
        let session_id = self.state.session_id;
        let defaults = self.around.governance.settings.clone();
        let replay = async move {
            let mut state = SessionState::vacant(session_id);
            loop {
                let page = journal.read(session_id, state.head, LOG_PAGE_EVENTS).await?;
                let is_last = page.len() < LOG_PAGE_EVENTS;
                state = page.iter().fold(state, evolve);
                if is_last {
                    let within = may_do_more(&state, &defaults, journal.as_ref()).await?;
                    return Ok((state, within));
                }
            }
        };
        ctx.wait(replay.into_actor(self).map(
            |replayed: Result<(SessionState, _), JournalError>, actor, ctx| match replayed {
                Ok((state, within)) => {
                    actor.state = state;
                    if let Some(run) = &actor.state.active.run {
                        actor.around.meter.resumed(run);
                    }
                    if actor.state.identity.is_some() {
                        actor.take(Input::Rehydrated { within }, None, ctx);
                    } else {
                        actor.settle(ctx);
                    }
                }
                // An outage is no failure of the session (D8).
                Err(JournalError::Unavailable(error)) => actor.end(End::Outdated(error), ctx),
                Err(error) => actor.end(End::Failed(error.to_string()), ctx),
            },
        ));
    }

    /// After every input: the alarm for the next backoff, the check for idleness, the board.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        self.store_what_is_kept(ctx);
        self.leave_turns();
        if let Some(alarm) = self.alarm.take() {
            ctx.cancel_future(alarm);
        }
        let next = self.state.next_wake_besides(|call_id| self.turns.awaits(call_id));
        // What is due while the process ends does not begin.
        if let Some(at) = next.filter(|_| !self.around.draining.load(Relaxed)) {
            let delay = at.until_from(self.around.clock.now());
            self.alarm = Some(ctx.run_later(delay, |actor, ctx| {
                actor.alarm = None;
                // A timer may fire right behind a message whose append has just begun: then this
                // is not the state to decide on, and what follows sets it again.
                if !ctx.waiting() {
                    actor.hear(Input::Wake, ctx);
                }
            }));
        }
        self.executors.retain(|_, executor| executor.is_open());
        self.children.retain(|_, delegation| delegation.is_open());
        if let Some(check) = self.idle_check.take() {
            ctx.cancel_future(check);
        }
        if self.may_leave() {
            self.idle_check = Some(ctx.run_later(self.around.idle_timeout, |actor, ctx| {
                if actor.may_leave() && !ctx.waiting() {
                    let (session_id, generation) = (actor.state.session_id, actor.generation);
                    let handled = actor.commands_handled;
                    actor.registry.tell(Idle { session_id, generation, handled });
                }
            }));
        }
        let (state, waiting_for) = self.in_words();
        self.watch.set_state(state, waiting_for);
    }

    fn may_leave(&self) -> bool {
        let nobody_comes = self.outage.is_empty() && self.turns.is_empty();
        nobody_comes && (self.state.is_idle() || self.state.is_waiting_for_people())
    }

    /// What it is doing, and whom it waits for, for administrators (A1).
    fn in_words(&self) -> (&'static str, Option<String>) {
        let Some(run) = &self.state.active.run else { return ("idle", None) };
        match &run.phase {
            StepPhase::Between => match self.state.active.approvals.first() {
                Some(open) => {
                    let approval_id = open.approval.approval_id;
                    let kind = open.approval.kind().name();
                    ("waiting", Some(format!("a person, to decide {kind} {approval_id}")))
                }
                None => ("deciding", None),
            },
            StepPhase::Streaming { .. } => ("streaming", Some("the model".to_owned())),
            StepPhase::BackingOff { until, .. } => ("backing off", Some(format!("until {until}"))),
            StepPhase::Calling => {
                let waits = self.state.is_waiting_for_people();
                // A tool that asks is waited for as much as the person.
                let is_asked = |open: &&OpenApproval| {
                    waits || open.approval.kind() == ApprovalKind::Elicitation
                };
                if let Some(open) = self.state.active.approvals.iter().find(is_asked) {
                    let approval_id = open.approval.approval_id;
                    let kind = open.approval.kind().name();
                    return ("waiting", Some(format!("a person, to decide {kind} {approval_id}")));
                }
                if let Some(key) = self.turns.awaited_key()
                    && !run.calls.iter().any(|call| call.is_under_way())
                {
                    return ("waiting", Some(format!("its turn: {key}")));
                }
                let unfinished = run.calls.iter().filter(|call| !call.is_finished());
                let whom = |call: &Call| match self.state.active.child_of(call.call_id) {
                    Some(child) => format!("{} (session {})", child.agent, child.session_id),
                    None => format!("tool {}", call.tool),
                };
                let whom: Vec<_> = unfinished.map(whom).collect();
                ("calling", Some(whom.join(", ")))
            }
        }
    }

    /// A worker that has reported its end is done.
    fn let_go(&mut self, input: &Input) {
        if let Input::StepFinished { attempt_id, .. } = input {
            self.stream.take_if(|live| live.0 == *attempt_id);
        } else if let Input::ToolFinished { attempt_id, .. } = input {
            self.executors.remove(attempt_id);
        }
    }

    /// Ends this actor; the registry brings the session back from the log, or parks it.
    fn end(&mut self, end: End, ctx: &mut Context<Self>) {
        match &end {
            End::Left => {}
            End::Outdated(error) | End::Failed(error) => self.watch.fail(error),
        }
        self.end = end;
        ctx.stop();
    }

    fn myself(&mut self, ctx: &mut Context<Self>) -> Mailbox<Self> {
        let watch = &self.watch;
        self.myself.get_or_insert_with(|| Mailbox::new(ctx.address(), watch.clone())).clone()
    }
}

/// What the session's user allows, where the session allows more: the `defaults`, if they are the
/// user's, were tightened since it was here; or it was parked when the user tightened theirs (G4).
async fn may_do_more(
    state: &SessionState,
    defaults: &Arc<Settings>,
    journal: &dyn Journal,
) -> Result<Option<Arc<Settings>>, JournalError> {
    let Some(identity) = &state.identity else { return Ok(None) };
    let stored = journal.settings(&identity.owner).await?;
    let allowed = stored.map_or_else(|| defaults.clone(), Arc::new);
    Ok(state.active.settings.check_within(&allowed).is_err().then_some(allowed))
}

/// Answers whoever still waits.
pub(crate) fn respond(reply: Option<ReplySender>, answer: Result<Reply, CommandError>) {
    if let Some(reply) = reply
        && reply.send(answer).is_err()
    {
        tracing::debug!("nobody waits for the answer any more");
    }
}

impl Actor for Session {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SESSION_MAILBOX_MAX);
        let obeys = ctx.address().downgrade().recipient();
        self.watch.obeys(&[Order::Stop, Order::Restart], obeys);
        self.watch.set_state("rehydrating", Some("the log".to_owned()));
        self.rehydrate(ctx);
    }

    /// Also runs when a handler panicked; and when the registry has let go of an idle session, which
    /// may end before it reads why.
    fn stopped(&mut self, _ctx: &mut Self::Context) {
        if let Some((_, stream)) = self.stream.take() {
            stream.tell(llm_stream::Stop);
        }
        for (_, executor) in self.executors.drain() {
            executor.tell(tool_executor::Cancel);
        }
        self.leave_children();
        self.leave_all_turns();
        let unfinished = !self.state.is_idle() || self.state.head == Seq(0);
        let end = match thread::panicking() {
            true => End::Failed("the session's actor panicked".to_owned()),
            false => std::mem::replace(&mut self.end, End::Left),
        };
        let (session_id, generation) = (self.state.session_id, self.generation);
        self.registry.tell(Ended { session_id, generation, end, unfinished });
    }
}

impl Handler<Command> for Session {
    type Result = ();

    fn handle(&mut self, command: Command, ctx: &mut Self::Context) {
        self.commands_handled += 1;
        self.watch.begin("Command");
        if !self.outage.is_empty() {
            respond(command.reply, Err(outage::not_storing()));
        } else if let Some(stream) = self.stream_ended_by(&command.input) {
            self.stop_stream_then_take(stream, command, ctx);
        } else {
            self.take(command.input, command.reply, ctx);
        }
        self.watch.end();
    }
}

impl Handler<Fact> for Session {
    type Result = ();

    fn handle(&mut self, Fact(input): Fact, ctx: &mut Self::Context) {
        self.watch.begin("Fact");
        self.let_go(&input);
        self.hear(input, ctx);
        self.watch.end();
    }
}

impl Handler<Passivate> for Session {
    type Result = ();

    fn handle(&mut self, _: Passivate, ctx: &mut Self::Context) {
        self.watch.tick();
        self.end(End::Left, ctx);
    }
}
