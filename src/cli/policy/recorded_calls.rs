//! What a session's log says of its calls: what was proposed, under which settings, and what was
//! decided. Pure: events in, decided calls out.

use greenroom_core::{
    Timestamp,
    approval::ApprovalSubject,
    ids::{AgentName, CallId, SessionId, UserId},
    message::Arguments,
    policy::{MatrixVerdict, Risk, Settings},
    session::{CallAuthorization, EventRecord, SessionEvent, SessionRow},
};
use std::{collections::BTreeMap, sync::Arc};

/// Calls that may wait for their decision; they get it in the commit that proposes them.
const PROPOSED_MAX: usize = 10_000;

/// A call that was judged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordedCall {
    pub(super) call_id: CallId,
    /// When it was proposed.
    pub(super) at: Timestamp,
    pub(super) tool: String,
    pub(super) arguments: Arc<Arguments>,
    /// The risk its tool had.
    pub(super) risk: Risk,
    /// What was decided.
    pub(super) verdict: MatrixVerdict,
    /// Why.
    pub(super) why: String,
}

/// A session, as far as its log was read.
#[derive(Debug)]
pub(super) struct SessionReplay {
    pub(super) session_id: SessionId,
    pub(super) owner: UserId,
    pub(super) agent: AgentName,
    /// The settings in force.
    pub(super) settings: Arc<Settings>,
    proposed: BTreeMap<CallId, RecordedCall>,
}

impl SessionReplay {
    /// Before the first event.
    pub(super) fn new(row: &SessionRow) -> Self {
        Self {
            session_id: row.session_id,
            owner: row.owner.clone(),
            agent: row.agent.clone(),
            settings: Arc::default(),
            proposed: BTreeMap::new(),
        }
    }

    /// The next event; the calls that it decides.
    pub(super) fn apply_event(&mut self, record: EventRecord) -> Vec<RecordedCall> {
        use SessionEvent as E;
        match record.event {
            E::SessionCreated { settings, .. }
            | E::SessionForked { settings, .. }
            | E::SessionSettingsChanged { settings, .. } => {
                self.settings = settings;
            }
            E::ToolCallStarted { call_id, tool, arguments, risk, .. } => {
                let (at, why) = (record.at, String::new());
                let ruling = MatrixVerdict::Deny;
                let call = RecordedCall { call_id, at, tool, arguments, risk, verdict: ruling, why };
                if self.proposed.len() < PROPOSED_MAX {
                    self.proposed.insert(call_id, call);
                }
            }
            E::ToolCallAllowed { call_id, by, .. } => match by {
                CallAuthorization::Policy { why } => return self.resolve_call(call_id, MatrixVerdict::Allow, why),
                // Its question was recorded before.
                CallAuthorization::Approval { .. } => {}
                // The policy would have asked; a person had answered before.
                CallAuthorization::Grant { .. } => {
                    let why = "it was granted for the session".to_owned();
                    return self.resolve_call(call_id, MatrixVerdict::Ask, why);
                }
                CallAuthorization::Preflight { .. } => {
                    let why = "it was approved with the run's plan".to_owned();
                    return self.resolve_call(call_id, MatrixVerdict::Ask, why);
                }
            },
            E::AuthorizationDenied { call_id, reason, .. } => {
                return self.resolve_call(call_id, MatrixVerdict::Deny, reason);
            }
            E::ApprovalRequested { approval } => {
                if let ApprovalSubject::Budget(asked) = &approval.subject {
                    let calls = asked.calls.iter();
                    let why = |_| approval.purpose.clone();
                    return calls.flat_map(|id| self.resolve_call(*id, MatrixVerdict::Ask, why(id))).collect();
                }
                let asked = approval.steps().iter();
                return asked
                    .flat_map(|step| self.resolve_call(step.call_id, MatrixVerdict::Ask, step.why.clone()))
                    .collect();
            }
            // Its arguments or its tool were no good: nothing was judged.
            E::ToolCallFailed { call_id, .. } => {
                self.proposed.remove(&call_id);
            }
            // What has no decision by now gets none.
            E::StepStarted { .. }
            | E::RunCompleted { .. }
            | E::RunFailed { .. }
            | E::RunCancelled { .. } => self.proposed.clear(),
            E::SessionClosed { .. }
            | E::MessageQueued { .. }
            | E::MessageAccepted { .. }
            | E::MessageStarted { .. }
            | E::MessageCompleted { .. }
            | E::MessageDiscarded { .. }
            | E::RunStarted { .. }
            | E::StepCompleted { .. }
            | E::StepRetrying { .. }
            | E::StepModelFallback { .. }
            | E::ContextCompacted { .. }
            | E::ContextCompactionFailed { .. }
            | E::FeedbackGiven { .. }
            | E::ToolCallAttemptStarted { .. }
            // A child's calls are in its own log.
            | E::ChildEvent { .. }
            | E::ChildGone { .. }
            | E::ToolCallProgress { .. }
            | E::ToolCallRetrying { .. }
            | E::LateResult { .. }
            | E::ToolCallCompleted { .. }
            | E::ApprovalDecided { .. }
            | E::ApprovalExpired { .. }
            | E::ApprovalCancelled { .. }
            | E::ApprovalEscalated { .. }
            | E::BudgetReserved { .. }
            | E::BudgetReached { .. }
            | E::BudgetRaised { .. }
            | E::PreflightApproved { .. }
            | E::PreflightSkipped { .. }
            | E::GrantAdded { .. }
            | E::GrantRevoked { .. } => {}
        }
        Vec::new()
    }

