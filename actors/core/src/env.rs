//! The inputs of a decision from outside the session: time, fresh ids, and the rules in force.

use crate::{
    agent::AgentProfile,
    budget::UserSpending,
    call::RetryPolicy,
    context::ContextConfig,
    delegation::{Parent, is_delegate},
    limits,
    model::request::MessageLimits,
    policy::{Ceilings, CriticalRule, Matrix, Tool, ToolRegistry, Units},
    time::Timestamp,
    usage::ModelPrice,
};
use std::{cell::Cell, collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// The rules for the decisions of a session. Replaced as a whole when configuration or tools
/// change.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The session's agent.
    pub agent: Arc<AgentProfile>,
    /// The policy table, autonomy × risk.
    pub matrix: Arc<Matrix>,
    /// The ceilings in force (G17).
    pub ceilings: Arc<Ceilings>,
    /// The rule for critical calls (G12).
    pub critical: CriticalRule,
    /// All tools.
    pub tools: Arc<ToolRegistry>,
    /// The tool `delegate` of this agent, with the agents to which it may delegate (S8).
    pub delegate: Option<Arc<Tool>>,
    /// Maximum number of children of one run that work at the same time.
    pub children_max: usize,
    /// Maximum depth of child sessions below a root session.
    pub delegation_depth_max: u32,
    /// Maximum number of calls of one session that run at the same time.
    pub parallel_calls_max: usize,
    /// Maximum number of messages that wait behind a run.
    pub queued_messages_max: usize,
    /// Limits of one message of the model.
    pub message_limits: MessageLimits,
    /// The retry policy of model calls (M3).
    pub model_retry: RetryPolicy,
    /// The prices of models, by their names in configuration. The price of an absent model is
    /// unknown (M6).
    pub prices: Arc<BTreeMap<String, ModelPrice>>,
    /// The units of costs and their decimals.
    pub units: Arc<Units>,
    /// The configuration of the context that requests contain in addition to the conversation.
    pub context: ContextConfig,
}

impl Rules {
    /// Creates default rules for `agent` with these tools.
    pub fn new(agent: Arc<AgentProfile>, matrix: Arc<Matrix>, tools: Arc<ToolRegistry>) -> Self {
        Self {
            agent,
            matrix,
            ceilings: Arc::default(),
            critical: CriticalRule::default(),
            tools,
            delegate: None,
            children_max: limits::CHILDREN_PER_RUN_DEFAULT,
            delegation_depth_max: limits::DELEGATION_DEPTH_DEFAULT,
            parallel_calls_max: limits::PARALLEL_CALLS_DEFAULT,
            queued_messages_max: limits::QUEUED_MESSAGES_MAX,
            message_limits: MessageLimits::default(),
            model_retry: RetryPolicy::default(),
            prices: Arc::default(),
            units: Arc::default(),
            context: ContextConfig::default(),
        }
    }

    /// Returns the rules of a child: within its bounds, and without delegation at the maximum
    /// depth.
    #[must_use]
    pub fn for_child(mut self, parent: &Parent) -> Self {
        let mut profile = parent.bounds.apply_to(&self.agent);
        if parent.depth >= self.delegation_depth_max {
            profile.delegates.clear();
        }
        self.agent = Arc::new(profile);
        self
    }

    /// Returns the tool of that name.
    pub fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tools.get(name).map(|tool| self.agent_tool(tool))
    }

    /// Iterates over all tools, ordered by name.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.iter().map(|tool| self.agent_tool(tool))
    }

    /// Returns the agent's own variant of the tool, if there is one.
    fn agent_tool<'a>(&'a self, tool: &'a Arc<Tool>) -> &'a Arc<Tool> {
        self.delegate.as_ref().filter(|_| is_delegate(tool)).unwrap_or(tool)
    }

    /// Returns the size of the declaration of `tool` in a model request, in bytes.
    pub fn declared_bytes(&self, tool: &Tool) -> u64 {
        if is_delegate(tool) { tool.declared_bytes() } else { self.tools.declared_bytes(tool) }
    }
}

/// The time, ids and rules of one decision. The same `now`, `seed` and rules lead to the same
/// decision.
#[derive(Debug)]
pub struct Env<'a> {
    /// The time of the decision and of its events.
    pub now: Timestamp,
    /// The rules in force.
    pub rules: &'a Rules,
    /// The spending and the limit of the session's user, if the decision needs them.
    pub user_spending: UserSpending,
    /// True if the process is draining: running work may finish, but no new work starts (D8).
    pub is_draining: bool,
    seed: u64,
    draw_count: Cell<u64>,
}

impl<'a> Env<'a> {
    /// Creates an environment. Outside of tests, `seed` must be unpredictable and fresh for every
    /// decision.
    pub fn new(now: Timestamp, seed: u64, rules: &'a Rules) -> Self {
        let user_spending = UserSpending::default();
        Self { now, rules, user_spending, is_draining: false, seed, draw_count: Cell::new(0) }
    }

    /// Returns the environment with the spending of the session's user.
    #[must_use]
    pub fn with_user_spending(self, user_spending: UserSpending) -> Self {
        Self { user_spending, ..self }
    }

    /// Returns the environment with the given draining state.
    #[must_use]
    pub fn with_draining(self, is_draining: bool) -> Self {
        Self { is_draining, ..self }
    }

    /// Generates a fresh id, sortable by time (UUID version 7).
    pub fn uuid(&self) -> Uuid {
        let millis = u128::try_from(self.now.0).unwrap_or(0) & 0xFFFF_FFFF_FFFF;
        let random = (u128::from(self.draw()) << 64) | u128::from(self.draw());
        let mut bits = (millis << 80) | (random & 0xFFFF_FFFF_FFFF_FFFF_FFFF);
        bits = (bits & !(0xF << 76)) | (0x7 << 76);
        bits = (bits & !(0x3 << 62)) | (0x2 << 62);
        Uuid::from_u128(bits)
    }

    /// Returns a random number in 0..1, for jitter.
    pub fn random_fraction(&self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns the next number of SplitMix64 over the seed, which is sufficient to spread ids and
    /// delays.
    fn draw(&self) -> u64 {
        let count = self.draw_count.get() + 1;
        self.draw_count.set(count);
        let mut z = self.seed.wrapping_add(count.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
