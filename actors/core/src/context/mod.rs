//! What the model is told: the request for a step, assembled from its parts (C1).

use crate::{
    env::Rules, message::Message, model::request::ModelRequest, policy::Tool, session::SessionState,
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
    ModelRequest {
        model,
        system: agent.system.clone(),
        messages: state.conversation.messages().into_iter().cloned().collect::<Vec<Message>>(),
        tools: rules.tools.iter().filter(offered).cloned().collect(),
        max_tokens: agent.max_tokens,
    }
}
