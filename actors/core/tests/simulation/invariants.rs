//! Reads the log as it is written and holds it to the promises that can be seen in it.

use greenroom_core::{
    approval::{ApprovalSubject, Resolution},
    call::CallFailureReason,
    ids::{ApprovalId, AttemptId, CallId, GrantId, MessageId, RunId, Seq},
    json::Digest,
    policy::Risk,
    preflight::ApprovedPreflightStep,
    session::{CallAuthorization, Effect, EventRecord, RunFailureCode, SessionEvent},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the log says so far.
#[derive(Default)]
pub(crate) struct InvariantChecker {
    head: Seq,
    /// Attempts of which the world knows that they did not run.
    pub(crate) not_run_attempts: BTreeSet<AttemptId>,
    /// Attempts of which the tool said how they ended, or that never reached it.
    pub(crate) reported_attempts: BTreeSet<AttemptId>,
    /// What tools asked and nobody told them yet.
    pub(crate) open_elicitations: BTreeSet<(AttemptId, u32)>,
    pub(crate) calls: BTreeMap<CallId, CallTrack>,
    approvals: BTreeMap<ApprovalId, ApprovalTrack>,
    queued_runs: VecDeque<RunId>,
    /// Messages for the run that is going, with the runs they get if it ends before.
    steering: VecDeque<(MessageId, RunId)>,
    /// Whether a run was cancelled just now, and a message may take its place.
    is_interrupted: bool,
    run: Option<RunTrack>,
    ended: BTreeSet<RunId>,
    open_message: Option<MessageId>,
    dispatched: BTreeSet<AttemptId>,
    /// The newest model attempt.
    step_attempt: Option<AttemptId>,
    max_steps: u32,
    grants: BTreeMap<GrantId, String>,
    /// The steps of the run's approved plan that no call ran on yet.
    uncovered_plan_steps: BTreeMap<u32, ApprovedPreflightStep>,
}

pub(crate) struct CallTrack {
    run_id: RunId,
    tool: String,
    risk: Risk,
    pub(crate) digest: Digest,
    repeatable: bool,
    approval_id: Option<ApprovalId>,
    /// The question about its unknown outcome.
    unknown_outcome_approval: Option<ApprovalId>,
    /// How often a person let it run once more.
    retry_answers: usize,
    reserved: bool,
    allowed: Option<Digest>,
    attempts: Vec<AttemptId>,
    pub(crate) is_ended: bool,
}

#[derive(Default)]
struct ApprovalTrack {
    steps: BTreeSet<CallId>,
    decided: BTreeMap<CallId, bool>,
    resolution: Option<Resolution>,
    is_closed: bool,
    is_expired: bool,
}

struct RunTrack {
    run_id: RunId,
    step: u32,
    is_preflight: bool,
}

impl InvariantChecker {
    pub(crate) fn new(max_steps: u32) -> Self {
        Self { max_steps, ..Self::default() }
    }

    pub(crate) fn check_event(&mut self, record: &EventRecord) {
        // E1: numbered without gaps.
        assert_eq!(record.seq, self.head.next(), "seq has a gap: {record:?}");
        self.head = record.seq;
        self.check_messages(record);
        self.check_runs(record);
        let cancelled = matches!(record.event, SessionEvent::RunCancelled { .. });
        let accepted = matches!(record.event, SessionEvent::MessageAccepted { .. });
        self.is_interrupted = cancelled || (accepted && self.is_interrupted);
        self.check_preflight(record);
        self.check_calls(record);
        self.check_approvals(record);
        self.check_budgets(record);
    }

    fn check_messages(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::MessageStarted { message_id } = &record.event {
            assert_eq!(self.open_message, None, "two messages are open");
            self.open_message = Some(message_id.clone());
        }
        if let E::MessageCompleted { message_id, .. } | E::MessageDiscarded { message_id, .. } =
            &record.event
        {
            assert_eq!(self.open_message.as_ref(), Some(message_id), "not the open message");
            self.open_message = None;
        }
    }

    /// S4: runs begin in the order their messages were taken. S6: each has exactly one end, which
    /// comes after the ends of all its calls and questions.
    fn check_runs(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::MessageQueued { message_id, steers, .. } = &record.event {
            let run_id = record.run_id.expect("a queued message has its run");
            match steers {
                None => self.queued_runs.push_back(run_id),
                Some(steering) => {
                    let going = self.run.as_ref().map(|run| run.run_id);
                    assert_eq!(going, Some(run_id), "S4: it steers another run");
                    self.steering.push_back((message_id.clone(), steering.own_run_id));
                }
            }
        }
        if let E::MessageAccepted { message_id, .. } = &record.event
            && self.run.is_some()
        {
            let next = self.steering.pop_front().map(|(message_id, _)| message_id);
            assert_eq!(next.as_ref(), Some(message_id), "S4: it steers out of turn");
        }
        if let E::RunStarted { preflight, .. } = &record.event {
            let run_id = record.run_id.expect("a run has an id");
            assert!(self.run.is_none(), "two runs are going");
            assert!(!self.ended.contains(&run_id), "a run began after its end");
            if self.queued_runs.contains(&run_id) || !self.is_interrupted {
                let next = self.queued_runs.pop_front().unwrap_or(run_id);
                assert_eq!(next, run_id, "a message overtook another");
            }
            self.run = Some(RunTrack { run_id, step: 0, is_preflight: *preflight });
            self.uncovered_plan_steps.clear();
        }
        if let E::StepStarted { attempt_id, .. } = &record.event {
            let run = self.run.as_mut().expect("a step has a run");
            if let E::StepStarted { planning: true, .. } = &record.event {
                assert!(run.is_preflight && run.step == 0, "G14: a plan in the middle of a run");
                assert_eq!(record.step, None, "G14: a plan is no step");
                self.step_attempt = Some(*attempt_id);
                return;
            }
            if let E::StepStarted { compacting: Some(_), .. } = &record.event {
                let of_run = (run.step > 0).then_some(run.step);
                assert_eq!(record.step, of_run, "C4: a summary is no step");
                assert_eq!(self.open_message, None, "C4: nobody hears of it");
                self.step_attempt = Some(*attempt_id);
                return;
            }
            let step = record.step.expect("a step has a number");
            assert!(step == run.step || step == run.step + 1, "a step was left out");
            assert!(step <= self.max_steps, "S2: {step} steps of {}", self.max_steps);
            run.step = step;
            self.step_attempt = Some(*attempt_id);
        }
        if let E::StepModelFallback { from, to, .. } = &record.event {
            assert_eq!((from.as_str(), to.as_str()), ("small", "spare"), "M4: not the next");
            self.step_attempt = None;
        }
        if let E::RunFailed { code: RunFailureCode::MaxIterations, error, .. } = &record.event {
            assert_eq!(error, "maximum iterations reached without final answer");
        }
        if let E::RunCompleted { .. } | E::RunFailed { .. } | E::RunCancelled { .. } = record.event
        {
            let run_id = record.run_id.expect("a run has an id");
            assert!(self.ended.insert(run_id), "two ends of one run");
            if self.run.as_ref().is_some_and(|run| run.run_id == run_id) {
                self.check_run_end(run_id);
            } else {
                let position = self.queued_runs.iter().position(|waiting| *waiting == run_id);
                self.queued_runs.remove(position.expect("what ended neither ran nor waited"));
            }
        }
    }

    fn check_run_end(&mut self, run_id: RunId) {
        self.run = None;
        // S4: what came too late for it is next.
        for (_, own_run_id) in self.steering.drain(..).rev() {
            self.queued_runs.push_front(own_run_id);
        }
        assert_eq!(self.open_message, None, "a message outlived its run");
        let mut of_run = self.calls.values().filter(|call| call.run_id == run_id);
        assert!(of_run.all(|call| call.is_ended), "S6: a call outlived its run");
        assert!(
            self.approvals.values().all(|asked| asked.is_closed),
            "a question outlived its run"
        );
    }

    /// G14: what was approved is what was shown, with a person's changes.
    fn check_preflight(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::PreflightApproved { approval_id, steps, .. } = &record.event {
            let asked = &self.approvals[approval_id];
            assert!(
                matches!(asked.resolution, Some(Resolution::Approve(_))),
                "G14: nobody approved it"
            );
            let lasting = steps.iter().filter(|step| !step.skipped);
            self.uncovered_plan_steps = lasting.map(|step| (step.position, step.clone())).collect();
        }
        if let E::PreflightSkipped { .. } = &record.event {
            let run = self.run.as_ref().expect("a plan has a run");
            assert!(run.is_preflight && run.step == 0, "G14: nobody wanted a plan");
        }
    }

    /// G14: a call runs on a step of the plan with the step's tool and arguments, once.
    fn check_plan_coverage(&mut self, call_id: CallId, position: u32, digest: Digest) {
        let step = self
            .uncovered_plan_steps
            .remove(&position)
            .expect("G14: a step ran twice, or never was");
        let call = self.open_call(call_id);
        assert_eq!(step.tool_name.as_ref(), Some(&call.tool), "G14: another tool");
        match step.digest {
            Some(approved) => assert_eq!(approved, digest, "G14: other arguments"),
            None => assert!(call.risk <= Risk::WriteLowRisk, "G14: too risky to be left open"),
        }
        assert!(call.risk <= step.risk, "G14: riskier than what was approved");
    }

    fn check_calls(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::ToolCallStarted { call_id, tool, risk, digest, arguments, repeatable, .. } =
            &record.event
        {
            assert_eq!(*digest, Digest::hash_json(&arguments.to_value()), "G8: another digest");
            let track = CallTrack {
                run_id: record.run_id.expect("a call has a run"),
                tool: tool.clone(),
                risk: *risk,
                digest: *digest,
                repeatable: *repeatable,
                approval_id: None,
                unknown_outcome_approval: None,
                retry_answers: 0,
                reserved: false,
                allowed: None,
                attempts: Vec::new(),
                is_ended: false,
            };
            assert!(self.calls.insert(*call_id, track).is_none(), "a call began twice");
        }
        if let E::GrantAdded { grant } = &record.event {
            self.grants.insert(grant.grant_id, grant.tool.clone());
        }
        if let E::GrantRevoked { grant_id, .. } = &record.event {
            assert!(self.grants.remove(grant_id).is_some(), "G9: revoked what was not granted");
        }
        if let E::ToolCallAllowed { call_id, digest, by, edit } = &record.event {
            let asked = match by {
                CallAuthorization::Policy { .. } => None,
                CallAuthorization::Preflight { step, .. } => {
                    self.check_plan_coverage(*call_id, *step, *digest);
                    None
                }
                CallAuthorization::Grant { grant_id } => {
                    assert!(self.grants.contains_key(grant_id), "G9: no such grant");
                    None
                }
                CallAuthorization::Approval { approval_id, .. }
                    if self.approvals[approval_id].resolution == Some(Resolution::Retry) =>
                {
                    return self.check_retry_answer(*call_id, *approval_id, *digest);
                }
                CallAuthorization::Approval { approval_id, .. } => {
                    let said = self.approvals[approval_id].decided.get(call_id);
                    assert_eq!(said, Some(&true), "G8: allowed without a person's word");
                    Some(*approval_id)
                }
            };
            let call = self.open_call(*call_id);
            // One that waited, or backs off, may run on a standing word that came meanwhile.
            if call.allowed.is_some() {
                assert_eq!(asked, None, "allowed twice");
                call.approval_id = None;
            }
            assert_eq!(call.approval_id, asked, "G3: somebody else was to allow it");
            let expected = match edit {
                Some(edit) => Digest::hash_json(&edit.arguments),
                None => call.digest,
            };
            assert_eq!(expected, *digest, "G8: other arguments were allowed");
            assert!(edit.is_none() || asked.is_some(), "G8: only people edit");
            (call.allowed, call.digest) = (Some(*digest), *digest);
        }
        if let E::ToolCallAttemptStarted { call_id, attempt_id, attempt, .. } = &record.event {
            let did_not_run = self.not_run_attempts.clone();
            let call = self.open_call(*call_id);
            assert!(call.allowed.is_some(), "an attempt without an allowance");
            // R1, D3: never a silent second execution.
            let may_have_run = |attempt: &&AttemptId| !did_not_run.contains(attempt);
            let runs = call.attempts.iter().filter(may_have_run).count();
            let may_repeat = call.repeatable || runs <= call.retry_answers;
            assert!(may_repeat, "R1: an attempt was repeated that may have run");
            call.attempts.push(*attempt_id);
            assert_eq!(usize::try_from(*attempt).ok(), Some(call.attempts.len()));
        }
        self.check_call_ends(record);
    }

    /// D3: a person lets a call of unknown outcome run once more, with what was passed before.
    fn check_retry_answer(&mut self, call_id: CallId, approval_id: ApprovalId, digest: Digest) {
        let call = self.open_call(call_id);
        assert_eq!(
            call.unknown_outcome_approval,
            Some(approval_id),
            "D3: another question was answered"
        );
        assert_eq!(call.allowed, Some(digest), "D3: repeated with other arguments");
        call.retry_answers += 1;
    }

    /// G6: what is set aside is set aside once, and for an allowed call.
    fn check_budgets(&mut self, record: &EventRecord) {
        if let SessionEvent::BudgetReserved { call_id, cost, .. } = &record.event {
            let call = self.open_call(*call_id);
            assert!(call.allowed.is_some(), "G6: reserved for what may not run");
            assert!(!std::mem::replace(&mut call.reserved, true), "G6: reserved twice");
            assert!(cost.amount > 0.0, "G6: {cost}");
        }
    }

    /// S3: exactly one end for each call.
    fn check_call_ends(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::ToolCallFailed { call_id, reason, maybe_ran, .. } = &record.event {
            self.check_reason(*call_id, *reason);
            self.check_open_attempts(*call_id, *maybe_ran);
        }
        if let E::ToolCallCompleted { call_id, .. } = &record.event {
            assert!(!self.open_call(*call_id).attempts.is_empty(), "a result of no attempt");
        }
        if let E::AuthorizationDenied { call_id, .. } = &record.event {
            let answered = self.reported_attempts.clone();
            let mut attempts = self.open_call(*call_id).attempts.iter();
            assert!(attempts.all(|it| answered.contains(it)), "D3: denied after it may have run");
        }
        if let E::ToolCallCompleted { call_id, .. }
        | E::ToolCallFailed { call_id, .. }
        | E::AuthorizationDenied { call_id, .. } = &record.event
        {
            self.open_call(*call_id).is_ended = true;
        }
    }

    /// D3: a call is not said to have failed while an attempt of it is open, unless a person knows.
    fn check_open_attempts(&mut self, call_id: CallId, maybe_ran: bool) {
        let answered = self.reported_attempts.clone();
        let call = self.open_call(call_id);
        let is_open = call.attempts.iter().any(|attempt| !answered.contains(attempt));
        assert!(!maybe_ran || !call.attempts.is_empty(), "D3: nothing was begun");
        let doubted = call.unknown_outcome_approval;
        let word = doubted.and_then(|asked| self.approvals[&asked].resolution.clone());
        let is_known = word == Some(Resolution::Failed);
        assert!(maybe_ran || !is_open || is_known, "D3: told as not having happened");
    }

    /// G10: an expiry is never told as a person's refusal, nor the other way round.
    fn check_reason(&mut self, call_id: CallId, reason: CallFailureReason) {
        let asked = self.open_call(call_id).approval_id;
        let asked = asked.map(|approval_id| &self.approvals[&approval_id]);
        let said = asked.and_then(|asked| asked.decided.get(&call_id)).copied();
        let is_expired = asked.is_some_and(|asked| asked.is_expired);
        assert_eq!(
            reason == CallFailureReason::Rejected,
            said == Some(false),
            "{reason:?} {said:?}"
        );
        assert_eq!(
            reason == CallFailureReason::Expired,
            is_expired && said.is_none(),
            "{reason:?} {said:?}"
        );
    }

    fn check_approvals(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::ApprovalRequested { approval } = &record.event {
            let steps: BTreeSet<_> = approval.steps().iter().map(|step| step.call_id).collect();
            assert_eq!(steps.len(), approval.steps().len());
            if let ApprovalSubject::UnknownOutcome(asked) = &approval.subject {
                let call = self.open_call(asked.call_id);
                assert_eq!(call.allowed, Some(asked.digest), "D3: not what was passed");
                assert!(!call.repeatable && !call.attempts.is_empty(), "D3: nothing is unknown");
                call.unknown_outcome_approval = Some(approval.approval_id);
            }
            if let ApprovalSubject::Elicitation(asked) = &approval.subject {
                assert!(
                    self.open_elicitations.contains(&(asked.attempt_id, asked.elicitation_number)),
                    "T1: nobody asked"
                );
                let call = self.open_call(asked.call_id);
                assert_eq!(call.attempts.last(), Some(&asked.attempt_id), "T1: it is over");
            }
            for step in approval.steps() {
                let call = self.open_call(step.call_id);
                assert_eq!(call.digest, step.digest, "G8: shown with other arguments");
                // What was let run before may be asked for anew, and then that word counts.
                let asked = call.approval_id.replace(approval.approval_id);
                assert!(asked.is_none() || call.allowed.is_some(), "asked twice");
                call.allowed = None;
            }
            let track = ApprovalTrack { steps, ..ApprovalTrack::default() };
            assert!(self.approvals.insert(approval.approval_id, track).is_none());
        }
        if let E::ApprovalDecided { approval_id, steps, answer: word, closed } = &record.event {
            let asked = self.open_approval(*approval_id);
            asked.resolution = word.as_ref().map(|word| word.resolution.clone());
            assert_eq!(asked.steps.is_empty(), word.is_some(), "G11: a word of another kind");
            for step in steps {
                assert!(asked.steps.contains(&step.call_id), "a step of another plan");
                let first = asked.decided.insert(step.call_id, step.approved);
                assert_eq!(first, None, "G8: the first word did not stand");
            }
            assert_eq!(*closed, asked.decided.len() == asked.steps.len());
            asked.is_closed = *closed;
        }
        if let E::ApprovalExpired { approval_id } = &record.event {
            let asked = self.open_approval(*approval_id);
            (asked.is_closed, asked.is_expired) = (true, true);
        }
        if let E::ApprovalCancelled { approval_id } = &record.event {
            self.open_approval(*approval_id).is_closed = true;
        }
    }

    /// D1: an attempt's start is committed before it is dispatched, and what is dispatched is
    /// what was allowed.
    pub(crate) fn check_effect(&mut self, effect: &Effect) {
        match effect {
            Effect::StartModel { attempt_id, message_id, .. } => {
                assert_eq!(Some(*attempt_id), self.step_attempt, "not the newest attempt");
                assert_eq!(self.open_message, *message_id);
                assert!(self.dispatched.insert(*attempt_id), "dispatched twice");
            }
            Effect::StartTool { call_id, attempt_id, tool, arguments, .. } => {
                let digest = Digest::hash_json(&arguments.to_value());
                let call = self.open_call(*call_id);
                assert_eq!(call.allowed, Some(digest), "G8: other arguments than allowed");
                let is_dear = crate::rules::COSTLY_TOOLS.contains(&tool.as_str());
                assert!(call.reserved || !is_dear, "G6: it began without what it costs");
                assert_eq!(call.attempts.last(), Some(attempt_id), "not recorded as started");
                assert!(self.dispatched.insert(*attempt_id), "dispatched twice");
            }
            Effect::AcquireExclusiveLock { call_id, .. } => {
                let call = self.open_call(*call_id);
                assert!(call.allowed.is_some(), "T8: asked for the turn of what may not run");
            }
            // T1: what is answered was asked, by an attempt that runs.
            Effect::AnswerElicitation { attempt_id, elicitation_number: ask, .. } => {
                assert!(self.dispatched.contains(attempt_id), "answered who never began");
                let asked = self.open_elicitations.remove(&(*attempt_id, *ask));
                assert!(asked, "T1: answered twice, or what nobody asked");
            }
            Effect::StartChild { attempt_id, .. } => {
                assert!(self.dispatched.insert(*attempt_id), "dispatched twice");
            }
            Effect::NarrowChild { .. } | Effect::CloseChild { .. } => {}
            Effect::StopModel { attempt_id } | Effect::StopTool { attempt_id, .. } => {
                assert!(self.dispatched.contains(attempt_id), "stopped what never began");
            }
        }
    }

    fn open_call(&mut self, call_id: CallId) -> &mut CallTrack {
        let call = self.calls.get_mut(&call_id).expect("an event of a call nobody proposed");
        assert!(!call.is_ended, "S3: an event of a call that has its result");
        call
    }

    fn open_approval(&mut self, approval_id: ApprovalId) -> &mut ApprovalTrack {
        let asked = self.approvals.get_mut(&approval_id).expect("nobody asked");
        assert!(!asked.is_closed, "G11: a closed question changed");
        asked
    }
}
