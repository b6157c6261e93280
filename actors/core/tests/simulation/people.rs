//! What people do: ask, change their minds, decide, and send things twice.

use crate::{
    chance::Chance,
    rules,
    world::{World, user},
};
use greenroom_core::{
    approval::{
        ElicitationQuestion, GrantWish, OpenApproval, Overdue, PlanStep, Question, Resolution,
        Role, Surface, Wanted,
    },
    ids::{ApprovalId, CallId, GrantId, MessageId, RunId, Seq},
    json::Digest,
    model::completion::Completion,
    preflight::StepEdit,
    session::{
        ApprovalAnswer, Decision, EventRecord, Input, Lifecycle, NewMessage, OnBusy, Rejection,
        Reply, SessionEvent, StepAnswer,
    },
};
use serde_json::{Value, json};
use uuid::Uuid;

impl World {
    pub(crate) fn somebody_submits(&mut self, chance: &mut Chance) {
        let was_idle = self.state.is_idle();
        let is_open = self.state.active.lifecycle == Lifecycle::Open;
        match self.submit_fresh(chance) {
            Ok(_) => assert!(is_open),
            Err(Rejection::SessionClosed) => assert!(!is_open),
            Err(Rejection::Busy { .. } | Rejection::QueueFull { .. }) => assert!(!was_idle),
            Err(other) => panic!("{other}"),
        }
    }

    pub(crate) fn submit_fresh(&mut self, chance: &mut Chance) -> Result<Decision, Rejection> {
        let number = self.submitted.len();
        let text = chance.text();
        // What was refused was not taken: its id is still free.
        let message_id = MessageId::parse(&format!("u{number}")).expect("it is short");
        let digest = Digest::of_bytes(message_id.as_str().as_bytes());
        let choices = [OnBusy::Queue, OnBusy::Queue, OnBusy::Reject, OnBusy::Steer];
        let on_busy = *chance.pick(&choices);
        let input = Input::SubmitMessage {
            message: NewMessage {
                message_id: message_id.clone(),
                text: format!("{number} {text}").into(),
                digest,
                preflight: *chance.pick(&[None, None, Some(true), Some(false)]),
                workflow: chance.one_in(4).then(|| rules::workflow(chance)),
                traceparent: rules::traceparent(chance),
            },
            on_busy,
        };
        let decision = self.take(input)?;
        let (run_id, seq) = match decision.reply {
            Reply::Submitted { run_id, seq, repeated: false } => (run_id, seq),
            Reply::Steered { run_id, seq, after_decision: _ } if on_busy == OnBusy::Steer => {
                (run_id, seq)
            }
            Reply::Done
            | Reply::Submitted { .. }
            | Reply::Steered { .. }
            | Reply::Decided { .. }
            | Reply::Cancelled { .. } => panic!("{decision:?}"),
        };
        self.note_submitted(message_id, run_id, seq);
        Ok(decision)
    }

    fn note_submitted(&mut self, message_id: MessageId, run_id: RunId, seq: Seq) {
        if !self.is_lost() {
            let again = Reply::Submitted { run_id, seq, repeated: true };
            self.submitted.push((message_id, again));
        }
    }

    /// S4: the run that is going ends, and this one is next, before those that wait.
    pub(crate) fn somebody_interrupts(&mut self, chance: &mut Chance) {
        let message_id = MessageId::parse(&format!("u{}", self.submitted.len()));
        let message_id = message_id.expect("it is short");
        let before = self.state.active.run.as_ref().map(|run| run.run_id);
        let partial = self.partial(chance).filter(|_| before.is_some());
        let result = self.take(Input::Interrupt {
            message: NewMessage {
                message_id: message_id.clone(),
                text: chance.text().into(),
                digest: Digest::of_bytes(message_id.as_str().as_bytes()),
                preflight: *chance.pick(&[None, Some(true)]),
                workflow: None,
                traceparent: rules::traceparent(chance),
            },
            by: user("bob"),
            partial,
        });
        let decision = match result {
            Ok(decision) => decision,
            Err(Rejection::SessionClosed) => {
                return assert_eq!(self.state.active.lifecycle, Lifecycle::Closed);
            }
            Err(other) => panic!("{other}"),
        };
        let Reply::Submitted { run_id, seq, repeated: false } = decision.reply else {
            panic!("{decision:?}");
        };
        self.note_submitted(message_id, run_id, seq);
        let ended =
            |record: &EventRecord| matches!(record.event, SessionEvent::RunCancelled { .. });
        let cancelled = decision.events.iter().find(|record| ended(record));
        assert_eq!(cancelled.and_then(|record| record.run_id), before, "S4: what was going ends");
    }

