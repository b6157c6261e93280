//! Tests of configurations loaded from files and environment variables.

mod models;

use super::*;
use greenroom_core::amount::Amount;
use greenroom_core::approval::{ApprovalDeadlines, DeadlineRule};
use greenroom_core::budget::{Budget, BudgetMeasure, BudgetScope};
use greenroom_core::policy::{Autonomy, BudgetPeriod, MatrixCell, MatrixPreset, Risk, RiskSource};
use greenroom_core::usage::ModelPrice;
use std::fs;

/// The profile of an untrusted server.
fn server(name: &str) -> greenroom_core::policy::ServerProfile {
    greenroom_core::policy::ServerProfile { name: name.into(), ..Default::default() }
}

/// Loads `files`, the first of which is the configuration file. `{}` replaces their folder in errors.
fn load(files: &[(&str, &str)], environment: &[(&str, &str)]) -> Result<Configuration, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let environment =
        environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let file = files.first().map(|(name, _)| folder.path().join(name));
    Configuration::load(file.as_deref(), &environment)
        .map_err(|error| error.to_string().replace(&*folder.path().to_string_lossy(), "{}"))
}

fn file(text: &str) -> Result<Configuration, String> {
    load(&[("greenroom.toml", text)], &[])
}

fn rules_with_deadline(seconds: Option<u64>) -> ApprovalDeadlines {
    let timeout = seconds.map(Duration::from_secs);
    ApprovalDeadlines::uniform(DeadlineRule { timeout, ..DeadlineRule::default() })
}

fn agent(configuration: &Configuration, name: &str) -> AgentProfile {
    configuration.agents[&name.parse().unwrap()].clone()
}

#[test]
fn defaults_apply_without_a_file() {
    let configuration = load(&[], &[]).unwrap();
    assert_eq!(configuration.listen.to_string(), "127.0.0.1:7878");
    assert_eq!(configuration.database, Path::new("greenroom.db").into());
    assert_eq!(configuration.durability, Durability::Fsync);
    assert_eq!(configuration.matrix, Matrix::default());
    assert_eq!(configuration.default_settings, Settings::default());
    assert_eq!(configuration.limits, Limits::default());
    assert_eq!(configuration.agents.len(), 1);
    let default = agent(&configuration, AGENT_DEFAULT);
    assert_eq!(default.models, [REHEARSAL]);
    assert_eq!(default.approval_deadlines, ApprovalDeadlines::default());
    assert!(configuration.models.is_empty() && configuration.mcp_servers.is_empty());
    configuration.validate_exposure(false).unwrap();
}

