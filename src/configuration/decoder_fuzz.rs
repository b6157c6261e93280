//! Fuzz tests of the configuration's decoders. No file or environment variable causes a panic, and
//! every error names its place.

use super::{Environment, config_file::ConfigFile, mcp_servers, source};
use crate::hostile_input;
use proptest::prelude::*;

const FILES: &[&str] = &[
    "listen = \"127.0.0.1:7878\"\ndatabase = \"green.db\"\ndurability = \"process\"\ndrain = \"5s\"\n\
     [agents.default]\nmodel = \"claude\"\napprovals = { deadline = \"10m\" }\n",
    "[models.claude]\nprovider = \"anthropic\"\nmodel = \"x\"\nbase_url = \"https://a.example\"\n\
     prices = { input = 3.0, output = 15.0 }\n[tools.\"get_*\"]\nrisk = \"read_only\"\ntimeout = \"none\"\n",
    "[mcpServers.market]\ncommand = \"market\"\nargs = [\"-v\"]\nenv = { A = \"${HOME}\" }\n\
     [policy]\npreset = \"strict\"\n[policy.L2]\nlow = \"ask\"\n[limits]\nchildren_per_run = 4\n",
    "[budgets]\nrun = { usd = 5 }\n[settings]\nautonomy_level = 1\n[redaction]\npatterns = [\"x+\"]\n",
];

const MCP_FILES: &[&str] = &[
    r#"{"mcpServers":{"market":{"command":"market","args":["-v"],"env":{"A":"b"},"timeout":60},"web":{"url":"https://mcp.example","headers":{"Authorization":"Bearer ${T}"}}},"other":1}"#,
];

const VARIABLES: &[&str] = &["5", "\"x\"", "[1, 2]", "{ a = 1 }", "true", "10m", "green.db"];

const KEYS: &[&str] =
    &["LISTEN", "AGENTS__DEFAULT__MODEL", "POLICY__L0__LOW", "MCPSERVERS__A__COMMAND", "DRAIN__X"];

proptest! {
    #[test]
    fn i1_files_are_parsed_or_rejected_with_their_place(
        text in hostile_input::text(FILES),
        key in hostile_input::text(KEYS),
        value in hostile_input::text(VARIABLES),
    ) {
        let environment: Environment = [(format!("GREENROOM_{key}"), value)].into();
        let parsed = source::parse::<ConfigFile>(&text, "file");
        let applied = parsed
            .and_then(|document| source::apply_environment(document, &text, &environment).map(drop));
        if let Err(error) = applied {
            prop_assert!(error.to_string().contains(": "), "{}", error);
        }
    }

    #[test]
    fn i1_mcp_files_are_parsed_or_rejected(text in hostile_input::text(MCP_FILES)) {
        if let Err(error) = mcp_servers::parse_mcp_json(&text) {
            prop_assert!(!error.is_empty());
        }
    }

    #[test]
    fn i1_mcp_values_are_parsed_or_rejected(value in hostile_input::json(MCP_FILES)) {
        if let Err(error) = mcp_servers::parse_mcp_json(&value.to_string()) {
            prop_assert!(!error.is_empty());
        }
    }
}
