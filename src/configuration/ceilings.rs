//! `[ceilings]`: the limits of administrators (G17). The core defines their form and meaning.

use greenroom_core::{agent::AgentProfile, ids::AgentName, policy::Ceilings};
use std::collections::BTreeMap;

/// Validates ceilings: their lists, the names of agents, and that no ceiling states a value that has
/// no effect because the ceiling of the installation is narrower.
pub(super) fn validate_ceilings(
    ceilings: &Ceilings,
    agents: &BTreeMap<AgentName, AgentProfile>,
) -> Result<(), String> {
    ceilings.validate().map_err(|error| error.to_string())?;
    if let Some(name) = ceilings.agents.keys().find(|name| !agents.contains_key(name)) {
        return Err(format!("agents.{name}: there is no agent `{name}`"));
    }
    let installation =
        Ceilings { installation: ceilings.installation.clone(), ..Ceilings::default() };
    ceilings.validate_within(&installation).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use crate::configuration::{Configuration, Environment};
    use greenroom_core::policy::Ceilings;
    use serde_json::json;
    use std::path::Path;

    fn load(toml: &str) -> Result<Ceilings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("greenroom.toml");
        std::fs::write(&path, toml).unwrap();
        let configuration = Configuration::load(Some(&path), &Environment::new());
        configuration.map(|configuration| configuration.ceilings).map_err(|error| error.to_string())
    }

    #[test]
    fn g17_ceilings_are_loaded_for_every_scope() {
        let loaded = load(
            "[ceilings]\nautonomy_level = 2\n[ceilings.roles.user]\nrequire_confirmation = true\n\
             [ceilings.agents.default]\nblocked_tools = [\"wipe_*\"]\n[ceilings.users.ann]\n\
             budget_limits = [{ amount = 5, unit = \"ISK\", period = \"day\" }]",
        );
        let expected = json!({
            "autonomy_level": 2, "roles": {"user": {"require_confirmation": true}},
            "agents": {"default": {"blocked_tools": ["wipe_*"]}},
            "users": {"ann": {"budget_limits": [{"amount": 5, "unit": "ISK", "period": "day"}]}},
        });
        assert_eq!(loaded, Ok(serde_json::from_value(expected).unwrap()));
        assert_eq!(load(""), Ok(Ceilings::default()));
    }

    #[test]
    fn g17_ceilings_without_effect_are_rejected_with_location() {
        for (toml, expected) in [
            (
                "[ceilings]\nautonomy_level = 1\n[ceilings.roles.admin]\nautonomy_level = 2",
                "roles.admin.autonomy_level: 2 exceeds 1, the ceiling of the installation",
            ),
            (
                "[ceilings.agents.trader]\nautonomy_level = 1",
                "agents.trader: there is no agent `trader`",
            ),
            ("[ceilings.roles.root]\nautonomy_level = 1", "unknown value `root`"),
            ("[ceilings]\nautonomy = 1", "unknown key `autonomy`"),
        ] {
            let error = load(toml).unwrap_err();
            assert!(error.contains("greenroom.toml") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn g17_example_of_a_team_enforces_ceilings() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/team.toml");
        let configuration = Configuration::load(Some(&example), &Environment::new()).unwrap();
        let expected = json!({
            "allowed_regions": [10_000_002, 10_000_030, 10_000_032, 10_000_042, 10_000_043],
            "roles": {"user": {
                "autonomy_level": 2, "require_confirmation": true,
                "budget_limits": [{"amount": 50_000_000, "unit": "ISK", "period": "day"}],
            }},
        });
        assert_eq!(configuration.ceilings, serde_json::from_value(expected).unwrap());
    }
}
