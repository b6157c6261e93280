//! The world around one session: who may act, what is under way, what is stored.

use crate::{chance::Chance, rules, turns::Turns, watch::Watch};
use greenroom_core::{
    Env, Rules, Timestamp,
    approval::Question,
    budget::{Account, Measure, Spent},
    call::{Call, CallPhase},
    ids::{ApprovalId, AttemptId, CallId, MessageId, SessionId, UserId},
    message::Message,
    policy::{BudgetLimit, Period},
    session::{
        ApprovalRow, Decision, Effect, EventRecord, Input, Lifecycle, Projection, Rejection, Reply,
        SessionRow, SessionState, SessionStatus, StepPhase, decide, evolve,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// One session and its world.
pub(crate) struct World {
    pub(crate) state: SessionState,
    /// What would come out of the store: every event through its stored form and back.
    pub(crate) replayed: SessionState,
    pub(crate) log: Vec<EventRecord>,
    pub(crate) rules: Rules,
    pub(crate) now: Timestamp,
    pub(crate) watch: Watch,
    /// Model attempts that may still answer, those that were given up too.
    pub(crate) models: Vec<AttemptId>,
    /// Tool attempts that may still answer, likewise.
    pub(crate) tools: Vec<(CallId, AttemptId)>,
    /// Messages that were taken, with their answers.
    pub(crate) submitted: Vec<(MessageId, Reply)>,
    /// The store's approval rows.
    rows: BTreeMap<ApprovalId, ApprovalRow>,
    row: Option<SessionRow>,
    decisions: u64,
    seed: u64,
    /// What the user may spend, and what their other sessions have spent.
    pub(crate) limit: Option<BudgetLimit>,
    pub(crate) elsewhere: f64,
    /// Where the process dies next.
    fault: Option<Fault>,
    /// Whose turn it is.
    pub(crate) turns: Turns,
    /// Questions that tools asked.
    pub(crate) asked: u32,
    /// Calls of the session that this one was forked from.
    inherited: BTreeSet<CallId>,
}

/// Where a process can die around one decision.
#[derive(Clone, Copy, Debug)]
enum Fault {
    BeforeCommit,
    BeforeDispatch,
    AfterDispatch,
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::parse(name).expect("it is short")
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let rules = rules::draw(&mut chance);
        Self::with_rules(seed, rules)
    }

    pub(crate) fn with_rules(seed: u64, rules: Rules) -> Self {
        let session_id = SessionId(Uuid::from_u128(u128::from(seed)));
        let watch = Watch::of_runs(rules.agent.max_steps);
        Self {
            state: SessionState::vacant(session_id),
            replayed: SessionState::vacant(session_id),
            log: Vec::new(),
            rules,
            now: Timestamp(1_790_000_000_000),
            watch,
            models: Vec::new(),
            tools: Vec::new(),
            submitted: Vec::new(),
            rows: BTreeMap::new(),
            row: None,
            decisions: 0,
            seed,
            limit: rules::limit(&mut Chance::new(seed)),
            elsewhere: 0.0,
            fault: None,
            turns: Turns::default(),
            asked: 0,
            inherited: BTreeSet::new(),
        }
    }

    pub(crate) fn create(&mut self, chance: &mut Chance) {
        let (owner, agent) = (user("ann"), rules::agent_name());
        let title = chance.one_in(2).then(|| chance.text());
        let settings = rules::settings(chance);
        self.take(Input::CreateSession { owner, agent, title, settings }).expect("it is new");
    }

    /// S1: another session, which goes on from what was said here up to some event.
    pub(crate) fn fork(&self, chance: &mut Chance) -> Self {
        let count = 1 + chance.below(self.log.len());
        let past = SessionState::replay(self.state.session_id, &self.log[..count]);
        let conversation = past.conversation_so_far();
        let mut fork = Self::with_rules(chance.next(), self.rules.clone());
        for message in &conversation {
            if let Message::Assistant(said) = message {
                fork.inherited.extend(said.calls.iter().map(|call| call.call_id));
            }
        }
        fork.now = self.now;
        fork.take(Input::ForkSession {
            from: self.state.session_id,
            at_seq: past.head,
            owner: user("ann"),
            agent: rules::agent_name(),
            title: None,
            settings: (*past.active.settings).clone(),
            conversation,
        })
        .expect("it is new");
        assert!(fork.state.is_idle(), "S1: what was going on goes on there alone");
        fork
    }

    /// Something happens, and afterwards everything still holds.
    pub(crate) fn step(&mut self, entropy: u64) {
        let chance = &mut Chance::new(entropy);
        if chance.one_in(20) {
            self.die_around_next(chance);
        }
        match chance.below(100) {
            0..15 => self.somebody_submits(chance),
            15..18 => self.somebody_submits_again(chance),
            18..43 => self.a_model_answers(chance),
            43..67 => self.a_tool_answers(chance),
            68..70 => self.a_tool_progresses(chance),
            70..72 => self.a_tool_asks(chance),
            72..86 => self.somebody_decides(chance),
            86..88 => self.somebody_cancels(chance),
            88 => self.somebody_interrupts(chance),
            89 => self.somebody_revokes(chance),
            90 => self.somebody_changes_settings(chance),
            67 => {
                self.a_turn_comes(chance);
            }
            91 => self.elsewhere += *chance.pick(&[0.5, 3.0]),
            92..98 => self.time_passes(chance),
            98 if chance.one_in(2) => self.tools_change(chance),
            98 => self.turns.somebody_else_acts(chance),
            _ => {
                if chance.one_in(6) {
                    self.somebody_closes(chance);
                }
            }
        }
        self.come_back(chance);
        self.check();
    }

    /// The process dies around the next decision, wherever that leaves it.
    pub(crate) fn die_around_next(&mut self, chance: &mut Chance) {
        let faults = [Fault::BeforeCommit, Fault::BeforeDispatch, Fault::AfterDispatch];
        self.fault = Some(*chance.pick(&faults));
    }

    /// If it died, it comes back.
    pub(crate) fn come_back(&mut self, chance: &mut Chance) {
        if self.fault.take().is_some() {
            self.crash(chance);
        }
    }

    /// Decides, commits and dispatches, unless the process dies in between.
    pub(crate) fn take(&mut self, input: Input) -> Result<Decision, Rejection> {
        self.decisions += 1;
        let seed = Chance::new(self.seed ^ self.decisions.rotate_left(32)).next();
        let account = self.account();
        let env = Env::new(self.now, seed, &self.rules).with_account(account.clone());
        let decision = decide(&self.state, input, &env)?;
        self.check_claims(&decision, &account);
        if matches!(self.fault, Some(Fault::BeforeCommit)) {
            return Ok(decision);
        }
        self.commit(&decision.events);
        self.turns.settle(&self.state);
        if !matches!(self.fault, Some(Fault::BeforeDispatch)) {
            self.dispatch(&decision.effects);
        }
        Ok(decision)
    }

    /// What the user may spend and has spent, here and elsewhere.
    fn account(&self) -> Account {
        let today = self.now.day();
        let costs = &self.state.active.costs;
        let gold = |period| self.elsewhere + costs.spent(rules::UNIT, period, today);
        let gold = Spent {
            day: gold(Period::Day),
            month: gold(Period::Month),
            total: gold(Period::Total),
        };
        let models = self.state.spent();
        let [tokens, usd] = [models.tokens.total() as f64, models.cost_usd.unwrap_or(0.0)]
            .map(|total| Spent { day: total, month: total, total });
        let spent =
            [(Measure::unit(rules::UNIT), gold), (Measure::Tokens, tokens), (Measure::Usd, usd)];
        Account { limit: self.limit.clone(), spent: BTreeMap::from(spent) }
    }

    /// G6: what a decision takes for granted holds, unless somebody else spends meanwhile.
    fn check_claims(&self, decision: &Decision, account: &Account) {
        let next = decision.events.iter().fold(self.state.clone(), evolve);
        for claim in &decision.claims {
            let new = next.active.costs.spent(rules::UNIT, claim.period, claim.day)
                - self.state.active.costs.spent(rules::UNIT, claim.period, claim.day);
            let before = account.spent[&claim.measure].in_period(claim.period);
            assert!(claim.holds(before + new), "{claim:?} does not hold: {before} + {new}");
        }
    }

    /// Whether what was just decided did not come to be.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.fault, Some(Fault::BeforeCommit))
    }

    /// Whether the process dies before anything else happens.
    pub(crate) fn is_dying(&self) -> bool {
        self.fault.is_some()
    }

    fn commit(&mut self, events: &[EventRecord]) {
        let before = self.state.clone();
        for record in events {
            assert_eq!(record.at, self.now);
            self.watch.follow(record);
            // D7: what is stored reads back as it was.
            let stored = serde_json::to_string(record).expect("events can be written");
            let read: EventRecord = serde_json::from_str(&stored).expect("events read back");
            assert_eq!(read, *record);
            evolve_in_place(&mut self.state, record);
            evolve_in_place(&mut self.replayed, &read);
            self.log.push(read);
        }
        // D1: replay equals life.
        assert_eq!(self.state.active, self.replayed.active);
        assert_eq!(self.state.head, self.replayed.head);
        self.project(&before);
    }

    /// G11: what the store is told adds up to what there is.
    fn project(&mut self, before: &SessionState) {
        let Projection { session, approvals, posting: _ } =
            Projection::between(before, &self.state);
        for row in approvals {
            self.rows.insert(row.approval.approval_id, row);
        }
        if session.is_some() {
            self.row = session;
        }
        let asked = self.state.active.approvals.len() + self.state.closed_approvals.len();
        assert_eq!(self.rows.len(), asked);
    }

    fn check_rows(&self) {
        for row in ApprovalRow::all_of(&self.state) {
            assert_eq!(self.rows.get(&row.approval.approval_id), Some(&row));
        }
        let now = SessionRow::of(&self.state).expect("the session exists");
        let stored = self.row.as_ref().expect("the session exists");
        assert_eq!(
            (&stored.title, &stored.settings, stored.status),
            (&now.title, &now.settings, now.status)
        );
    }

    fn dispatch(&mut self, effects: &[Effect]) {
        for effect in effects {
            self.watch.dispatch(effect);
            match effect {
                Effect::StartModel { attempt_id, .. } => self.models.push(*attempt_id),
                Effect::StartTool { call_id, attempt_id, .. } => {
                    self.tools.push((*call_id, *attempt_id));
                }
                Effect::AwaitTurn { call_id, key } => self.turns.enter(*call_id, key),
                // What is stopped may have answered already, or answer nevertheless.
                Effect::StopModel { .. }
                | Effect::StopTool { .. }
                | Effect::AnswerTool { .. }
                | Effect::NarrowChild { .. }
                | Effect::CloseChild { .. } => {}
                Effect::StartChild { attempt_id, errand, .. } => {
                    self.tools.push((errand.parent.call_id, *attempt_id));
                }
            }
        }
    }

    /// `kill -9`, and back from the log (D2). Old attempts may or may not answer still.
    pub(crate) fn crash(&mut self, chance: &mut Chance) {
        self.turns.forget();
        self.models.retain(|_| chance.one_in(2));
        self.tools.retain(|_| chance.one_in(2));
        let read = SessionState::replay(self.state.session_id, &self.log);
        assert_eq!(read, self.state, "D1: replay equals life");
        self.state = read;
        if chance.one_in(4) {
            self.now = self.now.after(std::time::Duration::from_secs(90));
        }
        if chance.one_in(4) {
            self.fault = Some(Fault::BeforeDispatch);
            self.rehydrate();
            self.fault = None;
        }
        self.rehydrate();
    }

    fn rehydrate(&mut self) {
        self.take(Input::Rehydrated { within: None }).expect("a session can always come back");
        self.check_wake();
    }

    /// A wake-up leaves nothing that was due: no hot loop.
    pub(crate) fn check_wake(&self) {
        // What dies before it asks for a turn asks again when it comes back.
        if !matches!(self.fault, Some(Fault::BeforeCommit | Fault::BeforeDispatch)) {
            assert!(self.next_wake().is_none_or(|next| next > self.now));
            let mut deadlines = self.state.active.approvals.iter().map(|open| open.due_at());
            assert!(deadlines.all(|end| end.is_none_or(|end| end > self.now)));
        }
    }

    pub(crate) fn check(&self) {
        let active = &self.state.active;
        self.check_rows();
        let Some(run) = &active.run else {
            assert!(active.queue.is_empty(), "S4: a message waits for nothing");
            assert!(active.approvals.is_empty());
            assert!(self.state.is_idle());
            return;
        };
        assert_eq!(active.lifecycle, Lifecycle::Open);
        assert!(active.approvals.iter().all(|open| open.run_id == run.run_id));
        assert!(active.queue.len() <= self.rules.queued_messages_max, "X4");
        // S3: the bounds.
        let running = |call: &&greenroom_core::call::Call| call.is_under_way();
        let under_way: Vec<_> = run.calls.iter().filter(running).collect();
        assert!(under_way.len() <= self.rules.parallel_calls_max, "S3: too many at once");
        assert!(under_way.iter().filter(|call| !call.parallel).count() <= 1, "S3: not in order");
        self.turns.check(&self.state);
        // T1: who asks runs.
        for open in &active.approvals {
            if let Question::Elicitation(asked) = &open.approval.question {
                let runs = |call: &Call| matches!(call.phase, CallPhase::Running { attempt_id, .. } if attempt_id == asked.attempt_id);
                assert!(run.calls.iter().any(runs), "T1: nobody waits for the answer");
            }
        }
        // Everything under way is under way: it was dispatched, and may answer.
        if let StepPhase::Streaming { attempt_id, .. } = run.phase {
            assert!(self.models.contains(&attempt_id), "a model attempt nobody makes");
        }
        for call in &under_way {
            if let CallPhase::Running { attempt_id, .. } = call.phase {
                assert!(self.tools.contains(&(call.call_id, attempt_id)), "nobody runs it");
            }
        }
        let waits =
            SessionRow::of(&self.state).is_some_and(|row| row.status == SessionStatus::Waiting);
        if waits {
            assert!(under_way.is_empty() && self.state.next_wake().is_none(), "D6");
        }
        assert!(run.phase != StepPhase::Between || waits, "left between steps");
        assert!(run.calls.iter().all(|call| call.phase != CallPhase::Proposed), "left unjudged");
    }

    /// Everybody answers and all time passes: then nothing is going on any more, and the log and
    /// the conversation are whole.
    pub(crate) fn finish(mut self, entropy: u64) {
        let chance = &mut Chance::new(entropy);
        self.come_to_rest(chance);
        self.check_conversation();
        let read = SessionState::replay(self.state.session_id, &self.log);
        assert_eq!(read, self.state, "D1: replay equals life");
        if self.state.active.lifecycle == Lifecycle::Open {
            let effects = self.submit_fresh(chance).expect("it is open and idle").effects;
            let waits = !self.state.active.approvals.is_empty() || self.state.is_idle();
            let starts = matches!(effects[..], [Effect::StartModel { .. }]);
            assert!(starts || waits, "{effects:?}");
        }
    }

    pub(crate) fn come_to_rest(&mut self, chance: &mut Chance) {
        let bound = 200 + 100 * self.rules.queued_messages_max;
        for _ in 0..bound {
            self.turns.others_leave();
            if !self.models.is_empty() {
                self.a_model_answers_finally(chance);
            } else if !self.tools.is_empty() {
                self.a_tool_answers(chance);
            } else if self.a_turn_comes(chance) {
                // And whoever has it goes on.
            } else if let Some(open) = self.state.active.approvals.first() {
                match open.due_at() {
                    Some(deadline) if chance.one_in(2) => self.now = self.now.max(deadline),
                    Some(_) | None => self.somebody_decides_all(chance),
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

    /// When time brings something, as a session's shell sees it.
    fn next_wake(&self) -> Option<Timestamp> {
        self.state.next_wake_besides(|call_id| self.turns.awaits(call_id))
    }

    pub(crate) fn wake(&mut self) {
        self.take(Input::Wake).expect("a session can always wake");
        self.check_wake();
    }

    /// S3: the conversation pairs each call with exactly one result, in order.
    fn check_conversation(&self) {
        let mut said = BTreeSet::new();
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
            assert!(calls.into_iter().all(|call_id| said.insert(call_id)), "a call said twice");
        }
        let own = self.watch.calls.keys().copied();
        let expected: BTreeSet<_> = self.inherited.iter().copied().chain(own).collect();
        assert_eq!(said, expected, "calls that nobody reads");
        assert!(self.watch.calls.values().all(|call| call.is_ended));
    }
}

fn evolve_in_place(state: &mut SessionState, record: &EventRecord) {
    let session_id = state.session_id;
    let before = std::mem::replace(state, SessionState::vacant(session_id));
    *state = evolve(before, record);
}