    /// S5: at any later time the same message has the same answer, and another body none.
    pub(crate) fn somebody_submits_again(&mut self, chance: &mut Chance) {
        if self.submitted.is_empty() {
            return;
        }
        let (message_id, answer) = chance.pick(&self.submitted).clone();
        let same = chance.below(4) != 0;
        let body = if same { message_id.as_str() } else { "another" };
        let input = Input::SubmitMessage {
            message: NewMessage {
                digest: Digest::of_bytes(body.as_bytes()),
                message_id: message_id.clone(),
                text: "again".into(),
                preflight: *chance.pick(&[None, Some(true)]),
                workflow: None,
                traceparent: None,
            },
            on_busy: *chance.pick(&[OnBusy::Queue, OnBusy::Reject]),
        };
        match self.take(input) {
            Ok(Decision { events, claims: _, effects, reply }) => {
                assert!(same && events.is_empty() && effects.is_empty());
                assert_eq!(reply, answer);
            }
            Err(rejection) => {
                assert!(!same);
                assert_eq!(rejection, Rejection::MessageIdReused { message_id });
            }
        }
    }

    pub(crate) fn somebody_cancels(&mut self, chance: &mut Chance) {
        let running = self.state.active.run.as_ref().map(|run| run.run_id);
        let queued: Vec<_> = self.state.active.queue.iter().map(|queued| queued.run_id).collect();
        // What steers the run that ends comes first.
        let steering = self.state.active.run.iter().flat_map(|run| &run.steering);
        let steering = steering.map(|steering| steering.run_id);
        let next: Vec<_> = steering.chain(queued.iter().copied()).collect();
        let stray = RunId(Uuid::from_u128(7));
        let run_id = match chance.below(4) {
            0 => queued.first().copied(),
            1 => Some(stray),
            _ => None,
        };
        let partial = self.partial(chance);
        let result = self.take(Input::Cancel { run_id, by: user("ann"), partial });
        match (run_id, running) {
            (Some(run_id), _) if run_id == stray => {
                assert_eq!(result, Err(Rejection::RunNotActive { run_id }));
            }
            (Some(run_id), _) => {
                assert_eq!(result.expect("it waits").reply, Reply::Cancelled { run_id });
            }
            (None, None) => assert_eq!(result, Err(Rejection::NoRun)),
            (None, Some(run_id)) => {
                assert_eq!(result.expect("it runs").reply, Reply::Cancelled { run_id });
                // S6: gone at once, and the next message goes on.
                // Where a budget is reached and nobody can be asked, each run fails at once.
                let agent = &self.rules.agent;
                let may_fail_at_once = agent.headless && !agent.budgets.is_empty();
                if !self.is_lost() && !may_fail_at_once {
                    let now = self.state.active.run.as_ref().map(|run| run.run_id);
                    assert_eq!(now, next.first().copied());
                    assert_eq!(self.state.is_idle(), next.is_empty());
                }
                if !self.is_dying() && next.is_empty() && chance.one_in(2) {
                    self.submit_fresh(chance).expect("S6: the session is usable");
                    assert!(self.state.active.run.is_some() || may_fail_at_once);
                }
            }
        }
    }

    pub(crate) fn somebody_closes(&mut self, chance: &mut Chance) {
        let partial = self.partial(chance);
        self.take(Input::Close { by: user("ann"), partial }).expect("it exists");
        if !self.is_lost() {
            assert_eq!(self.state.active.lifecycle, Lifecycle::Closed);
            assert!(self.state.is_idle());
        }
    }

    fn partial(&self, chance: &mut Chance) -> Option<Completion> {
        chance.one_in(2).then(|| {
            let mut partial = Completion::default();
            partial.message.text = chance.text();
            partial
        })
    }

    /// G9: what was granted can be taken back at any time; what was not, can't.
    pub(crate) fn somebody_revokes(&mut self, chance: &mut Chance) {
        let grant_id = self.state.active.grants.first().map(|grant| grant.grant_id);
        let wanted = grant_id.filter(|_| chance.one_in(2));
        self.take(Input::RevokeGrants { grant_id: wanted, by: user("ann") })
            .expect("what is named is there");
        let unknown = Some(GrantId(Uuid::from_u128(7)));
        let refused = self.take(Input::RevokeGrants { grant_id: unknown, by: user("ann") });
        assert!(matches!(refused, Err(Rejection::UnknownGrant { .. })));
    }

