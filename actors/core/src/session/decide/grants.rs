//! What a person's approval covers beyond the call it was asked for (G9).

use super::{DecisionBuilder, Rejection, Reply};
use crate::{
    approval::{Grant, GrantRequest, PlanStepDecision},
    ids::{GrantId, UserId},
    limits::GRANTS_MAX,
    policy::{Expression, Risk},
    session::SessionEvent,
};

impl DecisionBuilder<'_> {
    /// The grants that `wish` makes of the approved steps: one for each tool.
    pub(super) fn requested_grants(
        &self,
        wish: Option<&GrantRequest>,
        decisions: &[PlanStepDecision],
        by: &UserId,
    ) -> Result<Vec<Grant>, Rejection> {
        let Some(GrantRequest { condition }) = wish else { return Ok(Vec::new()) };
        let invalid = |problem: String| Rejection::InvalidGrant { problem };
        if let Some(condition) = condition {
            let compiled = Expression::compile(condition);
            compiled.map_err(|problem| invalid(format!("its condition: {problem}")))?;
        }
        let mut grants: Vec<Grant> = Vec::new();
        for decision in decisions {
            if !decision.approved {
                return Err(invalid("only approvals hold for later calls".to_owned()));
            }
            let Some(call) = self.call(decision.call_id) else { continue };
            let Some(tool) = self.tool(&call.tool) else { continue };
            if tool.risk == Risk::Critical {
                let problem = format!("{} is critical, and is asked for each time", tool.name);
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
                by: by.clone(),
                at: self.env.now,
            });
        }
        if self.active.grants.len() + grants.len() > GRANTS_MAX {
            return Err(invalid(format!("the session has {GRANTS_MAX} grants already")));
        }
        Ok(grants)
    }

    pub(super) fn decide_revoke_grants(
        &mut self,
        wanted: Option<GrantId>,
        by: &UserId,
    ) -> Result<Reply, Rejection> {
        let named = |grant: &&Grant| wanted.is_none_or(|grant_id| grant.grant_id == grant_id);
        let revoked: Vec<_> =
            self.active.grants.iter().filter(named).map(|grant| grant.grant_id).collect();
        if let Some(grant_id) = wanted.filter(|_| revoked.is_empty()) {
            return Err(Rejection::UnknownGrant { grant_id });
        }
        for grant_id in revoked {
            let by = by.clone();
            self.emit_for(None, None, SessionEvent::GrantRevoked { grant_id, by });
        }
        Ok(Reply::Done)
    }
}
