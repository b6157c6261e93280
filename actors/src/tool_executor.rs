//! One attempt of a tool call. The tool host bounds its time and the size of its result.
//!
//! [`crate::session::Session`] starts it on its own arbiter. The executor reports progress at most
//! once per interval, the tool's elicitations and, unless it is cancelled, exactly one outcome. A
//! panic during the attempt is reported as a crash of the tool.

use crate::{
    limits::{ELICITATION_BACKLOG_MAX, PROGRESS_BACKLOG_MAX, PROGRESS_INTERVAL},
    mailbox::Mailbox,
    order::{ActorOrder, ExecuteOrder},
    ports::{
        ElicitationChannel, ElicitationRequest, LateResultHandler, Progress, ToolCall, ToolHost,
    },
    session::{Fact, Session},
    status_board::StatusEntry,
};
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, StreamHandler,
    WrapFuture,
};
use futures::{FutureExt, stream};
use greenroom_core::{
    approval::ElicitationAnswer,
    call::ToolOutcome,
    ids::{AttemptId, CallId},
    session::Input,
};
use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Instant};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// The actor that runs an attempt.
pub struct ToolExecutor {
    call_id: CallId,
    attempt_id: AttemptId,
    call: Option<ToolCall>,
    host: Arc<dyn ToolHost>,
    session: Mailbox<Session>,
    cancel: CancellationToken,
    last_progress_at: Option<Instant>,
    /// Number of elicitations the tool has sent.
    elicitation_count: u32,
    /// The channels for the pending answers, by elicitation number.
    pending_replies: BTreeMap<u32, oneshot::Sender<ElicitationAnswer>>,
    outcome_reported: bool,
    status_entry: StatusEntry,
}

impl ToolExecutor {
    /// Creates an executor. The attempt starts when the actor starts.
    pub fn new(
        call_id: CallId,
        attempt_id: AttemptId,
        call: ToolCall,
        host: Arc<dyn ToolHost>,
        session: Mailbox<Session>,
        status_entry: StatusEntry,
    ) -> Self {
        let cancel = CancellationToken::new();
        Self {
            call_id,
            attempt_id,
            call: Some(call),
            host,
            session,
            cancel,
            last_progress_at: None,
            elicitation_count: 0,
            pending_replies: BTreeMap::new(),
            outcome_reported: false,
            status_entry,
        }
    }

    /// Returns a handler that sends a late result to the session after this actor has stopped.
    fn late_result_handler(&self) -> LateResultHandler {
        let (session, call_id, attempt_id) = (self.session.clone(), self.call_id, self.attempt_id);
        LateResultHandler::new(move |outcome| {
            session.send(Fact(Input::ToolFinished { call_id, attempt_id, outcome }));
        })
    }

    fn report_outcome(&mut self, outcome: ToolOutcome) {
        if !std::mem::replace(&mut self.outcome_reported, true) {
            let (call_id, attempt_id) = (self.call_id, self.attempt_id);
            self.session.send(Fact(Input::ToolFinished { call_id, attempt_id, outcome }));
        }
    }
}

impl Actor for ToolExecutor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(mut call) = self.call.take() else { return };
        self.status_entry.accept_orders(&[ActorOrder::Stop], ctx.address().downgrade().recipient());
        self.status_entry.set_state("running", Some(format!("tool {}", call.tool)));
        let (sender, receiver) = mpsc::channel(PROGRESS_BACKLOG_MAX);
        ctx.add_stream(stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|progress| (progress, receiver))
        }));
        let (elicitation_sender, elicitations) = mpsc::channel(ELICITATION_BACKLOG_MAX);
        ctx.add_stream(stream::unfold(elicitations, |mut elicitations| async {
            elicitations.recv().await.map(|request| (request, elicitations))
        }));
        call.elicitation = ElicitationChannel::new(elicitation_sender);
        call.late_result = self.late_result_handler();
        let attempt = self.host.call_tool(call, sender, self.cancel.clone());
        let attempt = AssertUnwindSafe(attempt).catch_unwind();
        ctx.spawn(attempt.into_actor(self).map(|outcome, actor, ctx| {
            let crash = || ToolOutcome::Crashed {
                error: "the tool call failed inside the server".to_owned(),
            };
            actor.report_outcome(outcome.unwrap_or_else(|_panic| crash()));
            ctx.stop();
        }));
    }

    /// Also runs when a handler panicked: the session must receive an outcome of every attempt.
    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.cancel.cancel();
        let error = "the tool call was stopped inside the server".to_owned();
        self.report_outcome(ToolOutcome::Crashed { error });
    }
}

