//! Applies events to calls, their reservations and the children that work for them.

use crate::{
    approval::{ApprovalSubject, ArgumentEdit, PlanStepDecision, Resolution},
    call::{AuthorizationSource, Call, CallFailureReason, CallOutcome, CallPhase, Reservation},
    delegation::Child,
    ids::{CallId, SessionId},
    json::Digest,
    policy::{Approver, Cost},
    session::{ActiveState, CallAuthorization, EventRecord, SessionEvent},
    time::Day,
};
use std::{collections::BTreeSet, sync::Arc};

impl ActiveState {
    pub(super) fn apply_call_event(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        match &record.event {
            E::ToolCallStarted {
                call_id,
                provider_id,
                tool,
                server,
                arguments,
                digest,
                risk,
                parallel,
                repeatable,
            } => {
                let Some(run) = &mut self.run else { return };
                run.calls.push(Call {
                    call_id: *call_id,
                    provider_id: provider_id.clone(),
                    tool: tool.clone(),
                    server: server.clone(),
                    arguments: arguments.clone(),
                    digest: *digest,
                    risk: *risk,
                    parallel: *parallel,
                    repeatable: *repeatable,
                    edit: None,
                    editors: BTreeSet::new(),
                    approver: None,
                    attempts: 0,
                    maybe_ran: false,
                    authorized_by: AuthorizationSource::Policy,
                    reservation: None,
                    phase: CallPhase::Proposed,
                });
            }
            E::ToolCallAllowed { call_id, digest, by, edit } => {
                if let (CallAuthorization::Preflight { step, .. }, Some(run)) = (by, &mut self.run)
                {
                    run.preflight.mark_used(*step);
                }
                if let Some(edit) = edit {
                    self.edit_call(*call_id, *digest, edit);
                }
                if let Some(call) = self.call_mut(*call_id) {
                    call.authorized_by = match by {
                        // An earlier human decision keeps its effect.
                        CallAuthorization::Policy { .. } => call.authorized_by,
                        CallAuthorization::Approval { .. }
                        | CallAuthorization::Preflight { .. } => AuthorizationSource::Human,
                        CallAuthorization::Grant { grant_id } => {
                            AuthorizationSource::Grant(*grant_id)
                        }
                    };
                    call.approver = match by {
                        CallAuthorization::Policy { .. } => call.approver.take(),
                        CallAuthorization::Approval { by, role, .. } => {
                            Some(Approver { user: by.clone(), role: *role })
                        }
                        CallAuthorization::Preflight { .. } | CallAuthorization::Grant { .. } => {
                            None
                        }
                    };
                }
                self.set_phase(*call_id, CallPhase::Allowed);
            }
            E::ToolCallAttemptStarted { call_id, attempt_id, attempt, child } => {
                if let (Some(child), Some(run)) = (child, &self.run)
                    && self.child_for_call(*call_id).is_none()
                {
                    self.children.push(Child::new(child, *call_id, run.run_id));
                }
                let (attempt_id, attempt) = (*attempt_id, *attempt);
                let failures = self.failures(*call_id);
                if let Some(call) = self.call_mut(*call_id) {
                    call.attempts = attempt;
                }
                self.set_phase(*call_id, CallPhase::Running { attempt_id, attempt, failures });
            }
            E::ToolCallRetrying { call_id, attempt, failures, until, maybe_ran, .. } => {
                if let Some(call) = self.call_mut(*call_id) {
                    call.maybe_ran |= maybe_ran;
                }
                let (until, attempts, failures) = (*until, *attempt, *failures);
                self.set_phase(*call_id, CallPhase::BackingOff { until, attempts, failures });
            }
            E::ToolCallCompleted { call_id, output, .. } => {
                let outcome = CallOutcome { text: output.text.as_str().into(), is_error: false };
                self.set_phase(*call_id, CallPhase::Finished(outcome));
            }
            E::BudgetReserved { call_id, tool, cost } => {
                self.reserve(*call_id, tool, cost, record.at.day());
                self.set_phase(*call_id, CallPhase::Allowed);
            }
            E::ToolCallFailed { call_id, reason, error, attempts, maybe_ran, .. } => {
                if !maybe_ran {
                    self.release(*call_id);
                }
                let text = error_for_model(*reason, *attempts, error);
                let outcome = CallOutcome { text, is_error: true };
                self.set_phase(*call_id, CallPhase::Finished(outcome));
            }
            E::AuthorizationDenied { call_id, reason, .. } => {
                self.release(*call_id);
                let text = format!("Denied: {reason}").into();
                let outcome = CallOutcome { text, is_error: true };
                self.set_phase(*call_id, CallPhase::Finished(outcome));
            }
            E::GrantAdded { .. }
            | E::GrantRevoked { .. }
            | E::ChildEvent { .. }
            | E::ChildGone { .. }
            | E::SessionCreated { .. }
            | E::SessionForked { .. }
            | E::SessionSettingsChanged { .. }
            | E::SessionClosed { .. }
            | E::MessageQueued { .. }
            | E::MessageAccepted { .. }
            | E::QueuedMessageChanged { .. }
            | E::QueuedMessageWithdrawn { .. }
            | E::MessageStarted { .. }
            | E::MessageCompleted { .. }
            | E::MessageDiscarded { .. }
            | E::RunStarted { .. }
            | E::RunCompleted { .. }
            | E::RunFailed { .. }
            | E::RunCancelled { .. }
            | E::StepStarted { .. }
            | E::StepCompleted { .. }
            | E::StepRetrying { .. }
            | E::FeedbackGiven { .. }
            | E::StepModelFallback { .. }
            | E::ContextCompacted { .. }
            | E::ContextCompactionFailed { .. }
            | E::ToolCallProgress { .. }
            | E::LateResult { .. }
            | E::ApprovalRequested { .. }
            | E::ApprovalDecided { .. }
            | E::ApprovalExpired { .. }
            | E::ApprovalCancelled { .. }
            | E::ApprovalEscalated { .. }
            | E::PreflightApproved { .. }
            | E::PreflightSkipped { .. }
            | E::BudgetReached { .. }
            | E::BudgetRaised { .. } => {
                debug_assert!(false, "not a call event: {record:?}");
            }
        }
    }

