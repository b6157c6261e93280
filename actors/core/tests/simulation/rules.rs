//! Random rules: agents, policy tables and tools.

use crate::rng::SeededRng;
use greenroom_core::{
    agent::AgentProfile,
    approval::{ApprovalDeadlines, DeadlineAction, DeadlineRule, Role},
    budget::{Budget, BudgetMeasure, BudgetScope},
    call::RetryPolicy,
    context::StartedWorkflow,
    delegation,
    env::Rules,
    ids::{AgentName, ToolName, UserId},
    policy::{
        Autonomy, BUILT_IN_SERVER, BudgetLimit, BudgetPeriod, Catalog, Ceiling, Ceilings, CostRule,
        CriticalRule, Expression, MatrixPreset, Risk, RiskSource, ServerProfile, Settings, Tool,
        ToolRegistry, schema,
    },
    trace_context::TraceContext,
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

pub(crate) fn agent_name() -> AgentName {
    AgentName::parse("trader").expect("the name is valid")
}

/// Creates random rules.
pub(crate) fn random_rules(chance: &mut SeededRng) -> Rules {
    let mut agent = AgentProfile::new(agent_name());
    agent.models = vec!["small".to_owned(), "spare".to_owned()];
    agent.max_steps = *chance.pick(&[1, 2, 3, 5]);
    agent.headless = chance.one_in(8);
    agent.approval_deadlines = approval_deadlines(chance);
    agent.budgets = budgets(chance);
    let preset = *chance.pick(&MatrixPreset::ALL);
    let retries_max = *chance.pick(&[0, 1, 3]);
    let tools = Arc::new(build_registry(retries_max, ServerSet::All));
    let mut rules = Rules::new(Arc::new(agent), Arc::new(preset.into()), tools);
    rules.context.compact_at = *chance.pick(&[None, Some(1), Some(70)]);
    rules.context.context_windows =
        Arc::new(["small", "spare"].map(|model| (model.to_owned(), 1)).into());
    rules.parallel_calls_max = *chance.pick(&[1, 2, 3, 8]);
    rules.queued_messages_max = *chance.pick(&[0, 1, 4]);
    rules.model_retry.retries_max = *chance.pick(&[0, 1, 3]);
    rules.critical = critical_rule(chance);
    rules
}

/// Creates a random rule for critical calls; often none (G12).
pub(crate) fn critical_rule(chance: &mut SeededRng) -> CriticalRule {
    let min_role = *chance.pick(&[None, None, Some(Role::Approver)]);
    CriticalRule { min_role, four_eyes: chance.one_in(2) }
}

/// Unit of the tools' costs.
pub(crate) const UNIT: &str = "gold";
/// Tools that have a cost for all arguments.
pub(crate) const COSTLY_TOOLS: [&str; 3] = ["low", "high", "critical"];

/// Creates budgets of random scopes and measures, often with small limits.
fn budgets(chance: &mut SeededRng) -> Vec<Budget> {
    let mut budgets = Vec::new();
    for scope in [BudgetScope::Run, BudgetScope::Session, BudgetScope::User] {
        for measure in [BudgetMeasure::Tokens, BudgetMeasure::Usd, BudgetMeasure::from_unit(UNIT)] {
            if chance.one_in(8) {
                let limit = (*chance.pick(&[1, 20, 1000])).into();
                let period = match scope {
                    BudgetScope::Run | BudgetScope::Session => BudgetPeriod::Total,
                    // Only children have it.
                    BudgetScope::Parent => continue,
                    BudgetScope::User => {
                        *chance.pick(&[BudgetPeriod::Day, BudgetPeriod::Month, BudgetPeriod::Total])
                    }
                };
                budgets.push(Budget { scope, period, measure, limit });
            }
        }
    }
    budgets
}

/// Creates a random spending limit of a user, or none.
pub(crate) fn budget_limit(chance: &mut SeededRng) -> Option<BudgetLimit> {
    let amount = (*chance.pick(&[1, 5, 100])).into();
    let limit = BudgetLimit { amount, unit: UNIT.to_owned(), period: BudgetPeriod::Total };
    chance.one_in(3).then_some(limit)
}

/// Creates random ceilings that apply to the session or to other sessions (G17).
pub(crate) fn ceilings(chance: &mut SeededRng) -> Ceilings {
    let (user, approver) = (ceiling(chance), ceiling(chance));
    let agent = if chance.one_in(2) { "trader" } else { "writer" };
    let owner = if chance.one_in(2) { "ann" } else { "bob" };
    let agent = AgentName::parse(agent).expect("the name is valid");
    let owner = UserId::parse(owner).expect("the id is valid");
    Ceilings {
        installation: ceiling(chance),
        roles: [(Role::User, user), (Role::Approver, approver)].into(),
        agents: [(agent, ceiling(chance))].into(),
        users: [(owner, ceiling(chance))].into(),
    }
}

fn ceiling(chance: &mut SeededRng) -> Ceiling {
    let blocked = ["hi*", "low", "crit*l", "alone*", "read"].map(ToolName::parse);
    let blocked = chance.pick(&blocked).clone().expect("the name is valid");
    Ceiling {
        autonomy_level: chance.one_in(3).then(|| *chance.pick(&Autonomy::ALL)),
        require_confirmation: chance.one_in(3).then(|| chance.one_in(2)),
        allowed_regions: None,
        budget_limits: budget_limit(chance).into_iter().collect(),
        blocked_tools: chance.one_in(4).then_some(blocked).into_iter().collect(),
    }
}

/// Creates random deadline rules.
fn approval_deadlines(chance: &mut SeededRng) -> ApprovalDeadlines {
    let deadline =
        *chance.pick(&[None, Some(Duration::from_secs(60)), Some(Duration::from_millis(1))]);
    let escalate = |within_ms| DeadlineAction::Escalate { to: Role::Approver, within_ms };
    let choices = [
        DeadlineAction::Deny,
        DeadlineAction::Wait,
        escalate(None),
        escalate(Some(0)),
        escalate(Some(30_000)),
    ];
    ApprovalDeadlines::uniform(DeadlineRule { timeout: deadline, action: *chance.pick(&choices) })
}

/// The servers whose tools a registry contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerSet {
    /// Every server is connected.
    All,
    /// The tools of one disconnected server are missing.
    OneDisconnected,
}

