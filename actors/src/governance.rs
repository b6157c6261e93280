//! The rules that sessions decide by, assembled from configuration and the connected tools.

use crate::ports::ToolHost;
use greenroom_core::{
    Rules,
    agent::AgentProfile,
    call::RetryPolicy,
    context::{ContextConfig, SkillRegistry},
    delegation::Parent,
    ids::AgentName,
    limits,
    model::request::MessageLimits,
    policy::{Ceilings, CriticalRule, Matrix, Settings, Tool, Units},
    usage::ModelPrice,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

/// A value that is replaced as a whole while others read it. Clones share the value.
#[derive(Debug, Default)]
pub struct ArcCell<T>(Arc<RwLock<Arc<T>>>);

impl<T> Clone for ArcCell<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> ArcCell<T> {
    /// Creates a cell with this value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(value))))
    }

    /// Returns the current value.
    pub fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

/// The configuration of agents and policy.
#[derive(Clone, Debug)]
pub struct Governance {
    /// The agent profiles, by name.
    pub agents: BTreeMap<AgentName, Arc<AgentProfile>>,
    /// The policy matrix: autonomy × risk.
    pub matrix: Arc<Matrix>,
    /// The ceilings in force, replaced as a whole when an administrator changes them (G17).
    pub ceilings: ArcCell<Ceilings>,
    /// The rule for critical calls (G12).
    pub critical: CriticalRule,
    /// The settings of users who have not stored any (G4).
    pub default_settings: Arc<Settings>,
    /// Maximum number of calls of one session that run in parallel.
    pub parallel_calls_max: usize,
    /// The `delegate` tool of each agent that has one, with the agents it may delegate to (S8).
    pub delegate_tools: Arc<BTreeMap<AgentName, Arc<Tool>>>,
    /// Maximum number of child sessions of one run that work in parallel.
    pub children_max: usize,
    /// Maximum depth of child sessions below a root.
    pub delegation_depth_max: u32,
    /// Maximum number of messages queued behind a run.
    pub queued_messages_max: usize,
    /// Limits of one message of the model.
    pub message_limits: MessageLimits,
    /// The retry policy of failed model calls.
    pub model_retry: RetryPolicy,
    /// The prices of models, by the model's name in configuration.
    pub prices: Arc<BTreeMap<String, ModelPrice>>,
    /// The units of costs and their decimals.
    pub units: Arc<Units>,
    /// The text that precedes every agent's system prompt.
    pub system: Arc<str>,
    /// The context windows of models in tokens, by the model's name in configuration.
    pub context_windows: Arc<BTreeMap<String, u64>>,
    /// The percentage of the context at which the older part of a session is compacted; `None` for
    /// never.
    pub compact_at: Option<u8>,
    /// The skills that are available now.
    pub skills: ArcCell<SkillRegistry>,
    /// Secrets that are removed from model output while it is streamed (E7).
    pub secrets: Arc<[String]>,
}

impl Governance {
    /// Creates a governance with these agents and this matrix, and default limits.
    pub fn new(agents: impl IntoIterator<Item = AgentProfile>, matrix: Matrix) -> Self {
        let agents =
            agents.into_iter().map(|agent| (agent.name.clone(), Arc::new(agent))).collect();
        Self {
            agents,
            matrix: Arc::new(matrix),
            ceilings: ArcCell::default(),
            critical: CriticalRule::default(),
            default_settings: Arc::default(),
            parallel_calls_max: limits::PARALLEL_CALLS_DEFAULT,
            delegate_tools: Arc::default(),
            children_max: limits::CHILDREN_PER_RUN_DEFAULT,
            delegation_depth_max: limits::DELEGATION_DEPTH_DEFAULT,
            queued_messages_max: limits::QUEUED_MESSAGES_MAX,
            message_limits: MessageLimits::default(),
            model_retry: RetryPolicy::default(),
            prices: Arc::default(),
            units: Arc::default(),
            system: Arc::from(""),
            context_windows: Arc::default(),
            compact_at: Some(limits::COMPACT_AT_DEFAULT),
            skills: ArcCell::default(),
            secrets: Arc::default(),
        }
    }

    /// True if any agent limits the model costs of a user. Costs then count for all agents (G6).
    pub fn has_user_model_budget(&self) -> bool {
        self.agents.values().any(|agent| agent.has_user_model_budget())
    }

    /// Returns the current rules for a session of `agent`, restricted by `parent` for a child
    /// session. If the agent is no longer configured, its sessions stay readable but have no tools.
    pub fn rules(&self, agent: &AgentName, parent: Option<&Parent>, tools: &dyn ToolHost) -> Rules {
        let profile = self.agents.get(agent).cloned().unwrap_or_else(|| {
            let tools = Vec::new();
            Arc::new(AgentProfile { tools, ..AgentProfile::new(agent.clone()) })
        });
        let rules = Rules {
            agent: profile,
            matrix: self.matrix.clone(),
            ceilings: self.ceilings.get(),
            critical: self.critical,
            tools: tools.tool_registry(),
            delegate: self.delegate_tools.get(agent).cloned(),
            children_max: self.children_max,
            delegation_depth_max: self.delegation_depth_max,
            parallel_calls_max: self.parallel_calls_max,
            queued_messages_max: self.queued_messages_max,
            message_limits: self.message_limits,
            model_retry: self.model_retry,
            prices: self.prices.clone(),
            units: self.units.clone(),
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
