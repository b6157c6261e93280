use super::*;
use crate::{
    agent::AgentProfile,
    context::{Skill, SkillRegistry},
    ids::{AgentName, MessageId, RunId, SessionId, UserId},
    model::{anthropic, openai},
    policy::{Matrix, Risk, Settings, ToolRegistry},
    session::{EventRecord, SessionEvent, evolve},
    time::Timestamp,
};
use serde_json::Value;
use uuid::Uuid;

fn rules() -> Rules {
    let mut agent = AgentProfile::new(AgentName::parse("trader").unwrap());
    agent.system = "You trade.".to_owned();
    agent.max_tokens = 1_000;
    let tools = [READ_SKILL_TOOL, "buy", "ask"].map(|name| Tool::for_tests(name, Risk::ReadOnly));
    let mut rules = Rules::new(
        Arc::new(agent),
        Arc::new(Matrix::default()),
        Arc::new(ToolRegistry::new(tools)),
    );
    let skill = |name: &str| Skill { name: name.to_owned(), description: "Of use.".to_owned() };
    rules.context.system = "Be honest.".into();
    rules.context.skills = Arc::new(SkillRegistry::new([skill("pdf"), skill("tables")]));
    rules.context.context_windows = Arc::new([("small".to_owned(), 8_000)].into());
    rules
}

fn apply_event(state: SessionState, run: Option<u128>, event: SessionEvent) -> SessionState {
    let (seq, at) = (state.last_seq.next(), Timestamp(0));
    let run_id = run.map(|run| RunId(Uuid::from_u128(run)));
    evolve(state, &EventRecord { seq, at, run_id, step: None, event })
}

fn created() -> SessionState {
    let state = SessionState::new(SessionId(Uuid::from_u128(1)));
    let owner = UserId::parse("ann").unwrap();
    let agent = AgentName::parse("trader").unwrap();
    let settings = Settings::default();
    apply_event(
        state,
        None,
        SessionEvent::SessionCreated {
            owner,
            agent,
            title: None,
            settings: settings.into(),
            parent: None,
        },
    )
}

fn with_user_message(state: SessionState, text: &str) -> SessionState {
    let message_id = MessageId::parse("m").unwrap();
    let digest = crate::json::Digest::hash_json(&Value::Null);
    let text = text.into();
    let authors = crate::authors::Authors::default();
    apply_event(state, Some(1), SessionEvent::MessageAccepted { message_id, text, digest, authors })
}

fn sizes(manifest: &ContextManifest) -> Vec<(SectionName, u64)> {
    manifest.sections.iter().map(|section| (section.name, section.tokens)).collect()
}

#[test]
fn c1_request_lists_sections_in_fixed_order_with_sizes() {
    use SectionName as S;
    let (state, rules) = (with_user_message(created(), "hello"), rules());
    let manifest = describe_request(&state, &rules, "small".to_owned());
    let names: Vec<_> = sizes(&manifest).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [S::Tools, S::System, S::Agent, S::Skills, S::Conversation]);
    assert_eq!(manifest.sections[0].items, ["ask", "buy", "read_skill"]);
    assert_eq!(manifest.sections[3].items, ["pdf", "tables"]);
    assert_eq!(manifest.sections[1].tokens, token_estimate::estimate_tokens(10));
    assert_eq!(manifest.sections[4].included, Some(1));
    assert_eq!((manifest.window_tokens, manifest.output_tokens), (8_000, 1_000));
    assert_eq!(
        manifest.tokens,
        manifest.sections.iter().map(|section| section.tokens).sum::<u64>()
    );
    let request = assemble_request(&state, &rules, "small".to_owned());
    assert!(request.system.stable.starts_with("Be honest.\n\nYou trade.\n\nSkills are"));
    assert_eq!(request.system.per_run, "");
}

#[test]
fn c1_consecutive_requests_share_their_prefix() {
    let (mut state, rules) = (created(), rules());
    let body = |state: &SessionState| -> Value {
        let request = assemble_request(state, &rules, "small".to_owned());
        serde_json::from_slice(&anthropic::encode(&request)).unwrap()
    };
    let mut before: Option<Value> = None;
    for number in 0..20 {
        state = with_user_message(state, &format!("message {number}"));
        let now = body(&state);
        if let Some(before) = before {
            assert_eq!((&before["tools"], &before["system"]), (&now["tools"], &now["system"]));
        }
        assert_eq!(now["system"][0]["cache_control"]["type"], "ephemeral");
        assert_eq!(now["tools"][2]["cache_control"]["type"], "ephemeral");
        before = Some(now);
    }
}

#[test]
fn c1_conversation_is_truncated_to_window_and_request_stays_valid() {
    let (mut state, rules) = (created(), rules());
    for number in 0..200 {
        state = with_user_message(state, &format!("message {number} {}", "x".repeat(300)));
    }
    let manifest = describe_request(&state, &rules, "small".to_owned());
    assert!(manifest.tokens + manifest.output_tokens <= manifest.window_tokens + 64);
    let conversation = manifest.sections.last().unwrap();
    assert_eq!(conversation.left_out + conversation.included.unwrap(), 200);
    assert!(conversation.left_out > 100, "{conversation:?}");
    let request = assemble_request(&state, &rules, "small".to_owned());
    let body =
        String::from_utf8(openai::encode(&request, openai::EncodeOptions::default())).unwrap();
    assert!(body.contains("message 199 ") && !body.contains("message 0 "));
    assert!(body.contains("Earlier messages of this conversation are left out"));
    // An unconfigured model has a larger default window.
    let manifest = describe_request(&state, &rules, "large".to_owned());
    assert_eq!(manifest.sections.last().unwrap().left_out, 0);
}

#[test]
fn c2_skill_index_is_included_only_if_agent_can_read_skills() {
    let state = with_user_message(created(), "hello");
    let shown = |rules: &Rules| {
        let manifest = describe_request(&state, rules, "small".to_owned());
        let skills = manifest.sections.iter().find(|section| section.name == SectionName::Skills);
        skills.map(|section| section.items.clone())
    };
    let mut rules = rules();
    Arc::make_mut(&mut rules.agent).tools = vec!["buy".to_owned()];
    assert_eq!(shown(&rules).unwrap(), ["pdf", "tables"], "`tools` does not affect read_skill");
    Arc::make_mut(&mut rules.agent).skills = vec!["p*".to_owned()];
    assert_eq!(shown(&rules).unwrap(), ["pdf"]);
    Arc::make_mut(&mut rules.agent).skills = Vec::new();
    assert_eq!(shown(&rules), None);
    assert!(!rules.agent.can_use_tool(READ_SKILL_TOOL));
    Arc::make_mut(&mut rules.agent).skills = vec!["*".to_owned()];
    rules.tools = Arc::new(ToolRegistry::new([Tool::for_tests("buy", Risk::ReadOnly)]));
    assert_eq!(shown(&rules), None, "read_skill is not registered");
}
