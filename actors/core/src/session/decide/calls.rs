//! Tool calls: proposing and judging them, whose turn it is, and what an attempt's end leads to
//! (S3, G7, R1 to R3).

use super::{Deciding, Reply, plans::Ask};
use crate::{
    approval::{Edit, Grant},
    call::{
        Call, CallPhase, FailReason, LetBy, Reservation, RetryPolicy, ToolOutcome,
        retry::{Failure, Next, after_failure},
    },
    ids::{AttemptId, CallId, GrantId, RunId},
    json::Digest,
    limits,
    message::{Arguments, Message, ProposedCall},
    policy::{
        Cost, Denial, Expression, Facts, JudgeContext, Risk, Tool, Verdict, judge, judge_any,
    },
    session::{Allowance, Effect, Lifecycle, SessionEvent},
    text::cut,
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// What is told of a call whose last attempt is not all there is to it.
const EARLIER: &str = ". An earlier attempt may have taken effect";

/// What became of a call when it was judged.
pub(super) enum Judged {
    /// It may run, or it has ended.
    Settled,
    /// A person must be asked.
    Ask(Ask),
    /// It may run, but no budget has room for what it costs.
    Unfunded(Cost),
}

/// What there is of a call's tool.
pub(super) enum Found {
    /// It is there.
    Tool(Arc<Tool>),
    /// Nobody lists it now; its server may be away.
    Away,
    /// The agent may not use it any more, or it is another server's.
    Gone,
}

impl Deciding<'_> {
    /// Records the calls of a complete message, judges each, and asks for those that must be
    /// asked for, all in this one commit.
    pub(super) fn propose_calls(&mut self, proposed: Vec<ProposedCall>) {
        let propose = |call: ProposedCall| {
            let call_id = CallId(self.env.uuid());
            let tool = self.tool(&call.tool);
            self.propose(call_id, &call, tool.as_deref());
            (call_id, self.judge_call(call_id, &call, tool))
        };
        let judged = proposed.into_iter().map(propose).collect();
        self.ask_about(judged);
    }

    /// Asks for what the calls lack: a person's word, or room in a budget.
    pub(super) fn ask_about(&mut self, judged: Vec<(CallId, Judged)>) {
        let (mut asks, mut unfunded) = (Vec::new(), Vec::new());
        for (call_id, judged) in judged {
            match judged {
                Judged::Settled => {}
                Judged::Ask(ask) => asks.push(ask),
                Judged::Unfunded(cost) => unfunded.push((call_id, cost)),
            }
        }
        self.ask_for_plan(asks);
        self.ask_for_budget(unfunded);
    }

    /// The tool of that name, if the agent may use it.
    pub(super) fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        let rules = self.env.rules;
        let in_run = self.active.run.as_ref().is_none_or(|run| run.may_use(name));
        rules.tool(name).filter(|_| rules.agent.may_use(name) && in_run).cloned()
    }

    /// The tool of that call, as far as it is there and the agent may still use it.
    pub(super) fn tool_of(&self, call: &Call) -> Found {
        let rules = self.env.rules;
        let in_run = self.active.run.as_ref().is_none_or(|run| run.may_use(&call.tool));
        if !(in_run && rules.agent.may_use(&call.tool)) {
            return Found::Gone;
        }
        match rules.tool(&call.tool) {
            None => Found::Away,
            Some(tool) if call.server.as_ref().is_none_or(|it| *it == tool.server) => {
                Found::Tool(tool.clone())
            }
            Some(_) => Found::Gone,
        }
    }

    fn propose(&mut self, call_id: CallId, call: &ProposedCall, tool: Option<&Tool>) {
        self.emit(SessionEvent::ToolCallStarted {
            call_id,
            provider_id: call.provider_id.clone(),
            tool: call.tool.clone(),
            server: tool.map(|tool| tool.server.clone()),
            arguments: Arc::new(call.arguments.clone()),
            digest: Digest::of(&call.arguments.to_value()),
            risk: tool.map_or(Risk::default(), |tool| tool.risk),
            parallel: tool.is_some_and(|tool| tool.parallel),
            repeatable: tool.is_some_and(|tool| tool.repeatable),
        });
    }

    /// Allows or ends the call, or says what it lacks.
    fn judge_call(
        &mut self,
        call_id: CallId,
        call: &ProposedCall,
        tool: Option<Arc<Tool>>,
    ) -> Judged {
        let arguments = match &call.arguments {
            Arguments::Json(value) => value,
            Arguments::Malformed { error, .. } => {
                self.fail_call(call_id, FailReason::InvalidArguments, error.clone(), false);
                return Judged::Settled;
            }
        };
        let Some(tool) = tool else {
            let error = format!("there is no tool named `{}`", cut(&call.tool, 128));
            self.fail_call(call_id, FailReason::UnknownTool, error, false);
            return Judged::Settled;
        };
        if let Err(error) = tool.validate(arguments) {
            self.fail_call(call_id, FailReason::InvalidArguments, error, false);
            return Judged::Settled;
        }
        match self.verdict(&tool, arguments) {
            Verdict::Allow { why, cost } => {
                self.allow(call_id, arguments, Allowance::Policy { why }, None);
                self.fund(call_id, cost)
            }
            Verdict::OverBudget { why, cost } => {
                self.allow(call_id, arguments, Allowance::Policy { why }, None);
                cost.map_or(Judged::Settled, Judged::Unfunded)
            }
            Verdict::Ask { why, cost, exceeds_budget } => {
                match self.standing_word(&tool, arguments) {
                    Some(by) => {
                        self.allow(call_id, arguments, by, None);
                        self.fund(call_id, cost)
                    }
                    None => {
                        let edited = None;
                        Judged::Ask(Ask { call_id, tool, why, cost, exceeds_budget, edited })
                    }
                }
            }
            Verdict::Deny(denial) => {
                self.deny(call_id, denial);
                Judged::Settled
            }
        }
    }

    /// What a person said before that lets the call run: to its run's plan (G14), or for the
    /// session (G9).
    fn standing_word(&self, tool: &Tool, arguments: &Value) -> Option<Allowance> {
        let planned = self.approved_step_for(tool, arguments);
        let granted = || self.grant_for(tool, arguments);
        planned.or_else(|| granted().map(|grant_id| Allowance::Grant { grant_id }))
    }

    /// Sets aside what an allowed call costs, if budgets have room for it.
    fn fund(&mut self, call_id: CallId, cost: Option<Cost>) -> Judged {
        match cost {
            Some(cost) if !self.has_room_for(&cost) => Judged::Unfunded(cost),
            Some(cost) => {
                self.reserve(call_id, cost, true);
                Judged::Settled
            }
            None => Judged::Settled,
        }
    }

    pub(super) fn allow(
        &mut self,
        call_id: CallId,
        arguments: &Value,
        by: Allowance,
        edit: Option<Edit>,
    ) {
        let digest = Digest::of(arguments);
        self.emit(SessionEvent::ToolCallAllowed { call_id, digest, by, edit });
    }

    /// What the policy says of a call of `tool` with these arguments now.
    pub(super) fn verdict(&self, tool: &Tool, arguments: &Value) -> Verdict {
        self.verdict_beside(tool, arguments, None)
    }

    /// The same, of a call for which that much is set aside.
    pub(super) fn verdict_beside(
        &self,
        tool: &Tool,
        arguments: &Value,
        reserved: Option<&Reservation>,
    ) -> Verdict {
        let session = self.session.session_id.to_string();
        let of_unit = |unit: &str| {
            let own = reserved.filter(|own| own.cost.unit == unit);
            self.remaining(unit, own.map_or(0.0, |own| own.cost.amount))
        };
        let remaining = tool.cost.as_ref().and_then(|rule| of_unit(&rule.unit));
        judge(tool, arguments, &JudgeContext { remaining, ..self.judging(&session) })
    }

    /// What the policy says of `tool` where it is not known what is passed.
    pub(super) fn verdict_on_any(&self, tool: &Tool) -> Verdict {
        let session = self.session.session_id.to_string();
        judge_any(tool, &self.judging(&session))
    }

    pub(super) fn judging<'b>(&'b self, session: &'b str) -> JudgeContext<'b> {
        let rules = self.env.rules;
        JudgeContext {
            settings: self.active.settings_in_force(),
            matrix: &rules.matrix,
            headless: rules.agent.headless,
            user: self.session.identity.as_ref().map_or("", |identity| identity.owner.as_str()),
            session,
            agent: rules.agent.name.as_str(),
            remaining: None,
        }
    }

    /// A person's standing word that covers the call (G9). A condition that can't be evaluated
    /// covers nothing.
    fn grant_for(&self, tool: &Tool, arguments: &Value) -> Option<GrantId> {
        if tool.risk == Risk::Critical {
            return None;
        }
        let session = self.session.session_id.to_string();
        let holds = |condition: &String| {
            let facts = Facts::of(arguments, &self.judging(&session))?;
            Expression::compile(condition)?.is_true(&facts)
        };
        let covers = |grant: &&Grant| {
            grant.tool == tool.name.as_str()
                && *grant.server == *tool.server
                && grant.condition.as_ref().is_none_or(|it| holds(it).unwrap_or(false))
        };
        self.active.grants.iter().find(covers).map(|grant| grant.grant_id)
    }

    /// Starts the calls whose turn it is: those that may run beside others while there is room,
    /// of the rest only the first that is not finished (S3). One that waits for calls of other
    /// sessions keeps its place (T8).
    pub(super) fn schedule_calls(&mut self) {
        loop {
            let (mut all_begun, mut lacking) = (true, Vec::new());
            for (call_id, attempt) in self.due_calls() {
                match self.lacks_by_now(call_id) {
                    None => all_begun &= self.start_in_turn(call_id, attempt),
                    Some(judged) => {
                        all_begun = false;
                        lacking.push((call_id, judged));
                    }
                }
            }
            self.ask_about(lacking);
            // One that can't begin has ended, or waits for people; others may have its place.
            if all_begun {
                return;
            }
        }
    }

    /// What a call lacks by now that an earlier decision let run, if anything. Rules, settings and
    /// tools change while it waits for its turn or for its next attempt (G4, S8).
    fn lacks_by_now(&mut self, call_id: CallId) -> Option<Judged> {
        let before = self.session.active.run.iter().flat_map(|run| &run.calls);
        let before = before.into_iter().find(|call| call.call_id == call_id)?;
        let was_let_run = before.is_under_way() || before.phase == CallPhase::Allowed;
        // What a child does is judged there.
        if !was_let_run || self.active.child_of(call_id).is_some() {
            return None;
        }
        let call = self.call(call_id)?.clone();
        let arguments = call.passed().to_value();
        let tool = match self.tool_of(&call) {
            Found::Tool(tool) => tool,
            // It may be back when the attempt reaches it.
            Found::Away => return None,
            Found::Gone => {
                let reason = format!("{} is not among this agent's tools any more", call.tool);
                self.deny(call_id, Denial { reason, required_level: None });
                return Some(Judged::Settled);
            }
        };
        if let Err(error) = tool.validate(&arguments) {
            self.fail_call(call_id, FailReason::InvalidArguments, error, false);
            return Some(Judged::Settled);
        }
        match self.verdict_beside(&tool, &arguments, call.reserved.as_ref()) {
            Verdict::Deny(denial) => {
                self.deny(call_id, denial);
                Some(Judged::Settled)
            }
            Verdict::Allow { cost, .. } | Verdict::OverBudget { cost, .. } => {
                self.fund_by_now(&call, cost)
            }
            Verdict::Ask { cost, .. } if call.let_by == LetBy::Person && tool.risk <= call.risk => {
                self.fund_by_now(&call, cost)
            }
            Verdict::Ask { why, cost, exceeds_budget } => {
                match self.standing_word(&tool, &arguments) {
                    Some(by) => {
                        if !by.is_of_grant(call.let_by) {
                            self.allow(call_id, &arguments, by, None);
                        }
                        self.fund_by_now(&call, cost)
                    }
                    None => {
                        let edited = None;
                        Some(Judged::Ask(Ask { call_id, tool, why, cost, exceeds_budget, edited }))
                    }
                }
            }
        }
    }

    /// Sets aside what a call costs by now that has nothing set aside yet; what is, is for all of
    /// its attempts.
    fn fund_by_now(&mut self, call: &Call, cost: Option<Cost>) -> Option<Judged> {
        let cost = cost.filter(|_| call.reserved.is_none());
        match self.fund(call.call_id, cost) {
            Judged::Settled => None,
            lacking @ (Judged::Ask(_) | Judged::Unfunded(_)) => Some(lacking),
        }
    }

    /// The calls to begin now, with the number of the attempt.
    fn due_calls(&self) -> Vec<(CallId, u32)> {
        let Some(run) = &self.active.run else { return Vec::new() };
        // One that backs off keeps its place: it needs it again when its time comes.
        let mut places_taken = run.calls.iter().filter(|call| call.is_under_way()).count();
        let places = self.env.rules.parallel_calls_max.max(1);
        let mut children_places = self.children_places();
        let mut serial_is_taken = false;
        let mut due = Vec::new();
        for call in &run.calls {
            let has_turn = call.parallel || !serial_is_taken;
            serial_is_taken |= !call.parallel && !call.is_finished();
            match call.phase {
                CallPhase::Allowed if has_turn && places_taken < places => {
                    if self.is_delegation(call) {
                        let Some(left) = children_places.checked_sub(1) else { continue };
                        children_places = left;
                    }
                    places_taken += 1;
                    due.push((call.call_id, call.attempts + 1));
                }
                CallPhase::BackingOff { until, attempts, .. } if until <= self.env.now => {
                    due.push((call.call_id, attempts + 1));
                }
                CallPhase::Proposed
                | CallPhase::AwaitingApproval { .. }
                | CallPhase::Allowed
                | CallPhase::Running { .. }
                | CallPhase::BackingOff { .. }
                | CallPhase::Finished(_) => {}
            }
        }
        due
    }

    /// Starts an attempt; false if it can't begin, and the call has ended.
    pub(super) fn start_call(&mut self, call_id: CallId, attempt: u32) -> bool {
        let Some(call) = self.call(call_id) else { return true };
        let Some(run_id) = self.active.run.as_ref().map(|run| run.run_id) else { return true };
        if self.is_delegation(call) {
            let call = call.clone();
            if self.start_child(&call, run_id, attempt).is_none() {
                let error = "`agent` and `task` must say what is to be done".to_owned();
                self.fail_call(call_id, FailReason::InvalidArguments, error, false);
                return false;
            }
            return true;
        }
        let (tool, arguments) = (call.tool.clone(), call.passed());
        let attempt_id = AttemptId(self.env.uuid());
        let child = None;
        self.emit(SessionEvent::ToolCallAttemptStarted { call_id, attempt_id, attempt, child });
        self.effects.push(Effect::StartTool { run_id, call_id, attempt_id, tool, arguments });
        true
    }

    pub(super) fn tool_finished(
        &mut self,
        call_id: CallId,
        finished: AttemptId,
        outcome: ToolOutcome,
    ) -> Reply {
        let Some(call) = self.call(call_id) else {
            return self.result_of_past_call(call_id, finished, &outcome);
        };
        let (tool, repeatable) = (call.tool.clone(), call.repeatable);
        let (attempt, failures) = match call.phase {
            CallPhase::Running { attempt_id, attempt, failures } if attempt_id == finished => {
                (attempt, failures + 1)
            }
            CallPhase::Proposed
            | CallPhase::AwaitingApproval { .. }
            | CallPhase::Allowed
            | CallPhase::Running { .. }
            | CallPhase::BackingOff { .. }
            | CallPhase::Finished(_) => {
                let summary = summary(&outcome);
                self.emit(SessionEvent::LateResult { call_id, attempt_id: finished, summary });
                return Reply::Done;
            }
        };
        self.forget_asks_of(finished);
        match after_failure(&outcome, repeatable) {
            None => {
                let ToolOutcome::Completed(output) = outcome else { return Reply::Done };
                self.emit(SessionEvent::ToolCallCompleted { call_id, tool, output });
            }
            Some(Next::Fail(Failure { reason, error })) => {
                self.fail_call(call_id, reason, error, false);
            }
            Some(Next::Unknown { reason }) => self.ask_for_outcome(call_id, &reason),
            Some(Next::Retry { reason, otherwise }) => {
                let policy = self.retry_policy(&tool);
                if policy.allows_another_after(failures) {
                    let delay = policy.delay(failures, self.env.unit());
                    let maybe_ran = otherwise.reason.is_open();
                    self.retry_call(call_id, attempt, failures, delay, reason, maybe_ran);
                } else {
                    let exhausted = policy.retries_max > 0;
                    self.fail_call(call_id, otherwise.reason, otherwise.error, exhausted);
                }
            }
        }
        self.close_child_left_by(call_id);
        self.advance();
        Reply::Done
    }

    /// The step went on without the attempt, or its run was cancelled. What came of it is worth
    /// knowing: it may be all that is ever heard of an unknown outcome.
    fn result_of_past_call(
        &mut self,
        call_id: CallId,
        attempt_id: AttemptId,
        outcome: &ToolOutcome,
    ) -> Reply {
        let run_id = self.run_of_past_call(call_id);
        if run_id.is_some() && self.active.lifecycle == Lifecycle::Open {
            let summary = summary(outcome);
            self.emit_for(run_id, None, SessionEvent::LateResult { call_id, attempt_id, summary });
        }
        Reply::Done
    }

    fn run_of_past_call(&self, call_id: CallId) -> Option<RunId> {
        // What comes late is of a call not long ago.
        let mut messages = self.session.conversation.newest_first_after(0);
        let proposes = |message: &Message| match message {
            Message::Assistant(said) => said.calls.iter().any(|call| call.call_id == call_id),
            Message::User { .. } | Message::ToolResults(_) => false,
        };
        messages.find(|message| proposes(message))?;
        let asked = messages.find_map(|message| match message {
            Message::User { message_id, .. } => Some(message_id),
            Message::Assistant(_) | Message::ToolResults(_) => None,
        })?;
        self.session.submissions.get(asked).map(|taken| taken.run_id)
    }

    pub(super) fn retry_call(
        &mut self,
        call_id: CallId,
        attempt: u32,
        failures: u32,
        delay: Duration,
        reason: String,
        maybe_ran: bool,
    ) {
        let Some(tool) = self.call(call_id).map(|call| call.tool.clone()) else { return };
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let until = self.env.now.after(delay);
        self.emit(SessionEvent::ToolCallRetrying {
            call_id,
            tool,
            attempt,
            failures,
            delay_ms,
            until,
            reason,
            maybe_ran,
        });
    }

    /// Ends a call without a result. That its last attempt failed says nothing of those before it:
    /// where one of them may have taken effect, that is what is told (D3).
    pub(super) fn fail_call(
        &mut self,
        call_id: CallId,
        reason: FailReason,
        error: String,
        retries_exhausted: bool,
    ) {
        use FailReason as R;
        let Some(call) = self.call(call_id) else { return };
        let was_cut_off = reason == R::Cancelled
            && (matches!(call.phase, CallPhase::Running { .. })
                || self.active.child_of(call_id).is_some());
        let maybe_ran = call.maybe_ran || reason.is_open() || was_cut_off;
        let tool = call.tool.clone();
        let (reason, error) = match reason {
            reason if !call.maybe_ran || call.risk == Risk::ReadOnly => (reason, error),
            // These tell it themselves.
            R::Timeout | R::Crashed | R::Cancelled => (reason, error),
            R::Rejected | R::Expired => (reason, format!("{error}{EARLIER}")),
            R::Error
            | R::InvalidArguments
            | R::UnknownTool
            | R::Unavailable
            | R::OutcomeUnknown => (R::OutcomeUnknown, format!("{error}{EARLIER}")),
        };
        self.emit(SessionEvent::ToolCallFailed {
            call_id,
            tool,
            reason,
            error,
            retries_exhausted,
            maybe_ran,
        });
    }

    pub(super) fn tool_progressed(
        &mut self,
        call_id: CallId,
        reported: AttemptId,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    ) -> Reply {
        let Some(call) = self.call(call_id) else { return Reply::Done };
        let tool = call.tool.clone();
        if matches!(call.phase, CallPhase::Running { attempt_id, .. } if attempt_id == reported) {
            let shorten = |text: String| cut(&text, limits::PROGRESS_MESSAGE_BYTES_MAX).to_owned();
            let message = message.map(shorten);
            // JSON has no infinity and no NaN.
            let progress = if progress.is_finite() { progress } else { 0.0 };
            let total = total.filter(|total| total.is_finite());
            let event = SessionEvent::ToolCallProgress { call_id, tool, progress, total, message };
            self.emit(event);
        }
        Reply::Done
    }

    pub(super) fn call(&self, call_id: CallId) -> Option<&Call> {
        let mut calls = self.active.run.iter().flat_map(|run| &run.calls);
        calls.find(|call| call.call_id == call_id)
    }

    pub(super) fn all_calls_finished(&self) -> bool {
        self.active.run.iter().flat_map(|run| &run.calls).all(Call::is_finished)
    }

    fn retry_policy(&self, tool: &str) -> RetryPolicy {
        self.env.rules.tool(tool).map(|tool| tool.retry).unwrap_or_default()
    }
}

fn summary(outcome: &ToolOutcome) -> String {
    let text = match outcome {
        ToolOutcome::Completed(output) => format!("completed: {}", output.text),
        ToolOutcome::Failed { error, .. } => format!("failed: {error}"),
        ToolOutcome::NotSent { error } => format!("not sent: {error}"),
        ToolOutcome::TimedOut { after_ms } => format!("no answer within {after_ms} ms"),
        ToolOutcome::Crashed { error } => format!("crashed: {error}"),
    };
    cut(&text, limits::PROGRESS_MESSAGE_BYTES_MAX).to_owned()
}
