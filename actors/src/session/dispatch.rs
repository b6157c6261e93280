//! Performs the effects of a committed decision: each starts, stops or notifies a worker.

use super::{Fact, Session};
use crate::{
    llm_stream::{self, LlmStream},
    mailbox::Mailbox,
    ports::{CallingSession, ElicitationChannel, LateResultHandler, ToolCall},
    tool_executor::{self, ToolExecutor},
};
use actix::{Actor, Context};
use greenroom_core::{
    Rules,
    call::ToolOutcome,
    context,
    ids::{AttemptId, CallId, RunId},
    message::Arguments,
    model::request::ModelRequest,
    scrub::Scrubber,
    session::{Effect, Input},
    trace_context::TraceContext,
};
use std::sync::Arc;

impl Session {
    pub(super) fn dispatch(
        &mut self,
        effects: Vec<Effect>,
        rules: &Rules,
        ctx: &mut Context<Self>,
    ) {
        for effect in effects {
            match effect {
                Effect::StartModel { run_id, step, attempt_id, message_id, model } => {
                    let request = context::assemble_request(&self.state, rules, model);
                    let attempt = llm_stream::ModelAttempt {
                        session_id: self.state.session_id,
                        run_id,
                        step,
                        attempt_id,
                        message_id,
                        trace: self.trace_of(run_id, attempt_id),
                        session: self.own_mailbox(ctx),
                        bus: self.bus.clone(),
                    };
                    self.start_model(attempt, request);
                }
                Effect::StopModel { attempt_id } => {
                    if let Some((_, stream)) = self.stream.take_if(|stream| stream.0 == attempt_id)
                    {
                        // Usually the stream was stopped before, to obtain its partial message.
                        stream.send(llm_stream::StopStream);
                    }
                }
                Effect::StartTool { run_id, call_id, attempt_id, tool, arguments } => {
                    let trace = self.trace_of(run_id, attempt_id);
                    self.start_tool((call_id, attempt_id, trace), tool, &arguments, rules, ctx);
                }
                Effect::AcquireExclusiveLock { call_id, key } => {
                    self.acquire_lock(call_id, key, ctx)
                }
                Effect::AnswerElicitation { attempt_id, elicitation_number, answer } => {
                    if let Some(executor) = self.executors.get(&attempt_id) {
                        executor
                            .send(tool_executor::AnswerElicitation { elicitation_number, answer });
                    }
                }
                Effect::StartChild { attempt_id, task, after_seq } => {
                    self.start_child(attempt_id, task, after_seq, rules, ctx);
                }
                Effect::NarrowChild { child, parent_settings } => {
                    self.narrow_child(child, parent_settings)
                }
                Effect::CloseChild { child, call_id, after_seq, by } => {
                    self.close_child(child, call_id, after_seq, by);
                }
                Effect::StopTool { call_id: _, attempt_id } => {
                    if let Some(executor) = self.executors.remove(&attempt_id) {
                        executor.send(tool_executor::CancelAttempt);
                    }
                }
            }
        }
    }

    /// Returns the trace context of an attempt within the current run.
    fn trace_of(&self, run_id: RunId, attempt_id: AttemptId) -> TraceContext {
        let parent = self.state.active.run.as_ref().and_then(|run| run.traceparent);
        TraceContext::for_attempt(run_id, parent, attempt_id)
    }

    fn start_model(&mut self, attempt: llm_stream::ModelAttempt, request: ModelRequest) {
        let llm_stream::ModelAttempt { session_id, step, attempt_id, .. } = attempt;
        let path = format!("/sessions/{session_id}/steps/{step}");
        let status_entry = self.deps.status_board.register(path, "LlmStream");
        let client = self.deps.models.clone();
        let scrubber = Scrubber::new(self.deps.governance.secrets.clone());
        let stream =
            LlmStream::new(attempt, client, request, scrubber, status_entry.clone()).start();
        self.stream = Some((attempt_id, Mailbox::new(stream, status_entry)));
    }

    fn start_tool(
        &mut self,
        (call_id, attempt_id, trace): (CallId, AttemptId, TraceContext),
        tool: String,
        arguments: &Arguments,
        rules: &Rules,
        ctx: &mut Context<Self>,
    ) {
        let session_id = self.state.session_id;
        let own_mailbox = self.own_mailbox(ctx);
        let Some(definition) = rules.tool(&tool) else {
            // The tool may be connected again, but its lock key was unknown at the decision (T8).
            let outcome = ToolOutcome::NotSent { error: format!("there is no tool `{tool}`") };
            return own_mailbox.send(Fact(Input::ToolFinished { call_id, attempt_id, outcome }));
        };
        // The ceilings changed while the decision was committed. The next attempt is decided under
        // the new ones (G17).
        if !Arc::ptr_eq(&rules.ceilings, &self.deps.governance.ceilings.get()) {
            let error = "the ceilings changed before the call was sent".to_owned();
            let outcome = ToolOutcome::NotSent { error };
            return own_mailbox.send(Fact(Input::ToolFinished { call_id, attempt_id, outcome }));
        }
        let path = format!("/sessions/{session_id}/calls/{call_id}");
        let status_entry = self.deps.status_board.register(path, "ToolExecutor");
        let agent = rules.agent.name.clone();
        let call = ToolCall {
            caller: Some(CallingSession { session_id, agent, trace }),
            arguments: arguments.to_value(),
            idempotency_key: call_id.to_string(),
            timeout: definition.timeout,
            result_bytes_max: definition.result_bytes_max,
            elicitation: ElicitationChannel::default(),
            late_result: LateResultHandler::default(),
            tool,
        };
        let host = self.deps.tools.clone();
        let executor =
            ToolExecutor::new(call_id, attempt_id, call, host, own_mailbox, status_entry.clone())
                .start();
        self.executors.insert(attempt_id, Mailbox::new(executor, status_entry));
    }
}
