//! The commands that look after a database: `greenroom migrate` and `greenroom audit verify` (D5, X6).

use crate::harness::Desk;

#[tokio::test]
async fn d5_migrate_takes_the_database_that_serve_would() {
    let desk = Desk::new();
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