    /// Reserves the call's cost. Idempotent.
    fn reserve(&mut self, call_id: CallId, tool: &str, cost: &Cost, day: Day) {
        let Some(call) = self.call_mut(call_id).filter(|call| call.reservation.is_none()) else {
            return;
        };
        call.reservation = Some(Reservation { cost: cost.clone(), day });
        self.tool_costs.add(&cost.unit, day, tool, cost.amount);
        if let Some(run) = &mut self.run {
            *run.tool_costs.entry(cost.unit.as_str().into()).or_default() += cost.amount;
        }
    }

    /// Releases the reservation of a call that definitely did not take effect.
    fn release(&mut self, call_id: CallId) {
        let Some(call) = self.call_mut(call_id).filter(|call| !call.is_finished()) else { return };
        let Some(Reservation { cost, day }) = call.reservation.take() else { return };
        let tool = call.tool.clone();
        self.tool_costs.add(&cost.unit, day, &tool, -cost.amount);
        if let Some(run) = &mut self.run {
            *run.tool_costs.entry(cost.unit.as_str().into()).or_default() -= cost.amount;
        }
    }

    /// Updates calls from the approval that was requested for them: a plan step sets the call's
    /// risk, and an unknown outcome means that the call may have run.
    pub(super) fn apply_approval_requested(&mut self, subject: &ApprovalSubject) {
        match subject {
            ApprovalSubject::Plan { steps } => {
                for step in steps {
                    self.call_mut(step.call_id).into_iter().for_each(|call| call.risk = step.risk);
                }
            }
            ApprovalSubject::UnknownOutcome(request) => {
                let call = self.call_mut(request.call_id);
                call.into_iter().for_each(|call| call.maybe_ran = true);
            }
            ApprovalSubject::Budget(_)
            | ApprovalSubject::Preflight(_)
            | ApprovalSubject::Elicitation(_) => {}
        }
    }

    /// Clears `maybe_ran` if a human answered that the call did not take effect.
    pub(super) fn apply_approval_answer(
        &mut self,
        subject: &ApprovalSubject,
        resolution: Option<&Resolution>,
    ) {
        if let (ApprovalSubject::UnknownOutcome(request), Some(Resolution::Failed)) =
            (subject, resolution)
        {
            let call = self.call_mut(request.call_id);
            call.into_iter().for_each(|call| call.maybe_ran = false);
        }
    }

