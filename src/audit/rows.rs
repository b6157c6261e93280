//! Which entries a commit of a session makes. Pure and total: a new kind of event must say here
//! whether it is a decision.

use super::{Action, Actor, Entry, Outcome};
use greenroom_core::{
    approval::{Approval, StepDecision},
    ids::{ApprovalId, CallId, SessionId},
    session::{Allowance, ApprovalRow, EventRecord, SessionEvent},
};
use serde_json::json;

/// The entries of the events that are committed together in one session, with the questions that
/// the commit changes.
pub fn rows_of(
    session_id: SessionId,
    records: &[EventRecord],
    approvals: &[ApprovalRow],
) -> Vec<Entry> {
    let commit = Commit { session_id, records, approvals };
    let mut entries = Vec::new();
    records.iter().for_each(|record| commit.add(record, &mut entries));
    entries
}

struct Commit<'a> {
    session_id: SessionId,
    records: &'a [EventRecord],
    approvals: &'a [ApprovalRow],
}

impl Commit<'_> {
    fn add(&self, record: &EventRecord, entries: &mut Vec<Entry>) {
        let entry = |action, outcome, actor| self.entry(record, action, outcome, actor);
        let added = match &record.event {
            SessionEvent::SessionCreated { owner, agent, title: _, settings } => Entry {
                details: Some(json!({"agent": agent, "settings": settings})),
                ..entry(Action::SessionCreated, Outcome::Done, Some(Actor::named(owner)))
            },
            SessionEvent::SessionSettingsChanged { settings, title: _, by } => Entry {
                details: Some(json!({"settings": settings})),
                ..entry(Action::SessionSettingsChanged, Outcome::Done, Some(Actor::named(by)))
            },
            SessionEvent::SessionClosed { by } => {
                entry(Action::SessionClosed, Outcome::Done, Some(Actor::named(by)))
            }
            SessionEvent::RunCancelled { by, message_id: _, usage: _ } => {
                entry(Action::RunCancelled, Outcome::Cancelled, Some(Actor::named(by)))
            }
            SessionEvent::ToolCallAllowed { call_id, digest, by, .. } => {
                let (actor, approval_id) = match by {
                    Allowance::Policy { .. } | Allowance::Grant { .. } => (None, None),
                    Allowance::Approval { approval_id, by, .. } => {
                        (Some(Actor::named(by)), Some(*approval_id))
                    }
                };
                let (reason, details) = match by {
                    Allowance::Policy { why } => (Some(why.clone()), None),
                    Allowance::Grant { grant_id } => (None, Some(json!({"grant_id": grant_id}))),
                    // What they changed is what the digest stands for.
                    Allowance::Approval { .. } => (None, None),
                };
                Entry {
                    details,
                    approval_id,
                    call_id: Some(*call_id),
                    tool: self.tool(*call_id),
                    digest: Some(*digest),
                    reason,
                    ..entry(Action::ToolCallAllowed, Outcome::Allowed, actor)
                }
            }
            SessionEvent::AuthorizationDenied { call_id, tool, reason, required_level: _ } => {
                Entry {
                    call_id: Some(*call_id),
                    tool: Some(tool.clone()),
                    reason: Some(reason.clone()),
                    ..entry(Action::AuthorizationDenied, Outcome::Denied, None)
                }
            }
            SessionEvent::ApprovalRequested { approval } => {
                return entries.extend(self.asked(record, approval));
            }
            SessionEvent::ApprovalDecided { approval_id, steps, closed: _ } => {
                return entries
                    .extend(steps.iter().map(|step| self.decided(record, *approval_id, step)));
            }
            SessionEvent::ApprovalExpired { approval_id } => Entry {
                approval_id: Some(*approval_id),
                ..entry(Action::ApprovalExpired, Outcome::Expired, None)
            },
            SessionEvent::ApprovalCancelled { approval_id } => Entry {
                approval_id: Some(*approval_id),
                ..entry(Action::ApprovalCancelled, Outcome::Cancelled, None)
            },
            SessionEvent::GrantAdded { grant } => Entry {
                tool: Some(grant.tool.clone()),
                details: Some(json!({
                    "grant_id": grant.grant_id, "server": grant.server, "where": grant.condition,
                })),
                ..entry(Action::GrantAdded, Outcome::Done, Some(Actor::named(&grant.by)))
            },
            SessionEvent::GrantRevoked { grant_id, by } => Entry {
                details: Some(json!({"grant_id": grant_id})),
                ..entry(Action::GrantRevoked, Outcome::Done, Some(Actor::named(by)))
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
            | SessionEvent::ToolCallStarted { .. }
            | SessionEvent::ToolCallAttemptStarted { .. }
            | SessionEvent::ToolCallProgress { .. }
            | SessionEvent::ToolCallRetrying { .. }
            | SessionEvent::LateResult { .. }
            | SessionEvent::ToolCallCompleted { .. }
            | SessionEvent::ToolCallFailed { .. } => return,
        };
        entries.push(added);
    }

    fn entry(
        &self,
        record: &EventRecord,
        action: Action,
        outcome: Outcome,
        actor: Option<Actor>,
    ) -> Entry {
        Entry {
            session_id: Some(self.session_id),
            seq: Some(record.seq),
            run_id: record.run_id,
            ..Entry::new(record.at, action, outcome, actor)
        }
    }

    fn asked<'a>(
        &'a self,
        record: &'a EventRecord,
        approval: &'a Approval,
    ) -> impl Iterator<Item = Entry> + 'a {
        approval.steps.iter().map(|step| Entry {
            approval_id: Some(approval.approval_id),
            call_id: Some(step.call_id),
            tool: Some(step.tool.clone()),
            digest: Some(step.digest),
            reason: Some(step.why.clone()),
            details: Some(json!({"risk": step.risk, "deadline": approval.deadline})),
            ..self.entry(record, Action::ApprovalRequested, Outcome::Asked, None)
        })
    }

    fn decided(&self, record: &EventRecord, approval_id: ApprovalId, step: &StepDecision) -> Entry {
        let outcome = if step.approved { Outcome::Approved } else { Outcome::Rejected };
        let actor = Actor { surface: Some(step.surface), ..Actor::named(&step.by) };
        let entry = self.entry(record, Action::ApprovalDecided, outcome, Some(actor));
        Entry {
            at: step.at,
            approval_id: Some(approval_id),
            call_id: Some(step.call_id),
            tool: self.tool(step.call_id),
            digest: Some(step.digest),
            reason: step.reason.clone(),
            // The digest is that of the arguments as changed.
            details: step.edited.as_ref().map(|_| json!({"edited": true})),
            ..entry
        }
    }

    /// The call's tool, where this commit tells: its proposal is in it, or a question about it.
    fn tool(&self, call_id: CallId) -> Option<String> {
        let proposed = self.records.iter().find_map(|record| {
            let SessionEvent::ToolCallStarted { call_id: id, tool, .. } = &record.event else {
                return None;
            };
            (*id == call_id).then_some(tool)
        });
        let mut steps = self.approvals.iter().flat_map(|row| &row.approval.steps);
        let asked = || steps.find(|step| step.call_id == call_id).map(|step| &step.tool);
        proposed.or_else(asked).cloned()
    }
}
