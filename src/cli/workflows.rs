//! `greenroom workflows`: lists the workflows of a running server (C3): files and prompts of tool
//! servers.

use super::{ConfigArgs, client::ApiClient, terminal};
use serde_json::Value;
use std::fmt::Write as _;

/// List the workflows of a running server
#[derive(Debug, clap::Args)]
pub struct WorkflowsArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the server's JSON response
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub async fn run(args: WorkflowsArgs) -> anyhow::Result<()> {
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let response = client.get("/agent/workflows").await?;
    if args.json {
        return Ok(terminal::print(&format!("{response:#}\n"))?);
    }
    Ok(terminal::print(&listing(&response))?)
}

fn listing(response: &Value) -> String {
    let all = |value: &Value| value.as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    let text = |value: &Value| terminal::escape_unsafe(value.as_str().unwrap_or_default());
    let mut out = String::new();
    for workflow in all(&response["workflows"]) {
        let mut line = format!("/{}", text(&workflow["name"]));
        for input in all(&workflow["inputs"]) {
            let name = text(&input["name"]);
            let kind = text(&input["type"]);
            let default = &input["default"];
            let pair = if default.is_null() {
                format!("{name}={kind}")
            } else {
                format!("{name}={}", terminal::escape_unsafe(&default.to_string()))
            };
            let is_required = input["required"].as_bool().unwrap_or_default();
            line.push_str(&if is_required { format!(" {pair}") } else { format!(" [{pair}]") });
        }
        // Writing to a `String` does not fail.
        let written = writeln!(out, "{line}\n    {}", text(&workflow["description"]));
        debug_assert!(written.is_ok());
    }
    for broken in all(&response["broken_workflows"]) {
        let (path, problem) = (text(&broken["path"]), text(&broken["problem"]));
        out.push_str(&format!("invalid: {path}: {problem}\n"));
    }
    if out.is_empty() {
        "No workflows. Set `workflows = [\"FOLDER\"]` in the configuration to load some.\n"
            .clone_into(&mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c3_listing_shows_workflows_as_typed_in_chat() {
        let response = json!({
            "workflows": [{
                "name": "restock", "description": "Buy.\u{1b}[2J",
                "inputs": [
                    {"name": "n", "type": "integer", "required": false, "default": 7},
                    {"name": "type_id", "type": "integer", "required": true},
                ],
            }],
            "broken_workflows": [{"path": "w/x.md", "problem": "the file is not UTF-8 text"}],
        });
        assert_eq!(
            listing(&response),
            "/restock [n=7] type_id=integer\n    Buy.\\u{1b}[2J\n\
             invalid: w/x.md: the file is not UTF-8 text\n"
        );
        assert!(listing(&json!({})).starts_with("No workflows"));
    }
}
