//! The reasons why an input is rejected.

use crate::{
    approval::{PlanStepDecision, RecordedAnswer, Resolution, Role},
    ids::{ApprovalId, CallId, GrantId, MessageId, RunId, SessionId},
    policy::CeilingExceeded,
    policy::InvolvedParty,
    scrub::REDACTED,
};

/// Maximum number of calls whose first decisions a text describes.
const DESCRIBED_CALLS_MAX: usize = 8;

/// The reason why an input is rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// The session does not exist.
    #[error("session not found")]
    UnknownSession,
    /// The session already exists.
    #[error("the session already exists")]
    SessionExists,
    /// The session is read-only.
    #[error("the session is closed and read-only")]
    SessionClosed,
    /// A run is active, and the message must not be queued (S4).
    #[error("run {run_id} is active")]
    Busy {
        /// The active run.
        run_id: RunId,
    },
    /// The session is a child and accepts no messages except steering (S8).
    #[error(
        "the session is a child of session {parent}; it accepts only messages that steer its run"
    )]
    IsChildSession {
        /// The parent session.
        parent: SessionId,
    },
    /// A change would widen a child's settings, which may only be narrowed (S8).
    #[error("{problem}")]
    ChildSettingsWidened {
        /// The setting that would be wider.
        problem: String,
    },
    /// The queue is full.
    #[error("the queue is full; the limit is {limit}")]
    QueueFull {
        /// The maximum number of queued messages.
        limit: usize,
    },
    /// The message id was already used with a different body (S5).
    #[error("`message_id` {message_id} was already used with a different body")]
    MessageIdReused {
        /// The id.
        message_id: MessageId,
    },
    /// No message was submitted with that id (S10).
    #[error("message not found: {message_id}")]
    UnknownMessage {
        /// The id.
        message_id: MessageId,
    },
    /// The message was delivered to the model and can't be changed or withdrawn (S10).
    #[error("message {message_id} was already delivered to the model")]
    MessageStarted {
        /// The message's id.
        message_id: MessageId,
    },
    /// The message was withdrawn and can't be changed (S10).
    #[error("message {message_id} was withdrawn")]
    MessageWithdrawn {
        /// The message's id.
        message_id: MessageId,
    },
    /// The run of the queued message was cancelled, so that the message can't be changed or
    /// withdrawn (S10).
    #[error("message {message_id} was cancelled before its run started")]
    MessageCancelled {
        /// The message's id.
        message_id: MessageId,
    },
    /// The changed text contains a redaction placeholder that the queued message does not (E7).
    #[error(
        "`message`: contains `{REDACTED}`, but the queued message does not; enter the value itself"
    )]
    RedactedMessage,
    /// No run is active that could be cancelled.
    #[error("no run is active")]
    NoActiveRun,
    /// The named run is neither active nor queued.
    #[error("run {run_id} is neither active nor queued")]
    RunNotActive {
        /// The run.
        run_id: RunId,
    },
    /// The approval does not exist.
    #[error("approval not found: {approval_id}")]
    UnknownApproval {
        /// The approval's id.
        approval_id: ApprovalId,
    },
    /// The approval was already decided with a different answer or `for_session` (G11).
    #[error("{}", describe_first_answer(decisions, answer.as_deref()))]
    AlreadyDecided {
        /// The first decisions on the steps of a plan: of the steps that the answer names, or all.
        decisions: Vec<PlanStepDecision>,
        /// The first answer to an approval without steps.
        answer: Option<Box<RecordedAnswer>>,
    },
    /// The answer does not fit the approval's kind.
    #[error("unsupported answer; this approval accepts {allowed}")]
    UnsupportedAnswer {
        /// The answers that fit.
        allowed: &'static str,
    },
    /// The answer asks for more than a ceiling permits (G17); the approval stays open.
    #[error(transparent)]
    CeilingExceeded(#[from] CeilingExceeded),
    /// The answer can't be applied; the approval stays open.
    #[error("invalid answer: {problem}")]
    InvalidAnswer {
        /// The reason.
        problem: String,
    },
    /// The deadline has passed, and only a higher role may answer (G10).
    #[error("the deadline has passed; answering now requires the role `{role}` or higher")]
    RoleRequired {
        /// The lowest role that may answer.
        role: Role,
    },
    /// The call is critical, and the role of the user is too low (G12).
    #[error("`{tool}` is critical: approval requires the role `{role}`")]
    ApproverRequired {
        /// The tool of the call.
        tool: String,
        /// The lowest role that may approve.
        role: Role,
    },
    /// The call is critical, and another user must approve it (G12).
    #[error("`{tool}` is critical: approval requires {party}")]
    FourEyes {
        /// The tool of the call.
        tool: String,
        /// The reason why the user may not approve.
        party: InvolvedParty,
    },
    /// The approval's last deadline has passed (G10).
    #[error("the approval has expired: its deadline has passed")]
    ApprovalExpired,
    /// The approval was cancelled: its run ended, or the requesting tool attempt no longer waits.
    #[error("the approval was cancelled: its run or tool attempt no longer waits for it")]
    ApprovalCancelled,
    /// The answer names a call that is not an undecided step of the plan.
    #[error("the plan has no undecided step for call {call_id}")]
    UnknownStep {
        /// The call's id.
        call_id: CallId,
    },
    /// The edited arguments can't be used (G8); the plan stays open.
    #[error("invalid edited arguments for call {call_id}: {problem}")]
    InvalidEdit {
        /// The call's id.
        call_id: CallId,
        /// The problem with the arguments.
        problem: String,
    },
    /// The request to grant later calls can't be met (G9).
    #[error("invalid `for_session`: {problem}")]
    InvalidGrant {
        /// The reason.
        problem: String,
    },
    /// The session has the maximum number of feedback entries.
    #[error("feedback limit reached: {limit} entries per session")]
    FeedbackLimitReached {
        /// The maximum number of entries.
        limit: u32,
    },
    /// The grant does not exist.
    #[error("grant not found: {grant_id}")]
    UnknownGrant {
        /// The grant's id.
        grant_id: GrantId,
    },
    /// The answer decides no step, or decides a step twice.
    #[error("the answer must decide at least one step, and no step twice")]
    AmbiguousAnswer,
}

