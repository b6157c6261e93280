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
fn g1_tools_stand_under_their_server_with_risk_verdicts_and_reason() {
    let mut buy = row("buy", "market", Risk::WriteHighRisk, ASK);
    buy.marks = vec!["idempotent".to_owned(), "1 constraint".to_owned(), "costs ISK".to_owned()];
    let rows = [buy, row("look", "market", Risk::ReadOnly, READ)];
    let servers = [
        server("market", ServerState::Ready, 2, None),
        server("mute", ServerState::BackingOff, 0, Some("no such file")),
    ];
    let expected = "\
market: 2 tools
  TOOL  RISK             L0    L1    L2    L3     WHY
  look  read_only        allow allow allow allow  the catalog names it
  buy   write_high_risk  deny  ask   ask   allow  the catalog names it, idempotent, 1 constraint,
                                                  costs ISK

mute: unavailable: no such file
";
    assert_eq!(listing(&servers, &rows).by_server(), expected);
}

#[test]
fn one_level_has_its_verdict_and_why_it_denies() {
    let judged = |name: &str, ruling, why: &str| {
        let mut judged = row(name, "market", Risk::WriteHighRisk, ASK);
        let level = Autonomy::Recommendations;
        judged.verdict = Some(LevelVerdict { level, ruling, why: why.to_owned() });
        judged
    };
    let rows = [judged("buy", "ask", "long"), judged("sell", "deny", "sell is blocked")];
    let servers = [server("market", ServerState::Ready, 5, None)];
    let expected = "\
market: 2 of 5 tools

write_high_risk: 2 tools
  TOOL  RISK             L1     WHY
  buy   write_high_risk  ask    the catalog names it
  sell  write_high_risk  deny   sell is blocked
";
    assert_eq!(listing(&servers, &rows).by_risk(), expected);
}

#[test]
fn lines_keep_within_the_page_and_the_terminal_is_not_controlled() {
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