    /// Records who edited calls. An edit that still needs another approval counts as well.
    pub(super) fn record_editors(&mut self, decisions: &[PlanStepDecision]) {
        for decision in decisions.iter().filter(|decision| decision.edited.is_some()) {
            let call = self.call_mut(decision.call_id);
            call.into_iter().for_each(|call| {
                call.editors.insert(decision.by.clone());
            });
        }
    }

    fn call_mut(&mut self, call_id: CallId) -> Option<&mut Call> {
        let mut calls = self.run.iter_mut().flat_map(|run| &mut run.calls);
        calls.find(|call| call.call_id == call_id)
    }

    fn failures(&self, call_id: CallId) -> u32 {
        let mut calls = self.run.iter().flat_map(|run| &run.calls);
        match calls.find(|call| call.call_id == call_id).map(|call| &call.phase) {
            Some(CallPhase::BackingOff { failures, .. }) => *failures,
            _not_backing_off => 0,
        }
    }

    fn edit_call(&mut self, call_id: CallId, digest: Digest, edit: &ArgumentEdit) {
        if let Some(call) = self.call_mut(call_id) {
            call.digest = digest;
            call.edit = Some(Arc::new(edit.clone()));
        }
    }

    /// Sets the call's phase. A finished call keeps its result.
    pub(super) fn set_phase(&mut self, call_id: CallId, phase: CallPhase) {
        let calls = self.run.iter_mut().flat_map(|run| &mut run.calls);
        for call in calls.filter(|call| call.call_id == call_id && !call.is_finished()) {
            call.phase = phase.clone();
        }
        if let CallPhase::Finished(_) = phase {
            self.remove_finished_children();
        }
    }

    /// Returns the child that works for that call.
    pub fn child_for_call(&self, call_id: CallId) -> Option<&Child> {
        self.children.iter().find(|child| child.call_id == call_id)
    }

    /// Applies a mirrored event of a child, including its usage.
    pub(super) fn apply_child_event(&mut self, session_id: SessionId, event: &EventRecord) {
        let child = self.children.iter_mut().find(|child| child.session_id == session_id);
        let Some(child) = child else { return };
        let (run_id, change) = (child.run_id, child.apply_event(event));
        self.child_usage.add(&change);
        if let Some(run) = self.run.as_mut().filter(|run| run.run_id == run_id) {
            run.child_usage.add(&change);
        }
        self.remove_finished_children();
    }

    /// Removes closed children whose call has ended. A child is kept until both have happened.
    pub(super) fn remove_finished_children(&mut self) {
        let calls = self.run.iter().flat_map(|run| &run.calls);
        let open: BTreeSet<_> =
            calls.filter(|call| !call.is_finished()).map(|call| call.call_id).collect();
        self.children.retain(|child| !child.closed || open.contains(&child.call_id));
    }
}

/// Returns the error result that the model reads. For a failed attempt that was not the first, it
/// states the number of attempts (R3).
fn error_for_model(reason: CallFailureReason, attempts: u32, error: &str) -> Arc<str> {
    use CallFailureReason as R;
    let prefix = match reason {
        R::Error => "The tool failed",
        R::InvalidArguments => "Invalid arguments",
        R::UnknownTool => "Unknown tool",
        R::Unavailable => "The tool is unavailable",
        R::Timeout => "The tool did not answer in time",
        R::Crashed => "The tool crashed",
        R::Rejected => "Rejected",
        R::Expired => "Expired",
        R::Cancelled => "Cancelled",
        R::OutcomeUnknown => "Outcome unknown",
        R::Refused | R::LimitExceeded => "Not run",
    };
    match reason {
        R::Error | R::Unavailable | R::Timeout | R::Crashed | R::OutcomeUnknown if attempts > 1 => {
            format!("{prefix} after {attempts} attempts: {error}").into()
        }
        R::Error
        | R::Unavailable
        | R::Timeout
        | R::Crashed
        | R::OutcomeUnknown
        | R::InvalidArguments
        | R::UnknownTool
        | R::Rejected
        | R::Expired
        | R::Cancelled
        | R::Refused
        | R::LimitExceeded => format!("{prefix}: {error}").into(),
    }
}
