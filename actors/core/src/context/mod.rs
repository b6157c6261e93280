//! What the model is told: the request for a step, assembled from its parts (C1).

use crate::{
    env::Rules,
    message::Message,
    model::request::ModelRequest,
    policy::Tool,
    preflight::{self, SUBMIT_PLAN},
    session::{Run, SessionState},
};
use std::sync::Arc;

/// The request for the step that is going. `model` is the name configuration gives it.
///
/// Tools come in the order of their names and the conversation only grows, so that providers'
/// prompt caches hit.
pub fn assemble(state: &SessionState, rules: &Rules, model: String) -> ModelRequest {
    let agent = &rules.agent;
    let offered =
        |tool: &&Arc<Tool>| tool.unavailable.is_none() && agent.may_use(tool.name.as_str());
    let run = state.active.run.as_ref();
    let request = ModelRequest {
        model,
        system: with_approved_plan(&agent.system, run),
        messages: state.conversation.messages().into_iter().cloned().collect::<Vec<Message>>(),
        tools: rules.tools.iter().filter(offered).cloned().collect(),
        max_tokens: agent.max_tokens,
        forced_tool: None,
    };
    if run.is_some_and(Run::is_planning) { asking_for_plan(request) } else { request }
}

/// The system prompt with what a person made of the run's plan (G14).
fn with_approved_plan(system: &str, run: Option<&Run>) -> String {
    match run.and_then(|run| run.preflight.approved()) {
        None => system.to_owned(),
        Some(plan) if system.is_empty() => plan.for_model(),
        Some(plan) => format!("{system}\n\n{}", plan.for_model()),
    }
}

/// The request as the call for a plan: the model sees its tools and must submit what it means to
/// do with them (G14).
fn asking_for_plan(mut request: ModelRequest) -> ModelRequest {
    request.tools.retain(|tool| tool.name.as_str() != SUBMIT_PLAN);
    request.tools.push(preflight::tool());
    ModelRequest { forced_tool: Some(SUBMIT_PLAN.to_owned()), ..request }
}
