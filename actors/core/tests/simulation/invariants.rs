//! Checks the invariants that are visible in the log, as each event is appended.

use crate::{critical_calls::CriticalCallTracker, queue::QueueTracker};
use greenroom_core::{
    approval::{ApprovalSubject, Resolution},
    call::CallFailureReason,
    ids::{ApprovalId, AttemptId, CallId, GrantId, MessageId, RunId, Seq},
    json::Digest,
    policy::{CriticalRule, Risk},
    preflight::ApprovedPreflightStep,
    session::{CallAuthorization, Effect, EventRecord, RunFailureCode, SessionEvent},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// State derived from the log so far.
#[derive(Default)]
pub(crate) struct InvariantChecker {
    head: Seq,
    /// Attempts that the simulation knows not to have run.
    pub(crate) not_run_attempts: BTreeSet<AttemptId>,
    /// Attempts with a reported outcome, including those that were never sent.
    pub(crate) reported_attempts: BTreeSet<AttemptId>,
    /// Elicitations that were requested and not answered yet.
    pub(crate) open_elicitations: BTreeSet<(AttemptId, u32)>,
    pub(crate) calls: BTreeMap<CallId, CallTrack>,
    approvals: BTreeMap<ApprovalId, ApprovalTrack>,
    pub(crate) queue: QueueTracker,
    pub(crate) critical_calls: CriticalCallTracker,
    queued_runs: VecDeque<RunId>,
    /// Steering messages of the active run, with the runs that they get if it ends before delivery.
    steering: VecDeque<(MessageId, RunId)>,
    /// True right after a run was cancelled, when an interrupting message may take its place.
    is_interrupted: bool,
    run: Option<RunTrack>,
    ended: BTreeSet<RunId>,
    open_message: Option<MessageId>,
    dispatched: BTreeSet<AttemptId>,
    /// The latest model attempt.
    step_attempt: Option<AttemptId>,
    max_steps: u32,
    grants: BTreeMap<GrantId, String>,
    /// Steps of the run's approved plan that no call has used yet.
    uncovered_plan_steps: BTreeMap<u32, ApprovedPreflightStep>,
}

pub(crate) struct CallTrack {
    run_id: RunId,
    tool: String,
    risk: Risk,
    pub(crate) digest: Digest,
    repeatable: bool,
    approval_id: Option<ApprovalId>,
    /// Digest of an approved edit that still needs another approval (G12).
    edited: Option<Digest>,
    /// The approval about the call's unknown outcome.
    unknown_outcome_approval: Option<ApprovalId>,
    /// Number of `retry` answers to that approval.
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
    pub(crate) fn new(max_steps: u32, rule: CriticalRule) -> Self {
        let critical_calls = CriticalCallTracker::new(rule);
        Self { max_steps, critical_calls, ..Self::default() }
    }

    pub(crate) fn check_event(&mut self, record: &EventRecord) {
        // E1: numbered without gaps.
        assert_eq!(record.seq, self.head.next(), "seq has a gap: {record:?}");
        self.head = record.seq;
        self.check_messages(record);
        self.queue.check_event(record);
        self.critical_calls.check_event(record);
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

    /// S4: runs start in the order in which their messages were accepted. S6: each run has exactly one
    /// end, after the ends of all its calls and approvals.
    fn check_runs(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::MessageQueued { message_id, steers, .. } = &record.event {
            let run_id = record.run_id.expect("a queued message has its run");
            match steers {
                None => self.queued_runs.push_back(run_id),
                Some(steering) => {
                    let active = self.run.as_ref().map(|run| run.run_id);
                    assert_eq!(active, Some(run_id), "S4: the message steers another run");
                    self.steering.push_back((message_id.clone(), steering.own_run_id));
                }
            }
        }
        if let E::QueuedMessageWithdrawn { message_id, .. } = &record.event {
            self.steering.retain(|(steering, _)| steering != message_id);
        }
        if let E::MessageAccepted { message_id, .. } = &record.event
            && self.run.is_some()
        {
            let next = self.steering.pop_front().map(|(message_id, _)| message_id);
            assert_eq!(next.as_ref(), Some(message_id), "S4: steering messages out of order");
        }
        if let E::RunStarted { preflight, .. } = &record.event {
            let run_id = record.run_id.expect("a run has an id");
            assert!(self.run.is_none(), "two runs are active");
            assert!(!self.ended.contains(&run_id), "a run was started after its end");
            if self.queued_runs.contains(&run_id) || !self.is_interrupted {
                let next = self.queued_runs.pop_front().unwrap_or(run_id);
                assert_eq!(next, run_id, "messages were processed out of order");
            }
            self.run = Some(RunTrack { run_id, step: 0, is_preflight: *preflight });
            self.uncovered_plan_steps.clear();
        }
        if let E::StepStarted { attempt_id, .. } = &record.event {
            let run = self.run.as_mut().expect("a step has a run");
            if let E::StepStarted { planning: true, .. } = &record.event {
                assert!(run.is_preflight && run.step == 0, "G14: planning in the middle of a run");
                assert_eq!(record.step, None, "G14: planning is not a step");
                self.step_attempt = Some(*attempt_id);
                return;
            }
            if let E::StepStarted { compacting: Some(_), .. } = &record.event {
                let expected = (run.step > 0).then_some(run.step);
                assert_eq!(record.step, expected, "C4: a summary is not a step");
                assert_eq!(self.open_message, None, "C4: a summary opens no message");
                self.step_attempt = Some(*attempt_id);
                return;
            }
            let step = record.step.expect("a step has a number");
            assert!(step == run.step || step == run.step + 1, "a step was skipped");
            assert!(step <= self.max_steps, "S2: {step} steps of {}", self.max_steps);
            run.step = step;
            self.step_attempt = Some(*attempt_id);
        }
        if let E::StepModelFallback { from, to, .. } = &record.event {
            assert_eq!((from.as_str(), to.as_str()), ("small", "spare"), "M4: not the next model");
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
                let position = self.queued_runs.iter().position(|queued| *queued == run_id);
                self.queued_runs.remove(position.expect("an ended run was active or queued"));
            }
        }
    }

    fn check_run_end(&mut self, run_id: RunId) {
        self.run = None;
        // S4: steering messages that were not delivered start the next runs.
        for (_, own_run_id) in self.steering.drain(..).rev() {
            self.queued_runs.push_front(own_run_id);
        }
        assert_eq!(self.open_message, None, "a message outlived its run");
        let mut calls = self.calls.values().filter(|call| call.run_id == run_id);
        assert!(calls.all(|call| call.is_ended), "S6: a call has no end before its run's end");
        assert!(
            self.approvals.values().all(|approval| approval.is_closed),
            "an approval is open after its run's end"
        );
    }

    /// G14: a plan takes effect only after its approval.
    fn check_preflight(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::PreflightApproved { approval_id, steps, .. } = &record.event {
            let approval = &self.approvals[approval_id];
            assert!(
                matches!(approval.resolution, Some(Resolution::Approve(_))),
                "G14: the plan was not approved"
            );
            let approved = steps.iter().filter(|step| !step.skipped);
            self.uncovered_plan_steps =
                approved.map(|step| (step.position, step.clone())).collect();
        }
        if let E::PreflightSkipped { .. } = &record.event {
            let run = self.run.as_ref().expect("a plan has a run");
            assert!(run.is_preflight && run.step == 0, "G14: no plan was requested");
        }
    }

    /// G14: a call uses a step of the plan once, with the step's tool and arguments.
    fn check_plan_coverage(&mut self, call_id: CallId, position: u32, digest: Digest) {
        let step = self
            .uncovered_plan_steps
            .remove(&position)
            .expect("G14: the step is unknown or was used before");
        let call = self.open_call(call_id);
        assert_eq!(step.tool_name.as_ref(), Some(&call.tool), "G14: another tool");
        match step.digest {
            Some(approved) => assert_eq!(approved, digest, "G14: other arguments"),
            None => assert!(call.risk <= Risk::WriteLowRisk, "G14: the risk requires arguments"),
        }
        assert!(call.risk <= step.risk, "G14: the risk exceeds the approved risk");
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
                edited: None,
                unknown_outcome_approval: None,
                retry_answers: 0,
                reserved: false,
                allowed: None,
                attempts: Vec::new(),
                is_ended: false,
            };
            assert!(self.calls.insert(*call_id, track).is_none(), "a call was started twice");
        }
        if let E::GrantAdded { grant } = &record.event {
            self.grants.insert(grant.grant_id, grant.tool.clone());
        }
        if let E::GrantRevoked { grant_id, .. } = &record.event {
            assert!(self.grants.remove(grant_id).is_some(), "G9: an unknown grant was revoked");
        }
        if let E::ToolCallAllowed { call_id, digest, by, edit } = &record.event {
            let required_approval = match by {
                CallAuthorization::Policy { .. } => None,
                CallAuthorization::Preflight { step, .. } => {
                    self.check_plan_coverage(*call_id, *step, *digest);
                    None
                }
                CallAuthorization::Grant { grant_id } => {
                    assert!(self.grants.contains_key(grant_id), "G9: the grant does not exist");
                    None
                }
                CallAuthorization::Approval { approval_id, .. }
                    if self.approvals[approval_id].resolution == Some(Resolution::Retry) =>
                {
                    return self.check_retry_answer(*call_id, *approval_id, *digest);
                }
                CallAuthorization::Approval { approval_id, .. } => {
                    let approved = self.approvals[approval_id].decided.get(call_id);
                    assert_eq!(approved, Some(&true), "G8: allowed without approval");
                    Some(*approval_id)
                }
            };
            let call = self.open_call(*call_id);
            // A call that waits or backs off may be allowed by a later grant or policy.
            if call.allowed.is_some() {
                assert_eq!(required_approval, None, "allowed twice");
                call.approval_id = None;
            }
            assert_eq!(call.approval_id, required_approval, "G3: allowed by another approval");
            let expected = match edit {
                Some(edit) => Digest::hash_json(&edit.arguments),
                None => call.digest,
            };
            assert_eq!(expected, *digest, "G8: other arguments were allowed");
            let edited = call.edited.take().unwrap_or(expected);
            assert_eq!(edited, *digest, "G8: other arguments than edited were allowed");
            assert!(edit.is_none() || required_approval.is_some(), "G8: edited without approval");
            (call.allowed, call.digest) = (Some(*digest), *digest);
        }
        if let E::ToolCallAttemptStarted { call_id, attempt_id, attempt, .. } = &record.event {
            let did_not_run = self.not_run_attempts.clone();
            let call = self.open_call(*call_id);
            assert!(call.allowed.is_some(), "an attempt of a call that was not allowed");
            // R1, D3: a call that is not repeatable never runs a second time without a decision.
            let may_have_run = |attempt: &&AttemptId| !did_not_run.contains(attempt);
            let runs = call.attempts.iter().filter(may_have_run).count();
            let may_repeat = call.repeatable || runs <= call.retry_answers;
            assert!(may_repeat, "R1: an attempt that may have run was repeated");
            call.attempts.push(*attempt_id);
            assert_eq!(usize::try_from(*attempt).ok(), Some(call.attempts.len()));
        }
        self.check_call_ends(record);
    }

    /// D3: a `retry` answer lets a call of unknown outcome run once more, with the same arguments.
    fn check_retry_answer(&mut self, call_id: CallId, approval_id: ApprovalId, digest: Digest) {
        let call = self.open_call(call_id);
        assert_eq!(
            call.unknown_outcome_approval,
            Some(approval_id),
            "D3: another approval was answered"
        );
        assert_eq!(call.allowed, Some(digest), "D3: repeated with other arguments");
        call.retry_answers += 1;
    }

    /// G6: the cost of a call is reserved once, and only if the call is allowed.
    fn check_budgets(&mut self, record: &EventRecord) {
        if let SessionEvent::BudgetReserved { call_id, cost, .. } = &record.event {
            let call = self.open_call(*call_id);
            assert!(call.allowed.is_some(), "G6: reserved for a call that is not allowed");
            assert!(!std::mem::replace(&mut call.reserved, true), "G6: reserved twice");
            assert!(cost.amount.is_positive(), "G6: {cost}");
        }
    }

    /// S3: each call has exactly one end.
    fn check_call_ends(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::ToolCallFailed { call_id, reason, maybe_ran, .. } = &record.event {
            self.check_reason(*call_id, *reason);
            self.check_open_attempts(*call_id, *maybe_ran);
        }
        if let E::ToolCallCompleted { call_id, .. } = &record.event {
            assert!(!self.open_call(*call_id).attempts.is_empty(), "a result without an attempt");
        }
        if let E::AuthorizationDenied { call_id, .. } = &record.event {
            let reported = self.reported_attempts.clone();
            let mut attempts = self.open_call(*call_id).attempts.iter();
            let all_reported = attempts.all(|attempt| reported.contains(attempt));
            assert!(all_reported, "D3: denied after it may have run");
        }
        if let E::ToolCallCompleted { call_id, .. }
        | E::ToolCallFailed { call_id, .. }
        | E::AuthorizationDenied { call_id, .. } = &record.event
        {
            self.open_call(*call_id).is_ended = true;
        }
    }

    /// D3: a call with an open attempt is not recorded as not run, unless a human answered so.
    fn check_open_attempts(&mut self, call_id: CallId, maybe_ran: bool) {
        let reported = self.reported_attempts.clone();
        let call = self.open_call(call_id);
        let is_open = call.attempts.iter().any(|attempt| !reported.contains(attempt));
        assert!(!maybe_ran || !call.attempts.is_empty(), "D3: no attempt was started");
        let approval_id = call.unknown_outcome_approval;
        let resolution = approval_id.and_then(|id| self.approvals[&id].resolution.clone());
        let is_known = resolution == Some(Resolution::Failed);
        assert!(maybe_ran || !is_open || is_known, "D3: recorded as not run");
    }

    /// G10: an expiry is never recorded as a rejection, nor a rejection as an expiry.
    fn check_reason(&mut self, call_id: CallId, reason: CallFailureReason) {
        let approval_id = self.open_call(call_id).approval_id;
        let approval = approval_id.map(|approval_id| &self.approvals[&approval_id]);
        let decision = approval.and_then(|approval| approval.decided.get(&call_id)).copied();
        let is_expired = approval.is_some_and(|approval| approval.is_expired);
        assert_eq!(
            reason == CallFailureReason::Rejected,
            decision == Some(false),
            "{reason:?} {decision:?}"
        );
        assert_eq!(
            reason == CallFailureReason::Expired,
            is_expired && decision.is_none(),
            "{reason:?} {decision:?}"
        );
    }

    fn check_approvals(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::ApprovalRequested { approval } = &record.event {
            let steps: BTreeSet<_> = approval.steps().iter().map(|step| step.call_id).collect();
            assert_eq!(steps.len(), approval.steps().len());
            if let ApprovalSubject::UnknownOutcome(unknown) = &approval.subject {
                let call = self.open_call(unknown.call_id);
                assert_eq!(call.allowed, Some(unknown.digest), "D3: other arguments than allowed");
                assert!(!call.repeatable && !call.attempts.is_empty(), "D3: the outcome is known");
                call.unknown_outcome_approval = Some(approval.approval_id);
            }
            if let ApprovalSubject::Elicitation(elicitation) = &approval.subject {
                let (attempt_id, number) = (elicitation.attempt_id, elicitation.elicitation_number);
                let is_open = self.open_elicitations.contains(&(attempt_id, number));
                assert!(is_open, "T1: no tool requested the elicitation");
                let call = self.open_call(elicitation.call_id);
                assert_eq!(call.attempts.last(), Some(&attempt_id), "T1: the attempt has ended");
            }
            for step in approval.steps() {
                let call = self.open_call(step.call_id);
                let current = call.edited.unwrap_or(call.digest);
                assert_eq!(current, step.digest, "G8: shown with other arguments");
                // An allowed call may need approval again; then the new decision applies.
                let previous = call.approval_id.replace(approval.approval_id);
                let is_first = previous.is_none() && call.edited.is_none();
                let is_again = call.allowed.is_some() || call.edited.is_some();
                assert!(is_first || is_again, "approval requested twice");
                call.allowed = None;
            }
            let track = ApprovalTrack { steps, ..ApprovalTrack::default() };
            assert!(self.approvals.insert(approval.approval_id, track).is_none());
        }
        if let E::ApprovalDecided { approval_id, steps, answer, closed } = &record.event {
            let mut edited = Vec::new();
            let approval = self.open_approval(*approval_id);
            approval.resolution = answer.as_ref().map(|answer| answer.resolution.clone());
            let is_plan = !approval.steps.is_empty();
            assert_eq!(!is_plan, answer.is_some(), "G11: an answer of another kind");
            for step in steps {
                assert!(approval.steps.contains(&step.call_id), "a step of another plan");
                let first = approval.decided.insert(step.call_id, step.approved);
                assert_eq!(first, None, "G8: a second decision on a step");
                if step.edited.is_some() {
                    edited.push((step.call_id, step.digest));
                }
            }
            assert_eq!(*closed, approval.decided.len() == approval.steps.len());
            approval.is_closed = *closed;
            for (call_id, digest) in edited {
                self.open_call(call_id).edited = Some(digest);
            }
        }
        if let E::ApprovalExpired { approval_id } = &record.event {
            let approval = self.open_approval(*approval_id);
            (approval.is_closed, approval.is_expired) = (true, true);
        }
        if let E::ApprovalCancelled { approval_id } = &record.event {
            self.open_approval(*approval_id).is_closed = true;
        }
    }

    /// D1: the start of an attempt is committed before the attempt is dispatched, with the arguments
    /// that were allowed.
    pub(crate) fn check_effect(&mut self, effect: &Effect) {
        match effect {
            Effect::StartModel { attempt_id, message_id, .. } => {
                assert_eq!(Some(*attempt_id), self.step_attempt, "not the latest attempt");
                assert_eq!(self.open_message, *message_id);
                assert!(self.dispatched.insert(*attempt_id), "dispatched twice");
            }
            Effect::StartTool { call_id, attempt_id, tool, arguments, .. } => {
                let digest = Digest::hash_json(&arguments.to_value());
                let call = self.open_call(*call_id);
                assert_eq!(call.allowed, Some(digest), "G8: other arguments than allowed");
                let has_cost = crate::rules::COSTLY_TOOLS.contains(&tool.as_str());
                assert!(call.reserved || !has_cost, "G6: dispatched without a reservation");
                assert_eq!(call.attempts.last(), Some(attempt_id), "not recorded as started");
                assert!(self.dispatched.insert(*attempt_id), "dispatched twice");
            }
            Effect::AcquireExclusiveLock { call_id, .. } => {
                let call = self.open_call(*call_id);
                assert!(call.allowed.is_some(), "T8: lock requested for a call not allowed");
            }
            // T1: an answer belongs to an open elicitation of a dispatched attempt.
            Effect::AnswerElicitation { attempt_id, elicitation_number, .. } => {
                assert!(self.dispatched.contains(attempt_id), "answer to an undispatched attempt");
                let was_open = self.open_elicitations.remove(&(*attempt_id, *elicitation_number));
                assert!(was_open, "T1: answered twice, or not requested");
            }
            Effect::StartChild { attempt_id, .. } => {
                assert!(self.dispatched.insert(*attempt_id), "dispatched twice");
            }
            Effect::NarrowChild { .. } | Effect::CloseChild { .. } => {}
            Effect::StopModel { attempt_id } | Effect::StopTool { attempt_id, .. } => {
                assert!(self.dispatched.contains(attempt_id), "stopped before it was dispatched");
            }
        }
    }

    fn open_call(&mut self, call_id: CallId) -> &mut CallTrack {
        let call = self.calls.get_mut(&call_id).expect("an event of a call that was not proposed");
        assert!(!call.is_ended, "S3: an event of a call that has a result");
        call
    }

    fn open_approval(&mut self, approval_id: ApprovalId) -> &mut ApprovalTrack {
        let approval = self.approvals.get_mut(&approval_id).expect("the approval was requested");
        assert!(!approval.is_closed, "G11: an event of a closed approval");
        approval
    }
}
