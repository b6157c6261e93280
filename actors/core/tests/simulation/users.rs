//! Actions of users: messages, cancellations, answers to approvals, and repeated requests.

use crate::{
    rng::SeededRng,
    rules,
    session_simulation::{SessionSimulation, user},
};
use greenroom_core::{
    approval::{
        ApprovalSubject, DeadlineAction, ElicitationMode, GrantRequest, OpenApproval, PlanStep,
        Resolution, Role, Surface, ToolElicitation,
    },
    ids::{ApprovalId, CallId, GrantId, MessageId, RunId, Seq, UserId},
    json::Digest,
    model::completion::Completion,
    preflight::ChecklistStepEdit,
    session::{
        ApprovalAnswer, Decision, EventRecord, Input, Lifecycle, NewMessage, OnBusy,
        PlanStepAnswer, Rejection, Reply, SessionEvent,
    },
};
use serde_json::{Value, json};
use uuid::Uuid;

impl SessionSimulation {
    pub(crate) fn submit_message(&mut self, chance: &mut SeededRng) {
        let was_idle = self.state.is_idle();
        let is_open = self.state.active.lifecycle == Lifecycle::Open;
        match self.submit_new_message(chance) {
            Ok(_) => assert!(is_open),
            Err(Rejection::SessionClosed) => assert!(!is_open),
            Err(Rejection::Busy { .. } | Rejection::QueueFull { .. }) => assert!(!was_idle),
            Err(other) => panic!("{other}"),
        }
    }

