//! `greenroom key`: manages API keys through the administration API of a running server.
//!
//! The command does not open the database, since the server is its only writer.

use super::{
    ConfigArgs,
    client::ApiClient,
    terminal::{print, print_status},
};
use crate::auth::{KeyId, Role};
use anyhow::Context as _;
use greenroom_core::ids::UserId;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Create, list and revoke API keys of a running server
#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    /// Configuration file [default: greenroom.toml, if it exists]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum KeyCommand {
    /// Create a key and print it; it is not shown again
    Create {
        /// User id of the key
        #[arg(long, value_name = "ID")]
        user: UserId,
        /// Role of the key: user, approver or admin
        #[arg(long, default_value = "user")]
        role: Role,
        /// Display name of the key
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
    },
    /// List all keys, including revoked ones, without their secrets
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key; requests with it are rejected and its open streams end
    Revoke {
        /// Id of the key, as printed by `list`
        #[arg(value_name = "ID")]
        key_id: KeyId,
    },
}

/// Runs the command.
pub async fn run(args: KeyArgs) -> anyhow::Result<()> {
    let config = ConfigArgs { config: args.config };
    let client = ApiClient::from_configuration(&config.load()?)?;
    match args.command {
        KeyCommand::Create { user, role, name } => {
            let request = json!({"user_id": user, "role": role, "name": name});
            let key = client.post("/admin/keys", &request).await?;
            let id = text(&key, "key_id");
            print(&format!("{}\n", text(&key, "key")))
                .with_context(|| format!("key {id} was created but not printed; revoke it"))?;
            // On standard error, so that standard output has the key alone.
            print_status(&format!(
                "key {id} for user {user}, role {role}; the key is not shown again"
            ));
        }
        KeyCommand::List { json } => {
            let response = client.get("/admin/keys").await?;
            let keys = response["keys"].as_array().cloned().unwrap_or_default();
            if json {
                print(&format!("{}\n", serde_json::to_string_pretty(&keys)?))?;
            } else if keys.is_empty() {
                print("No API keys. Create one with `greenroom key create`.\n")?;
            } else {
                print(&keys.iter().map(line).collect::<String>())?;
            }
        }
        KeyCommand::Revoke { key_id } => {
            client.delete(&format!("/admin/keys/{key_id}")).await?;
            print(&format!("revoked {key_id}\n"))?;
        }
    }
    Ok(())
}

fn line(key: &Value) -> String {
    let day = |at: &str| text(key, at).get(..10).map(str::to_owned);
    let state = day("revoked_at").map_or("active".to_owned(), |day| format!("revoked {day}"));
    let created = day("created_at").unwrap_or_default();
    let (id, user, role) = (text(key, "key_id"), text(key, "user_id"), text(key, "role"));
    let name = text(key, "name");
    let line = format!("{id}  {role:8}  {user:20}  {created}  {state:18}  {name}");
    format!("{}\n", line.trim_end())
}

fn text<'a>(key: &'a Value, field: &str) -> &'a str {
    key[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_shows_active_and_revoked_keys() {
        let mut key = json!({
            "key_id": "0198c0de-0000-7000-8000-000000000001", "user_id": "ada", "role": "approver",
            "name": null, "created_at": "2026-03-04T05:06:07.008Z", "revoked_at": null,
        });
        let start =
            "0198c0de-0000-7000-8000-000000000001  approver  ada                   2026-03-04";
        assert_eq!(line(&key), format!("{start}  active\n"));
        key["revoked_at"] = json!("2026-04-05T00:00:00.000Z");
        key["name"] = json!("night shift");
        assert_eq!(line(&key), format!("{start}  revoked 2026-04-05  night shift\n"));
    }
}
