//! Tests of commands on a database: `greenroom migrate` and `greenroom audit verify` (D5, X6).

use crate::harness::TestWorkspace;

#[tokio::test]
async fn d5_migrate_uses_same_database_as_serve() {
    let workspace = TestWorkspace::new();
    let exists = |name: &str| workspace.folder.path().join(name).exists();
    let migrated = workspace.run(&["migrate"]).await;
    assert_eq!(migrated.code, 0, "{migrated:?}");
    assert_eq!((exists("workspace.db"), exists("greenroom.db")), (true, false));
    assert_eq!(workspace.run(&["migrate"]).await.out, "schema version 10, nothing to do\n");

    workspace.write("other.toml", "database = \"other.db\"\n");
    assert_eq!(workspace.run(&["migrate", "--config", "other.toml"]).await.code, 0);
    assert!(exists("other.db"));

    // With `--database`, the configuration is not read.
    workspace.write("greenroom.toml", "database = 7");
    assert_eq!(workspace.run(&["migrate"]).await.code, 1);
    assert_eq!(workspace.run(&["migrate", "--database", "named.db"]).await.code, 0);
    assert!(exists("named.db"));
}

#[tokio::test]
async fn x6_unreadable_audit_log_is_not_reported_as_broken() {
    let workspace = TestWorkspace::new();
    let verify =
        async |database: &str| workspace.run(&["audit", "verify", "--database", database]).await;
    workspace.write("notes.txt", "this text file is not a database, and longer than 16 bytes");
    workspace.write("empty.db", "");
    let cases = [
        ("nope.db", "No such file"),
        ("notes.txt", "is not an SQLite database"),
        ("empty.db", "greenroom migrate"),
    ];
    for (database, why) in cases {
        let output = verify(database).await;
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.err.contains(why) && !output.err.contains("is invalid"), "{output:?}");
    }

    workspace.run(&["migrate", "--database", "sound.db"]).await;
    let sound = verify("sound.db").await;
    assert_eq!(sound.code, 0, "{sound:?}");
    let anchor = format!("1:{}", "ab".repeat(32));
    let args = ["audit", "verify", "--database", "sound.db", "--anchor", &anchor];
    let unsound = workspace.run(&args).await;
    assert_eq!(unsound.code, 1, "{unsound:?}");
    assert!(unsound.err.contains("is invalid"), "{unsound:?}");
}