/// Creates the tool registry.
pub(crate) fn build_registry(retries_max: u32, servers: ServerSet) -> ToolRegistry {
    ToolRegistry::new(tools(retries_max, servers))
}

/// Creates the registry of all tools and the `delegate` tool (S8).
pub(crate) fn build_registry_with_delegate(retries_max: u32) -> ToolRegistry {
    let server =
        ServerProfile { name: BUILT_IN_SERVER.to_owned(), trusted: true, unavailable_reason: None };
    let name = ToolName::parse(delegation::DELEGATE_TOOL).expect("the name is valid");
    let delegate = Catalog::default().resolve_tool(&server, &delegation::delegate_tool([]), name);
    ToolRegistry::new(tools(retries_max, ServerSet::All).into_iter().chain([delegate]))
}

fn tools(retries_max: u32, servers: ServerSet) -> Vec<Tool> {
    let tools = [
        ("read", Risk::ReadOnly, true, true),
        ("read_guessed", Risk::ReadOnly, false, true),
        ("low", Risk::WriteLowRisk, false, false),
        ("high", Risk::WriteHighRisk, false, false),
        ("high_again", Risk::WriteHighRisk, true, false),
        ("high_beside", Risk::WriteHighRisk, false, true),
        ("critical", Risk::Critical, false, false),
        ("strict", Risk::ReadOnly, true, true),
        ("alone", Risk::WriteLowRisk, false, false),
        ("alone_beside", Risk::WriteHighRisk, true, true),
        ("alone_read", Risk::ReadOnly, true, true),
    ];
    // Exclusive tools are kept: a removed tool has no lock key and its attempts are not sent.
    let is_included = |(index, (name, ..)): &(usize, (&str, Risk, bool, bool))| {
        servers == ServerSet::All || *index < 3 || name.starts_with("alone")
    };
    let tools = tools.into_iter().enumerate().filter(is_included).map(|(_, tool)| tool);
    let tools = tools.map(|(name, risk, repeatable, parallel)| {
        let input_schema = match name {
            "strict" => json!({"type": "object", "required": ["n"]}),
            _ => json!({"type": "object"}),
        };
        Tool {
            name: ToolName::parse(name).expect("the name is valid"),
            server: "market".into(),
            remote_name: name.to_owned(),
            description: format!("does {name}"),
            validator: schema::compile(&input_schema),
            input_schema,
            risk,
            risk_source: RiskSource::Catalog,
            repeatable,
            parallel,
            timeout: None,
            result_bytes_max: 1024,
            retry: RetryPolicy { retries_max, ..RetryPolicy::default() },
            unavailable_reason: None,
            denial_reason: None,
            constraints: Vec::new(),
            cost: COSTLY_TOOLS.contains(&name).then(|| CostRule {
                amount: Expression::compile("has(args.n) ? args.n + 1 : 1").expect("it compiles"),
                unit: UNIT.to_owned(),
                decimals: 2,
            }),
            cache_ttl: None,
            exclusive: name.starts_with("alone").then(|| {
                let key = "has(args.text) && args.text == 'plain' ? 'wallet' : 'ledger'";
                Expression::compile(key).expect("it compiles")
            }),
        }
    });
    tools.collect()
}

