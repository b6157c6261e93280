//! Simulates one session with its clients, models, tools and store.

use crate::{exclusive_locks::LockModel, invariants::InvariantChecker, rng::SeededRng, rules};
use greenroom_core::{
    Env, Rules, Timestamp,
    amount::Amount,
    approval::ApprovalSubject,
    budget::{BudgetMeasure, SpendingTotals, UserSpending},
    call::{Call, CallPhase},
    ids::{ApprovalId, AttemptId, CallId, MessageId, RunId, Seq, SessionId, UserId},
    message::Message,
    policy::{BudgetLimit, BudgetPeriod},
    session::{
        ApprovalRow, Decision, Effect, EventRecord, Input, Lifecycle, Projection, Rejection,
        SessionRow, SessionState, SessionStatus, StepPhase, decide, evolve,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// A session and its environment.
pub(crate) struct SessionSimulation {
    pub(crate) state: SessionState,
    /// The state replayed from the log, with each event encoded and decoded.
    pub(crate) replayed_state: SessionState,
    pub(crate) log: Vec<EventRecord>,
    pub(crate) rules: Rules,
    pub(crate) now: Timestamp,
    pub(crate) invariants: InvariantChecker,
    /// Model attempts that may still report a result, including stopped ones.
    pub(crate) model_attempts: Vec<AttemptId>,
    /// Tool attempts that may still report a result, including stopped ones.
    pub(crate) tool_attempts: Vec<(CallId, AttemptId)>,
    /// Accepted messages, with run and `seq` of their replies.
    pub(crate) submitted: Vec<(MessageId, RunId, Seq)>,
    /// The store's approval rows.
    approval_rows: BTreeMap<ApprovalId, ApprovalRow>,
    session_row: Option<SessionRow>,
    decisions: u64,
    seed: u64,
    /// The user's spending limit. `spent_elsewhere` is the spending of the user's other sessions.
    pub(crate) budget_limit: Option<BudgetLimit>,
    pub(crate) spent_elsewhere: Amount,
    /// The point of the next crash.
    crash_point: Option<CrashPoint>,
    /// The exclusive locks.
    pub(crate) locks: LockModel,
    /// Number of elicitations that tools have requested.
    pub(crate) elicitations_requested: u32,
    /// Calls of the session that this session was forked from.
    inherited_calls: BTreeSet<CallId>,
}

/// A point around one decision at which the process can crash.
#[derive(Clone, Copy, Debug)]
enum CrashPoint {
    BeforeCommit,
    BeforeDispatch,
    AfterDispatch,
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::parse(name).expect("the id is valid")
}

impl SessionSimulation {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = SeededRng::new(seed);
        let rules = rules::random_rules(&mut chance);
        Self::with_rules(seed, rules)
    }

    pub(crate) fn with_rules(seed: u64, rules: Rules) -> Self {
        let session_id = SessionId(Uuid::from_u128(u128::from(seed)));
        let invariants = InvariantChecker::new(rules.agent.max_steps, rules.critical);
        Self {
            state: SessionState::new(session_id),
            replayed_state: SessionState::new(session_id),
            log: Vec::new(),
            rules,
            now: Timestamp(1_790_000_000_000),
            invariants,
            model_attempts: Vec::new(),
            tool_attempts: Vec::new(),
            submitted: Vec::new(),
            approval_rows: BTreeMap::new(),
            session_row: None,
            decisions: 0,
            seed,
            budget_limit: rules::budget_limit(&mut SeededRng::new(seed)),
            spent_elsewhere: Amount::ZERO,
            crash_point: None,
            locks: LockModel::default(),
            elicitations_requested: 0,
            inherited_calls: BTreeSet::new(),
        }
    }

    pub(crate) fn create(&mut self, chance: &mut SeededRng) {
        let (owner, agent) = (user("ann"), rules::agent_name());
        let title = chance.one_in(2).then(|| chance.tricky_text());
        let settings = rules::settings(chance);
        self.apply_input(Input::CreateSession { owner, agent, title, settings })
            .expect("the session is new");
    }

    /// S1: creates a fork of this session at a random event.
    pub(crate) fn fork(&self, chance: &mut SeededRng) -> Self {
        let count = 1 + chance.next_below(self.log.len());
        let past = SessionState::replay(self.state.session_id, &self.log[..count]);
        let conversation = past.conversation_so_far();
        let mut fork = Self::with_rules(chance.next(), self.rules.clone());
        for message in &conversation {
            if let Message::Assistant(message) = message {
                fork.inherited_calls.extend(message.calls.iter().map(|call| call.call_id));
            }
        }
        fork.now = self.now;
        fork.apply_input(Input::ForkSession {
            from: self.state.session_id,
            at_seq: past.last_seq,
            owner: user("ann"),
            agent: rules::agent_name(),
            title: None,
            settings: (*past.active.settings).clone(),
            conversation,
            spent: self.state.session_spending(self.now.day()),
        })
        .expect("the session is new");
        assert!(fork.state.is_idle(), "S1: a fork has no active run");
        fork
    }

    /// Performs a random action and checks the invariants.
    pub(crate) fn step(&mut self, entropy: u64) {
        let chance = &mut SeededRng::new(entropy);
        if chance.one_in(20) {
            self.schedule_crash(chance);
        }
        match chance.next_below(100) {
            0..12 => self.submit_message(chance),
            12..14 => self.change_queued_message(chance),
            14 => self.withdraw_queued_message(chance),
            15..18 => self.resubmit_message(chance),
            18..43 => self.finish_model_attempt(chance),
            43..67 => self.finish_tool_attempt(chance),
            68..70 => self.report_tool_progress(chance),
            70..72 => self.start_or_withdraw_elicitation(chance),
            72..86 => self.answer_approval(chance),
            86..88 => self.cancel_run(chance),
            88 => self.interrupt_run(chance),
            89 => self.revoke_grant(chance),
            90 if chance.one_in(2) => self.change_ceilings(chance),
            90 => self.change_settings(chance),
            67 => {
                self.grant_lock(chance);
            }
            91 => {
                self.spent_elsewhere +=
                    Amount::from_f64(*chance.pick(&[0.5, 3.0])).expect("a valid amount")
            }
            92..98 => self.advance_time(chance),
            98 if chance.one_in(3) => self.change_tools(chance),
            98 if chance.one_in(2) => self.change_critical_rule(chance),
            98 => self.locks.toggle_other_session(chance),
            _ => {
                if chance.one_in(6) {
                    self.close_session(chance);
                }
            }
        }
        self.recover_if_crashed(chance);
        self.check();
    }

    /// Schedules a crash at a random point around the next decision.
    pub(crate) fn schedule_crash(&mut self, chance: &mut SeededRng) {
        let faults =
            [CrashPoint::BeforeCommit, CrashPoint::BeforeDispatch, CrashPoint::AfterDispatch];
        self.crash_point = Some(*chance.pick(&faults));
    }

    /// Recovers the session if a crash was scheduled.
    pub(crate) fn recover_if_crashed(&mut self, chance: &mut SeededRng) {
        if self.crash_point.take().is_some() {
            self.crash(chance);
        }
    }

    /// Decides, commits and dispatches, unless the process crashes in between.
    pub(crate) fn apply_input(&mut self, input: Input) -> Result<Decision, Rejection> {
        self.decisions += 1;
        let seed = SeededRng::new(self.seed ^ self.decisions.rotate_left(32)).next();
        let spending = self.user_spending();
        let env = Env::new(self.now, seed, &self.rules).with_user_spending(spending.clone());
        let decision = decide(&self.state, input, &env)?;
        self.check_preconditions(&decision, &spending);
        if matches!(self.crash_point, Some(CrashPoint::BeforeCommit)) {
            return Ok(decision);
        }
        self.commit(&decision.events);
        self.locks.release_unused(&self.state);
        if !matches!(self.crash_point, Some(CrashPoint::BeforeDispatch)) {
            self.dispatch(&decision.effects);
        }
        Ok(decision)
    }

    /// Returns the user's spending limit, and the user's spending in this and other sessions.
    fn user_spending(&self) -> UserSpending {
        let today = self.now.day();
        let costs = &self.state.active.tool_costs;
        let gold = |period| self.spent_elsewhere + costs.spent(rules::UNIT, period, today);
        let gold = SpendingTotals {
            day: gold(BudgetPeriod::Day),
            month: gold(BudgetPeriod::Month),
            total: gold(BudgetPeriod::Total),
        };
        let models = self.state.total_usage();
        let [tokens, usd] =
            [Amount::from_whole(models.tokens.total()), models.cost_usd.unwrap_or_default()]
                .map(|total| SpendingTotals { day: total, month: total, total });
        let spent = [
            (BudgetMeasure::from_unit(rules::UNIT), gold),
            (BudgetMeasure::Tokens, tokens),
            (BudgetMeasure::Usd, usd),
        ];
        UserSpending { limit: self.budget_limit.clone(), totals: BTreeMap::from(spent) }
    }

    /// G6: a decision meets its own preconditions if no other session spends at the same time.
    fn check_preconditions(&self, decision: &Decision, spending: &UserSpending) {
        let next = decision.events.iter().fold(self.state.clone(), evolve);
        for precondition in &decision.preconditions {
            let (period, day) = (precondition.period, precondition.day);
            let new = next.active.tool_costs.spent(rules::UNIT, period, day)
                - self.state.active.tool_costs.spent(rules::UNIT, period, day);
            let before = spending.totals[&precondition.measure].in_period(period);
            assert!(
                precondition.is_met(before + new),
                "{precondition:?} does not hold: {before} + {new}"
            );
        }
    }

    /// True if the latest decision was not committed because of a crash.
    pub(crate) fn is_decision_lost(&self) -> bool {
        matches!(self.crash_point, Some(CrashPoint::BeforeCommit))
    }

    /// True if the process crashes before the next action.
    pub(crate) fn is_crash_pending(&self) -> bool {
        self.crash_point.is_some()
    }

    fn commit(&mut self, events: &[EventRecord]) {
        let before = self.state.clone();
        for record in events {
            assert_eq!(record.at, self.now);
            self.invariants.check_event(record);
            // D7: a stored event decodes to the same event.
            let stored = serde_json::to_string(record).expect("events can be encoded");
            let decoded: EventRecord =
                serde_json::from_str(&stored).expect("events can be decoded");
            assert_eq!(decoded, *record);
            evolve_in_place(&mut self.state, record);
            evolve_in_place(&mut self.replayed_state, &decoded);
            self.log.push(decoded);
        }
        // D1: replaying the log yields the live state.
        assert_eq!(self.state.active, self.replayed_state.active);
        assert_eq!(self.state.last_seq, self.replayed_state.last_seq);
        self.apply_projection(&before);
    }

    /// G11: the projected rows agree with the state.
    fn apply_projection(&mut self, before: &SessionState) {
        let Projection { session, approvals, spending_update: _ } =
            Projection::diff(before, &self.state);
        for row in approvals {
            self.approval_rows.insert(row.approval.approval_id, row);
        }
        if session.is_some() {
            self.session_row = session;
        }
        let requested = self.state.active.approvals.len() + self.state.closed_approvals.len();
        assert_eq!(self.approval_rows.len(), requested);
    }

    fn check_rows(&self) {
        for row in ApprovalRow::all_from_state(&self.state) {
            assert_eq!(self.approval_rows.get(&row.approval.approval_id), Some(&row));
        }
        let now = SessionRow::from_state(&self.state).expect("the session exists");
        let stored = self.session_row.as_ref().expect("the session exists");
        assert_eq!(
            (&stored.title, &stored.settings, stored.status),
            (&now.title, &now.settings, now.status)
        );
    }

    fn dispatch(&mut self, effects: &[Effect]) {
        for effect in effects {
            self.invariants.check_effect(effect);
            if let Effect::StartTool { call_id, tool, .. } = effect {
                self.check_ceiling(*call_id, tool);
            }
            match effect {
                Effect::StartModel { attempt_id, .. } => self.model_attempts.push(*attempt_id),
                Effect::StartTool { call_id, attempt_id, .. } => {
                    self.tool_attempts.push((*call_id, *attempt_id));
                }
                Effect::AcquireExclusiveLock { call_id, key } => self.locks.acquire(*call_id, key),
                // A stopped attempt may have reported its result, or may still report it.
                Effect::StopModel { .. }
                | Effect::StopTool { .. }
                | Effect::AnswerElicitation { .. }
                | Effect::NarrowChild { .. }
                | Effect::CloseChild { .. } => {}
                Effect::StartChild { attempt_id, task, .. } => {
                    self.tool_attempts.push((task.parent.call_id, *attempt_id));
                }
            }
        }
    }

    /// Kills the process and rehydrates the session from the log (D2). Old attempts may still report
    /// results.
    pub(crate) fn crash(&mut self, chance: &mut SeededRng) {
        self.locks.clear();
        self.model_attempts.retain(|_| chance.one_in(2));
        self.tool_attempts.retain(|_| chance.one_in(2));
        let replayed = SessionState::replay(self.state.session_id, &self.log);
        assert_eq!(replayed, self.state, "D1: replay yields the live state");
        self.state = replayed;
        if chance.one_in(4) {
            self.now = self.now.saturating_add(std::time::Duration::from_secs(90));
        }
        if chance.one_in(4) {
            self.crash_point = Some(CrashPoint::BeforeDispatch);
            self.rehydrate();
            self.crash_point = None;
        }
        self.rehydrate();
    }

    fn rehydrate(&mut self) {
        self.apply_input(Input::Rehydrated { user_settings: None })
            .expect("a session can always be rehydrated");
        self.check_wake();
    }

    /// Asserts that nothing is due after a wake-up, so that wake-ups cannot loop.
    pub(crate) fn check_wake(&self) {
        // A call that crashes before it requests its lock requests it after the rehydration.
        if !matches!(self.crash_point, Some(CrashPoint::BeforeCommit | CrashPoint::BeforeDispatch))
        {
            assert!(self.next_wake().is_none_or(|next| next > self.now));
            let mut deadlines =
                self.state.active.approvals.iter().map(|open| open.deadline_action_at());
            assert!(deadlines.all(|due| due.is_none_or(|due| due > self.now)));
        }
    }

    pub(crate) fn check(&self) {
        let active = &self.state.active;
        self.check_rows();
        let Some(run) = &active.run else {
            assert!(active.queue.is_empty(), "S4: a message is queued without a run");
            assert!(active.approvals.is_empty());
            assert!(self.state.is_idle());
            return;
        };
        assert_eq!(active.lifecycle, Lifecycle::Open);
        assert!(active.approvals.iter().all(|open| open.run_id == run.run_id));
        assert!(active.queue.len() <= self.rules.queued_messages_max, "X4");
        // S3: the limits of parallel calls.
        let is_in_progress = |call: &&Call| call.is_in_progress();
        let in_progress: Vec<_> = run.calls.iter().filter(is_in_progress).collect();
        assert!(in_progress.len() <= self.rules.parallel_calls_max, "S3: too many calls run");
        assert!(in_progress.iter().filter(|call| !call.parallel).count() <= 1, "S3: not in order");
        self.locks.check(&self.state);
        // T1: the attempt of an open elicitation is running.
        for open in &active.approvals {
            if let ApprovalSubject::Elicitation(elicitation) = &open.approval.subject {
                let runs = |call: &Call| matches!(call.phase, CallPhase::Running { attempt_id, .. } if attempt_id == elicitation.attempt_id);
                assert!(run.calls.iter().any(runs), "T1: the elicitation's attempt has ended");
            }
        }
        // Every attempt in progress was dispatched and may still report its result.
        if let StepPhase::Streaming { attempt_id, .. } = run.phase {
            assert!(
                self.model_attempts.contains(&attempt_id),
                "a model attempt was not dispatched"
            );
        }
        for call in &in_progress {
            if let CallPhase::Running { attempt_id, .. } = call.phase {
                let is_dispatched = self.tool_attempts.contains(&(call.call_id, attempt_id));
                assert!(is_dispatched, "a tool attempt was not dispatched");
            }
        }
        let waits = SessionRow::from_state(&self.state)
            .is_some_and(|row| row.status == SessionStatus::Waiting);
        if waits {
            assert!(in_progress.is_empty() && self.state.next_wake().is_none(), "D6");
        }
        assert!(run.phase != StepPhase::BetweenSteps || waits, "the run is stuck between steps");
        let is_evaluated = |call: &Call| call.phase != CallPhase::Proposed;
        assert!(run.calls.iter().all(is_evaluated), "a call was not evaluated");
    }

    /// Runs until every attempt has reported, every approval is closed and no wake-up is due; then
    /// checks that the session is idle and that the log and the conversation are complete.
    pub(crate) fn finish(mut self, entropy: u64) {
        let chance = &mut SeededRng::new(entropy);
        self.run_to_idle(chance);
        self.check_conversation();
        let replayed = SessionState::replay(self.state.session_id, &self.log);
        assert_eq!(replayed, self.state, "D1: replay yields the live state");
        if self.state.active.lifecycle == Lifecycle::Open {
            let effects = self.submit_new_message(chance).expect("open and idle").effects;
            let waits = !self.state.active.approvals.is_empty() || self.state.is_idle();
            let starts = matches!(effects[..], [Effect::StartModel { .. }]);
            assert!(starts || waits, "{effects:?}");
        }
    }

    pub(crate) fn run_to_idle(&mut self, chance: &mut SeededRng) {
        let bound = 200 + 100 * self.rules.queued_messages_max;
        for _ in 0..bound {
            self.locks.release_other_sessions();
            if !self.model_attempts.is_empty() {
                self.finish_model_without_calls(chance);
            } else if !self.tool_attempts.is_empty() {
                self.finish_tool_attempt(chance);
            } else if self.grant_lock(chance) {
                // The call with the lock continues.
            } else if let Some(open) = self.state.active.approvals.first() {
                match open.deadline_action_at() {
                    Some(deadline) if chance.one_in(2) => self.now = self.now.max(deadline),
                    Some(_) | None => self.answer_whole_approval(chance),
                }
                self.wake();
            } else if let Some(next) = self.next_wake() {
                self.now = self.now.max(next);
                self.wake();
            } else {
                break;
            }
            self.check();
        }
        assert!(self.state.is_idle(), "stuck: {:?}", self.state.active);
    }

    /// Returns the time of the next wake-up, as the session actor computes it.
    fn next_wake(&self) -> Option<Timestamp> {
        self.state.next_wake_excluding(|call_id| self.locks.is_waiting(call_id))
    }

    pub(crate) fn wake(&mut self) {
        self.apply_input(Input::Wake).expect("a session can always be woken");
        self.check_wake();
    }

    /// S3: the conversation pairs each call with exactly one result, in order.
    fn check_conversation(&self) {
        let mut seen = BTreeSet::new();
        let messages = self.state.conversation.messages();
        for (index, message) in messages.iter().enumerate() {
            let Message::Assistant(assistant) = message else { continue };
            let calls: Vec<_> = assistant.calls.iter().map(|call| call.call_id).collect();
            if calls.is_empty() {
                continue;
            }
            let Some(Message::ToolResults(results)) = messages.get(index + 1) else {
                panic!("calls without results: {assistant:?}");
            };
            assert_eq!(results.iter().map(|result| result.call_id).collect::<Vec<_>>(), calls);
            assert!(calls.into_iter().all(|call_id| seen.insert(call_id)), "a call occurs twice");
        }
        let own_calls = self.invariants.calls.keys().copied();
        let expected: BTreeSet<_> = self.inherited_calls.iter().copied().chain(own_calls).collect();
        assert_eq!(seen, expected, "calls are missing in the conversation");
        assert!(self.invariants.calls.values().all(|call| call.is_ended));
    }
}

fn evolve_in_place(state: &mut SessionState, record: &EventRecord) {
    let session_id = state.session_id;
    let before = std::mem::replace(state, SessionState::new(session_id));
    *state = evolve(before, record);
}
