//! The commands that look after a database: `greenroom migrate` and `greenroom audit verify` (D5, X6).

use crate::harness::TestWorkspace;

#[tokio::test]
async fn d5_migrate_takes_the_database_that_serve_would() {
    let desk = TestWorkspace::new();
    let there = |name: &str| desk.folder.path().join(name).exists();
    let migrated = desk.run(&["migrate"]).await;
    assert_eq!(migrated.code, 0, "{migrated:?}");
    assert_eq!((there("desk.db"), there("greenroom.db")), (true, false));
    assert_eq!(desk.run(&["migrate"]).await.out, "schema version 5, nothing to do\n");

    desk.write("other.toml", "database = \"other.db\"\n");
    assert_eq!(desk.run(&["migrate", "--config", "other.toml"]).await.code, 0);
    assert!(there("other.db"));

    // Named, it needs no configuration.
    desk.write("greenroom.toml", "database = 7");
    assert_eq!(desk.run(&["migrate"]).await.code, 1);
    assert_eq!(desk.run(&["migrate", "--database", "named.db"]).await.code, 0);
    assert!(there("named.db"));
}

#[tokio::test]
async fn x6_an_audit_log_that_cannot_be_read_is_not_said_to_be_unsound() {
    let desk = TestWorkspace::new();
    let verify =
        async |database: &str| desk.run(&["audit", "verify", "--database", database]).await;
    desk.write("notes.txt", "this is no database, and long enough to be seen as none");
    desk.write("empty.db", "");
    let cases = [
        ("nope.db", "No such file"),
        ("notes.txt", "is not an SQLite database"),
        ("empty.db", "greenroom migrate"),
    ];
    for (database, why) in cases {
        let ended = verify(database).await;
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.err.contains(why) && !ended.err.contains("is invalid"), "{ended:?}");
    }

    desk.run(&["migrate", "--database", "sound.db"]).await;
    let sound = verify("sound.db").await;
    assert_eq!(sound.code, 0, "{sound:?}");
    let anchor = format!("1:{}", "ab".repeat(32));
    let args = ["audit", "verify", "--database", "sound.db", "--anchor", &anchor];
    let unsound = desk.run(&args).await;
    assert_eq!(unsound.code, 1, "{unsound:?}");
    assert!(unsound.err.contains("is invalid"), "{unsound:?}");
}