    fn resolve_call(
        &mut self,
        call_id: CallId,
        ruling: MatrixVerdict,
        why: String,
    ) -> Vec<RecordedCall> {
        let call = self.proposed.remove(&call_id);
        call.map(|call| RecordedCall { verdict: ruling, why, ..call }).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use greenroom_core::{
        approval::{Approval, ApprovalSubject, DeadlineAction, PlanStep},
        call::CallFailureReason,
        ids::{ApprovalId, Seq},
        json::Digest,
        policy::Autonomy,
        session::SessionStatus,
        usage::ModelUsage,
    };
    use serde_json::json;
    use uuid::Uuid;

    fn recording() -> SessionReplay {
        SessionReplay::new(&SessionRow {
            parent: None,
            session_id: SessionId(Uuid::nil()),
            owner: UserId::parse("ann").unwrap(),
            agent: AgentName::parse("default").unwrap(),
            title: None,
            settings: Arc::default(),
            status: SessionStatus::Idle,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            grants: Vec::new(),
            usage: ModelUsage::default(),
        })
    }

    fn call_id(number: u128) -> CallId {
        CallId(Uuid::from_u128(number))
    }

    fn take(
        recording: &mut SessionReplay,
        event: SessionEvent,
    ) -> Vec<(u128, MatrixVerdict, String)> {
        let record = EventRecord { seq: Seq(1), at: Timestamp(7), run_id: None, step: None, event };
        let decided = recording.apply_event(record);
        decided.into_iter().map(|call| (call.call_id.0.as_u128(), call.verdict, call.why)).collect()
    }

    fn propose(recording: &mut SessionReplay, number: u128) {
        let event = SessionEvent::ToolCallStarted {
            call_id: call_id(number),
            provider_id: String::new(),
            tool: "buy".to_owned(),
            server: None,
            arguments: Arc::new(Arguments::Json(json!({}))),
            digest: Digest::hash_json(&json!({})),
            risk: Risk::WriteHighRisk,
            parallel: false,
            repeatable: false,
        };
        assert_eq!(take(recording, event), []);
    }

    fn allowed(number: u128, by: CallAuthorization) -> SessionEvent {
        let digest = Digest::hash_json(&json!({}));
        SessionEvent::ToolCallAllowed { call_id: call_id(number), digest, by, edit: None }
    }

    fn approval_requested(number: u128) -> SessionEvent {
        let step = PlanStep {
            call_id: call_id(number),
            tool: "buy".to_owned(),
            arguments: json!({}),
            digest: Digest::hash_json(&json!({})),
            risk: Risk::WriteHighRisk,
            description: String::new(),
            why: "risky".to_owned(),
            cost: None,
            exceeds_budget: false,
        };
        SessionEvent::ApprovalRequested {
            approval: Arc::new(Approval {
                approval_id: ApprovalId(Uuid::nil()),
                purpose: String::new(),
                subject: ApprovalSubject::Plan { steps: vec![step] },
                max_risk_level: Risk::WriteHighRisk,
                requested_at: Timestamp(7),
                deadline: None,
                on_deadline: DeadlineAction::Deny,
            }),
        }
    }

    #[test]
    fn g16_each_call_has_the_decision_that_was_recorded() {
        let recording = &mut recording();
        (1..=4).for_each(|number| propose(recording, number));
        let by = CallAuthorization::Policy { why: "harmless".to_owned() };
        let found = take(recording, allowed(1, by));
        assert_eq!(found, [(1, MatrixVerdict::Allow, "harmless".to_owned())]);
        let denied = SessionEvent::AuthorizationDenied {
            call_id: call_id(2),
            tool: "buy".to_owned(),
            reason: "too low".to_owned(),
            required_level: None,
        };
        assert_eq!(take(recording, denied), [(2, MatrixVerdict::Deny, "too low".to_owned())]);
        let failed = SessionEvent::ToolCallFailed {
            call_id: call_id(3),
            tool: "buy".to_owned(),
            reason: CallFailureReason::InvalidArguments,
            error: String::new(),
            retries_exhausted: false,
            maybe_ran: false,
        };
        assert_eq!(take(recording, failed), []);
        assert_eq!(
            take(recording, approval_requested(4)),
            [(4, MatrixVerdict::Ask, "risky".to_owned())]
        );
        // The person's word is not the policy's, and comes after it.
        let by = UserId::parse("ann").unwrap();
        let approval = CallAuthorization::Approval { approval_id: ApprovalId(Uuid::nil()), by };
        assert_eq!(take(recording, allowed(4, approval)), []);
        assert!(recording.proposed.is_empty());
    }

    #[test]
    fn g16_settings_are_those_in_force_when_the_call_came() {
        let recording = &mut recording();
        let settings =
            Arc::new(Settings { autonomy_level: Autonomy::Supervised, ..Settings::default() });
        let changed = SessionEvent::SessionSettingsChanged {
            settings: settings.clone(),
            title: None,
            by: UserId::parse("ann").unwrap(),
        };
        assert_eq!(take(recording, changed), []);
        assert_eq!(recording.settings, settings);
    }
}