impl Rejection {
    /// Returns true if another user may do what was rejected.
    pub fn is_missing_right(&self) -> bool {
        matches!(
            self,
            Self::RoleRequired { .. } | Self::ApproverRequired { .. } | Self::FourEyes { .. }
        )
    }
}

/// Describes the decision that was taken first: "already approved by ann". If the decisions on the
/// steps of a plan differ, each is described with its call.
fn describe_first_answer(
    decisions: &[PlanStepDecision],
    answer: Option<&RecordedAnswer>,
) -> String {
    if let Some(RecordedAnswer { resolution, by, .. }) = answer {
        let text = match resolution {
            Resolution::Approve(edits) if edits.is_empty() => "approved".to_owned(),
            Resolution::Approve(_) => "approved with changes".to_owned(),
            Resolution::Reject => "rejected".to_owned(),
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Failed
            | Resolution::Raise(_)
            | Resolution::Stop
            | Resolution::Answer(_) => format!("answered with `{}`", resolution.name()),
        };
        return format!("already {text} by {by}");
    }
    let texts: Vec<_> = decisions.iter().map(describe_decision).collect();
    let Some(first) = texts.first() else { return "already decided".to_owned() };
    if texts.iter().all(|text| text == first) {
        return first.clone();
    }
    let described = decisions.iter().zip(&texts).take(DESCRIBED_CALLS_MAX);
    let described = described.map(|(step, text)| format!("call {}: {text}", step.call_id));
    let more = decisions.len().saturating_sub(DESCRIBED_CALLS_MAX);
    let more = (more > 0).then(|| format!("and {more} more calls"));
    described.chain(more).collect::<Vec<_>>().join("; ")
}

fn describe_decision(decision: &PlanStepDecision) -> String {
    let approved = if decision.approved { "approved" } else { "rejected" };
    let edited = if decision.edited.is_some() { " with edited arguments" } else { "" };
    let scope = if decision.for_session.is_some() { " for the session" } else { "" };
    format!("already {approved}{edited}{scope} by {}", decision.by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        approval::{GrantRequest, Surface},
        json::Digest,
        time::Timestamp,
    };
    use serde_json::json;
    use uuid::Uuid;

    fn decision(call: u128, approved: bool, by: &str) -> PlanStepDecision {
        PlanStepDecision {
            call_id: CallId(Uuid::from_u128(call)),
            approved,
            reason: None,
            by: by.parse().unwrap(),
            surface: Surface::Rest,
            at: Timestamp(0),
            digest: Digest::hash_json(&json!({})),
            edited: None,
            for_session: None,
        }
    }

    fn text(decisions: Vec<PlanStepDecision>, resolution: Option<Resolution>) -> String {
        let answer = resolution.map(|resolution| {
            let (by, surface) = ("ann".parse().unwrap(), Surface::Rest);
            Box::new(RecordedAnswer { resolution, reason: None, by, surface, at: Timestamp(0) })
        });
        Rejection::AlreadyDecided { decisions, answer }.to_string()
    }

    #[test]
    fn g11_conflict_names_the_first_decision() {
        let (yes, no) = (decision(1, true, "alice"), decision(2, false, "bob"));
        assert_eq!(text(vec![yes.clone()], None), "already approved by alice");
        assert_eq!(
            text(vec![no.clone(), decision(3, false, "bob")], None),
            "already rejected by bob"
        );
        assert_eq!(
            text(vec![yes.clone(), no.clone()], None),
            "call 00000000-0000-0000-0000-000000000001: already approved by alice; \
             call 00000000-0000-0000-0000-000000000002: already rejected by bob"
        );
        let for_session = Some(GrantRequest { condition: None });
        let granted = PlanStepDecision { for_session, ..yes.clone() };
        assert_eq!(text(vec![granted], None), "already approved for the session by alice");
        let edited = PlanStepDecision { edited: Some(json!({})), ..yes.clone() };
        assert_eq!(text(vec![edited], None), "already approved with edited arguments by alice");
        let many = (1..=10).map(|call| decision(call, call > 1, "alice")).collect();
        let many = text(many, None);
        assert_eq!(many.matches("already").count(), DESCRIBED_CALLS_MAX);
        assert!(many.ends_with("; and 2 more calls"), "{many}");
        for (resolution, expected) in [
            (Resolution::Approve(vec![]), "already approved by ann"),
            (Resolution::Reject, "already rejected by ann"),
            (Resolution::Retry, "already answered with `retry` by ann"),
            (Resolution::Stop, "already answered with `stop` by ann"),
            (Resolution::Done(json!("secret")), "already answered with `done` by ann"),
        ] {
            assert_eq!(text(vec![], Some(resolution)), expected);
        }
    }
}
