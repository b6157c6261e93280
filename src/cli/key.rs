//! `greenroom key`: API keys of a running server, through its administration. There is no way
//! around the server: it alone writes its database.

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

/// Make, list and revoke API keys of a running server.
#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    /// Configuration file [default: greenroom.toml, if there is one]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum KeyCommand {
    /// Make a key and print it, this once
    Create {
        /// Who calls with it
        #[arg(long, value_name = "ID")]
        user: UserId,
        /// What they may do: user, approver or admin
        #[arg(long, default_value = "user")]
        role: Role,
        /// What people call the key
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
    },
    /// List the keys, revoked ones too; not the keys themselves, which nobody has
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key: it opens nothing any more, and what it has opened ends
    Revoke {
        /// The key's id, as `list` prints it
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
            let wish = json!({"user_id": user, "role": role, "name": name});
            let key = client.post("/admin/keys", &wish).await?;
            let id = text(&key, "key_id");
            print(&format!("{}\n", text(&key, "key")))
                .with_context(|| format!("key {id} was made and can't be shown; revoke it"))?;
            // Beside the key, so that a script can take the key alone.
            print_status(&format!("key {id} for user {user}, role {role}; it is not shown again"));
        }
        KeyCommand::List { json } => {
            let answer = client.get("/admin/keys").await?;
            let keys = answer["keys"].as_array().cloned().unwrap_or_default();
            if json {
                print(&format!("{}\n", serde_json::to_string_pretty(&keys)?))?;
            } else if keys.is_empty() {
                print("There are none; `greenroom key create` makes one.\n")?;
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
    let state = day("revoked_at").map_or("works".to_owned(), |day| format!("revoked {day}"));
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
    fn a_line_says_whether_the_key_works() {
        let mut key = json!({
            "key_id": "0198c0de-0000-7000-8000-000000000001", "user_id": "ada", "role": "approver",
            "name": null, "created_at": "2026-03-04T05:06:07.008Z", "revoked_at": null,
        });
        let start =
            "0198c0de-0000-7000-8000-000000000001  approver  ada                   2026-03-04";
        assert_eq!(line(&key), format!("{start}  works\n"));
        key["revoked_at"] = json!("2026-04-05T00:00:00.000Z");
        key["name"] = json!("night shift");
        assert_eq!(line(&key), format!("{start}  revoked 2026-04-05  night shift\n"));
    }
}
