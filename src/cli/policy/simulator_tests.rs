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

/// What the configuration says of a call that was recorded.
fn simulate(toml: &str, tool: &str, arguments: Value, settings: Value) -> SimulatedVerdict {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.toml");
    std::fs::write(&path, toml).unwrap();
    let configuration = Configuration::load(Some(&path), &BTreeMap::new()).unwrap();
    let start = PolicySimulator::start(configuration, false);
    let judging = futures::executor::block_on(start);
    let call = RecordedCall {
        call_id: CallId(Uuid::nil()),
        at: Timestamp(0),
        tool: tool.to_owned(),
        arguments: Arc::new(Arguments::Json(arguments)),
        risk: Risk::WriteHighRisk,
        verdict: MatrixVerdict::Ask,
        why: String::new(),
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
    judging.simulate(&call, &session)
}

fn simulated(toml: &str, tool: &str) -> Option<MatrixVerdict> {
    known_verdict(&simulate(toml, tool, json!({}), json!({})))
}

const TRUSTED: &str = "[mcpServers.market]\ncommand = \"market\"\ntrusted = true\n";
const PLAIN: &str = "[mcpServers.market]\ncommand = \"market\"\n";

#[test]
fn g16_the_other_table_and_catalog_decide() {
    assert_eq!(simulated(PLAIN, "buy_item"), Some(MatrixVerdict::Ask));
    assert_eq!(simulated("policy = \"strict\"", "buy_item"), Some(MatrixVerdict::Deny));
    assert_eq!(
        simulated("[tools.buy_item]\nrisk = \"write_low_risk\"", "buy_item"),
        Some(MatrixVerdict::Allow)
    );
    assert_eq!(simulated("[tools.\"buy_*\"]\ndeny = true", "buy_item"), Some(MatrixVerdict::Deny));
}

#[test]
fn g16_the_other_agents_decide() {
    let none = simulated("[agents.default]\ntools = [\"get_*\"]", "buy_item");
    assert_eq!(none, Some(MatrixVerdict::Deny));
    let nobody = simulated("[agents.default]\nheadless = true", "buy_item");
    assert_eq!(nobody, Some(MatrixVerdict::Deny));
}

#[test]
fn g16_constraints_see_the_recorded_arguments_and_settings() {
    let toml = "[tools.buy_item]\nrisk = \"write_low_risk\"\nconstraints = \
                [\"user.allowed_regions == null || args.region in user.allowed_regions\"]";
    let at = |region: i64| {
        let settings = json!({"allowed_regions": [1, 2]});
        known_verdict(&simulate(toml, "buy_item", json!({"region": region}), settings))
    };
    assert_eq!((at(1), at(3)), (Some(MatrixVerdict::Allow), Some(MatrixVerdict::Deny)));
}

#[test]
fn g16_what_a_trusted_server_would_say_is_not_guessed() {
    let SimulatedVerdict::Unknown { why } = simulate(TRUSTED, "buy_item", json!({}), json!({}))
    else {
        panic!("its annotations are not known");
    };
    assert!(why.contains("market") && why.contains("--with-servers"), "{why}");
    // The catalog's word comes first, whoever is trusted.
    let named = format!("{TRUSTED}[tools.buy_item]\nrisk = \"critical\"");
    assert_eq!(simulated(&named, "buy_item"), Some(MatrixVerdict::Deny));
    // The name says whose it is.
    let two = format!("{TRUSTED}[mcpServers.other]\ncommand = \"other\"\n");
    assert_eq!(simulated(&two, "other__buy_item"), Some(MatrixVerdict::Ask));
    assert_eq!(simulated(&two, "buy_item"), None);
}

#[test]
fn g16_what_depends_on_the_server_is_not_guessed() {
    let toml = "[mcpServers.one]\ncommand = \"one\"\n[mcpServers.two]\ncommand = \"two\"\n\
                [tools.buy_item]\nserver = \"one\"\nrisk = \"read_only\"";
    assert_eq!(simulated(toml, "buy_item"), None);
    assert_eq!(simulated(toml, "one__buy_item"), Some(MatrixVerdict::Allow));
}

#[test]
fn g16_what_depends_on_a_budget_is_not_guessed() {
    let toml = "[tools.buy_item]\nrisk = \"critical\"\ncost = \"args.price\"";
    let settings = json!({"autonomy_level": 3, "budget_limit": 100});
    let at = |price: i64| {
        known_verdict(&simulate(toml, "buy_item", json!({"price": price}), settings.clone()))
    };
    assert_eq!((at(200), at(50)), (Some(MatrixVerdict::Ask), None));
}
