//! Performing what was decided, once it is committed: each effect starts, stops or tells a worker.

use super::{Fact, Session};
use crate::{
    llm_stream::{self, LlmStream},
    mailbox::Mailbox,
    ports::{Caller, ElicitationChannel, LateResultHandler, ToolCall},
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
                    if let Some((_, stream)) = self.stream.take_if(|live| live.0 == attempt_id) {
                        // Usually stopped before, to learn what it had said.
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
                Effect::AnswerElicitation { attempt_id, elicitation_number: ask, answer } => {
                    if let Some(executor) = self.executors.get(&attempt_id) {
                        executor.send(tool_executor::AnswerElicitation {
                            elicitation_number: ask,
                            answer,
                        });
                    }
                }
                Effect::StartChild { attempt_id, task: errand, after_seq: after } => {
                    self.start_child(attempt_id, errand, after, rules, ctx);
                }
                Effect::NarrowChild { child, parent_settings: within } => {
                    self.narrow_child(child, within)
                }
                Effect::CloseChild { child, call_id, after_seq: after, by } => {
                    self.close_child(child, call_id, after, by);
                }
                Effect::StopTool { call_id: _, attempt_id } => {
                    if let Some(executor) = self.executors.remove(&attempt_id) {
                        executor.send(tool_executor::CancelAttempt);
                    }
                }
            }
        }
    }

    /// The place of an attempt in the trace of the run that is going.
    fn trace_of(&self, run_id: RunId, attempt_id: AttemptId) -> TraceContext {
        let parent = self.state.active.run.as_ref().and_then(|run| run.traceparent);
        TraceContext::for_attempt(run_id, parent, attempt_id)
    }

    fn start_model(&mut self, attempt: llm_stream::ModelAttempt, request: ModelRequest) {
        let llm_stream::ModelAttempt { session_id, step, attempt_id, .. } = attempt;
        let path = format!("/sessions/{session_id}/steps/{step}");
        let watch = self.deps.status_board.register(path, "LlmStream");
        let client = self.deps.models.clone();
        let scrubber = Scrubber::new(self.deps.governance.secrets.clone());
        let stream = LlmStream::new(attempt, client, request, scrubber, watch.clone()).start();
        self.stream = Some((attempt_id, Mailbox::new(stream, watch)));
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
        let myself = self.own_mailbox(ctx);
        let Some(known) = rules.tool(&tool) else {
            // It may be back by now; but what it needs, as a turn of its own, was not known (T8).
            let outcome = ToolOutcome::NotSent { error: format!("there is no tool `{tool}`") };
            return myself.send(Fact(Input::ToolFinished { call_id, attempt_id, outcome }));
        };
        let path = format!("/sessions/{session_id}/calls/{call_id}");
        let watch = self.deps.status_board.register(path, "ToolExecutor");
        let agent = rules.agent.name.clone();
        let call = ToolCall {
            caller: Some(Caller { session_id, agent, trace }),
            arguments: arguments.to_value(),
            idempotency_key: call_id.to_string(),
            timeout: known.timeout,
            result_bytes_max: known.result_bytes_max,
            elicitation: ElicitationChannel::default(),
            late_result: LateResultHandler::default(),
            tool,
        };
        let host = self.deps.tools.clone();
        let executor =
            ToolExecutor::new(call_id, attempt_id, call, host, myself, watch.clone()).start();
        self.executors.insert(attempt_id, Mailbox::new(executor, watch));
    }
}
