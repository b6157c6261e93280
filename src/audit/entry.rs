//! One entry of the audit log: what is said of a decision. Arguments and results are never in it,
//! only their digests.

use crate::auth::{Principal, Role};
use greenroom_core::{
    Timestamp,
    approval::Surface,
    ids::{ApprovalId, CallId, RunId, Seq, SessionId, UserId},
    json::Digest,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AuditAction)]
pub enum AuditAction {
    /// A session was created, with the settings in `details`.
    SessionCreated,
    /// A session was forked from the one in `details`, which has its settings, too.
    SessionForked,
    /// A session's settings are those in `details` now.
    SessionSettingsChanged,
    /// A session was closed.
    SessionClosed,
    /// A session was removed with everything in it; what the audit log has of it stays.
    SessionPurged,
    /// A run was cancelled.
    RunCancelled,
    /// The policy, or a person's approval, let a call run.
    ToolCallAllowed,
    /// The policy did not let a call run.
    AuthorizationDenied,
    /// A person is asked about a call.
    ApprovalRequested,
    /// A person decided about a call.
    ApprovalDecided,
    /// Nobody answered a question in time.
    ApprovalExpired,
    /// Nobody answered a question in time, and it went to people of another role.
    ApprovalEscalated,
    /// A person raised a budget.
    BudgetRaised,
    /// A question became moot.
    ApprovalCancelled,
    /// A person's approval holds for later calls of the session, too; `details` says for which.
    GrantAdded,
    /// It no longer does.
    GrantRevoked,
    /// An answer to a question came in, by this credential; it was accepted or refused.
    ApprovalAnswered,
    /// A user's settings are those in `details` now.
    UserSettingsChanged,
    /// An API key was made.
    KeyCreated,
    /// An API key was revoked.
    KeyRevoked,
    /// An administrator stopped the live actor in `details`, or tried to.
    ActorStopped,
    /// An administrator restarted the live actor in `details`, or tried to.
    ActorRestarted,
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AuditOutcome)]
pub enum AuditOutcome {
    /// It was done.
    Done,
    /// It may run.
    Allowed,
    /// It may not run.
    Denied,
    /// A person was asked.
    Asked,
    /// A person agreed.
    Approved,
    /// A person did not agree.
    Rejected,
    /// Nobody answered in time.
    Expired,
    /// It is moot.
    Cancelled,
    /// The answer was taken.
    Accepted,
    /// Who answered may not answer so.
    Refused,
}

/// Who acted.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AuditActor)]
pub struct AuditActor {
    /// The user. A row in which nobody acted has none of an actor's members.
    #[schema(required = false)]
    pub user: UserId,
    /// What they may do; absent where only the session's log is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// How they showed who they are: `admin_token`, or `key:ID`. Never the secret itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_in_by: Option<String>,
    /// Through what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surface: Option<Surface>,
}

/// One entry, before it has its number.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// What.
    pub action: AuditAction,
    /// How it came out.
    pub outcome: AuditOutcome,
    /// Who; nobody where Greenroom itself applied its rules.
    #[serde(flatten)]
    #[schema(value_type = AuditActor)]
    pub actor: Option<AuditActor>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The session's event that says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The call's tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Digest of the call's arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Why, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What else there is to say of this action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl AuditAction {
    /// Every action, for those who filter by one.
    pub const ALL: [Self; 22] = [
        Self::SessionCreated,
        Self::SessionForked,
        Self::SessionSettingsChanged,
        Self::SessionClosed,
        Self::SessionPurged,
        Self::RunCancelled,
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
        Self::KeyCreated,
        Self::KeyRevoked,
        Self::ActorStopped,
        Self::ActorRestarted,
    ];

    /// The word that stands in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionCreated => "session_created",
            Self::SessionForked => "session_forked",
            Self::SessionSettingsChanged => "session_settings_changed",
            Self::SessionClosed => "session_closed",
            Self::SessionPurged => "session_purged",
            Self::RunCancelled => "run_cancelled",
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
            Self::KeyCreated => "key_created",
            Self::KeyRevoked => "key_revoked",
            Self::ActorStopped => "actor_stopped",
            Self::ActorRestarted => "actor_restarted",
        }
    }
}

impl AuditActor {
    /// The user that an event of a session names.
    pub fn from_user(user: &UserId) -> Self {
        Self { user: user.clone(), role: None, signed_in_by: None, surface: None }
    }

    /// Whoever calls.
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
    /// An entry that says nothing else yet.
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
    fn the_names_are_those_of_the_log_and_all_are_listed() {
        for (index, action) in AuditAction::ALL.into_iter().enumerate() {
            assert_eq!(json!(action), action.name());
            assert_eq!(action as usize, index);
        }
    }
}