    pub(crate) fn somebody_changes_settings(&mut self, chance: &mut Chance) {
        let (settings, title) = (rules::settings(chance), Some(chance.text()));
        let is_open = self.state.active.lifecycle == Lifecycle::Open;
        let result = self.take(Input::ChangeSettings {
            change: settings.into(),
            title: Some(title),
            by: user("ann"),
        });
        assert_eq!(result.is_ok(), is_open);
    }

    pub(crate) fn somebody_decides(&mut self, chance: &mut Chance) {
        let closed = self.state.closed_approvals.newest().map(|closed| closed.approval.approval_id);
        let open = self.state.active.approvals.first().cloned();
        match (open, closed) {
            (Some(open), _) if !chance.one_in(8) => self.somebody_answers(&open, chance),
            (_, Some(approval_id)) => {
                // Whatever is said to a closed question: nothing happens.
                let answer = ApprovalAnswer::Whole { approved: chance.one_in(2), reason: None };
                let for_session = chance.one_in(4).then(|| {
                    let conditions =
                        [None, Some("args.n < 3"), Some("args.nothing"), Some("what?")];
                    let condition = conditions[chance.below(4)].map(str::to_owned);
                    GrantWish { condition }
                });
                if let Ok(decision) = self.decide(approval_id, answer, for_session, chance) {
                    assert!(decision.events.is_empty() && decision.effects.is_empty());
                }
            }
            (_, None) => {
                let approval_id = ApprovalId(Uuid::from_u128(3));
                let answer = ApprovalAnswer::Whole { approved: true, reason: None };
                let refused = self.decide(approval_id, answer, None, chance);
                assert_eq!(refused, Err(Rejection::UnknownApproval { approval_id }));
            }
        }
    }

    fn somebody_answers(&mut self, open: &OpenApproval, chance: &mut Chance) {
        let approval_id = open.approval.approval_id;
        let is_late = open.due_at().is_some_and(|end| end <= self.now);
        if open.approval.steps().is_empty() || chance.one_in(20) {
            return self.somebody_resolves(open, chance);
        }
        let mut answers: Vec<_> = open
            .approval
            .steps()
            .iter()
            .filter_map(|step| {
                let approved = chance.one_in(2);
                let reason = approved.then(|| "because".to_owned());
                let answer = StepAnswer {
                    call_id: step.call_id,
                    approved,
                    reason,
                    arguments: chance.one_in(3).then(|| edited(step, chance)),
                };
                chance.one_in(2).then_some(answer)
            })
            .collect();
        match chance.below(8) {
            0 => answers.extend(answers.first().cloned()),
            1 => answers.push(StepAnswer {
                call_id: CallId(Uuid::from_u128(5)),
                approved: true,
                reason: None,
                arguments: None,
            }),
            _ => {}
        }
        let answer = if chance.one_in(3) {
            ApprovalAnswer::Whole { approved: chance.one_in(2), reason: None }
        } else {
            ApprovalAnswer::Steps(answers)
        };
        let for_session = chance.one_in(4).then(|| {
            let conditions = [None, Some("args.n < 3"), Some("args.nothing"), Some("what?")];
            let condition = conditions[chance.below(4)].map(str::to_owned);
            GrantWish { condition }
        });
        if let Ok(decision) = self.decide(approval_id, answer, for_session, chance) {
            // At its deadline a question may have become other people's, and one of them answers.
            let may_go_on = matches!(open.approval.on_deadline, Overdue::Escalate { .. })
                && open.escalation.is_none();
            let is_nothing = decision.events.is_empty();
            assert!(!is_late || may_go_on || is_nothing, "G10: taken after the deadline");
        }
    }

    /// Says something to a question without steps, or what is no answer to any question.
    pub(crate) fn somebody_resolves(&mut self, open: &OpenApproval, chance: &mut Chance) {
        let is_preflight = matches!(open.approval.question, Question::Preflight(_));
        let resolution = match chance.below(if is_preflight { 24 } else { 8 }) {
            0 => Resolution::Retry,
            1 => Resolution::Done(
                chance.pick(&[Value::Null, json!("done"), json!({"n": 1})]).clone(),
            ),
            2 => Resolution::Failed,
            3 => Resolution::Raise(*chance.pick(&[0.0, 5.0, 1e6, f64::NAN, -1.0])),
            4 => Resolution::Stop,
            5 if chance.one_in(2) => {
                Resolution::Answer(chance.pick(&[json!(1), json!({"n": 2})]).clone())
            }
            5 => Resolution::Approve(changes(chance)),
            6..10 if is_preflight => Resolution::Approve(changes(chance)),
            _ => resolution(open, chance),
        };
        let answer = ApprovalAnswer::Resolve { resolution, reason: None };
        let taken = self.decide(open.approval.approval_id, answer.clone(), None, chance);
        if taken.is_ok() && !self.is_lost() {
            // G11: the first word stands, whoever says something else.
            let other = ApprovalAnswer::Resolve { resolution: Resolution::Stop, reason: None };
            let again = self.decide(open.approval.approval_id, other.clone(), None, chance);
            assert!(again.is_err() || answer == other, "{again:?}");
        }
    }

