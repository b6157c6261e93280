//! A recorded session with elicitations of tools (T1), replayed by [`crate::histories`].

use crate::{histories::HistoryBuilder, rules, session_simulation::SessionSimulation};
use greenroom_core::{
    Rules,
    agent::AgentProfile,
    approval::{Elicitation, ElicitationMode, Resolution},
    call::{ToolOutcome, ToolOutput},
    message::Arguments,
    policy::Matrix,
    session::{EventRecord, Input},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// File name of the history.
pub(crate) const HISTORY: &str = "v0_1_elicitation";

/// Records a form that is filled in, a URL that is declined, an elicitation that expires, and one that
/// a restart ends together with its attempt.
pub(crate) fn record_history() -> Vec<EventRecord> {
    let mut agent = AgentProfile::new(rules::agent_name());
    agent.models = vec!["small".to_owned()];
    let tools = Arc::new(rules::build_registry(3, false));
    let rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), tools);
    let mut story = HistoryBuilder { simulation: SessionSimulation::with_rules(3, rules) };
    story.create_session();
    story.submit("u1");
    story.complete_step("", vec![("low", Arguments::Json(json!({"note": "store it"})))]);
    let schema = json!({
        "type": "object", "required": ["hangar"],
        "properties": {"hangar": {"type": "string", "enum": ["north", "south"]}},
    });
    start_elicitation(&mut story, "low", 1, "Which hangar?", ElicitationMode::Form { schema });
    story.resolve_approval(Resolution::Answer(json!({"hangar": "north"})));
    let url = "https://example.org/sign".to_owned();
    start_elicitation(&mut story, "low", 2, "Sign here", ElicitationMode::Url { url: url.clone() });
    story.resolve_approval(Resolution::Reject);
    start_elicitation(&mut story, "low", 3, "And here", ElicitationMode::Url { url: url.clone() });
    story.simulation.now = story.simulation.now.saturating_add(Duration::from_secs(61));
    story.apply_input(Input::Wake);
    story.finish_tool("low", ToolOutcome::Completed(ToolOutput::default()));
    story.complete_step("", vec![("read", Arguments::Json(json!({})))]);
    start_elicitation(&mut story, "read", 1, "Who are you?", ElicitationMode::Url { url });
    story.apply_input(Input::Rehydrated { user_settings: None });
    story.finish_tool("read", ToolOutcome::Completed(ToolOutput::default()));
    story.complete_step("Stored in the north.", vec![]);
    story.simulation.log
}

fn start_elicitation(
    story: &mut HistoryBuilder,
    tool: &str,
    elicitation_number: u32,
    message: &str,
    mode: ElicitationMode,
) {
    let (call_id, attempt_id) = story.running_attempt(tool);
    story.simulation.invariants.open_elicitations.insert((attempt_id, elicitation_number));
    let elicitation = Elicitation { message: message.to_owned(), mode };
    story.apply_input(Input::ElicitationRequested {
        call_id,
        attempt_id,
        elicitation_number,
        elicitation,
    });
}
