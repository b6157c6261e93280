//! A session whose tools ask people something (T1), kept on file by [`crate::histories`].

use crate::{histories::Story, rules, world::World};
use greenroom_core::{
    Rules,
    agent::AgentProfile,
    approval::{Elicitation, Resolution, Wanted},
    call::{ToolOutcome, ToolOutput},
    message::Arguments,
    policy::Matrix,
    session::{EventRecord, Input},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Its name on file.
pub(crate) const HISTORY: &str = "v0_1_elicitation";

/// A form that is filled in, a page that is not visited, a question that expires, and one that a
/// restart ends together with its attempt.
pub(crate) fn live() -> Vec<EventRecord> {
    let mut agent = AgentProfile::named(rules::agent_name());
    agent.models = vec!["small".to_owned()];
    let tools = Arc::new(rules::book(3, false));
    let rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), tools);
    let mut story = Story { world: World::with_rules(3, rules) };
    story.opens();
    story.submit("u1");
    story.says("", vec![("low", Arguments::Json(json!({"note": "store it"})))]);
    let schema = json!({
        "type": "object", "required": ["hangar"],
        "properties": {"hangar": {"type": "string", "enum": ["north", "south"]}},
    });
    asks(&mut story, "low", 1, "Which hangar?", Wanted::Form { schema });
    story.resolve(Resolution::Answer(json!({"hangar": "north"})));
    let url = "https://example.org/sign".to_owned();
    asks(&mut story, "low", 2, "Sign here", Wanted::Url { url: url.clone() });
    story.resolve(Resolution::Reject);
    asks(&mut story, "low", 3, "And here", Wanted::Url { url: url.clone() });
    story.world.now = story.world.now.after(Duration::from_secs(61));
    story.take(Input::Wake);
    story.ends("low", ToolOutcome::Completed(ToolOutput::default()));
    story.says("", vec![("read", Arguments::Json(json!({})))]);
    asks(&mut story, "read", 1, "Who are you?", Wanted::Url { url });
    story.take(Input::Rehydrated { within: None });
    story.ends("read", ToolOutcome::Completed(ToolOutput::default()));
    story.says("Stored in the north.", vec![]);
    story.world.log
}

fn asks(story: &mut Story, tool: &str, ask: u32, message: &str, wanted: Wanted) {
    let (call_id, attempt_id) = story.running(tool);
    story.world.watch.asks.insert((attempt_id, ask));
    let elicitation = Elicitation { message: message.to_owned(), wanted };
    story.take(Input::ToolAsked { call_id, attempt_id, ask, elicitation });
}
