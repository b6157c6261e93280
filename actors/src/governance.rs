//! The rules sessions decide by, put together from configuration and the tools there are now.

use crate::ports::ToolHost;
use greenroom_core::{
    Rules,
    agent::AgentProfile,
    call::RetryPolicy,
    context::{ContextConfig, SkillRegistry},
    delegation::Parent,
    ids::AgentName,
    limits,
    policy::{Matrix, Settings, Tool},
    usage::ModelPrice,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

/// Something that is replaced as a whole while others read it. Clones share it.
#[derive(Debug, Default)]
pub struct ArcCell<T>(Arc<RwLock<Arc<T>>>);

impl<T> Clone for ArcCell<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> ArcCell<T> {
    /// As it is now.
    pub fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces it.
    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

/// What configuration says of agents and policy.
#[derive(Clone, Debug)]
pub struct Governance {
    /// The agent profiles.
    pub agents: BTreeMap<AgentName, Arc<AgentProfile>>,
    /// Autonomy × risk.
    pub matrix: Arc<Matrix>,
    /// What users allow who have stored no settings (G4).
    pub default_settings: Arc<Settings>,
    /// Calls of one session that run at once.
    pub parallel_calls_max: usize,
    /// The tool `delegate` of each agent that has it, with the agents it may name (S8).
    pub delegate_tools: Arc<BTreeMap<AgentName, Arc<Tool>>>,
    /// Children of one run that work at once.
    pub children_max: usize,
    /// Sessions below one that people started.
    pub delegation_depth_max: u32,
    /// Messages that may wait behind a run.
    pub queued_messages_max: usize,
    /// How failed model calls are tried again.
    pub model_retry: RetryPolicy,
    /// What models cost, by their names in configuration.
    pub prices: Arc<BTreeMap<String, ModelPrice>>,
    /// What every agent is told, before its own prompt.
    pub system: Arc<str>,
    /// The tokens that models' contexts hold, by their names in configuration.
    pub context_windows: Arc<BTreeMap<String, u64>>,
    /// Percent of a conversation's room at which its older part is summarised; `None` is never.
    pub compact_at: Option<u8>,
    /// The skills there are now.
    pub skills: ArcCell<SkillRegistry>,
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
            default_settings: Arc::default(),
            parallel_calls_max: limits::PARALLEL_CALLS_DEFAULT,
            delegate_tools: Arc::default(),
            children_max: limits::CHILDREN_PER_RUN_DEFAULT,
            delegation_depth_max: limits::DELEGATION_DEPTH_DEFAULT,
            queued_messages_max: limits::QUEUED_MESSAGES_MAX,
            model_retry: RetryPolicy::default(),
            prices: Arc::default(),
            system: Arc::from(""),
            context_windows: Arc::default(),
            compact_at: Some(limits::COMPACT_AT_DEFAULT),
            skills: ArcCell::default(),
            secrets: Arc::default(),
        }
    }

    /// Whether what models cost counts for users, whatever agent they use: some agent limits it (G6).
    pub fn has_user_model_budget(&self) -> bool {
        self.agents.values().any(|agent| agent.has_user_model_budget())
    }

    /// The rules for a session of `agent` now, which `parent` started if there is one. An agent that configuration no longer has keeps
    /// its sessions readable, but without tools.
    pub fn rules(&self, agent: &AgentName, parent: Option<&Parent>, tools: &dyn ToolHost) -> Rules {
        let profile = self.agents.get(agent).cloned().unwrap_or_else(|| {
            let tools = Vec::new();
            Arc::new(AgentProfile { tools, ..AgentProfile::new(agent.clone()) })
        });
        let rules = Rules {
            agent: profile,
            matrix: self.matrix.clone(),
            tools: tools.tool_registry(),
            delegate: self.delegate_tools.get(agent).cloned(),
            children_max: self.children_max,
            delegation_depth_max: self.delegation_depth_max,
            parallel_calls_max: self.parallel_calls_max,
            queued_messages_max: self.queued_messages_max,
            model_retry: self.model_retry,
            prices: self.prices.clone(),
            context: ContextConfig {
                system: self.system.clone(),
                context_windows: self.context_windows.clone(),
                skills: self.skills.get(),
                compact_at: self.compact_at,
            },
        };
        match parent {
            Some(parent) => rules.for_child(parent),
            None => rules,
        }
    }
}
