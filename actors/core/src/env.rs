//! What a decision needs from outside: the time, fresh ids, and the rules in force.

use crate::{
    agent::AgentProfile,
    budget::UserSpending,
    call::RetryPolicy,
    context::ContextConfig,
    delegation::{Parent, is_delegate},
    limits,
    policy::{Matrix, Tool, ToolRegistry},
    time::Timestamp,
    usage::ModelPrice,
};
use std::{cell::Cell, collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// The rules a session decides by. Replaced as a whole when configuration or tools change.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The session's agent.
    pub agent: Arc<AgentProfile>,
    /// Autonomy × risk.
    pub matrix: Arc<Matrix>,
    /// The tools there are.
    pub tools: Arc<ToolRegistry>,
    /// The tool `delegate` as this agent has it, with the agents it may name (S8).
    pub delegate: Option<Arc<Tool>>,
    /// Children of one run that work at once.
    pub children_max: usize,
    /// Sessions below one that people started.
    pub delegation_depth_max: u32,
    /// Calls of one session that run at once.
    pub parallel_calls_max: usize,
    /// Messages that may wait behind a run.
    pub queued_messages_max: usize,
    /// How failed model calls are tried again (M3).
    pub model_retry: RetryPolicy,
    /// What models cost, by their names in configuration; of others the price is unknown (M6).
    pub prices: Arc<BTreeMap<String, ModelPrice>>,
    /// What models are told beside the conversation.
    pub context: ContextConfig,
}

impl Rules {
    /// Default rules for `agent` with these tools.
    pub fn new(agent: Arc<AgentProfile>, matrix: Arc<Matrix>, tools: Arc<ToolRegistry>) -> Self {
        Self {
            agent,
            matrix,
            tools,
            delegate: None,
            children_max: limits::CHILDREN_PER_RUN_DEFAULT,
            delegation_depth_max: limits::DELEGATION_DEPTH_DEFAULT,
            parallel_calls_max: limits::PARALLEL_CALLS_DEFAULT,
            queued_messages_max: limits::QUEUED_MESSAGES_MAX,
            model_retry: RetryPolicy::default(),
            prices: Arc::default(),
            context: ContextConfig::default(),
        }
    }

    /// The same for a child: within its bounds, and handing on no tasks where it is deep enough.
    #[must_use]
    pub fn for_child(mut self, parent: &Parent) -> Self {
        let mut profile = parent.bounds.apply_to(&self.agent);
        if parent.depth >= self.delegation_depth_max {
            profile.delegates.clear();
        }
        self.agent = Arc::new(profile);
        self
    }

    /// The tool of that name.
    pub fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tools.get(name).map(|tool| self.agent_tool(tool))
    }

    /// All tools, by name.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.iter().map(|tool| self.agent_tool(tool))
    }

    /// The tool as this agent has it.
    fn agent_tool<'a>(&'a self, tool: &'a Arc<Tool>) -> &'a Arc<Tool> {
        self.delegate.as_ref().filter(|_| is_delegate(tool)).unwrap_or(tool)
    }

    /// The bytes of `tool` as a model is shown it.
    pub fn declared_bytes(&self, tool: &Tool) -> u64 {
        if is_delegate(tool) { tool.declared_bytes() } else { self.tools.declared_bytes(tool) }
    }
}

/// Time, ids and rules for one decision. The same `now`, `seed` and rules decide the same.
#[derive(Debug)]
pub struct Env<'a> {
    /// The time of the decision; its events carry it.
    pub now: Timestamp,
    /// The rules in force.
    pub rules: &'a Rules,
    /// What the session's user may spend and has spent, where that matters.
    pub user_spending: UserSpending,
    /// Whether the process is about to end: what has begun may come to its end, and nothing more
    /// begins (D8).
    pub is_draining: bool,
    seed: u64,
    drawn: Cell<u64>,
}

impl<'a> Env<'a> {
    /// `seed` must be unpredictable and fresh for every decision outside of tests.
    pub fn new(now: Timestamp, seed: u64, rules: &'a Rules) -> Self {
        let user_spending = UserSpending::default();
        Self { now, rules, user_spending, is_draining: false, seed, drawn: Cell::new(0) }
    }

    /// The same, with what the session's user may spend and has spent.
    #[must_use]
    pub fn with_user_spending(self, account: UserSpending) -> Self {
        Self { user_spending: account, ..self }
    }

    /// The same, of a process that is about to end, or is not.
    #[must_use]
    pub fn with_draining(self, is_draining: bool) -> Self {
        Self { is_draining, ..self }
    }

    /// A fresh id, sortable by time (UUID version 7).
    pub fn uuid(&self) -> Uuid {
        let millis = u128::try_from(self.now.0).unwrap_or(0) & 0xFFFF_FFFF_FFFF;
        let random = (u128::from(self.draw()) << 64) | u128::from(self.draw());
        let mut bits = (millis << 80) | (random & 0xFFFF_FFFF_FFFF_FFFF_FFFF);
        bits = (bits & !(0xF << 76)) | (0x7 << 76);
        bits = (bits & !(0x3 << 62)) | (0x2 << 62);
        Uuid::from_u128(bits)
    }

    /// A number in 0..1, for jitter.
    pub fn random_fraction(&self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// SplitMix64 over the seed: plenty to spread ids and delays, no more is asked of it.
    fn draw(&self) -> u64 {
        let count = self.drawn.get() + 1;
        self.drawn.set(count);
        let mut z = self.seed.wrapping_add(count.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
