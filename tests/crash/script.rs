//! The model's script and the server's configuration.

use crate::rng::SeededRng;
use std::path::Path;

/// The budget of a session for tools, in ISK.
pub(crate) const BUDGET: u32 = 10;

/// The rules for the step after tool results.
const AFTERWARDS: &str = r#"
[[rule]]
user = 'number (?P<n>\d+)'
[[rule.reply]]
text = "Number {{ n }} has {{ last | length }} results."
"#;

/// Sets of tools that one message calls at once, with their arguments.
const CALL_RULES: [(&str, &[(&str, &str)]); 11] = [
    ("bookmark", &[BOOKMARK]),
    ("list", &[LIST]),
    ("order", &[ORDER]),
    ("transfer", &[TRANSFER]),
    ("cost", &[COST]),
    ("scan", &[("scan_opportunities", "{ region_id = 10000002, seconds = 1 }")]),
    ("several", &[COST, BOOKMARK, ORDER, LIST]),
    ("everything", &[TRANSFER, COST, BOOKMARK, ORDER]),
    // The tool does not know this type and fails.
    ("refused", &[REFUSED]),
    ("hangar", &[("choose_hangar", "{ type_id = 587 }")]),
    // One of the two is in the plan.
    (PLANNED, &[ORDER, ORDER]),
];

/// The kind of message that is sent with a preflight plan.
const PLANNED: &str = "plan";

const BOOKMARK: (&str, &str) = ("create_bookmark", r#"{ name = "Home {{ n }}", system = "Jita" }"#);
const LIST: (&str, &str) = ("create_shopping_list", r#"{ name = "List {{ n }}" }"#);
const ORDER: (&str, &str) = (
    "market_order_create",
    r#"{ type_id = 34, region_id = 10000002, side = "sell", quantity = "{{ n | int }}", price = 4.5 }"#,
);
const REFUSED: (&str, &str) = (
    "market_order_create",
    r#"{ type_id = 999999, region_id = 10000002, side = "sell", quantity = "{{ n | int }}", price = 4.5 }"#,
);
const TRANSFER: (&str, &str) = ("wallet_transfer", r#"{ to = "Nr {{ n }}", amount = 5 }"#);
const COST: (&str, &str) = ("get_production_cost", r#"{ type_id = 587, region_id = 10000002 }"#);

/// Returns the complete script.
pub(crate) fn script() -> String {
    let mut script = String::from("[defaults]\nchunk = { text = 12, delay_ms = 1 }\n");
    for (name, calls) in CALL_RULES {
        script.push_str(&format!(
            "[[rule]]\nuser = '^{name} number (?P<n>\\d+)'\nstep = 0\n\
             [[rule.reply]]\ntext = \"Calling the tools for number {{{{ n }}}}.\"\n"
        ));
        for (tool, arguments) in calls {
            script.push_str(&format!(
                "[[rule.reply]]\ntool_call = {{ name = \"{tool}\", arguments = {arguments} }}\n"
            ));
        }
    }
    let (tool, arguments) = ORDER;
    script.push_str(&format!(
        "[[rule]]\nuser = '^{PLANNED} number (?P<n>\\d+)'\nforced = 'submit_plan'\n[[rule.reply]]\n\
         tool_call = {{ name = \"submit_plan\", arguments = {{ steps = [{{ \
         description = \"Sell {{{{ n }}}}\", tool = \"{tool}\", arguments = {arguments} }}] }} }}\n"
    ));
    script.push_str(
        r#"
[[rule]]
user = '^story number'
chunk = { text = 7, delay_ms = 4 }
[[rule.reply]]
for_each = "range(8)"
text = "Zoë über Ærø – 🚀 number {{ item }} of the fleet goes home; "
[[rule]]
user = '^limit number'
fail = { status = 429, times = 1 }
[[rule.reply]]
text = "The limit was exceeded once."
[[rule]]
user = '^cut number'
cut = { after = 40, times = 1 }
[[rule.reply]]
text = "This is the first half of the answer, and then there is a second half of it."
"#,
    );
    script.push_str(AFTERWARDS);
    script
}

/// Returns a random message.
pub(crate) fn random_message(rng: &mut SeededRng, number: u64) -> String {
    let others = ["story", "limit", "cut"];
    let names: Vec<_> = CALL_RULES.iter().map(|(name, _)| *name).chain(others).collect();
    format!("{} number {number}", rng.pick(&names))
}

/// Returns true if the message is sent with preflight.
pub(crate) fn is_planned(line: &str) -> bool {
    line.starts_with(PLANNED)
}

/// Returns the server's configuration. Bookmarks need no approval and may not be repeated.
pub(crate) fn configuration(
    folder: &Path,
    model_url: &str,
    market: &Path,
    lifecycle: &str,
) -> String {
    let quoted = |path: &Path| serde_json::json!(path.display().to_string()).to_string();
    format!(
        r#"
[limits]
idle_timeout = "150ms"
requests_per_second = 100000
running_runs_per_user = 10000
open_sessions_per_user = 10000
[defaults.settings]
autonomy_level = 2
[budgets]
session = {{ ISK = {BUDGET} }}
[models.scripted]
wire = "anthropic"
model = "rehearsal"
base_url = "{model_url}"
api_key_env = "MODEL_KEY"
[agents.default]
model = "scripted"
approvals = {{ deadline = "10m" }}
[agents.hasty]
model = "scripted"
approvals = {{ deadline = "300ms" }}
[mcpServers.market]
command = {market}
lifecycle = "{lifecycle}"
env = {{ MARKET_FILE = {effects}, MARKET_LOG = {arrivals} }}
[tools.create_bookmark]
server = "market"
risk = "write_low_risk"
idempotent = false
cost = "2"
cost_unit = "ISK"
[tools.create_shopping_list]
server = "market"
risk = "write_low_risk"
idempotent = true
cost = "1"
cost_unit = "ISK"
[tools.market_order_create]
server = "market"
risk = "write_high_risk"
idempotent = true
cost = "3"
cost_unit = "ISK"
[tools.wallet_transfer]
server = "market"
risk = "critical"
idempotent = false
exclusive = "'wallet'"
cost = "5"
cost_unit = "ISK"
[tools.get_production_cost]
server = "market"
risk = "read_only"
retry = {{ max = 3, base = "40ms", cap = "80ms" }}
[tools.scan_opportunities]
server = "market"
risk = "read_only"
[tools.choose_hangar]
server = "market"
risk = "read_only"
"#,
        market = quoted(market),
        effects = quoted(&folder.join("market.jsonl")),
        arrivals = quoted(&folder.join("calls.jsonl")),
    )
}
