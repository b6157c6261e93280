//! Tests of tool names and of their owners.

use super::*;
use crate::policy::ServerProfile;
use proptest::prelude::*;

fn server_tools(name: &str, tools: &[&str]) -> ServerTools {
    let remote = |name: &&str| RemoteTool { name: (*name).to_owned(), ..RemoteTool::default() };
    let server = ServerProfile { name: name.to_owned(), ..ServerProfile::default() };
    ServerTools { server, tools: tools.iter().map(remote).collect() }
}

/// Claims names for the listed tools, and returns the name of each tool as `server/tool → name`.
fn listed_names(owners: &mut NameOwners, servers: &[(&str, &[&str])]) -> Vec<String> {
    let servers: Vec<_> = servers.iter().map(|(name, tools)| server_tools(name, tools)).collect();
    owners.claim(&servers);
    let origins = servers.iter().flat_map(|server| {
        server.tools.iter().map(|tool| (server.server.name.clone(), tool.name.clone()))
    });
    let names = assign_names(&origins.collect(), owners);
    assert!(names.values().all(|name| is_legal(name.as_str())), "{names:?}");
    names.iter().map(|((server, tool), name)| format!("{server}/{tool} → {name}")).collect()
}

fn names(servers: &[(&str, &[&str])]) -> Vec<String> {
    listed_names(&mut NameOwners::default(), servers)
}

#[test]
fn g19_short_name_stays_with_the_server_that_had_it_first() {
    let mut owners = NameOwners::default();
    let lab_first = listed_names(&mut owners, &[("evil", &[]), ("lab", &["both"])]);
    assert_eq!(lab_first, ["lab/both → both"]);
    // Another server adds the name.
    let both: &[(&str, &[&str])] = &[("evil", &["both"]), ("lab", &["both"])];
    let expected = ["evil/both → evil__both", "lab/both → both"];
    assert_eq!(listed_names(&mut owners, both), expected);
    // The owner drops the tool, and adds it again.
    let dropped = listed_names(&mut owners, &[("evil", &["both"]), ("lab", &[])]);
    assert_eq!(dropped, ["evil/both → evil__both"]);
    assert_eq!(listed_names(&mut owners, both), expected);
    // After a restart, the other server connects first.
    let mut restarted = NameOwners::from_stored(owners.changes_since(&NameOwners::default()));
    let early = listed_names(&mut restarted, &[("evil", &["both"]), ("lab", &[])]);
    assert_eq!(early, ["evil/both → evil__both"]);
    assert_eq!(listed_names(&mut restarted, both), expected);
    // Another server gets the name once its owner is not configured.
    assert_eq!(listed_names(&mut restarted, &[("evil", &["both"])]), ["evil/both → both"]);
    assert_eq!(restarted.changes_since(&owners), [("both".to_owned(), "evil".to_owned())]);
}

#[test]
fn g19_long_name_belongs_to_its_server() {
    assert_eq!(
        names(&[("evil", &["lab__both", "lab__both_03d5bdf5"]), ("lab", &["both"])]),
        [
            "evil/lab__both → evil__lab__both",
            "evil/lab__both_03d5bdf5 → evil__lab__both_03d5bdf5_0b150b0e",
            "lab/both → both",
        ]
    );
}

#[test]
fn g19_name_with_digest_is_that_of_earlier_versions() {
    let expected = ["both", "lab__both", "lab__both", "lab__both_03d5bdf5"];
    assert_eq!(every_name("lab", "both"), expected);
}

#[test]
fn g19_built_in_names_are_reserved() {
    assert_eq!(
        names(&[("a", &["delegate", "submit_plan", "read_skill", "read_resource", "other"])]),
        [
            "a/delegate → a__delegate",
            "a/other → other",
            "a/read_resource → a__read_resource",
            "a/read_skill → a__read_skill",
            "a/submit_plan → a__submit_plan",
        ]
    );
    assert_eq!(
        names(&[("a", &["delegate", "echo"]), (BUILT_IN_SERVER, &["delegate", "echo"])]),
        [
            "a/delegate → a__delegate",
            "a/echo → a__echo",
            "built-in/delegate → delegate",
            "built-in/echo → echo",
        ]
    );
}

#[test]
fn g19_illegal_or_long_name_has_digest() {
    let names = names(&[("my server", &["näme.x", "n_me_x"]), ("s", &[&"x".repeat(100), ""])]);
    assert_eq!(names[0], "my server/n_me_x → n_me_x");
    assert!(names[1].starts_with("my server/näme.x → my_server__n_me_x_"), "{names:?}");
    assert!(names[2].starts_with("s/ → s___") || names[2].starts_with("s/ → s__"), "{names:?}");
    assert!(names[3].contains(" → s__xxx"), "{names:?}");
}

#[test]
fn g19_names_of_a_server_are_bounded() {
    let mut owners = NameOwners::default();
    for round in 0..5 {
        let tools: Vec<_> =
            (0..limits::TOOLS_PER_SERVER_MAX).map(|tool| format!("tool_{round}_{tool}")).collect();
        let tools: Vec<_> = tools.iter().map(String::as_str).collect();
        listed_names(&mut owners, &[("evil", &tools)]);
    }
    assert_eq!(owners.owners.len(), limits::SHORT_NAMES_PER_SERVER_MAX);
    let late = listed_names(&mut owners, &[("evil", &["late"]), ("lab", &["early"])]);
    assert_eq!(late, ["evil/late → evil__late", "lab/early → early"]);
}

#[test]
fn g19_server_name_can_not_contain_the_separator() {
    for name in ["lab", "my server", "a_b", "_a", "mcp-server-fetch", "ä"] {
        let expected = if name == "ä" { Err(()) } else { Ok(()) };
        assert_eq!(validate_server_name(name).map_err(drop), expected, "{name}");
    }
    for name in ["a__b", "a_", "a. b", "a ", "_", "", "built-in", &"x".repeat(49)] {
        assert!(validate_server_name(name).is_err(), "{name}");
    }
}

proptest! {
    #[test]
    fn g19_tools_of_two_servers_never_have_the_same_name(
        tools in prop::collection::vec(("[ab_]{1,3}", "[abl_.]{0,8}|[a-f0-9_]{9,70}"), 1..30),
    ) {
        let is_valid = |(server, _): &(String, String)| validate_server_name(server).is_ok();
        let mut lists: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (server, tool) in tools.into_iter().filter(is_valid) {
            lists.entry(server).or_default().push(tool);
        }
        let servers: Vec<_> = lists
            .iter()
            .map(|(server, tools)| {
                server_tools(server, &tools.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .collect();
        let mut owners = NameOwners::default();
        owners.claim(&servers);
        let origins: BTreeSet<_> = lists
            .iter()
            .flat_map(|(server, tools)| tools.iter().map(|tool| (server.clone(), tool.clone())))
            .collect();
        let names = assign_names(&origins, &owners);
        prop_assert_eq!(names.len(), origins.len());
        for ((server, tool), name) in &names {
            // The name does not depend on the other tools, and blocks of every name apply.
            prop_assert!(name.as_str() == tool || name.as_str() == long_name(server, tool));
            prop_assert!(every_name(server, tool).iter().any(|known| known == name.as_str()));
        }
    }
}