impl StreamHandler<Progress> for ToolExecutor {
    fn handle(&mut self, progress: Progress, _ctx: &mut Self::Context) {
        let is_recent = |last_at: Instant| last_at.elapsed() < PROGRESS_INTERVAL;
        if self.outcome_reported || self.last_progress_at.is_some_and(is_recent) {
            return;
        }
        self.last_progress_at = Some(Instant::now());
        let Progress { progress, total, message } = progress;
        let (call_id, attempt_id) = (self.call_id, self.attempt_id);
        let input = Input::ToolProgressed { call_id, attempt_id, progress, total, message };
        // Progress may be dropped. It must not add to a full mailbox.
        if self.session.try_send(Fact(input)).is_err() {
            tracing::debug!(call_id = %self.call_id, "the session is busy; progress is not recorded");
        }
    }

    /// Does nothing: the end of the progress stream is not the end of the attempt.
    fn finished(&mut self, _ctx: &mut Self::Context) {}
}

impl StreamHandler<ElicitationRequest> for ToolExecutor {
    fn handle(&mut self, request: ElicitationRequest, ctx: &mut Self::Context) {
        if self.outcome_reported {
            return;
        }
        self.elicitation_count += 1;
        let (call_id, attempt_id, elicitation_number) =
            (self.call_id, self.attempt_id, self.elicitation_count);
        let ElicitationRequest { elicitation, reply, withdrawn } = request;
        self.pending_replies.insert(elicitation_number, reply);
        let withdrawn = async move { withdrawn.cancelled().await };
        ctx.spawn(withdrawn.into_actor(self).map(move |(), actor, _| {
            if actor.pending_replies.remove(&elicitation_number).is_some()
                && !actor.outcome_reported
            {
                actor
                    .session
                    .send(Fact(Input::ElicitationWithdrawn { attempt_id, elicitation_number }));
            }
        }));
        let input =
            Input::ElicitationRequested { call_id, attempt_id, elicitation_number, elicitation };
        self.session.send(Fact(input));
    }

    /// Does nothing: the end of the elicitation stream is not the end of the attempt.
    fn finished(&mut self, _ctx: &mut Self::Context) {}
}

/// The answer to an elicitation of the tool (T1).
#[derive(Message)]
#[rtype(result = "()")]
pub struct AnswerElicitation {
    /// The number of the elicitation.
    pub elicitation_number: u32,
    /// The answer.
    pub answer: ElicitationAnswer,
}

impl Handler<AnswerElicitation> for ToolExecutor {
    type Result = ();

    fn handle(
        &mut self,
        AnswerElicitation { elicitation_number, answer }: AnswerElicitation,
        _ctx: &mut Self::Context,
    ) {
        // The tool may have stopped waiting in the meantime.
        if let Some(reply) = self.pending_replies.remove(&elicitation_number)
            && reply.send(answer).is_err()
        {
            tracing::debug!(call_id = %self.call_id, "the tool no longer waits for an answer");
        }
    }
}

/// Cancels the attempt. Its result is not needed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CancelAttempt;

impl Handler<CancelAttempt> for ToolExecutor {
    type Result = ();

    fn handle(&mut self, _: CancelAttempt, _ctx: &mut Self::Context) {
        // The host notifies the tool, then the attempt ends.
        self.outcome_reported = true;
        self.cancel.cancel();
        self.status_entry.set_state("cancelling", None);
    }
}

/// Gives up the attempt on an administrator's order, as if its tool had crashed. A call that can
/// safely be repeated is retried; for any other call, the unknown outcome needs an approval (A2,
/// D3).
impl Handler<ExecuteOrder> for ToolExecutor {
    type Result = ();

    fn handle(&mut self, _: ExecuteOrder, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let error = "an administrator stopped the tool call".to_owned();
        self.report_outcome(ToolOutcome::Crashed { error });
        // The host notifies the tool, then the attempt ends.
        self.cancel.cancel();
        self.status_entry.set_state("cancelling", None);
    }
}
