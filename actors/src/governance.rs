//! The rules sessions decide by, put together from configuration and the tools there are now.

use crate::ports::ToolHost;
use greenroom_core::{
    Rules, agent::AgentProfile, call::RetryPolicy, ids::AgentName, limits, policy::Matrix,
    usage::Price,
};
use std::{collections::BTreeMap, sync::Arc};

/// What configuration says of agents and policy.
#[derive(Clone, Debug)]
pub struct Governance {
    /// The agent profiles.
    pub agents: BTreeMap<AgentName, Arc<AgentProfile>>,
    /// Autonomy × risk.
    pub matrix: Arc<Matrix>,
    /// Calls of one session that run at once.
    pub parallel_calls_max: usize,
    /// Messages that may wait behind a run.
    pub queued_messages_max: usize,
    /// How failed model calls are tried again.
    pub model_retry: RetryPolicy,
    /// What models cost, by their names in configuration.
    pub prices: Arc<BTreeMap<String, Price>>,
    /// Texts that a model must not say: they are taken out as they come (E7).
    pub secrets: Arc<[String]>,
}

impl Governance {
    /// These agents under that matrix, with default limits.
    pub fn new(agents: impl IntoIterator<Item = AgentProfile>, matrix: Matrix) -> Self {
        let agents =
            agents.into_iter().map(|agent| (agent.name.clone(), Arc::new(agent))).collect();
        Self {
            agents,
            matrix: Arc::new(matrix),
            parallel_calls_max: limits::PARALLEL_CALLS_DEFAULT,
            queued_messages_max: limits::QUEUED_MESSAGES_MAX,
            model_retry: RetryPolicy::default(),
            prices: Arc::default(),
            secrets: Arc::default(),
        }
    }

    /// The rules for a session of `agent` now. An agent that configuration no longer has keeps
    /// its sessions readable, but without tools.
    pub fn rules(&self, agent: &AgentName, tools: &dyn ToolHost) -> Rules {
        let profile = self.agents.get(agent).cloned().unwrap_or_else(|| {
            let tools = Vec::new();
            Arc::new(AgentProfile { tools, ..AgentProfile::named(agent.clone()) })
        });
        Rules {
            agent: profile,
            matrix: self.matrix.clone(),
            tools: tools.book(),
            parallel_calls_max: self.parallel_calls_max,
            queued_messages_max: self.queued_messages_max,
            model_retry: self.model_retry,
            prices: self.prices.clone(),
        }
    }
}
