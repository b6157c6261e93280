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
    let tools = Arc::new(rules::build_registry(3, rules::ServerSet::All));
    let rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), tools);
    let mut builder = HistoryBuilder { simulation: SessionSimulation::with_rules(3, rules) };
    builder.create_session();
    builder.submit("u1");
    builder.complete_step("", vec![("low", Arguments::Json(json!({"note": "store it"})))]);
    let schema = json!({
        "type": "object", "required": ["hangar"],
        "properties": {"hangar": {"type": "string", "enum": ["north", "south"]}},
    });
    start_elicitation(&mut builder, "low", 1, "Which hangar?", ElicitationMode::Form { schema });
    builder.resolve_approval(Resolution::Answer(json!({"hangar": "north"})));
    let url = "https://example.org/sign".to_owned();
    start_elicitation(
        &mut builder,
        "low",
        2,
        "Sign here",
        ElicitationMode::Url { url: url.clone() },
    );
    builder.resolve_approval(Resolution::Reject);
    start_elicitation(
        &mut builder,
        "low",
        3,
        "And here",
        ElicitationMode::Url { url: url.clone() },
    );
    builder.simulation.now = builder.simulation.now.saturating_add(Duration::from_secs(61));
    builder.apply_input(Input::Wake);
    builder.finish_tool("low", ToolOutcome::Completed(ToolOutput::default()));
    builder.complete_step("", vec![("read", Arguments::Json(json!({})))]);
    start_elicitation(&mut builder, "read", 1, "Who are you?", ElicitationMode::Url { url });
    builder.apply_input(Input::Rehydrated { user_settings: None });
    builder.finish_tool("read", ToolOutcome::Completed(ToolOutput::default()));
    builder.complete_step("Stored in the north.", vec![]);
    builder.simulation.log
}

fn start_elicitation(
    builder: &mut HistoryBuilder,
    tool: &str,
    elicitation_number: u32,
    message: &str,
    mode: ElicitationMode,
) {
    let (call_id, attempt_id) = builder.running_attempt(tool);
    builder.simulation.invariants.open_elicitations.insert((attempt_id, elicitation_number));
    let elicitation = Elicitation { message: message.to_owned(), mode };
    builder.apply_input(Input::ElicitationRequested {
        call_id,
        attempt_id,
        elicitation_number,
        elicitation,
    });
}