/// Tool names that models call, including names that do not exist.
pub(crate) const CALLED_TOOLS: [&str; 13] = [
    "read",
    "read_guessed",
    "low",
    "high",
    "high_again",
    "high_beside",
    "critical",
    "strict",
    "alone",
    "alone_beside",
    "alone_read",
    "nothing_like_it",
    "\u{202e}\u{0}",
];

pub(crate) fn settings(chance: &mut SeededRng) -> Settings {
    let mut settings = Settings {
        autonomy_level: *chance.pick(&Autonomy::ALL),
        require_confirmation: chance.one_in(2),
        ..Settings::default()
    };
    if chance.one_in(4) {
        let blocked =
            ToolName::parse(CALLED_TOOLS[chance.next_below(8)]).expect("the name is valid");
        settings.blocked_tools.insert(blocked);
    }
    settings.budget_limit = budget_limit(chance);
    settings.preflight = chance.one_in(2);
    settings
}

/// Creates a workflow that randomly narrows the rights of its run.
pub(crate) fn workflow(chance: &mut SeededRng) -> Arc<StartedWorkflow> {
    let levels = [None, Some(Autonomy::ReadOnly), Some(Autonomy::Assisted)];
    Arc::new(StartedWorkflow {
        autonomy: *chance.pick(&levels),
        tools: chance.one_in(2).then(|| vec!["high*".to_owned(), "read".to_owned()]),
        preflight: chance.one_in(3),
        ..full_workflow()
    })
}

/// Creates the trace context of a message, or none.
pub(crate) fn traceparent(chance: &mut SeededRng) -> Option<TraceContext> {
    chance.one_in(4).then_some(TraceContext { trace_id: 7, span_id: 7 })
}

/// Creates a workflow with every field set.
pub(crate) fn full_workflow() -> StartedWorkflow {
    StartedWorkflow {
        name: "restock".to_owned(),
        inputs: [("n".to_owned(), 1.into())].into_iter().collect(),
        text: "Buy 1.".into(),
        tools: Some(vec!["*".to_owned()]),
        autonomy: Some(Autonomy::Supervised),
        preflight: false,
    }
}
