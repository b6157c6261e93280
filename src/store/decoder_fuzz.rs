//! Fuzz tests of stored commits and of database addresses: a damaged row is an error, not a panic,
//! and a decoded one is encoded again.

use super::{DatabaseLocation, codec};
use crate::hostile_input;
use greenroom_core::ids::Seq;
use proptest::prelude::*;

const COMMITS: &[&str] = &[
    r#"[{"seq":1,"at":"2026-09-21T14:13:20.250Z","type":"session_created","payload":{"owner":"ann","agent":"trader","settings":{"autonomy_level":1,"require_confirmation":true,"blocked_tools":[],"allowed_regions":null,"budget_limit":null}}},{"seq":2,"at":"2026-09-21T14:13:20.500Z","run_id":"01a0c450-6df4-7728-ac7a-8002084e39cf","type":"message_accepted","payload":{"message_id":"u1","text":"How much is it?","digest":"bb82030dbc2bcaba32a90bf2e207a84a856fc5f033b77c480836ab6f77f40f19"}}]"#,
];

const ADDRESSES: &[&str] = &[
    "postgres://ann:hunter2%40@db.example:6543/green?sslmode=require&options[a]=b",
    "green.db",
    "mysql://h/d",
];

proptest! {
    #[test]
    fn d7_stored_commits_round_trip_or_are_damaged(
        text in hostile_input::text(COMMITS),
        value in hostile_input::json(COMMITS),
    ) {
        for text in [text, value.to_string()] {
            let Ok(records) = codec::decode(codec::FORMAT, &text, Seq(1), Seq(2)) else { continue };
            prop_assert_eq!(records.len(), 2);
            let encoded = codec::encode(&records);
            let encoded = encoded.map_err(|error| TestCaseError::fail(error.to_string()))?;
            let again = codec::decode(codec::FORMAT, &encoded, Seq(1), Seq(2));
            prop_assert_eq!(again.ok(), Some(records));
        }
    }

    /// The password is in no error and in no displayed address. A text that contains it twice may
    /// have it in another part; the tests of `database` cover the address that was pasted twice.
    #[test]
    fn d5_addresses_are_parsed_or_rejected_without_the_password(
        text in hostile_input::text(ADDRESSES),
    ) {
        let has_password_once = text.matches("hunter2").count() == 1;
        match text.parse::<DatabaseLocation>() {
            Ok(database @ DatabaseLocation::Postgres(_)) => {
                let is_password = database.passwords().iter().any(|text| text.contains("hunter2"));
                if is_password && has_password_once {
                    prop_assert!(!database.to_string().contains("hunter2"), "{}", database);
                }
            }
            Ok(DatabaseLocation::Sqlite(_)) => prop_assert!(!text.contains("://")),
            Err(error) => {
                let is_shown = has_password_once && error.contains("hunter2");
                prop_assert!(!error.is_empty() && !is_shown, "{}", error);
            }
        }
    }
}
