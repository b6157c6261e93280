//! Session grants: approvals that cover later calls of a tool (G9).

use super::{DecisionBuilder, Rejection, Reply};
use crate::{
    approval::{Grant, GrantRequest, PlanStepDecision},
    ids::{GrantId, UserId},
    limits::GRANTS_MAX,
    policy::{Expression, Risk},
    session::SessionEvent,
};

impl DecisionBuilder<'_> {
    /// Returns the grants that `request` creates for the approved steps: one for each tool.
    pub(super) fn requested_grants(
        &self,
        request: Option<&GrantRequest>,
        decisions: &[PlanStepDecision],
        granted_by: &UserId,
    ) -> Result<Vec<Grant>, Rejection> {
        let Some(GrantRequest { condition }) = request else { return Ok(Vec::new()) };
        let invalid = |problem: String| Rejection::InvalidGrant { problem };
        if let Some(condition) = condition {
            let compiled = Expression::compile(condition);
            compiled.map_err(|problem| invalid(format!("`condition`: {problem}")))?;
        }
        let mut grants: Vec<Grant> = Vec::new();
        for decision in decisions {
            if !decision.approved {
                return Err(invalid("only approved steps can be granted".to_owned()));
            }
            let Some(call) = self.call(decision.call_id) else { continue };
            let Some(tool) = self.tool(&call.tool) else { continue };
            if tool.risk == Risk::Critical {
                let problem = format!("{} is critical and can't be granted", tool.name);
                return Err(invalid(problem));
            }
            let (name, server) = (tool.name.to_string(), tool.server.to_string());
            if grants.iter().any(|grant| grant.tool == name) {
                continue;
            }
            grants.push(Grant {
                grant_id: GrantId(self.env.uuid()),
                tool: name,
                server,
                condition: condition.clone(),
                by: granted_by.clone(),
                at: self.env.now,
            });
        }
        if self.active.grants.len() + grants.len() > GRANTS_MAX {
            return Err(invalid(format!("the limit is {GRANTS_MAX} grants per session")));
        }
        Ok(grants)
    }

    pub(super) fn decide_revoke_grants(
        &mut self,
        requested: Option<GrantId>,
        revoked_by: &UserId,
    ) -> Result<Reply, Rejection> {
        let is_requested = |grant: &&Grant| requested.is_none_or(|id| grant.grant_id == id);
        let revoked: Vec<_> =
            self.active.grants.iter().filter(is_requested).map(|grant| grant.grant_id).collect();
        if let Some(grant_id) = requested.filter(|_| revoked.is_empty()) {
            return Err(Rejection::UnknownGrant { grant_id });
        }
        for grant_id in revoked {
            let by = revoked_by.clone();
            self.emit_for(None, None, SessionEvent::GrantRevoked { grant_id, by });
        }
        Ok(Reply::Done)
    }
}