#[test]
fn all_tables_are_loaded() {
    let configuration = load(
        &[
            (
                "conf/greenroom.toml",
                r#"
                listen = "127.0.0.1:9"
                database = "x.db"
                durability = "process"
                drain = "3s"
                flush = "20ms"
                rehearsal = "script.toml"
                unknown_tools = "deny"
                include = ["more/tools.toml"]
                [approvals]
                deadline = "none"
                [policy]
                preset = "strict"
                L1 = { write_high_risk = "ask" }
                [agents.trader]
                description = "Trades"
                models = ["local", "rehearsal"]
                system_file = "trader.md"
                tools = ["market_*"]
                max_steps = 9
                max_tokens = 99
                headless = true
                approvals = { deadline = "10m" }
                budgets = { run = { tokens = 500 } }
                [models.local]
                wire = "openai"
                model = "small"
                base_url = "http://127.0.0.1:8080/v1/"
                legacy_max_tokens = true
                idle_timeout = "5m"
                price = { input = 1, output = 2.5 }
                [tools.get_it]
                server = "m"
                risk = "low"
                [limits]
                queued_messages = 3
                idle_timeout = "1m"
                [defaults.settings]
                autonomy_level = 2
                "#,
            ),
            ("conf/trader.md", "You trade."),
            (
                "conf/more/tools.toml",
                "server = 'm'\n[tools.get_it]\nrisk = 'critical'\n[tools.frob]\nrisk = 'low'",
            ),
        ],
        &[],
    )
    .unwrap();
    assert_eq!(configuration.listen.port(), 9);
    assert_eq!(configuration.durability, Durability::Process);
    assert_eq!(configuration.flush_interval, Duration::from_millis(20));
    assert!(configuration.rehearsal.as_ref().unwrap().ends_with("conf/script.toml"));
    let expected = Matrix::from(MatrixPreset::Strict).with_cell(
        Autonomy::Recommendations,
        Risk::WriteHighRisk,
        MatrixCell::Ask,
    );
    assert_eq!(configuration.matrix, expected);
    let trader = AgentProfile {
        name: "trader".parse().unwrap(),
        description: "Trades".into(),
        models: vec!["local".into(), "rehearsal".into()],
        system: "You trade.".into(),
        tools: vec!["market_*".into()],
        skills: vec!["*".into()],
        resources: Vec::new(),
        workflow: None,
        inherited_tools: None,
        delegates: Vec::new(),
        max_steps: 9,
        max_tokens: 99,
        headless: true,
        approval_deadlines: rules_with_deadline(Some(600)),
        budgets: vec![Budget {
            scope: BudgetScope::Run,
            period: BudgetPeriod::Total,
            measure: BudgetMeasure::Tokens,
            limit: 500.into(),
        }],
    };
    assert_eq!(agent(&configuration, "trader"), trader);
    assert_eq!(agent(&configuration, AGENT_DEFAULT).approval_deadlines, rules_with_deadline(None));
    let expected = ModelEndpoint {
        name: "local".into(),
        wire: ModelWireFormat::OpenAi,
        model: Some("small".into()),
        base_url: "http://127.0.0.1:8080/v1".into(),
        api_key: None,
        usable: true,
        api_key_env: None,
        max_tokens_parameter: MaxTokensParameter::Legacy,
        connect_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(300),
        price: Some(ModelPrice::new(1.into(), Amount::parse("2.5").unwrap())),
        context_tokens: None,
    };
    assert_eq!(configuration.models["local"], expected);
    assert_eq!(configuration.limits.queued_messages.get(), 3);
    assert_eq!(configuration.default_settings.autonomy_level, Autonomy::Assisted);
    let risk = |name: &str| {
        let remote = greenroom_core::policy::RemoteTool { name: name.into(), ..Default::default() };
        let tool = configuration.catalog.resolve_tool(&server("m"), &remote, name.parse().unwrap());
        (tool.risk, tool.risk_source)
    };
    assert_eq!(risk("get_it"), (Risk::WriteLowRisk, RiskSource::Catalog));
    assert_eq!(risk("frob"), (Risk::WriteLowRisk, RiskSource::Catalog));
}

