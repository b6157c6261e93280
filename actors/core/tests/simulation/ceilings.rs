//! Administrators who change ceilings at any time, and the invariant that ceilings hold (G17).

use crate::{
    rng::SeededRng,
    rules,
    session_simulation::{SessionSimulation, user},
};
use greenroom_core::{
    approval::Role,
    ids::{CallId, ToolName},
    policy::MatrixCell,
    text::glob_matches,
};
use std::sync::Arc;

impl SessionSimulation {
    /// G17: no attempt starts that the ceilings in force at its dispatch deny.
    pub(crate) fn check_ceiling(&self, call_id: CallId, tool: &str) {
        let Some(tool) = self.rules.tool(tool) else { return };
        let (owner, agent) = (user("ann"), rules::agent_name());
        let ceilings = &self.rules.ceilings;
        let applying = [
            Some(&ceilings.installation),
            ceilings.roles.get(&Role::User),
            ceilings.agents.get(&agent),
            ceilings.users.get(&owner),
        ];
        let settings = self.state.active.effective_settings();
        for ceiling in applying.into_iter().flatten() {
            let mut blocked = ceiling.blocked_tools.iter();
            let matches = |glob: &ToolName| glob_matches(glob.as_str(), tool.name.as_str());
            assert!(!blocked.any(matches), "G17: {} is blocked", tool.name);
            let level = ceiling.autonomy_level.unwrap_or(settings.autonomy_level);
            let level = level.min(settings.autonomy_level);
            let cell = self.rules.matrix.cell(level, tool.risk);
            assert_ne!(cell, MatrixCell::Deny, "G17: {} above {level}", tool.name);
            let run = self.state.active.run.as_ref().expect("the call has a run");
            let call = run.calls.iter().find(|call| call.call_id == call_id).expect("it exists");
            let Some(reservation) = &call.reservation else { continue };
            for limit in &ceiling.budget_limits {
                let (today, costs) = (self.now.day(), &self.state.active.tool_costs);
                let spent = self.spent_elsewhere + costs.spent(rules::UNIT, limit.period, today);
                assert!(
                    reservation.cost.is_zero() || spent <= limit.amount,
                    "G17: {spent} spent of {limit}"
                );
            }
        }
    }

    /// An administrator changes the ceilings.
    pub(crate) fn change_ceilings(&mut self, chance: &mut SeededRng) {
        self.rules.ceilings = Arc::new(rules::ceilings(chance));
    }
}
