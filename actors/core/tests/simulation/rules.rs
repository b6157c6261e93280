//! Rules of every kind: agents, tables and tools.

use crate::chance::Chance;
use greenroom_core::{
    agent::AgentProfile,
    call::RetryPolicy,
    env::Rules,
    ids::{AgentName, ToolName},
    policy::{Autonomy, Preset, Risk, RiskSource, Settings, Tool, ToolBook, schema},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

pub(crate) fn agent_name() -> AgentName {
    AgentName::parse("trader").expect("it is short")
}

/// Rules drawn by chance.
pub(crate) fn draw(chance: &mut Chance) -> Rules {
    let mut agent = AgentProfile::named(agent_name());
    agent.models = vec!["small".to_owned()];
    agent.max_steps = *chance.pick(&[1, 2, 3, 5]);
    agent.headless = chance.one_in(8);
    agent.approval_deadline =
        *chance.pick(&[None, Some(Duration::from_secs(60)), Some(Duration::ZERO)]);
    let preset = *chance.pick(&Preset::ALL);
    let retries_max = *chance.pick(&[0, 1, 3]);
    let tools = Arc::new(book(retries_max, false));
    let mut rules = Rules::new(Arc::new(agent), Arc::new(preset.into()), tools);
    rules.parallel_calls_max = *chance.pick(&[1, 2, 3, 8]);
    rules.queued_messages_max = *chance.pick(&[0, 1, 4]);
    rules.model_retry.retries_max = *chance.pick(&[0, 1, 3]);
    rules
}

/// The tools; `fewer` as after a server went away.
pub(crate) fn book(retries_max: u32, fewer: bool) -> ToolBook {
    let tools = [
        ("read", Risk::ReadOnly, true, true),
        ("read_guessed", Risk::ReadOnly, false, true),
        ("low", Risk::WriteLowRisk, false, false),
        ("high", Risk::WriteHighRisk, false, false),
        ("high_again", Risk::WriteHighRisk, true, false),
        ("high_beside", Risk::WriteHighRisk, false, true),
        ("critical", Risk::Critical, false, false),
        ("strict", Risk::ReadOnly, true, true),
    ];
    let kept = if fewer { 3 } else { tools.len() };
    ToolBook::new(tools.into_iter().take(kept).map(|(name, risk, repeatable, parallel)| {
        let input_schema = match name {
            "strict" => json!({"type": "object", "required": ["n"]}),
            _ => json!({"type": "object"}),
        };
        Tool {
            name: ToolName::parse(name).expect("it is short"),
            server: "market".to_owned(),
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
            unavailable: None,
            denied: None,
            constraints: Vec::new(),
            cost: None,
            exclusive: None,
        }
    }))
}

/// What models call: tools that are there, and things that are not.
pub(crate) const CALLED: [&str; 10] = [
    "read",
    "read_guessed",
    "low",
    "high",
    "high_again",
    "high_beside",
    "critical",
    "strict",
    "nothing_like_it",
    "\u{202e}\u{0}",
];

pub(crate) fn settings(chance: &mut Chance) -> Settings {
    let mut settings = Settings {
        autonomy_level: *chance.pick(&Autonomy::ALL),
        require_confirmation: chance.one_in(2),
        ..Settings::default()
    };
    if chance.one_in(4) {
        let blocked = ToolName::parse(CALLED[chance.below(8)]).expect("it is short");
        settings.blocked_tools.insert(blocked);
    }
    settings
}