#[test]
fn invalid_files_are_rejected_with_location_and_problem() {
    for (text, expected) in [
        ("\nlisten = 'here'", "{}/greenroom.toml:2: "),
        ("x = ", "{}/greenroom.toml:1: "),
        (
            "# a\nlsten = '127.0.0.1:1'",
            "{}/greenroom.toml:2: unknown key `lsten`; did you mean `listen`?",
        ),
        (
            "[limits]\nqueued = 1",
            "{}/greenroom.toml:2: unknown key `queued`; known keys: request_body_bytes, ",
        ),
        (
            "[limits]\nqueued_messages = 0",
            "{}/greenroom.toml:2: limits.queued_messages must be a whole number of 1 or more, not 0",
        ),
        (
            "[agents.a]\nmax_steps = -1",
            "{}/greenroom.toml:2: agents.a.max_steps must be a whole number of 0 or more, not -1",
        ),
        (
            "agents.a.headless = 'no'",
            "{}/greenroom.toml:1: agents.a.headless must be true or false, not \"no\"",
        ),
        ("skills = 'here'", "{}/greenroom.toml:1: skills must be a list, not \"here\""),
        ("limits = 3", "{}/greenroom.toml:1: limits must be a table, not 3"),
        ("otlp_endpoint = 1.5", "otlp_endpoint must be a string in quotes, not 1.5"),
        ("drain = 30", "{}/greenroom.toml:1: drain must be a duration such as \"30s\", not 30"),
        (
            "[tools.x]\n\nretry = { base = 5 }",
            "{}/greenroom.toml:3: tools.x.retry.base must be a duration such as \"30s\", not 5",
        ),
        (
            "[mcpServers.a]\ncommand = 'a'\ntimeout = 5",
            "{}/greenroom.toml:3: mcpServers.a.timeout must be a duration such as \"30s\", not 5",
        ),
        (
            "[approvals]\ndeadline = 60",
            "{}/greenroom.toml:2: approvals.deadline must be a duration such as \"30s\", not 60",
        ),
        (
            "[approvals.risks.critical]\ndeadline = 60",
            "{}/greenroom.toml:2: deadline must be a duration such as \"30s\", not 60",
        ),
        (
            "[limits]\nmessage_bytes = 2000000",
            "{}/greenroom.toml: limits.message_bytes must be at most limits.request_body_bytes \
             (1048576), not 2000000",
        ),
        ("policy = 'strikt'", "strikt"),
        ("[policy.L1]\ncritical = 'alow'", "unknown value `alow`; did you mean `allow`?"),
        ("drain = '5'", "{}/greenroom.toml:1: `5` is not a duration"),
        (
            "[defaults.settings]\nautonomy_level = 7",
            "{}/greenroom.toml:2: defaults.settings.autonomy_level must be an autonomy level: 0, 1, 2 or 3, not 7",
        ),
        (
            "\n[tools.x]\nrisk = 'critical'\nread_only = true",
            "{}/greenroom.toml:2: risk = \"critical\" and read_only",
        ),
        (
            "# a\n[agents.a]\ndelegates = ['b']",
            "{}/greenroom.toml:3, agents.a: delegates contains the unknown agent `b`",
        ),
        (
            "[agents.a]\ndelegates = ['b']\n[agents.b]\n\ndelegates = ['a']",
            "{}/greenroom.toml:2, agents.a: delegates form a cycle: a → b → a",
        ),
        (
            "[agents.a]\ndelegates = ['a']",
            "{}/greenroom.toml:2, agents.a: delegates form a cycle: a → a",
        ),
        (
            "limits.delegation_depth = 1\nagents.c = {}\nagents.b.delegates = ['c']\n\
             agents.a.delegates = ['b']",
            "{}/greenroom.toml:4, agents.a: delegates exceed limits.delegation_depth, which is 1: \
             a → b → c",
        ),
        (
            "[agents.a]\ndelegates = ['b']\n[agents.b]\nworkflow = 'w'",
            "{}/greenroom.toml:2, agents.a: delegates contains `b`, whose runs start with a workflow",
        ),
        ("limits.delegation_depth = 9", "limits.delegation_depth must be at most 8, not 9"),
        ("limits.calls_per_step = 257", "limits.calls_per_step must be at most 256, not 257"),
        (
            "limits.model_text_bytes = 4194305",
            "limits.model_text_bytes must be at most 4194304, not 4194305",
        ),
        (
            "[agents.a]\nmodel = 'a'\nmodels = ['b']",
            "{}/greenroom.toml, agents.a: set either `model` or",
        ),
        (
            "[agents.a]\nmodel = 'nope'",
            "agents.a: unknown model `nope`; add the table `[models.nope]`, or use one of: anthropic, openai",
        ),
        (
            "[agents.a]\nmodel = 'openai'",
            "agents.a: the model `openai` requires the environment variable OPENAI_API_KEY",
        ),
        ("[agents.a]\nsystem_file = 'no.md'", "{}/greenroom.toml, agents.a: can't read {}/no.md"),
        ("[models.x]\nmodel = 'y'", "models.x: `wire` is missing"),
        ("[models.rehearsal]\nmodel = 'y'", "models.rehearsal: `rehearsal` is the name of the"),
        ("[mcpServers.a]\nargs = []", "mcpServers.a: set exactly one of `command` and `url`"),
        (
            "[redaction]\npatterns = ['a', '(b']",
            "{}/greenroom.toml, redaction: invalid pattern `(b`: unclosed group",
        ),
        ("[redaction]\npatterns = ['a*']", "redaction: the pattern `a*` matches every text"),
        (
            "[redaction]\nkeys = ['pin', 'p1n']",
            "redaction: the key `p1n` contains `1`; only letters",
        ),
        ("[redaction]\nkeys = ['_x']", "redaction: the key `_x` has fewer than 2 letters"),
        (
            "[mcpServers.a]\ncommand = '${NOT_SET}'",
            "mcpServers.a: the environment variable NOT_SET is not set",
        ),
        (
            "[mcpServers.a]\ncommand = 'x'\ntrustd = true",
            "{}/greenroom.toml:3: unknown key `trustd`; did you mean `trusted`?",
        ),
        ("include = ['no.toml']", "{}/greenroom.toml: can't read {}/no.toml"),
        (
            "include = ['greenroom.toml']",
            "{}/greenroom.toml: circular include of {}/greenroom.toml",
        ),
    ] {
        let error = file(text).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn g19_catalog_files_name_the_server_of_their_tools() {
    let main = "include = ['a.toml', 'b.toml']\nserver = 'a'\n[tools.get_it]\nrisk = 'low'\n\
                [tools.frob]\nserver = 'c'\nrisk = 'low'";
    let included = [
        ("greenroom.toml", main),
        (
            "a.toml",
            "server = 'a'\n[tools.get_it]\nrisk = 'critical'\n[tools.frob]\nrisk = 'critical'",
        ),
        ("b.toml", "server = 'b'\n[tools.get_it]\nrisk = 'read_only'"),
    ];
    let catalog = load(&included, &[]).unwrap().catalog;
    let risks = ["a", "b", "c", "d"].map(|name| {
        ["get_it", "frob"].map(|tool| {
            let remote =
                greenroom_core::policy::RemoteTool { name: tool.into(), ..Default::default() };
            catalog.resolve_tool(&server(name), &remote, tool.parse().unwrap()).risk
        })
    });
    let high = Risk::WriteHighRisk;
    // The entry of the including file replaces that of the same server only.
    let expected = [
        [Risk::WriteLowRisk, Risk::Critical],
        [Risk::ReadOnly, high],
        [high, Risk::WriteLowRisk],
        [high, high],
    ];
    assert_eq!(risks, expected);
    assert_eq!(catalog.server_names(), ["a", "b", "c"].into());
}

#[test]
fn g19_server_names_can_not_be_mistaken_for_each_other() {
    let server = |name: &str| format!("[mcpServers.'{name}']\ncommand = 'x'\n");
    for (text, expected) in [
        (
            server("a__b"),
            "mcpServers.a__b: the server name `a__b` must not contain `__` or end in `_`",
        ),
        (
            server("lab_"),
            "mcpServers.lab_: the server name `lab_` must not contain `__` or end in `_`",
        ),
        (server("a. b"), "mcpServers.a. b: the server name `a. b` must not contain `__`"),
        (
            server("built-in"),
            "the server name `built-in` must have 1 to 48 characters and must not be",
        ),
        (server(&"x".repeat(49)), "must have 1 to 48 characters"),
        (
            server("my lab") + &server("my.lab"),
            "the names `my.lab` and `my lab` are both `my_lab` in",
        ),
    ] {
        let error = file(&text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let names = ["lab", "my server", "mcp-server-fetch"];
    let valid: String = names.iter().map(|name| server(name)).collect();
    let configuration = file(&valid).unwrap();
    assert!(configuration.mcp_servers.keys().eq(["lab", "mcp-server-fetch", "my server"]));
}

#[test]
fn error_in_an_included_file_names_that_file() {
    let main = ("greenroom.toml", "include = ['a.toml']");
    let error = load(&[main, ("a.toml", "\n[tools.x]\nrisc = 'low'")], &[]).unwrap_err();
    assert_eq!(error, "{}/a.toml:3: unknown key `risc`; did you mean `risk`?");
    let error = load(&[main, ("a.toml", "listen = 'x'")], &[]).unwrap_err();
    assert!(error.starts_with("{}/a.toml:1: unknown key `listen`"), "{error}");
    let cycle = [main, ("a.toml", "include = ['b.toml']"), ("b.toml", "include = ['./a.toml']")];
    let error = load(&cycle, &[]).unwrap_err();
    assert_eq!(error, "{}/b.toml: circular include of {}/./a.toml");
}

#[test]
fn environment_overrides_the_file() {
    let text = "listen = '127.0.0.1:1'\n[agents.Trader]\nmax_steps = 2\n[tools.get_it]\nrisk='low'";
    let configuration = load(
        &[("greenroom.toml", text)],
        &[
            ("GREENROOM_LISTEN", "127.0.0.1:2"),
            ("GREENROOM_DATABASE", "7"),
            ("GREENROOM_DRAIN", "1m"),
            ("GREENROOM_LIMITS__REQUEST_BODY_BYTES", "300000"),
            ("GREENROOM_AGENTS__TRADER__MAX_STEPS", "3"),
            ("GREENROOM_AGENTS__TRADER__HEADLESS", "true"),
            ("GREENROOM_POLICY__L3__CRITICAL", "deny"),
            ("GREENROOM_MCPSERVERS__M__COMMAND", "m"),
            ("GREENROOM_DEFAULTS__SETTINGS__AUTONOMY_LEVEL", "0"),
            ("GREENROOM_TOKEN", "s3cret"),
            ("OTHER_VARIABLE", "x"),
        ],
    )
    .unwrap();
    assert_eq!(configuration.listen.port(), 2);
    assert_eq!(configuration.database, Path::new("7").into());
    assert_eq!(configuration.drain_timeout, Duration::from_secs(60));
    assert_eq!(configuration.limits.request_body_bytes.get(), 300_000);
    let trader = agent(&configuration, "Trader");
    assert_eq!((trader.max_steps, trader.headless), (3, true));
    assert_eq!(configuration.matrix.cell(Autonomy::Supervised, Risk::Critical), MatrixCell::Deny);
    assert!(configuration.mcp_servers.contains_key("m"));
    assert_eq!(configuration.default_settings.autonomy_level, Autonomy::ReadOnly);
    assert_eq!(configuration.admin_token.as_ref().map(Secret::expose), Some("s3cret"));
    assert!(!format!("{configuration:?}").contains("s3cret"));
}

#[test]
fn error_in_the_environment_names_its_variable() {
    for (variable, value, expected) in [
        ("GREENROOM_LSTEN", "x", "GREENROOM_LSTEN: unknown key `lsten`; did you mean `listen`?"),
        ("GREENROOM_LISTEN", "x", "GREENROOM_LISTEN: "),
        (
            "GREENROOM_LIMITS__QUEUED_MESSAGES",
            "many",
            "GREENROOM_LIMITS__QUEUED_MESSAGES: limits.queued_messages must be a whole number of 1 \
             or more, not \"many\"",
        ),
        (
            "GREENROOM_LIMITS__QUEUED_MESSAGES",
            "0",
            "GREENROOM_LIMITS__QUEUED_MESSAGES: limits.queued_messages must be a whole number of 1 \
             or more, not 0",
        ),
        ("GREENROOM_DRAIN", "30", "GREENROOM_DRAIN: `30` is not a duration; write a whole number"),
        ("GREENROOM_LISTEN__X", "1", "GREENROOM_LISTEN__X: "),
    ] {
        let error = load(&[], &[(variable, value)]).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn t1_mcp_json_of_other_hosts_is_accepted() {
    let json = r#"{
        "inputs": [],
        "mcpServers": {
            "files": {"type": "stdio", "command": "npx", "args": ["-y", "x", "${ROOT:-/srv}"],
                      "env": {"KEY": "${KEY}"}, "autoApprove": ["all"], "timeout": 60},
            "remote": {"type": "http", "url": "https://x/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
            "off": {"command": "y", "disabled": true}
        }
    }"#;
    let main = ("greenroom.toml", "mcp_servers_file = 'sub/.mcp.json'");
    let files = [main, ("sub/.mcp.json", json)];
    let configuration = load(&files, &[("KEY", "k")]).unwrap();
    let secret = |text: &str| Secret::from(text.to_owned());
    let server = |name: &str, transport| McpServerConfig {
        name: name.into(),
        transport,
        trusted: false,
        lifecycle: McpLifecycleConfig::Auto,
        timeout: None,
        allow_private: false,
        env_secrets: vec![secret("k")],
    };
    let stdio = McpTransportConfig::Stdio {
        command: "npx".into(),
        args: vec!["-y".into(), "x".into(), "/srv".into()],
        env: [("KEY".to_owned(), secret("k"))].into(),
        cwd: None,
    };
    let headers = [("Authorization".to_owned(), secret("Bearer k"))].into();
    let http = McpTransportConfig::Http { url: "https://x/mcp".into(), headers };
    let expected = BTreeMap::from([
        ("files".to_owned(), server("files", stdio)),
        ("remote".to_owned(), server("remote", http)),
    ]);
    assert_eq!(configuration.mcp_servers, expected);
    let error = load(&files, &[]).unwrap_err();
    assert!(error.starts_with("{}/sub/.mcp.json, mcpServers.files: "), "{error}");
}

#[test]
fn mcp_json_errors_are_readable() {
    let main = ("greenroom.toml", "mcp_servers_file = '.mcp.json'");
    for (server, expected) in [
        (r#"{"command": "x", "trusted": "yes"}"#, "trusted must be true or false, not \"yes\""),
        (r#"{"command": "x", "args": "-y"}"#, "args must be a list, not \"-y\""),
        (r#"{"command": "x", "args": [1]}"#, "args[0] must be a string in quotes, not number"),
        (r#"{"command": "x", "lifecycle": "atuo"}"#, "unknown value `atuo`; did you mean `auto`?"),
    ] {
        let json = format!(r#"{{"mcpServers": {{"a": {server}}}}}"#);
        let error = load(&[main, (".mcp.json", &json)], &[]).unwrap_err();
        assert_eq!(error, format!("{{}}/.mcp.json: mcpServers.a: {expected}"));
    }
}

#[test]
fn server_command_is_resolved_relative_to_its_file() {
    let text = "[mcpServers.a]\ncommand = './bin/a'\nlifecycle = 'initialize'\ntrusted = true";
    let configuration = file(text).unwrap();
    let server = &configuration.mcp_servers["a"];
    assert_eq!((server.lifecycle, server.trusted), (McpLifecycleConfig::Initialize, true));
    match &server.transport {
        McpTransportConfig::Stdio { command, .. } => {
            assert!(Path::new(command).is_absolute() && command.ends_with("bin/a"), "{command}");
        }
        McpTransportConfig::Http { .. } => panic!("not http"),
    }
}

#[test]
fn x1_public_address_requires_authentication() {
    let text = "listen = '0.0.0.0:7878'";
    let exposed = file(text).unwrap();
    assert!(matches!(
        exposed.validate_exposure(false),
        Err(ConfigurationError::UnauthenticatedExposure(_))
    ));
    exposed.validate_exposure(true).unwrap();
    let with_token = load(&[("g.toml", text)], &[("GREENROOM_TOKEN", "t")]).unwrap();
    with_token.validate_exposure(false).unwrap();
    for loopback in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        file(&format!("listen = '{loopback}'")).unwrap().validate_exposure(false).unwrap();
    }
}

#[test]
fn example_configuration_loads() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/greenroom.toml");
    let configuration = Configuration::load(Some(&example), &Environment::new()).unwrap();
    let default = agent(&configuration, AGENT_DEFAULT);
    assert_eq!(default.models, [REHEARSAL]);
    assert_eq!(default.approval_deadlines, rules_with_deadline(Some(600)));
    assert!(configuration.rehearsal.as_ref().is_some_and(|script| script.exists()));
    assert!(configuration.mcp_servers.contains_key("market"));
    let transfer =
        greenroom_core::policy::RemoteTool { name: "wallet_transfer".into(), ..Default::default() };
    let name = "wallet_transfer".parse().unwrap();
    let tool = configuration.catalog.resolve_tool(&server("market"), &transfer, name);
    assert_eq!((tool.risk, tool.repeatable), (Risk::Critical, false));
    let cost = tool.cost.as_ref().map(|rule| (rule.amount.source(), rule.unit.as_str()));
    assert_eq!(cost, Some(("args.amount", "ISK")));
    let regions = configuration.ceilings.installation.allowed_regions;
    assert_eq!(regions.map(|regions| regions.len()), Some(5));
}

#[test]
fn g5_invalid_expression_is_rejected_with_its_location() {
    let invalid_file = "[tools.buy]\nrisk = 'low'\ncost = 'args.price *'\n";
    let error = file(invalid_file).unwrap_err();
    let expected = "{}/greenroom.toml:3: the expression `args.price *` is not valid: ";
    assert!(error.starts_with(expected), "{error}");
    let main = "include = ['more.toml']";
    let included = "\n[tools.buy]\nconstraints = [\n    'true',\n    'user.region == 1',\n]\n";
    let error = load(&[("greenroom.toml", main), ("more.toml", included)], &[]).unwrap_err();
    let expected = "{}/more.toml:5: the expression `user.region == 1` is not valid: there is no \
                    `user.region`; there are id,";
    assert!(error.starts_with(expected), "{error}");
    let table = "[tools.buy]\nconstraints = [\n  'true',\n  { allow_if = 'args.a.b(' },\n]\n";
    let error = file(table).unwrap_err();
    assert!(error.starts_with("{}/greenroom.toml:4: the expression `args.a.b(`"), "{error}");
}

#[test]
fn g5_example_orders_are_priced_and_restricted_to_allowed_regions() {
    use greenroom_core::policy::{JudgeContext, RemoteTool, Verdict, judge_call};
    use serde_json::json;

    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/greenroom.toml");
    let configuration = Configuration::load(Some(&example), &Environment::new()).unwrap();
    let remote = RemoteTool {
        name: "market_order_create".into(),
        input_schema: json!({"type": "object"}),
        ..RemoteTool::default()
    };
    let name = "market_order_create".parse().unwrap();
    let tool = configuration.catalog.resolve_tool(&server("market"), &remote, name);
    let ceiling = configuration.ceilings.combine([], [], None);
    let context = JudgeContext {
        settings: &configuration.default_settings,
        ceiling: &ceiling,
        matrix: &configuration.matrix,
        critical: configuration.critical,
        headless: false,
        user: "ann",
        session: "s",
        agent: AGENT_DEFAULT,
        remaining_budget: None,
    };
    for (order, expected) in [
        (json!({"region_id": 10000002, "side": "buy", "quantity": 5, "price": 2}), Ok("10 ISK")),
        (
            json!({"region_id": 10000002, "side": "buy", "quantity": 5, "price": 2.5}),
            Ok("12.50 ISK"),
        ),
        (json!({"region_id": 10000002, "side": "sell", "quantity": 5, "price": 2.5}), Ok("0 ISK")),
        (json!({"region_id": 10000002, "side": "buy", "quantity": 5}), Err("needs a price")),
        (json!({"region_id": 1, "side": "buy", "quantity": 5, "price": 2}), Err("this region")),
    ] {
        match (judge_call(&tool, &order, &context), expected) {
            (Verdict::Ask { cost: Some(cost), .. }, Ok(amount)) => {
                assert_eq!(cost.to_string(), amount, "{order}");
            }
            (Verdict::Deny(denial), Err(reason)) => {
                assert!(denial.reason.contains(reason), "{}", denial.reason);
            }
            (other, _) => panic!("{order}: {other:?}"),
        }
    }
}
