//! Which entries a commit of a session makes. Pure and total: a new kind of event must say here
//! whether it is a decision.

use super::{Action, Actor, Entry, Outcome};
use greenroom_actors::ports::Purge;
use greenroom_core::{
    approval::{Approval, Question, Resolution, StepDecision, Wanted, Word},
    ids::{ApprovalId, CallId, SessionId},
    json::Digest,
    preflight::ApprovedStep,
    session::{Allowance, ApprovalRow, EventRecord, SessionEvent},
};
use serde_json::{Value, json};

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

/// The entry of a session that was removed.
pub fn row_of_purge(purge: &Purge) -> Entry {
    let actor = Some(Actor::named(&purge.by));
    Entry {
        session_id: Some(purge.session_id),
        seq: Some(purge.expected_head),
        ..Entry::new(purge.at, Action::SessionPurged, Outcome::Done, actor)
    }
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
            SessionEvent::SessionCreated { owner, agent, title: _, settings, parent } => Entry {
                details: Some(match parent {
                    Some(parent) => {
                        json!({"agent": agent, "settings": settings, "parent": parent})
                    }
                    None => json!({"agent": agent, "settings": settings}),
                }),
                ..entry(Action::SessionCreated, Outcome::Done, Some(Actor::named(owner)))
            },
            SessionEvent::SessionForked { from, at_seq, owner, agent, settings, .. } => Entry {
                details: Some(json!({
                    "from": from, "at_seq": at_seq, "agent": agent, "settings": settings,
                })),
                ..entry(Action::SessionForked, Outcome::Done, Some(Actor::named(owner)))
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
                    Allowance::Approval { approval_id, by, .. }
                    | Allowance::Preflight { approval_id, by, .. } => {
                        (Some(Actor::named(by)), Some(*approval_id))
                    }
                };
                let (reason, details) = match by {
                    Allowance::Policy { why } => (Some(why.clone()), None),
                    Allowance::Grant { grant_id } => (None, Some(json!({"grant_id": grant_id}))),
                    Allowance::Preflight { step, .. } => {
                        (None, Some(json!({"preflight_step": step})))
                    }
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
            SessionEvent::ApprovalDecided { approval_id, steps, word, closed: _ } => {
                let steps = steps.iter().map(|step| self.decided(record, *approval_id, step));
                let word = word.iter().map(|word| self.resolved(record, *approval_id, word));
                return entries.extend(steps.chain(word));
            }
            SessionEvent::ApprovalEscalated { approval_id, to, deadline } => Entry {
                approval_id: Some(*approval_id),
                details: Some(json!({"to": to, "deadline": deadline})),
                ..entry(Action::ApprovalEscalated, Outcome::Asked, None)
            },
            SessionEvent::BudgetRaised { approval_id, budget, by } => Entry {
                approval_id: Some(*approval_id),
                details: Some(json!({"budget": budget})),
                ..entry(Action::BudgetRaised, Outcome::Done, Some(Actor::named(by)))
            },
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

    fn asked(&self, record: &EventRecord, approval: &Approval) -> Vec<Entry> {
        let entry = || Entry {
            approval_id: Some(approval.approval_id),
            ..self.entry(record, Action::ApprovalRequested, Outcome::Asked, None)
        };
        let deadline = approval.deadline;
        match &approval.question {
            Question::Plan { steps } => steps
                .iter()
                .map(|step| Entry {
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
            Question::Budget(asked) => vec![Entry {
                reason: Some(approval.purpose.clone()),
                details: Some(json!({
                    "kind": "budget", "budget": asked.budget, "spent": asked.spent,
                    "needed": asked.needed, "deadline": deadline,
                })),
                ..entry()
            }],
            Question::Preflight(checklist) => checklist
                .steps
                .iter()
                .map(|step| Entry {
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
            Question::Elicitation(asked) => vec![Entry {
                call_id: Some(asked.call_id),
                tool: Some(asked.tool.clone()),
                reason: Some(approval.purpose.clone()),
                details: Some(json!({
                    "kind": "elicitation", "server": asked.server, "deadline": deadline,
                    "mode": match asked.elicitation.wanted {
                        Wanted::Form { .. } => "form",
                        Wanted::Url { .. } => "url",
                    },
                })),
                ..entry()
            }],
            Question::UnknownOutcome(asked) => vec![Entry {
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

    fn resolved(&self, record: &EventRecord, approval_id: ApprovalId, word: &Word) -> Entry {
        let outcome = match word.resolution {
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Raise(_)
            | Resolution::Approve(_)
            | Resolution::Answer(_) => Outcome::Approved,
            Resolution::Failed | Resolution::Stop | Resolution::Reject => Outcome::Rejected,
        };
        let mut details = json!({"decision": word.resolution.name()});
        if let Resolution::Approve(_) = word.resolution {
            details["steps"] = json!(self.approved_steps());
        }
        // What was filled in is known by its digest alone.
        let digest = match &word.resolution {
            Resolution::Answer(value) => Some(Digest::of(value)),
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Failed
            | Resolution::Raise(_)
            | Resolution::Stop
            | Resolution::Approve(_)
            | Resolution::Reject => None,
        };
        let actor = Actor { surface: Some(word.surface), ..Actor::named(&word.by) };
        Entry {
            at: word.at,
            digest,
            approval_id: Some(approval_id),
            reason: word.reason.clone(),
            details: Some(details),
            ..self.entry(record, Action::ApprovalDecided, outcome, Some(actor))
        }
    }

    /// What this commit lets stand of a plan: each step by its tool and digest, never by its
    /// arguments (G14).
    fn approved_steps(&self) -> Vec<Value> {
        let steps = self.records.iter().filter_map(|record| {
            let SessionEvent::PreflightApproved { steps, .. } = &record.event else { return None };
            Some(steps.iter())
        });
        let row = |step: &ApprovedStep| {
            json!({
                "position": step.position, "tool": step.tool_name, "digest": step.digest,
                "edited": step.edited, "skipped": step.skipped,
            })
        };
        steps.flatten().map(row).collect()
    }

    /// The call's tool, where this commit tells: its proposal is in it, or a question about it.
    fn tool(&self, call_id: CallId) -> Option<String> {
        let proposed = self.records.iter().find_map(|record| {
            let SessionEvent::ToolCallStarted { call_id: id, tool, .. } = &record.event else {
                return None;
            };
            (*id == call_id).then_some(tool)
        });
        let asked = || self.approvals.iter().find_map(|row| row.approval.tool_of(call_id));
        proposed.map(String::as_str).or_else(asked).map(str::to_owned)
    }
}
