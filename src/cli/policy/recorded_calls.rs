//! Extracts the calls of a session from its log: arguments, settings in force, and the recorded
//! decision. Pure: events in, decided calls out.

use greenroom_core::{
    Timestamp,
    approval::ApprovalSubject,
    ids::{AgentName, CallId, SessionId, UserId},
    message::Arguments,
    policy::{MatrixVerdict, Risk, Settings},
    session::{CallAuthorization, EventRecord, SessionEvent, SessionRow},
};
use std::{collections::BTreeMap, sync::Arc};

/// Maximum number of undecided calls. A call is decided in the commit that proposes it.
const PROPOSED_MAX: usize = 10_000;

/// A call with a recorded decision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordedCall {
    pub(super) call_id: CallId,
    /// Time of the proposal.
    pub(super) at: Timestamp,
    pub(super) tool: String,
    pub(super) arguments: Arc<Arguments>,
    /// Risk of the tool at that time.
    pub(super) risk: Risk,
    /// The recorded decision.
    pub(super) verdict: MatrixVerdict,
    /// The reason of the decision.
    pub(super) reason: String,
}

/// A session, replayed up to the last event applied.
#[derive(Debug)]
pub(super) struct SessionReplay {
    pub(super) session_id: SessionId,
    pub(super) owner: UserId,
    pub(super) agent: AgentName,
    /// The settings in force at the last event.
    pub(super) settings: Arc<Settings>,
    proposed: BTreeMap<CallId, RecordedCall>,
}

impl SessionReplay {
    /// Creates the replay before the first event.
    pub(super) fn new(row: &SessionRow) -> Self {
        Self {
            session_id: row.session_id,
            owner: row.owner.clone(),
            agent: row.agent.clone(),
            settings: Arc::default(),
            proposed: BTreeMap::new(),
        }
    }

    /// Applies the next event and returns the calls that it decides.
    pub(super) fn apply_event(&mut self, record: EventRecord) -> Vec<RecordedCall> {
        use SessionEvent as E;
        match record.event {
            E::SessionCreated { settings, .. }
            | E::SessionForked { settings, .. }
            | E::SessionSettingsChanged { settings, .. } => {
                self.settings = settings;
            }
            E::ToolCallStarted { call_id, tool, arguments, risk, .. } => {
                let (at, reason) = (record.at, String::new());
                let verdict = MatrixVerdict::Deny;
                let call = RecordedCall { call_id, at, tool, arguments, risk, verdict, reason };
                if self.proposed.len() < PROPOSED_MAX {
                    self.proposed.insert(call_id, call);
                }
            }
            E::ToolCallAllowed { call_id, by, .. } => match by {
                CallAuthorization::Policy { why } => {
                    return self.resolve_call(call_id, MatrixVerdict::Allow, why);
                }
                // Decided by the `ApprovalRequested` event before.
                CallAuthorization::Approval { .. } => {}
                // The policy's verdict was ask; a grant or a preflight had answered it before.
                CallAuthorization::Grant { .. } => {
                    let reason = "granted for the session".to_owned();
                    return self.resolve_call(call_id, MatrixVerdict::Ask, reason);
                }
                CallAuthorization::Preflight { .. } => {
                    let reason = "approved with the preflight".to_owned();
                    return self.resolve_call(call_id, MatrixVerdict::Ask, reason);
                }
            },
            E::AuthorizationDenied { call_id, reason, .. } => {
                return self.resolve_call(call_id, MatrixVerdict::Deny, reason);
            }
            E::ApprovalRequested { approval } => {
                if let ApprovalSubject::Budget(request) = &approval.subject {
                    let calls = request.calls.iter();
                    let reason = |_| approval.purpose.clone();
                    return calls.flat_map(|id| self.resolve_call(*id, MatrixVerdict::Ask, reason(id))).collect();
                }
                let steps = approval.steps().iter();
                return steps
                    .flat_map(|step| self.resolve_call(step.call_id, MatrixVerdict::Ask, step.why.clone()))
                    .collect();
            }
            // Failed before its evaluation: unknown tool or invalid arguments.
            E::ToolCallFailed { call_id, .. } => {
                self.proposed.remove(&call_id);
            }
            // Calls still undecided here never get a decision.
            E::StepStarted { .. }
            | E::RunCompleted { .. }
            | E::RunFailed { .. }
            | E::RunCancelled { .. } => self.proposed.clear(),
            E::SessionClosed { .. }
            | E::MessageQueued { .. }
            | E::MessageAccepted { .. }
            | E::QueuedMessageChanged { .. }
            | E::QueuedMessageWithdrawn { .. }
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
        verdict: MatrixVerdict,
        reason: String,
    ) -> Vec<RecordedCall> {
        let call = self.proposed.remove(&call_id);
        call.map(|call| RecordedCall { verdict, reason, ..call }).into_iter().collect()
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

    fn replay() -> SessionReplay {
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

    fn apply(
        replay: &mut SessionReplay,
        event: SessionEvent,
    ) -> Vec<(u128, MatrixVerdict, String)> {
        let record = EventRecord { seq: Seq(1), at: Timestamp(7), run_id: None, step: None, event };
        let decided = replay.apply_event(record);
        let decided = decided.into_iter();
        decided.map(|call| (call.call_id.0.as_u128(), call.verdict, call.reason)).collect()
    }

    fn propose(replay: &mut SessionReplay, number: u128) {
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
        assert_eq!(apply(replay, event), []);
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
    fn g16_calls_have_their_recorded_decision() {
        let replay = &mut replay();
        (1..=4).for_each(|number| propose(replay, number));
        let by = CallAuthorization::Policy { why: "harmless".to_owned() };
        let decided = apply(replay, allowed(1, by));
        assert_eq!(decided, [(1, MatrixVerdict::Allow, "harmless".to_owned())]);
        let denied = SessionEvent::AuthorizationDenied {
            call_id: call_id(2),
            tool: "buy".to_owned(),
            reason: "too low".to_owned(),
            required_level: None,
        };
        assert_eq!(apply(replay, denied), [(2, MatrixVerdict::Deny, "too low".to_owned())]);
        let failed = SessionEvent::ToolCallFailed {
            call_id: call_id(3),
            tool: "buy".to_owned(),
            reason: CallFailureReason::InvalidArguments,
            error: String::new(),
            retries_exhausted: false,
            attempts: 0,
            maybe_ran: false,
        };
        assert_eq!(apply(replay, failed), []);
        assert_eq!(
            apply(replay, approval_requested(4)),
            [(4, MatrixVerdict::Ask, "risky".to_owned())]
        );
        // The human's answer is not the policy's decision.
        let by = UserId::parse("ann").unwrap();
        let approval_id = ApprovalId(Uuid::nil());
        let approval = CallAuthorization::Approval { approval_id, by, role: None };
        assert_eq!(apply(replay, allowed(4, approval)), []);
        assert!(replay.proposed.is_empty());
    }

    #[test]
    fn g16_replay_tracks_settings_in_force() {
        let replay = &mut replay();
        let settings =
            Arc::new(Settings { autonomy_level: Autonomy::Supervised, ..Settings::default() });
        let changed = SessionEvent::SessionSettingsChanged {
            settings: settings.clone(),
            title: None,
            by: UserId::parse("ann").unwrap(),
        };
        assert_eq!(apply(replay, changed), []);
        assert_eq!(replay.settings, settings);
    }
}
