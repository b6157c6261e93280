//! Tests of `greenroom backup` (D10).

use crate::harness::{RunningServer, TestWorkspace};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

/// Number of parallel clients that write during a backup.
const WRITERS: usize = 4;
/// Number of sessions stored before the backup starts.
const SESSIONS_BEFORE: usize = 8;

/// Creates a session, sends a message, and returns both ids once they are acknowledged.
async fn write_session(server: &RunningServer) -> (String, u64) {
    let response = server.post("/agent/chat", json!({"message": "stock up"})).await;
    let session = response["session_id"].as_str().unwrap_or_else(|| panic!("{response}"));
    (session.to_owned(), last_seq(server, session).await)
}

async fn last_seq(server: &RunningServer, session: &str) -> u64 {
    let page = server.get(&format!("/agent/session/{session}/events?limit=500")).await;
    let events = page["events"].as_array().unwrap_or_else(|| panic!("{page}"));
    events.last().and_then(|event| event["seq"].as_u64()).unwrap()
}

#[tokio::test]
async fn d10_backup_during_writes_has_everything_acknowledged_before() {
    let server = TestWorkspace::new().start_server().await;
    let mut acknowledged = Vec::new();
    for _ in 0..SESSIONS_BEFORE {
        acknowledged.push(write_session(&server).await);
    }

    let write_until_backed_up = async {
        loop {
            let writes = std::iter::repeat_with(|| write_session(&server)).take(WRITERS);
            futures::future::join_all(writes).await;
        }
    };
    let backup = server.run(&["backup", "copy.db", "--json"]);
    let output = tokio::select! {
        output = backup => output,
        () = write_until_backed_up => unreachable!(),
    };
    assert_eq!(output.code, 0, "{output:?}");
    let report = output.json();
    let path = server.workspace.folder.path().join("copy.db");
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!((&report["file"], &report["bytes"]), (&json!("copy.db"), &json!(metadata.len())));
    assert!(report["sessions"].as_u64().unwrap() >= SESSIONS_BEFORE as u64, "{report}");

    // The other files of a database would be mistaken for parts of the copy.
    assert_eq!(names_starting(server.workspace.folder.path(), "copy.db"), ["copy.db"]);
    assert_eq!(names_starting(server.workspace.folder.path(), ".copy.db"), [""; 0]);
    let verified = server.run(&["audit", "verify", "--database", "copy.db"]).await;
    assert_eq!(verified.code, 0, "{verified:?}");

    let restored = TestWorkspace::new();
    fs::copy(&path, restored.folder.path().join("workspace.db")).unwrap();
    let restored = restored.start_server().await;
    for (session, seq) in acknowledged {
        assert!(last_seq(&restored, &session).await >= seq, "{session}");
    }
    write_session(&restored).await;
    // The source was not locked by the backup.
    write_session(&server).await;
}

fn names_starting(folder: &Path, start: &str) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with(start)).collect();
    names.sort();
    names
}

#[tokio::test]
async fn d10_backup_counts_sessions_and_events_of_copy() {
    let server = TestWorkspace::new().start_server().await;
    let (_, seq) = write_session(&server).await;
    let report = server.run(&["backup", "copy.db", "--json"]).await.json();
    let counted: Value = json!({"sessions": report["sessions"], "events": report["events"]});
    assert_eq!(counted, json!({"sessions": 1, "events": seq}), "{report}");
    let output = server.run(&["backup", "other.db"]).await;
    output.assert_prints(&["other.db: 1 session", "schema version"]);
}

#[tokio::test]
async fn d10_backup_overwrites_nothing_and_leaves_no_partial_file() {
    let workspace = TestWorkspace::new();
    assert_eq!(workspace.run(&["migrate"]).await.code, 0);
    let path = |name: &str| workspace.folder.path().join(name);
    workspace.write("taken.db", "precious");
    workspace.write("stale.db-wal", "of another database");
    workspace.write("notes.txt", "this text file is not a database, and longer than 16 bytes");
    workspace.write("empty.db", "");
    std::os::unix::fs::symlink("nowhere", path("link.db")).unwrap();
    // Damages the copied pages after the first, which has the schema.
    let mut damaged = fs::read(path("workspace.db")).unwrap();
    damaged[4096..].fill(0xff);
    fs::write(path("damaged.db"), damaged).unwrap();

    let cases: [(&[&str], &str); 9] = [
        (&["taken.db"], "taken.db exists"),
        (&["workspace.db"], "workspace.db exists"),
        (&["link.db"], "link.db exists"),
        (&["stale.db"], "stale.db-wal is left over from another database"),
        (&["missing/copy.db"], "No such file"),
        (&["copy.db", "--database", "nope.db"], "No such file"),
        (&["copy.db", "--database", "notes.txt"], "is not an SQLite database"),
        (&["copy.db", "--database", "empty.db"], "greenroom migrate"),
        (&["copy.db", "--database", "damaged.db"], "is damaged"),
    ];
    for (args, why) in cases {
        let output = workspace.run(&[&["backup"], args].concat()).await;
        assert_eq!(output.code, 1, "{args:?}: {output:?}");
        assert!(output.err.contains(why), "{args:?}: {output:?}");
    }
    assert_eq!(fs::read_to_string(path("taken.db")).unwrap(), "precious");
    assert!(!path("copy.db").exists());
    let partial = names_starting(workspace.folder.path(), ".");
    assert_eq!(partial, [""; 0]);
}

#[tokio::test]
async fn d10_backup_of_postgres_is_refused_and_names_pg_dump() {
    let workspace = TestWorkspace::new();
    let address = "postgres://ann:hunter2@db.example/green";
    let output = workspace.run(&["backup", "copy.db", "--database", address]).await;
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains("pg_dump") && !output.err.contains("hunter2"), "{output:?}");
    assert!(!workspace.folder.path().join("copy.db").exists());
}
