//! The audit entries of a session's commit. Pure and total: every kind of event must be listed here
//! as a decision or not.

use super::{AuditAction, AuditActor, AuditEntry, AuditOutcome};
use crate::redaction::DigestKey;
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

/// Returns the entries of the events that one commit of a session contains. `approvals` are the
/// approvals that the commit changes. Digests are keyed with `digest_key`.
pub fn entries_for_commit(
    session_id: SessionId,
    records: &[EventRecord],
    approvals: &[ApprovalRow],
    digest_key: &DigestKey,
) -> Vec<AuditEntry> {
    let commit = CommitEntries { session_id, records, approvals, digest_key };
    let mut entries = Vec::new();
    records.iter().for_each(|record| commit.push_entries(record, &mut entries));
    entries
}

/// Returns the entry of a purged session.
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
    digest_key: &'a DigestKey,
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
            SessionEvent::QueuedMessageChanged { message_id, text: _, digest, preflight, by } => {
                AuditEntry {
                    digest: Some(self.digest_key.apply(*digest)),
                    details: Some(json!({"message_id": message_id, "preflight": preflight})),
                    ..entry(
                        AuditAction::QueuedMessageChanged,
                        AuditOutcome::Done,
                        Some(AuditActor::from_user(by)),
                    )
                }
            }
            SessionEvent::QueuedMessageWithdrawn { message_id, by } => AuditEntry {
                details: Some(json!({"message_id": message_id})),
                ..entry(
                    AuditAction::QueuedMessageWithdrawn,
                    AuditOutcome::Done,
                    Some(AuditActor::from_user(by)),
                )
            },
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
                    // The digest is that of the edited arguments.
                    CallAuthorization::Approval { .. } => (None, None),
                };
                AuditEntry {
                    details,
                    approval_id,
                    call_id: Some(*call_id),
                    tool: self.find_tool_name(*call_id),
                    digest: Some(self.digest_key.apply(*digest)),
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
            SessionEvent::ApprovalDecided { approval_id, steps, answer, closed: _ } => {
                let steps = steps.iter().map(|step| self.step_decided_entry(record, *approval_id, step));
                let answer =
                    answer.iter().map(|answer| self.resolution_entry(record, *approval_id, answer));
                return entries.extend(steps.chain(answer));
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
            // These events record no decision; the session's log contains them.
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
            // The decisions of a child session have their own entries.
            | SessionEvent::ChildEvent { .. }
            | SessionEvent::ChildGone { .. }
            | SessionEvent::ToolCallProgress { .. }
            | SessionEvent::ToolCallRetrying { .. }
            | SessionEvent::LateResult { .. }
            // The decision about a preflight is in the same commit, with its edits.
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
                    digest: Some(self.digest_key.apply(step.digest)),
                    reason: Some(step.why.clone()),
                    details: Some(json!({
                        "kind": "plan", "risk": step.risk, "deadline": deadline,
                        "cost": step.cost,
                    })),
                    ..entry()
                })
                .collect(),
            ApprovalSubject::Budget(subject) => vec![AuditEntry {
                reason: Some(approval.purpose.clone()),
                details: Some(json!({
                    "kind": "budget", "budget": subject.budget, "spent": subject.spent,
                    "needed": subject.needed, "deadline": deadline,
                })),
                ..entry()
            }],
            ApprovalSubject::Preflight(checklist) => checklist
                .steps
                .iter()
                .map(|step| AuditEntry {
                    tool: step.tool_name.clone(),
                    digest: step.digest.map(|digest| self.digest_key.apply(digest)),
                    reason: Some(step.description.clone()),
                    details: Some(json!({
                        "kind": "preflight", "position": step.position, "risk": step.risk,
                        "deadline": deadline, "cost": step.cost,
                    })),
                    ..entry()
                })
                .collect(),
            // The form is only in the session's log: the tool's texts may contain anything.
            ApprovalSubject::Elicitation(subject) => vec![AuditEntry {
                call_id: Some(subject.call_id),
                tool: Some(subject.tool.clone()),
                reason: Some(approval.purpose.clone()),
                details: Some(json!({
                    "kind": "elicitation", "server": subject.server, "deadline": deadline,
                    "mode": match subject.elicitation.mode {
                        ElicitationMode::Form { .. } => "form",
                        ElicitationMode::Url { .. } => "url",
                    },
                })),
                ..entry()
            }],
            ApprovalSubject::UnknownOutcome(subject) => vec![AuditEntry {
                call_id: Some(subject.call_id),
                tool: Some(subject.tool.clone()),
                digest: Some(self.digest_key.apply(subject.digest)),
                reason: Some(subject.why.clone()),
                details: Some(json!({
                    "kind": "unknown_outcome", "risk": subject.risk, "attempts": subject.attempts,
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
            digest: Some(self.digest_key.apply(step.digest)),
            reason: step.reason.clone(),
            // The digest is that of the edited arguments.
            details: step.edited.as_ref().map(|_| json!({"edited": true})),
            ..entry
        }
    }

    fn resolution_entry(
        &self,
        record: &EventRecord,
        approval_id: ApprovalId,
        answer: &RecordedAnswer,
    ) -> AuditEntry {
        let outcome = match answer.resolution {
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Raise(_)
            | Resolution::Approve(_)
            | Resolution::Answer(_) => AuditOutcome::Approved,
            Resolution::Failed | Resolution::Stop | Resolution::Reject => AuditOutcome::Rejected,
        };
        let mut details = json!({"decision": answer.resolution.name()});
        if let Resolution::Approve(_) = answer.resolution {
            details["steps"] = json!(self.approved_preflight_steps());
        }
        // Only the digest of the value of an elicitation is recorded.
        let digest = match &answer.resolution {
            Resolution::Answer(value) => Some(self.digest_key.apply(Digest::hash_json(value))),
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Failed
            | Resolution::Raise(_)
            | Resolution::Stop
            | Resolution::Approve(_)
            | Resolution::Reject => None,
        };
        let actor =
            AuditActor { surface: Some(answer.surface), ..AuditActor::from_user(&answer.by) };
        AuditEntry {
            at: answer.at,
            digest,
            approval_id: Some(approval_id),
            reason: answer.reason.clone(),
            details: Some(details),
            ..self.base_entry(record, AuditAction::ApprovalDecided, outcome, Some(actor))
        }
    }

    /// Returns the steps of a preflight that this commit approves: each by tool and digest, never by
    /// its arguments (G14).
    fn approved_preflight_steps(&self) -> Vec<Value> {
        let steps = self.records.iter().filter_map(|record| {
            let SessionEvent::PreflightApproved { steps, .. } = &record.event else { return None };
            Some(steps.iter())
        });
        let row = |step: &ApprovedPreflightStep| {
            let digest = step.digest.map(|digest| self.digest_key.apply(digest));
            json!({
                "position": step.position, "tool": step.tool_name, "digest": digest,
                "edited": step.edited, "skipped": step.skipped,
            })
        };
        steps.flatten().map(row).collect()
    }

    /// Returns the tool of a call, if this commit contains the call's proposal or an approval of it.
    fn find_tool_name(&self, call_id: CallId) -> Option<String> {
        let proposed = self.records.iter().find_map(|record| {
            let SessionEvent::ToolCallStarted { call_id: id, tool, .. } = &record.event else {
                return None;
            };
            (*id == call_id).then_some(tool)
        });
        let from_approval =
            || self.approvals.iter().find_map(|row| row.approval.tool_for_call(call_id));
        proposed.map(String::as_str).or_else(from_approval).map(str::to_owned)
    }
}