    pub(crate) fn submit_new_message(
        &mut self,
        chance: &mut SeededRng,
    ) -> Result<Decision, Rejection> {
        let number = self.submitted.len();
        let text = chance.tricky_text();
        // A rejected message was not accepted, so its id is still unused.
        let message_id = MessageId::parse(&format!("u{number}")).expect("the id is valid");
        let digest = Digest::hash_bytes(message_id.as_str().as_bytes());
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
                authors: random_user(chance).into(),
            },
            on_busy,
        };
        let decision = self.apply_input(input)?;
        let (run_id, seq) = match decision.reply {
            Reply::Submitted { run_id, seq } => (run_id, seq),
            Reply::Steered { run_id, seq, after_decision: _ } if on_busy == OnBusy::Steer => {
                (run_id, seq)
            }
            Reply::Done
            | Reply::Repeated { .. }
            | Reply::QueueUpdated { .. }
            | Reply::Steered { .. }
            | Reply::Answered { .. }
            | Reply::Cancelled { .. } => panic!("{decision:?}"),
        };
        self.record_submission(message_id, run_id, seq);
        Ok(decision)
    }

    fn record_submission(&mut self, message_id: MessageId, run_id: RunId, seq: Seq) {
        if !self.is_decision_lost() {
            self.submitted.push((message_id, run_id, seq));
        }
    }

    /// S4: cancels the active run and starts a run for a new message, before queued messages.
    pub(crate) fn interrupt_run(&mut self, chance: &mut SeededRng) {
        let message_id = MessageId::parse(&format!("u{}", self.submitted.len()));
        let message_id = message_id.expect("the id is valid");
        let before = self.state.active.run.as_ref().map(|run| run.run_id);
        let partial = self.random_partial(chance).filter(|_| before.is_some());
        let result = self.apply_input(Input::Interrupt {
            message: NewMessage {
                message_id: message_id.clone(),
                text: chance.tricky_text().into(),
                digest: Digest::hash_bytes(message_id.as_str().as_bytes()),
                preflight: *chance.pick(&[None, Some(true)]),
                workflow: None,
                traceparent: rules::traceparent(chance),
                authors: random_user(chance).into(),
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
        let Reply::Submitted { run_id, seq } = decision.reply else {
            panic!("{decision:?}");
        };
        self.record_submission(message_id, run_id, seq);
        let is_cancellation =
            |record: &EventRecord| matches!(record.event, SessionEvent::RunCancelled { .. });
        let cancelled = decision.events.iter().find(|record| is_cancellation(record));
        assert_eq!(cancelled.and_then(|record| record.run_id), before, "S4: the run is cancelled");
    }

    /// S5, S10: a repeated message gets the same reply at any later time, with what happened to it
    /// while it was queued; a different body is rejected.
    pub(crate) fn resubmit_message(&mut self, chance: &mut SeededRng) {
        if self.submitted.is_empty() {
            return;
        }
        let (message_id, run_id, seq) = chance.pick(&self.submitted).clone();
        let update = self.invariants.queue.update_of(&message_id);
        let expected_reply = Reply::Repeated {
            run_id: update.and_then(|update| update.run_id).unwrap_or(run_id),
            seq,
            queued_status: update.map(|update| update.status),
        };
        let same = chance.next_below(4) != 0;
        let original = Digest::hash_bytes(message_id.as_str().as_bytes());
        let changed = update.and_then(|update| update.digest).unwrap_or(original);
        let other = Digest::hash_bytes(b"another");
        let digest = if same { *chance.pick(&[original, changed]) } else { other };
        let input = Input::SubmitMessage {
            message: NewMessage {
                digest,
                message_id: message_id.clone(),
                text: "again".into(),
                preflight: *chance.pick(&[None, Some(true)]),
                workflow: None,
                traceparent: None,
                authors: random_user(chance).into(),
            },
            on_busy: *chance.pick(&[OnBusy::Queue, OnBusy::Reject]),
        };
        match self.apply_input(input) {
            Ok(Decision { events, preconditions: _, effects, reply }) => {
                assert!(same && events.is_empty() && effects.is_empty());
                assert_eq!(reply, expected_reply);
            }
            Err(rejection) => {
                assert!(!same);
                assert_eq!(rejection, Rejection::MessageIdReused { message_id });
            }
        }
    }

    pub(crate) fn cancel_run(&mut self, chance: &mut SeededRng) {
        let running = self.state.active.run.as_ref().map(|run| run.run_id);
        let queued: Vec<_> = self.state.active.queue.iter().map(|queued| queued.run_id).collect();
        // Steering messages of the cancelled run are processed before queued messages.
        let steering = self.state.active.run.iter().flat_map(|run| &run.steering);
        let steering = steering.map(|steering| steering.run_id);
        let next: Vec<_> = steering.chain(queued.iter().copied()).collect();
        let unknown = RunId(Uuid::from_u128(7));
        let run_id = match chance.next_below(4) {
            0 => queued.first().copied(),
            1 => Some(unknown),
            _ => None,
        };
        let partial = self.random_partial(chance);
        let result = self.apply_input(Input::CancelRun { run_id, by: user("ann"), partial });
        match (run_id, running) {
            (Some(run_id), _) if run_id == unknown => {
                assert_eq!(result, Err(Rejection::RunNotActive { run_id }));
            }
            (Some(run_id), _) => {
                assert_eq!(result.expect("it is queued").reply, Reply::Cancelled { run_id });
            }
            (None, None) => assert_eq!(result, Err(Rejection::NoActiveRun)),
            (None, Some(run_id)) => {
                assert_eq!(result.expect("it is active").reply, Reply::Cancelled { run_id });
                // S6: the run ends at once, and the next message is processed.
                // If a budget is reached and no approval can be requested, each run fails at once.
                let agent = &self.rules.agent;
                let may_fail_at_once = agent.headless && !agent.budgets.is_empty();
                if !self.is_decision_lost() && !may_fail_at_once {
                    let now = self.state.active.run.as_ref().map(|run| run.run_id);
                    assert_eq!(now, next.first().copied());
                    assert_eq!(self.state.is_idle(), next.is_empty());
                }
                if !self.is_crash_pending() && next.is_empty() && chance.one_in(2) {
                    self.submit_new_message(chance).expect("S6: the session is usable");
                    assert!(self.state.active.run.is_some() || may_fail_at_once);
                }
            }
        }
    }

    pub(crate) fn close_session(&mut self, chance: &mut SeededRng) {
        let partial = self.random_partial(chance);
        self.apply_input(Input::CloseSession { by: user("ann"), partial }).expect("it is closed");
        if !self.is_decision_lost() {
            assert_eq!(self.state.active.lifecycle, Lifecycle::Closed);
            assert!(self.state.is_idle());
        }
    }

    fn random_partial(&self, chance: &mut SeededRng) -> Option<Completion> {
        chance.one_in(2).then(|| {
            let mut partial = Completion::default();
            partial.message.text = chance.tricky_text();
            partial
        })
    }

    /// G9: a grant can be revoked at any time; revoking an unknown grant is rejected.
    pub(crate) fn revoke_grant(&mut self, chance: &mut SeededRng) {
        let grant_id = self.state.active.grants.first().map(|grant| grant.grant_id);
        let revoked = grant_id.filter(|_| chance.one_in(2));
        self.apply_input(Input::RevokeGrants { grant_id: revoked, by: user("ann") })
            .expect("the grant exists");
        let unknown = Some(GrantId(Uuid::from_u128(7)));
        let result = self.apply_input(Input::RevokeGrants { grant_id: unknown, by: user("ann") });
        assert!(matches!(result, Err(Rejection::UnknownGrant { .. })));
    }

    pub(crate) fn change_settings(&mut self, chance: &mut SeededRng) {
        let (settings, title) = (rules::settings(chance), Some(chance.tricky_text()));
        let is_open = self.state.active.lifecycle == Lifecycle::Open;
        let result = self.apply_input(Input::ChangeSettings {
            patch: settings.into(),
            title: Some(title),
            by: user("ann"),
        });
        assert_eq!(result.is_ok(), is_open);
    }

    pub(crate) fn answer_approval(&mut self, chance: &mut SeededRng) {
        let closed = self.state.closed_approvals.last().map(|closed| closed.approval.approval_id);
        let open = self.state.active.approvals.first().cloned();
        match (open, closed) {
            (Some(open), _) if !chance.one_in(8) => self.answer_open_approval(&open, chance),
            (_, Some(approval_id)) => {
                // An answer to a closed approval has no effect.
                let answer = ApprovalAnswer::Overall { approved: chance.one_in(2), reason: None };
                let for_session = chance.one_in(4).then(|| {
                    let conditions =
                        [None, Some("args.n < 3"), Some("args.nothing"), Some("what?")];
                    let condition = conditions[chance.next_below(4)].map(str::to_owned);
                    GrantRequest { condition }
                });
                if let Ok(decision) = self.send_answer(approval_id, answer, for_session, chance) {
                    assert!(decision.events.is_empty() && decision.effects.is_empty());
                }
            }
            (_, None) => {
                let approval_id = ApprovalId(Uuid::from_u128(3));
                let answer = ApprovalAnswer::Overall { approved: true, reason: None };
                let result = self.send_answer(approval_id, answer, None, chance);
                assert_eq!(result, Err(Rejection::UnknownApproval { approval_id }));
            }
        }
    }

    fn answer_open_approval(&mut self, open: &OpenApproval, chance: &mut SeededRng) {
        let approval_id = open.approval.approval_id;
        let is_late = open.deadline_action_at().is_some_and(|due| due <= self.now);
        if open.approval.steps().is_empty() || chance.one_in(20) {
            return self.resolve_open_approval(open, chance);
        }
        let mut answers: Vec<_> = open
            .approval
            .steps()
            .iter()
            .filter_map(|step| {
                let approved = chance.one_in(2);
                let reason = approved.then(|| "because".to_owned());
                let answer = PlanStepAnswer {
                    call_id: step.call_id,
                    approved,
                    reason,
                    arguments: chance.one_in(3).then(|| random_arguments(step, chance)),
                };
                chance.one_in(2).then_some(answer)
            })
            .collect();
        match chance.next_below(8) {
            0 => answers.extend(answers.first().cloned()),
            1 => answers.push(PlanStepAnswer {
                call_id: CallId(Uuid::from_u128(5)),
                approved: true,
                reason: None,
                arguments: None,
            }),
            _ => {}
        }
        let answer = if chance.one_in(3) {
            ApprovalAnswer::Overall { approved: chance.one_in(2), reason: None }
        } else {
            ApprovalAnswer::Steps(answers)
        };
        let for_session = chance.one_in(4).then(|| {
            let conditions = [None, Some("args.n < 3"), Some("args.nothing"), Some("what?")];
            let condition = conditions[chance.next_below(4)].map(str::to_owned);
            GrantRequest { condition }
        });
        if let Ok(decision) = self.send_answer(approval_id, answer, for_session, chance) {
            // At its deadline an approval may escalate; then another role may answer it.
            let may_escalate = matches!(open.approval.on_deadline, DeadlineAction::Escalate { .. })
                && open.escalation.is_none();
            let has_no_events = decision.events.is_empty();
            assert!(!is_late || may_escalate || has_no_events, "G10: accepted after the deadline");
        }
    }

    /// Answers an approval without steps, sometimes with a resolution of another kind.
    pub(crate) fn resolve_open_approval(&mut self, open: &OpenApproval, chance: &mut SeededRng) {
        let is_preflight = matches!(open.approval.subject, ApprovalSubject::Preflight(_));
        let resolution = match chance.next_below(if is_preflight { 24 } else { 8 }) {
            0 => Resolution::Retry,
            1 => Resolution::Done(
                chance.pick(&[Value::Null, json!("done"), json!({"n": 1})]).clone(),
            ),
            2 => Resolution::Failed,
            3 => Resolution::Raise((*chance.pick(&[0, 5, 1_000_000])).into()),
            4 => Resolution::Stop,
            5 if chance.one_in(2) => {
                Resolution::Answer(chance.pick(&[json!(1), json!({"n": 2})]).clone())
            }
            5 => Resolution::Approve(random_step_edits(chance)),
            6..10 if is_preflight => Resolution::Approve(random_step_edits(chance)),
            _ => valid_resolution(open, chance),
        };
        let answer = ApprovalAnswer::Resolve { resolution, reason: None };
        let result = self.send_answer(open.approval.approval_id, answer.clone(), None, chance);
        if result.is_ok() && !self.is_decision_lost() {
            // G11: the first answer applies; a different answer is rejected.
            let other = ApprovalAnswer::Resolve { resolution: Resolution::Stop, reason: None };
            let second = self.send_answer(open.approval.approval_id, other.clone(), None, chance);
            assert!(second.is_err() || answer == other, "{second:?}");
        }
    }

    pub(crate) fn answer_whole_approval(&mut self, chance: &mut SeededRng) {
        let Some(open) = self.state.active.approvals.first().cloned() else { return };
        let (approval_id, deadline) = (open.approval.approval_id, open.deadline_action_at());
        let answer = if open.approval.steps().is_empty() {
            let resolution = valid_resolution(&open, chance);
            ApprovalAnswer::Resolve { resolution, reason: None }
        } else {
            ApprovalAnswer::Overall { approved: chance.one_in(2), reason: None }
        };
        match self.send_answer(approval_id, answer.clone(), None, chance) {
            Ok(decision) => {
                assert_eq!(decision.reply, Reply::Answered { closed: true, repeated: false });
            }
            // The answer requires a higher role.
            Err(Rejection::RoleRequired { role }) => assert!(role > Role::User),
            // A raise beyond a ceiling.
            Err(Rejection::CeilingExceeded(_)) => {}
            // A retry of a call that the policy denies by now.
            Err(Rejection::InvalidAnswer { .. }) => {}
            // G12: another user can answer.
            Err(Rejection::ApproverRequired { .. } | Rejection::FourEyes { .. }) => {
                let result = self.answer_as(user("zoe"), Role::Approver, approval_id, answer);
                assert!(!result.is_err_and(|rejection| rejection.is_missing_right()));
            }
            Err(rejection) => {
                assert_eq!(rejection, Rejection::ApprovalExpired);
                assert!(deadline.is_some_and(|due| due <= self.now));
            }
        }
    }

    fn answer_as(
        &mut self,
        by: UserId,
        role: Role,
        approval_id: ApprovalId,
        answer: ApprovalAnswer,
    ) -> Result<Decision, Rejection> {
        let (for_session, surface) = (None, Surface::Rest);
        let input = Input::AnswerApproval { approval_id, answer, for_session, by, role, surface };
        self.apply_input(input)
    }

    fn send_answer(
        &mut self,
        approval_id: ApprovalId,
        answer: ApprovalAnswer,
        for_session: Option<GrantRequest>,
        chance: &mut SeededRng,
    ) -> Result<Decision, Rejection> {
        let by = random_user(chance);
        let surfaces = [Surface::Rest, Surface::Websocket, Surface::Cli, Surface::Dashboard];
        self.apply_input(Input::AnswerApproval {
            approval_id,
            answer,
            for_session,
            by,
            role: *chance.pick(&[Role::User, Role::Approver, Role::Admin]),
            surface: *chance.pick(&surfaces),
        })
    }
}

/// Returns the owner, who answers in any role, or another user, who may write messages as well.
pub(crate) fn random_user(chance: &mut SeededRng) -> UserId {
    user(["ann", "ann", "bob", "carl"][chance.next_below(4)])
}

/// Returns a valid answer to an approval without steps.
fn valid_resolution(open: &OpenApproval, chance: &mut SeededRng) -> Resolution {
    match &open.approval.subject {
        ApprovalSubject::Budget(budget) if chance.one_in(2) => Resolution::Raise(
            budget.spent + budget.needed + (*chance.pick(&[1, 50, 1_000_000_000])).into(),
        ),
        ApprovalSubject::Budget(_) => Resolution::Stop,
        ApprovalSubject::Preflight(_) if chance.one_in(4) => Resolution::Reject,
        ApprovalSubject::Preflight(_) => Resolution::Approve(Vec::new()),
        ApprovalSubject::Elicitation(elicitation) => {
            chance.pick(&[elicitation_answer(elicitation), Resolution::Reject]).clone()
        }
        ApprovalSubject::UnknownOutcome(_) | ApprovalSubject::Plan { .. } => chance
            .pick(&[Resolution::Retry, Resolution::Done(json!("it did")), Resolution::Failed])
            .clone(),
    }
}

/// Returns a valid answer to an elicitation.
fn elicitation_answer(elicitation: &ToolElicitation) -> Resolution {
    Resolution::Answer(match elicitation.elicitation.mode {
        ElicitationMode::Form { .. } => json!({"n": 1}),
        ElicitationMode::Url { .. } => Value::Null,
    })
}

/// Returns edits of a plan: valid ones, other tools, unknown tools, and positions that do not exist or
/// occur twice.
fn random_step_edits(chance: &mut SeededRng) -> Vec<ChecklistStepEdit> {
    let edit = |chance: &mut SeededRng| ChecklistStepEdit {
        position: *chance.pick(&[1, 2, 3, 4, 0]),
        description: chance.one_in(3).then(|| chance.tricky_text()),
        tool_name: chance.one_in(3).then(|| (*chance.pick(&rules::CALLED_TOOLS)).to_owned()),
        arguments: chance
            .one_in(3)
            .then(|| chance.pick(&[json!({"n": 1}), json!([]), json!({"n": 2})]).clone()),
        skip: chance.one_in(3),
    };
    (0..chance.next_below(4)).map(|_| edit(chance)).collect()
}

/// Returns edited arguments of a step: the same, different ones, or ones that violate the schema.
fn random_arguments(step: &PlanStep, chance: &mut SeededRng) -> Value {
    match chance.next_below(4) {
        0 => step.arguments.clone(),
        1 => json!("no object"),
        _ => json!({"n": chance.next_below(9), "edited": chance.tricky_text()}),
    }
}
