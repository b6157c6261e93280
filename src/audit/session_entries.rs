//! Which entries a commit of a session makes. Pure and total: a new kind of event must say here
//! whether it is a decision.

use super::{AuditAction, AuditActor, AuditEntry, AuditOutcome};
use greenroom_actors::ports::PurgeRequest;
use greenroom_core::{
    approval::{
        Approval, ApprovalSubject, ElicitationMode, PlanStepDecision, RecordedAnswer, Resolution,
    },
    ids::{ApprovalId, CallId, SessionId},
    json::Digest,
    preflight::ApprovedPreflightStep,
    session::{ApprovalRow, CallAuthorization, EventRecord, SessionEvent},
};
use serde_json::{Value, json};

/// The entries of the events that are committed together in one session, with the questions that
/// the commit changes.
pub fn entries_for_commit(
    session_id: SessionId,
    records: &[EventRecord],
    approvals: &[ApprovalRow],
) -> Vec<AuditEntry> {
    let commit = CommitEntries { session_id, records, approvals };
    let mut entries = Vec::new();
    records.iter().for_each(|record| commit.push_entries(record, &mut entries));
    entries
}

/// The entry of a session that was removed.
pub fn entry_for_purge(purge: &PurgeRequest) -> AuditEntry {
    let actor = Some(AuditActor::from_user(&purge.by));
    AuditEntry {
        session_id: Some(purge.session_id),
        seq: Some(purge.expected_head),
        ..AuditEntry::new(purge.at, AuditAction::SessionPurged, AuditOutcome::Done, actor)
    }
}

struct CommitEntries<'a> {
    session_id: SessionId,
    records: &'a [EventRecord],
    approvals: &'a [ApprovalRow],
}