    pub(crate) fn somebody_decides_all(&mut self, chance: &mut Chance) {
        let Some(open) = self.state.active.approvals.first().cloned() else { return };
        let (approval_id, deadline) = (open.approval.approval_id, open.due_at());
        let answer = if open.approval.steps().is_empty() {
            let resolution = resolution(&open, chance);
            ApprovalAnswer::Resolve { resolution, reason: None }
        } else {
            ApprovalAnswer::Whole { approved: chance.one_in(2), reason: None }
        };
        match self.decide(approval_id, answer, None, chance) {
            Ok(decision) => {
                assert_eq!(decision.reply, Reply::Decided { closed: true, repeated: false });
            }
            // Somebody else may do it.
            Err(Rejection::RoleRequired { role }) => assert!(role > Role::User),
            // A retry of what is denied by now.
            Err(Rejection::InvalidAnswer { .. }) => {}
            Err(rejection) => {
                assert_eq!(rejection, Rejection::ApprovalExpired);
                assert!(deadline.is_some_and(|end| end <= self.now));
            }
        }
    }

    fn decide(
        &mut self,
        approval_id: ApprovalId,
        answer: ApprovalAnswer,
        for_session: Option<GrantWish>,
        chance: &mut Chance,
    ) -> Result<Decision, Rejection> {
        let by = user(["ann", "bob"][chance.below(2)]);
        let surfaces = [Surface::Rest, Surface::Websocket, Surface::Cli, Surface::Dashboard];
        self.take(Input::DecideApproval {
            approval_id,
            answer,
            for_session,
            by,
            role: *chance.pick(&[Role::User, Role::Approver, Role::Admin]),
            surface: *chance.pick(&surfaces),
        })
    }
}

/// An answer to a question without steps that can be taken.
fn resolution(open: &OpenApproval, chance: &mut Chance) -> Resolution {
    match &open.approval.question {
        Question::Budget(asked) if chance.one_in(2) => {
            Resolution::Raise(asked.spent + asked.needed + *chance.pick(&[1.0, 50.0, 1e9]))
        }
        Question::Budget(_) => Resolution::Stop,
        Question::Preflight(_) if chance.one_in(4) => Resolution::Reject,
        Question::Preflight(_) => Resolution::Approve(Vec::new()),
        Question::Elicitation(asked) => {
            chance.pick(&[answer_to(asked), Resolution::Reject]).clone()
        }
        Question::UnknownOutcome(_) | Question::Plan { .. } => chance
            .pick(&[Resolution::Retry, Resolution::Done(json!("it did")), Resolution::Failed])
            .clone(),
    }
}

/// What somebody fills in.
fn answer_to(asked: &ElicitationQuestion) -> Resolution {
    Resolution::Answer(match asked.elicitation.wanted {
        Wanted::Form { .. } => json!({"n": 1}),
        Wanted::Url { .. } => Value::Null,
    })
}

/// What a person makes of a plan: good changes, changes to other tools and none, positions that are
/// not there or come twice.
fn changes(chance: &mut Chance) -> Vec<StepEdit> {
    let change = |chance: &mut Chance| StepEdit {
        position: *chance.pick(&[1, 2, 3, 4, 0]),
        description: chance.one_in(3).then(|| chance.text()),
        tool_name: chance.one_in(3).then(|| (*chance.pick(&rules::CALLED)).to_owned()),
        arguments: chance
            .one_in(3)
            .then(|| chance.pick(&[json!({"n": 1}), json!([]), json!({"n": 2})]).clone()),
        skip: chance.one_in(3),
    };
    (0..chance.below(4)).map(|_| change(chance)).collect()
}

/// What a person makes of a step's arguments: the same, others, or what the schema refuses.
fn edited(step: &PlanStep, chance: &mut Chance) -> Value {
    match chance.below(4) {
        0 => step.arguments.clone(),
        1 => json!("no object"),
        _ => json!({"n": chance.below(9), "edited": chance.text()}),
    }
}
