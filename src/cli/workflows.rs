//! `greenroom workflows`: what a running server can start (C3), files and prompts of tool servers.

use super::{ConfigArgs, client::ApiClient, terminal};
use serde_json::Value;
use std::fmt::Write as _;

/// List the workflows of a running server.
#[derive(Debug, clap::Args)]
pub struct WorkflowsArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON, as the server answers
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub async fn run(args: WorkflowsArgs) -> anyhow::Result<()> {
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let found = client.get("/agent/workflows").await?;
    if args.json {
        return Ok(terminal::print(&format!("{found:#}\n"))?);
    }
    Ok(terminal::print(&listing(&found))?)
}

fn listing(found: &Value) -> String {
    let all = |value: &Value| value.as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    let text = |value: &Value| terminal::escape_unsafe(value.as_str().unwrap_or_default());
    let mut said = String::new();
    for workflow in all(&found["workflows"]) {
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
        // Writing to a text can't fail.
        let written = writeln!(said, "{line}\n    {}", text(&workflow["description"]));
        debug_assert!(written.is_ok());
    }
    for broken in all(&found["broken_workflows"]) {
        let (path, problem) = (text(&broken["path"]), text(&broken["problem"]));
        said.push_str(&format!("can't be used: {path}: {problem}\n"));
    }
    if said.is_empty() {
        "There are none; `workflows = [\"FOLDER\"]` in the configuration names folders of them.\n"
            .clone_into(&mut said);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c3_each_is_shown_as_it_is_typed() {
        let found = json!({
            "workflows": [{
                "name": "restock", "description": "Buy.\u{1b}[2J",
                "inputs": [
                    {"name": "n", "type": "integer", "required": false, "default": 7},
                    {"name": "type_id", "type": "integer", "required": true},
                ],
            }],
            "broken_workflows": [{"path": "w/x.md", "problem": "it is no text"}],
        });
        assert_eq!(
            listing(&found),
            "/restock [n=7] type_id=integer\n    Buy.\\u{1b}[2J\ncan't be used: w/x.md: it is no text\n"
        );
        assert!(listing(&json!({})).starts_with("There are none"));
    }
}