impl CommitEntries<'_> {
    fn push_entries(&self, record: &EventRecord, entries: &mut Vec<AuditEntry>) {
        let entry = |action, outcome, actor| self.base_entry(record, action, outcome, actor);
        let added = match &record.event {
            SessionEvent::SessionCreated { owner, agent, title: _, settings, parent } => AuditEntry {
                details: Some(match parent {
                    Some(parent) => {
                        json!({"agent": agent, "settings": settings, "parent": parent})
                    }
                    None => json!({"agent": agent, "settings": settings}),
                }),
                ..entry(AuditAction::SessionCreated, AuditOutcome::Done, Some(AuditActor::from_user(owner)))
            },
            SessionEvent::SessionForked { from, at_seq, owner, agent, settings, .. } => AuditEntry {
                details: Some(json!({
                    "from": from, "at_seq": at_seq, "agent": agent, "settings": settings,
                })),
                ..entry(AuditAction::SessionForked, AuditOutcome::Done, Some(AuditActor::from_user(owner)))
            },
            SessionEvent::SessionSettingsChanged { settings, title: _, by } => AuditEntry {
                details: Some(json!({"settings": settings})),
                ..entry(AuditAction::SessionSettingsChanged, AuditOutcome::Done, Some(AuditActor::from_user(by)))
            },
            SessionEvent::SessionClosed { by } => {
                entry(AuditAction::SessionClosed, AuditOutcome::Done, Some(AuditActor::from_user(by)))
            }
            SessionEvent::RunCancelled { by, message_id: _, usage: _ } => {
                entry(AuditAction::RunCancelled, AuditOutcome::Cancelled, Some(AuditActor::from_user(by)))
            }
            SessionEvent::ToolCallAllowed { call_id, digest, by, .. } => {
                let (actor, approval_id) = match by {
                    CallAuthorization::Policy { .. } | CallAuthorization::Grant { .. } => (None, None),
                    CallAuthorization::Approval { approval_id, by, .. }
                    | CallAuthorization::Preflight { approval_id, by, .. } => {
                        (Some(AuditActor::from_user(by)), Some(*approval_id))
                    }
                };
                let (reason, details) = match by {
                    CallAuthorization::Policy { why } => (Some(why.clone()), None),
                    CallAuthorization::Grant { grant_id } => (None, Some(json!({"grant_id": grant_id}))),
                    CallAuthorization::Preflight { step, .. } => {
                        (None, Some(json!({"preflight_step": step})))
                    }
                    // What they changed is what the digest stands for.
                    CallAuthorization::Approval { .. } => (None, None),
                };
                AuditEntry {
                    details,
                    approval_id,
                    call_id: Some(*call_id),
                    tool: self.find_tool_name(*call_id),
                    digest: Some(*digest),
                    reason,
                    ..entry(AuditAction::ToolCallAllowed, AuditOutcome::Allowed, actor)
                }
            }
            SessionEvent::AuthorizationDenied { call_id, tool, reason, required_level: _ } => {
                AuditEntry {
                    call_id: Some(*call_id),
                    tool: Some(tool.clone()),
                    reason: Some(reason.clone()),
                    ..entry(AuditAction::AuthorizationDenied, AuditOutcome::Denied, None)
                }
            }
            SessionEvent::ApprovalRequested { approval } => {
                return entries.extend(self.approval_requested_entries(record, approval));
            }
            SessionEvent::ApprovalDecided { approval_id, steps, answer: word, closed: _ } => {
                let steps = steps.iter().map(|step| self.step_decided_entry(record, *approval_id, step));
                let word = word.iter().map(|word| self.resolution_entry(record, *approval_id, word));
                return entries.extend(steps.chain(word));
            }
            SessionEvent::ApprovalEscalated { approval_id, to, deadline } => AuditEntry {
                approval_id: Some(*approval_id),
                details: Some(json!({"to": to, "deadline": deadline})),
                ..entry(AuditAction::ApprovalEscalated, AuditOutcome::Asked, None)
            },
            SessionEvent::BudgetRaised { approval_id, budget, by } => AuditEntry {
                approval_id: Some(*approval_id),
                details: Some(json!({"budget": budget})),
                ..entry(AuditAction::BudgetRaised, AuditOutcome::Done, Some(AuditActor::from_user(by)))
            },
            SessionEvent::ApprovalExpired { approval_id } => AuditEntry {
                approval_id: Some(*approval_id),
                ..entry(AuditAction::ApprovalExpired, AuditOutcome::Expired, None)
            },
            SessionEvent::ApprovalCancelled { approval_id } => AuditEntry {
                approval_id: Some(*approval_id),
                ..entry(AuditAction::ApprovalCancelled, AuditOutcome::Cancelled, None)
            },
            SessionEvent::GrantAdded { grant } => AuditEntry {
                tool: Some(grant.tool.clone()),
                details: Some(json!({
                    "grant_id": grant.grant_id, "server": grant.server, "where": grant.condition,
                })),
                ..entry(AuditAction::GrantAdded, AuditOutcome::Done, Some(AuditActor::from_user(&grant.by)))
            },
            SessionEvent::GrantRevoked { grant_id, by } => AuditEntry {
                details: Some(json!({"grant_id": grant_id})),
                ..entry(AuditAction::GrantRevoked, AuditOutcome::Done, Some(AuditActor::from_user(by)))
            },
            // What was said, and what became of it, is the log's; nobody decided anything.
            SessionEvent::MessageQueued { .. }
            | SessionEvent::MessageAccepted { .. }
            | SessionEvent::MessageStarted { .. }
            | SessionEvent::MessageCompleted { .. }
            | SessionEvent::MessageDiscarded { .. }
            | SessionEvent::RunStarted { .. }
            | SessionEvent::RunCompleted { .. }
            | SessionEvent::RunFailed { .. }
            | SessionEvent::StepStarted { .. }
            | SessionEvent::StepCompleted { .. }
            | SessionEvent::StepRetrying { .. }
            | SessionEvent::StepModelFallback { .. }
            | SessionEvent::ContextCompacted { .. }
            | SessionEvent::ContextCompactionFailed { .. }
            | SessionEvent::FeedbackGiven { .. }
            | SessionEvent::ToolCallStarted { .. }
            | SessionEvent::ToolCallAttemptStarted { .. }
            // A child's decisions have entries of their own.
            | SessionEvent::ChildEvent { .. }
            | SessionEvent::ChildGone { .. }
            | SessionEvent::ToolCallProgress { .. }
            | SessionEvent::ToolCallRetrying { .. }
            | SessionEvent::LateResult { .. }
            // The person's word is in the same commit; what they changed, with it.
            | SessionEvent::PreflightApproved { .. }
            | SessionEvent::PreflightSkipped { .. }
            | SessionEvent::BudgetReserved { .. }
            | SessionEvent::BudgetReached { .. }
            | SessionEvent::ToolCallCompleted { .. }
            | SessionEvent::ToolCallFailed { .. } => return,
        };
        entries.push(added);
    }

    fn base_entry(
        &self,
        record: &EventRecord,
        action: AuditAction,
        outcome: AuditOutcome,
        actor: Option<AuditActor>,
    ) -> AuditEntry {
        AuditEntry {
            session_id: Some(self.session_id),
            seq: Some(record.seq),
            run_id: record.run_id,
            ..AuditEntry::new(record.at, action, outcome, actor)
        }
    }

    fn approval_requested_entries(
        &self,
        record: &EventRecord,
        approval: &Approval,
    ) -> Vec<AuditEntry> {
        let entry = || AuditEntry {
            approval_id: Some(approval.approval_id),
            ..self.base_entry(record, AuditAction::ApprovalRequested, AuditOutcome::Asked, None)
        };
        let deadline = approval.deadline;
        match &approval.subject {
            ApprovalSubject::Plan { steps } => steps
                .iter()
                .map(|step| AuditEntry {
                    call_id: Some(step.call_id),
                    tool: Some(step.tool.clone()),
                    digest: Some(step.digest),
                    reason: Some(step.why.clone()),
                    details: Some(json!({
                        "kind": "plan", "risk": step.risk, "deadline": deadline,
                        "cost": step.cost,
                    })),
                    ..entry()
                })
                .collect(),
            ApprovalSubject::Budget(asked) => vec![AuditEntry {
                reason: Some(approval.purpose.clone()),
                details: Some(json!({
                    "kind": "budget", "budget": asked.budget, "spent": asked.spent,
                    "needed": asked.needed, "deadline": deadline,
                })),
                ..entry()
            }],
            ApprovalSubject::Preflight(checklist) => checklist
                .steps
                .iter()
                .map(|step| AuditEntry {
                    tool: step.tool_name.clone(),
                    digest: step.digest,
                    reason: Some(step.description.clone()),
                    details: Some(json!({
                        "kind": "preflight", "position": step.position, "risk": step.risk,
                        "deadline": deadline, "cost": step.cost,
                    })),
                    ..entry()
                })
                .collect(),
            // The form is the log's; what the tool says may hold anything.
            ApprovalSubject::Elicitation(asked) => vec![AuditEntry {
                call_id: Some(asked.call_id),
                tool: Some(asked.tool.clone()),
                reason: Some(approval.purpose.clone()),
                details: Some(json!({
                    "kind": "elicitation", "server": asked.server, "deadline": deadline,
                    "mode": match asked.elicitation.mode {
                        ElicitationMode::Form { .. } => "form",
                        ElicitationMode::Url { .. } => "url",
                    },
                })),
                ..entry()
            }],
            ApprovalSubject::UnknownOutcome(asked) => vec![AuditEntry {
                call_id: Some(asked.call_id),
                tool: Some(asked.tool.clone()),
                digest: Some(asked.digest),
                reason: Some(asked.why.clone()),
                details: Some(json!({
                    "kind": "unknown_outcome", "risk": asked.risk, "attempts": asked.attempts,
                })),
                ..entry()
            }],
        }
    }

    fn step_decided_entry(
        &self,
        record: &EventRecord,
        approval_id: ApprovalId,
        step: &PlanStepDecision,
    ) -> AuditEntry {
        let outcome = if step.approved { AuditOutcome::Approved } else { AuditOutcome::Rejected };
        let actor = AuditActor { surface: Some(step.surface), ..AuditActor::from_user(&step.by) };
        let entry = self.base_entry(record, AuditAction::ApprovalDecided, outcome, Some(actor));
        AuditEntry {
            at: step.at,
            approval_id: Some(approval_id),
            call_id: Some(step.call_id),
            tool: self.find_tool_name(step.call_id),
            digest: Some(step.digest),
            reason: step.reason.clone(),
            // The digest is that of the arguments as changed.
            details: step.edited.as_ref().map(|_| json!({"edited": true})),
            ..entry
        }
    }

    fn resolution_entry(
        &self,
        record: &EventRecord,
        approval_id: ApprovalId,
        word: &RecordedAnswer,
    ) -> AuditEntry {
        let outcome = match word.resolution {
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Raise(_)
            | Resolution::Approve(_)
            | Resolution::Answer(_) => AuditOutcome::Approved,
            Resolution::Failed | Resolution::Stop | Resolution::Reject => AuditOutcome::Rejected,
        };
        let mut details = json!({"decision": word.resolution.name()});
        if let Resolution::Approve(_) = word.resolution {
            details["steps"] = json!(self.approved_preflight_steps());
        }
        // What was filled in is known by its digest alone.
        let digest = match &word.resolution {
            Resolution::Answer(value) => Some(Digest::hash_json(value)),
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Failed
            | Resolution::Raise(_)
            | Resolution::Stop
            | Resolution::Approve(_)
            | Resolution::Reject => None,
        };
        let actor = AuditActor { surface: Some(word.surface), ..AuditActor::from_user(&word.by) };
        AuditEntry {
            at: word.at,
            digest,
            approval_id: Some(approval_id),
            reason: word.reason.clone(),
            details: Some(details),
            ..self.base_entry(record, AuditAction::ApprovalDecided, outcome, Some(actor))
        }
    }

    /// What this commit lets stand of a plan: each step by its tool and digest, never by its
    /// arguments (G14).
    fn approved_preflight_steps(&self) -> Vec<Value> {
        let steps = self.records.iter().filter_map(|record| {
            let SessionEvent::PreflightApproved { steps, .. } = &record.event else { return None };
            Some(steps.iter())
        });
        let row = |step: &ApprovedPreflightStep| {
            json!({
                "position": step.position, "tool": step.tool_name, "digest": step.digest,
                "edited": step.edited, "skipped": step.skipped,
            })
        };
        steps.flatten().map(row).collect()
    }

    /// The call's tool, where this commit tells: its proposal is in it, or a question about it.
    fn find_tool_name(&self, call_id: CallId) -> Option<String> {
        let proposed = self.records.iter().find_map(|record| {
            let SessionEvent::ToolCallStarted { call_id: id, tool, .. } = &record.event else {
                return None;
            };
            (*id == call_id).then_some(tool)
        });
        let asked = || self.approvals.iter().find_map(|row| row.approval.tool_for_call(call_id));
        proposed.map(String::as_str).or_else(asked).map(str::to_owned)
    }
}
