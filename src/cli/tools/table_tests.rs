use super::*;
use crate::cli::tools::LevelVerdict;
use greenroom_core::policy::Autonomy;

fn row(name: &str, server: &str, risk: Risk, levels: [&'static str; 4]) -> ToolRow {
    ToolRow {
        name: name.to_owned(),
        server: server.to_owned(),
        risk,
        source: RiskSource::Catalog,
        repeatable: false,
        parallel: false,
        marks: Vec::new(),
        levels,
        verdict: None,
        unavailable: None,
    }
}

fn server(name: &str, state: ServerState, tools: usize, reason: Option<&str>) -> ServerStatus {
    let reason = reason.map(str::to_owned);
    let circuit = greenroom_core::circuit_breaker::CircuitState::Closed;
    ServerStatus { name: name.to_owned(), state, reason, tools, restarts: 0, circuit }
}

fn listing<'a>(servers: &'a [ServerStatus], rows: &'a [ToolRow]) -> ToolTable<'a> {
    ToolTable { servers, rows, paint: ColorMode::PLAIN }
}

const ASK: [&str; 4] = ["deny", "ask", "ask", "allow"];
const READ: [&str; 4] = ["allow"; 4];

#[test]
fn g1_tools_are_listed_by_server_with_risk_verdicts_and_reason() {
    let mut buy = row("buy", "market", Risk::WriteHighRisk, ASK);
    buy.marks = vec!["idempotent".to_owned(), "1 constraint".to_owned(), "costs ISK".to_owned()];
    let rows = [buy, row("look", "market", Risk::ReadOnly, READ)];
    let servers = [
        server("market", ServerState::Ready, 2, None),
        server("mute", ServerState::BackingOff, 0, Some("no such file")),
    ];
    let expected = "\
market: 2 tools
  TOOL  RISK             L0    L1    L2    L3     REASON
  look  read_only        allow allow allow allow  catalog
  buy   write_high_risk  deny  ask   ask   allow  catalog, idempotent, 1 constraint, costs ISK

mute: unavailable: no such file
";
    assert_eq!(listing(&servers, &rows).by_server(), expected);
}

#[test]
fn level_shows_its_verdict_and_the_reason_of_a_denial() {
    let row_with_verdict = |name: &str, verdict, reason: &str| {
        let mut row = row(name, "market", Risk::WriteHighRisk, ASK);
        let level = Autonomy::Recommendations;
        row.verdict = Some(LevelVerdict { level, verdict, reason: reason.to_owned() });
        row
    };
    let rows = [
        row_with_verdict("buy", "ask", "long"),
        row_with_verdict("sell", "deny", "sell is blocked"),
    ];
    let servers = [server("market", ServerState::Ready, 5, None)];
    let expected = "\
market: 2 of 5 tools

write_high_risk: 2 tools
  TOOL  RISK             L1     REASON
  buy   write_high_risk  ask    catalog
  sell  write_high_risk  deny   sell is blocked
";
    assert_eq!(listing(&servers, &rows).by_risk(), expected);
}

#[test]
fn lines_fit_the_width_and_control_characters_are_escaped() {
    let name = "a_very_long_name_of_a_tool_that_has_a_line_of_its_own_in_the_list";
    let mut long = row(name, "evil\u{1b}[2J", Risk::Critical, ASK);
    long.source = RiskSource::CatalogGlob { glob: "x".repeat(200) };
    long.marks = vec!["mark".to_owned(); 30];
    let rows = [long];
    let reason = "\u{1b}[31m".repeat(40);
    let servers = [server("evil\u{1b}[2J", ServerState::Stopped, 0, Some(&reason))];
    for text in [listing(&servers, &rows).by_server(), listing(&servers, &rows).by_risk()] {
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(!text.contains('\u{1b}') && text.contains(name), "{text}");
    }
}
