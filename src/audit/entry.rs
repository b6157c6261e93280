//! An entry of the audit log. It contains digests of arguments and results, never the values.

use crate::{
    auth::{Principal, Role},
    redaction::KeyedDigest,
};
use greenroom_core::{
    Timestamp,
    approval::Surface,
    ids::{ApprovalId, CallId, RunId, Seq, SessionId, UserId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An audited action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AuditAction)]
pub enum AuditAction {
    /// A session was created, with the settings in `details`.
    SessionCreated,
    /// A session was forked from the session in `details`, which also contains the settings.
    SessionForked,
    /// A session's settings were changed to those in `details`.
    SessionSettingsChanged,
    /// A session was closed.
    SessionClosed,
    /// A session was purged. Its earlier audit rows remain.
    SessionPurged,
    /// A run was cancelled.
    RunCancelled,
    /// A queued message was changed; `digest` is the digest of the change.
    QueuedMessageChanged,
    /// A queued message was withdrawn.
    QueuedMessageWithdrawn,
    /// A call was allowed, by the policy, a grant or an approval.
    ToolCallAllowed,
    /// A call was denied by policy.
    AuthorizationDenied,
    /// An approval was requested.
    ApprovalRequested,
    /// A step or an approval was decided.
    ApprovalDecided,
    /// An approval expired without an answer.
    ApprovalExpired,
    /// An approval was escalated to another role after its deadline.
    ApprovalEscalated,
    /// A budget was raised.
    BudgetRaised,
    /// An approval was cancelled.
    ApprovalCancelled,
    /// A grant for later calls of the session was added; `details` describes it.
    GrantAdded,
    /// A grant was revoked.
    GrantRevoked,
    /// An answer to an approval was submitted with this credential, and accepted or refused.
    ApprovalAnswered,
    /// A user's settings were changed to those in `details`.
    UserSettingsChanged,
    /// The ceilings were changed.
    CeilingsChanged,
    /// An API key was created.
    KeyCreated,
    /// An API key was revoked.
    KeyRevoked,
    /// An administrator sent the order to stop to the live actor in `details`.
    ActorStopped,
    /// An administrator sent the order to restart to the live actor in `details`.
    ActorRestarted,
}

/// The outcome of an audited action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AuditOutcome)]
pub enum AuditOutcome {
    /// Done.
    Done,
    /// The call may run.
    Allowed,
    /// The call may not run.
    Denied,
    /// Approval was requested.
    Asked,
    /// Approved by the user.
    Approved,
    /// Rejected by the user.
    Rejected,
    /// Expired without an answer.
    Expired,
    /// Cancelled.
    Cancelled,
    /// The answer was accepted.
    Accepted,
    /// The action was refused.
    Refused,
}

/// The user who acted.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AuditActor)]
pub struct AuditActor {
    /// The user. All members of an actor are absent from a row in which no user acted.
    #[schema(required = false)]
    pub user: UserId,
    /// The user's role; absent from rows of session events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The credential: `admin_token` or `key:ID`, never the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_in_by: Option<String>,
    /// The surface through which the user acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surface: Option<Surface>,
}

/// An audit entry, before it is numbered.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditEntry {
    /// The time of the action.
    pub at: Timestamp,
    /// The action.
    pub action: AuditAction,
    /// The outcome.
    pub outcome: AuditOutcome,
    /// The user; `None` if Greenroom applied its rules.
    #[serde(flatten)]
    #[schema(value_type = AuditActor)]
    pub actor: Option<AuditActor>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The session's event that records the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The tool of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Keyed digest of the call's arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<KeyedDigest>,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Additional data of the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl AuditAction {
    /// All actions, in the order of the variants.
    pub const ALL: [Self; 25] = [
        Self::SessionCreated,
        Self::SessionForked,
        Self::SessionSettingsChanged,
        Self::SessionClosed,
        Self::SessionPurged,
        Self::RunCancelled,
        Self::QueuedMessageChanged,
        Self::QueuedMessageWithdrawn,
        Self::ToolCallAllowed,
        Self::AuthorizationDenied,
        Self::ApprovalRequested,
        Self::ApprovalDecided,
        Self::ApprovalExpired,
        Self::ApprovalEscalated,
        Self::BudgetRaised,
        Self::ApprovalCancelled,
        Self::GrantAdded,
        Self::GrantRevoked,
        Self::ApprovalAnswered,
        Self::UserSettingsChanged,
        Self::CeilingsChanged,
        Self::KeyCreated,
        Self::KeyRevoked,
        Self::ActorStopped,
        Self::ActorRestarted,
    ];

    /// Returns the name of the action in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionCreated => "session_created",
            Self::SessionForked => "session_forked",
            Self::SessionSettingsChanged => "session_settings_changed",
            Self::SessionClosed => "session_closed",
            Self::SessionPurged => "session_purged",
            Self::RunCancelled => "run_cancelled",
            Self::QueuedMessageChanged => "queued_message_changed",
            Self::QueuedMessageWithdrawn => "queued_message_withdrawn",
            Self::ToolCallAllowed => "tool_call_allowed",
            Self::AuthorizationDenied => "authorization_denied",
            Self::ApprovalRequested => "approval_requested",
            Self::ApprovalDecided => "approval_decided",
            Self::ApprovalExpired => "approval_expired",
            Self::ApprovalEscalated => "approval_escalated",
            Self::BudgetRaised => "budget_raised",
            Self::ApprovalCancelled => "approval_cancelled",
            Self::GrantAdded => "grant_added",
            Self::GrantRevoked => "grant_revoked",
            Self::ApprovalAnswered => "approval_answered",
            Self::UserSettingsChanged => "user_settings_changed",
            Self::CeilingsChanged => "ceilings_changed",
            Self::KeyCreated => "key_created",
            Self::KeyRevoked => "key_revoked",
            Self::ActorStopped => "actor_stopped",
            Self::ActorRestarted => "actor_restarted",
        }
    }
}

impl AuditActor {
    /// Creates an actor from the user of a session event.
    pub fn from_user(user: &UserId) -> Self {
        Self { user: user.clone(), role: None, signed_in_by: None, surface: None }
    }

    /// Creates an actor from an authenticated caller.
    pub fn from_principal(principal: &Principal, surface: Surface) -> Self {
        Self {
            user: principal.user.clone(),
            role: Some(principal.role),
            signed_in_by: Some(principal.credential_name()),
            surface: Some(surface),
        }
    }
}

impl AuditEntry {
    /// Creates an entry without optional members.
    pub fn new(
        at: Timestamp,
        action: AuditAction,
        outcome: AuditOutcome,
        actor: Option<AuditActor>,
    ) -> Self {
        Self {
            at,
            action,
            outcome,
            actor,
            session_id: None,
            seq: None,
            run_id: None,
            approval_id: None,
            call_id: None,
            tool: None,
            digest: None,
            reason: None,
            details: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn action_names_match_their_serialized_form() {
        for (index, action) in AuditAction::ALL.into_iter().enumerate() {
            assert_eq!(json!(action), action.name());
            assert_eq!(action as usize, index);
        }
    }
}
