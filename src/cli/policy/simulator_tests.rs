use super::*;
use greenroom_core::{
    Timestamp,
    ids::{CallId, SessionId, UserId},
    policy::Risk,
    session::{SessionRow, SessionStatus},
    usage::ModelUsage,
};
use std::sync::Arc;
use uuid::Uuid;

/// Returns the verdict of the configuration `toml` on a recorded call.
fn simulate(toml: &str, tool: &str, arguments: Value, settings: Value) -> SimulatedVerdict {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.toml");
    std::fs::write(&path, toml).unwrap();
    let configuration = Configuration::load(Some(&path), &BTreeMap::new()).unwrap();
    let start = PolicySimulator::start(configuration, false);
    let simulator = futures::executor::block_on(start);
    let call = RecordedCall {
        call_id: CallId(Uuid::nil()),
        at: Timestamp(0),
        tool: tool.to_owned(),
        arguments: Arc::new(Arguments::Json(arguments)),
        risk: Risk::WriteHighRisk,
        verdict: MatrixVerdict::Ask,
        reason: String::new(),
    };
    let mut session = SessionReplay::new(&SessionRow {
        parent: None,
        session_id: SessionId(Uuid::nil()),
        owner: UserId::parse("ann").unwrap(),
        agent: AgentName::parse("default").unwrap(),
        title: None,
        settings: Arc::default(),
        status: SessionStatus::Idle,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        grants: Vec::new(),
        usage: ModelUsage::default(),
    });
    session.settings = serde_json::from_value(settings).unwrap();
    simulator.simulate(&call, &session)
}

fn simulate_verdict(toml: &str, tool: &str) -> Option<MatrixVerdict> {
    known_verdict(&simulate(toml, tool, json!({}), json!({})))
}

const TRUSTED: &str = "[mcpServers.market]\ncommand = \"market\"\ntrusted = true\n";
const PLAIN: &str = "[mcpServers.market]\ncommand = \"market\"\n";

#[test]
fn g16_matrix_and_catalog_of_the_other_configuration_decide() {
    assert_eq!(simulate_verdict(PLAIN, "buy_item"), Some(MatrixVerdict::Ask));
    assert_eq!(simulate_verdict("policy = \"strict\"", "buy_item"), Some(MatrixVerdict::Deny));
    assert_eq!(
        simulate_verdict(
            "[tools.buy_item]\nserver = \"market\"\nrisk = \"write_low_risk\"",
            "buy_item"
        ),
        Some(MatrixVerdict::Allow)
    );
    assert_eq!(
        simulate_verdict("[tools.\"buy_*\"]\ndeny = true", "buy_item"),
        Some(MatrixVerdict::Deny)
    );
}

#[test]
fn g16_agents_of_the_other_configuration_decide() {
    let none = simulate_verdict("[agents.default]\ntools = [\"get_*\"]", "buy_item");
    assert_eq!(none, Some(MatrixVerdict::Deny));
    let headless = simulate_verdict("[agents.default]\nheadless = true", "buy_item");
    assert_eq!(headless, Some(MatrixVerdict::Deny));
}

#[test]
fn g17_ceilings_of_the_other_configuration_decide() {
    let verdict_for = |ceilings: &str| {
        let toml = format!("{ceilings}\n[tools.buy_item]\nrisk = \"write_high_risk\"");
        let settings = json!({"autonomy_level": 3, "require_confirmation": false});
        known_verdict(&simulate(&toml, "buy_item", json!({}), settings))
    };
    for (ceilings, expected) in [
        ("", MatrixVerdict::Allow),
        ("[ceilings]\nrequire_confirmation = true", MatrixVerdict::Ask),
        ("[ceilings.roles.user]\nautonomy_level = 0", MatrixVerdict::Deny),
        ("[ceilings.roles.admin]\nautonomy_level = 0", MatrixVerdict::Allow),
        ("[ceilings.users.ann]\nblocked_tools = [\"buy_*\"]", MatrixVerdict::Deny),
        ("[ceilings.agents.default]\nautonomy_level = 1", MatrixVerdict::Ask),
    ] {
        assert_eq!(verdict_for(ceilings), Some(expected), "{ceilings}");
    }
}

#[test]
fn g16_constraints_use_recorded_arguments_and_settings() {
    let toml = "[tools.buy_item]\nserver = \"market\"\nrisk = \"write_low_risk\"\nconstraints = \
                [\"user.allowed_regions == null || args.region in user.allowed_regions\"]";
    let verdict_for = |region: i64| {
        let settings = json!({"allowed_regions": [1, 2]});
        known_verdict(&simulate(toml, "buy_item", json!({"region": region}), settings))
    };
    assert_eq!(
        (verdict_for(1), verdict_for(3)),
        (Some(MatrixVerdict::Allow), Some(MatrixVerdict::Deny))
    );
}

#[test]
fn g16_annotations_of_trusted_server_are_unknown() {
    let SimulatedVerdict::Unknown { reason } = simulate(TRUSTED, "buy_item", json!({}), json!({}))
    else {
        panic!("the verdict must be unknown without the server's annotations");
    };
    assert!(reason.contains("market") && reason.contains("--with-servers"), "{reason}");
    // The catalog has precedence over the annotations of a trusted server.
    let named = format!("{TRUSTED}[tools.buy_item]\nrisk = \"critical\"");
    assert_eq!(simulate_verdict(&named, "buy_item"), Some(MatrixVerdict::Deny));
    // The prefix of the name selects the server.
    let two = format!("{TRUSTED}[mcpServers.other]\ncommand = \"other\"\n");
    assert_eq!(simulate_verdict(&two, "other__buy_item"), Some(MatrixVerdict::Ask));
    assert_eq!(simulate_verdict(&two, "buy_item"), None);
}

#[test]
fn g16_verdict_that_depends_on_the_server_is_unknown() {
    let toml = "[mcpServers.one]\ncommand = \"one\"\n[mcpServers.two]\ncommand = \"two\"\n\
                [tools.buy_item]\nserver = \"one\"\nrisk = \"read_only\"";
    assert_eq!(simulate_verdict(toml, "buy_item"), None);
    assert_eq!(simulate_verdict(toml, "one__buy_item"), Some(MatrixVerdict::Allow));
}

#[test]
fn g16_verdict_that_depends_on_the_budget_is_unknown() {
    let toml = "[tools.buy_item]\nrisk = \"critical\"\ncost = \"args.price\"";
    let settings = json!({"autonomy_level": 3, "budget_limit": 100});
    let verdict_for = |price: i64| {
        known_verdict(&simulate(toml, "buy_item", json!({"price": price}), settings.clone()))
    };
    assert_eq!((verdict_for(200), verdict_for(50)), (Some(MatrixVerdict::Ask), None));
}

#[test]
fn g12_g16_rule_for_critical_calls_turns_allow_into_ask() {
    let tool = "[tools.buy_item]\nrisk = \"critical\"\ncost = \"args.price\"\n";
    let settings = json!({"autonomy_level": 3});
    let verdict_for = |toml: &str| {
        let matrix = "[policy.L3]\ncritical = \"allow\"\n";
        let toml = format!("{tool}{matrix}{toml}");
        known_verdict(&simulate(&toml, "buy_item", json!({"price": 5}), settings.clone()))
    };
    assert_eq!(verdict_for(""), Some(MatrixVerdict::Allow));
    for rule in ["four_eyes = true", "critical_role = \"approver\""] {
        let rule = format!("[approvals]\n{rule}");
        assert_eq!(verdict_for(&rule), Some(MatrixVerdict::Ask), "{rule}");
    }
}
