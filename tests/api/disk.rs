//! Storage faults (D5, D8): a full, read-only or failing disk, a locked database, and files that
//! cannot be served. The database is on a small disk of its own.

use crate::{
    harness::{POLL_INTERVAL, TEST_TIMEOUT, TOKEN, TestServer, TestServerBuilder, run},
    scripts::{ORDER, STALLS_ONCE, tool_call_script},
    stream::{format_frames, frames_of_kind, last_message_text, single_frame},
};
use futures::future::join_all;
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, SqliteConnection, sqlite::SqliteConnectOptions,
};
use std::{
    fs,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// Size of the disk in bytes: room for some sessions, but quickly full.
const DISK_BYTES: u64 = 4 * 1024 * 1024;
/// Number of sessions that send messages while the disk fills up.
const SESSIONS: usize = 6;

/// A script that calls a slow tool whose side effect is recorded outside the disk.
const SCAN: &str = r#"
[[rule]]
user = "scan"
step = 0
[[rule.reply]]
tool_call = { name = "scan_opportunities", arguments = { region_id = 10000002, seconds = 2 } }
[[rule]]
user = "scan"
step = 1
[[rule.reply]]
text = "Scanned."
"#;

/// A small disk in memory, mounted until the value is dropped.
struct Disk(TempDir);

impl Disk {
    fn mount() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        mount(&format!("size={DISK_BYTES},mode=0700"), folder.path());
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of the database on the disk.
    fn database(&self) -> String {
        self.path().join("greenroom.db").display().to_string()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Fills the remaining space.
    fn fill(&self) {
        let file = fs::OpenOptions::new().create(true).append(true).open(self.filler());
        let mut file = file.expect("the file can be opened");
        let full = loop {
            if let Err(error) = file.write_all(&[b'x'; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).expect("the filler exists");
    }

    /// Remounts the disk with another size or write mode. The write mode can only change while no
    /// file on the disk is open for writing.
    fn remount(&self, option: &str) {
        mount(&format!("remount,{option}"), self.path());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A killed server may still have files open: a lazy unmount waits until they are closed.
        let unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", self.path().display());
        }
    }
}

fn mount(options: &str, on: &Path) {
    // With the type and options given in full, `mount` does not add options that a user namespace
    // rejects.
    let args = ["-t", "tmpfs", "-o", options, "greenroom-test"];
    let output = Command::new("mount").args(args).arg(on).output();
    let output = output.expect("these tests need the program `mount`");
    assert!(
        output.status.success(),
        "these tests mount a small disk: run them as root, or in their own namespace with \
         `unshare --map-root-user --mount`. {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Opens a second connection to the server's database.
async fn second_connection(database: &str) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(database);
    options.connect().await.expect("the database can be opened")
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.expect("the statement succeeds");
}

/// Starts the server, which must fail, and returns its error output.
async fn startup_error(folder: &Path, database: &str) -> String {
    let env = [
        ("GREENROOM_DATABASE", database),
        ("GREENROOM_LISTEN", "127.0.0.1:0"),
        ("GREENROOM_TOKEN", TOKEN),
    ];
    let output = run(folder, &["serve"], &env).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    error
}

async fn wait_until_ready(server: &TestServer) {
    let ready = async {
        while server.get("/readyz").await.status != 200 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, ready).await.expect("the server recovers");
}

/// Waits until the session's tool has finished and its result cannot be stored.
async fn wait_until_result_deferred(server: &TestServer, session: &str) {
    let session_actors = format!("/admin/actors?prefix=/sessions/{session}");
    let poll = async {
        loop {
            let response = server.get(&session_actors).await.expect_ok();
            let actors = response["actors"].as_array().unwrap().clone();
            let is_kind = |kind: &'static str| move |actor: &&Value| actor["kind"] == kind;
            let state = actors.iter().find(is_kind("Session")).map(|actor| &actor["state"]);
            if state == Some(&json!("not storing"))
                && !actors.iter().any(|actor| is_kind("ToolExecutor")(&actor))
            {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, poll).await.expect("the result arrives and is not stored");
}

#[actix_web::test]
async fn d8_full_disk_refuses_writes_serves_reads_and_keeps_results() {
    let disk = Disk::mount();
    let script = format!("{SCAN}{STALLS_ONCE}{}", tool_call_script("market_order_create", ORDER));
    let setup = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script)
        .with_database(&disk.database());
    let server = setup.start().await;
    // One session waits for approval, and one for its tool.
    let approving = server.create_session_at(1).await;
    let mut run = server.chat(&approving, "go").await;
    let plan_id =
        run.read_until("waiting_for_approval").await.last().unwrap().data["plan_id"].clone();
    let scanning = server.create_session_at(1).await;
    let mut scan = server.chat(&scanning, "scan").await;
    scan.read_until("tool_call_progress").await;

    disk.fill();
    let execute = json!({"session_id": approving, "plan_id": plan_id});
    server.post("/agent/execute", execute.clone()).await.expect_problem(503, "unavailable");
    server.post("/agent/session", json!({})).await.expect_problem(503, "unavailable");
    let message = json!({"session_id": approving, "message": "again", "on_busy": "queue"});
    server.post("/agent/chat/stream", message).await.expect_problem(503, "unavailable");
    server
        .patch("/agent/settings", json!({"autonomy_level": 0}))
        .await
        .expect_problem(503, "unavailable");
    assert_eq!(server.get("/readyz").await.status, 503);
    assert_eq!(server.get("/healthz").await.status, 200);
    wait_until_result_deferred(&server, &scanning).await;
    // Stored events can be read, and no side effect has happened.
    let before = server.events(&scanning).await;
    let is_result = |event: &Value| event["type"] == "tool_call_completed";
    assert!(!before.is_empty() && !before.iter().any(is_result), "{before:?}");
    assert_eq!(
        server.get(&format!("/agent/session/{approving}")).await.expect_ok()["status"],
        "waiting"
    );
    assert_eq!(
        server.get("/agent/approvals?state=pending").await.expect_ok()["approvals"][0]["approval_id"],
        plan_id
    );
    assert!(server.effects().is_empty());

    disk.make_room();
    wait_until_ready(&server).await;
    let rest = scan.read_to_end().await;
    assert_eq!(
        single_frame(&rest, "done").data["outcome"],
        "completed",
        "{}",
        format_frames(&rest)
    );
    let all = server.wait_for_event(&scanning, "done").await;
    assert_eq!(
        frames_of_kind(&all, "tool_call_attempt_started").len(),
        1,
        "{}",
        format_frames(&all)
    );
    assert_eq!(frames_of_kind(&all, "tool_call_completed").len(), 1);
    assert_eq!(server.calls().len(), 1, "the tool was not called again");
    server.post("/agent/execute", execute).await.expect_ok();
    let all = server.wait_for_event(&approving, "done").await;
    // The refused requests have had no effect.
    assert_eq!(frames_of_kind(&all, "message_queued").len(), 0, "{}", format_frames(&all));
    assert_eq!(server.effects().len(), 1);
    assert_eq!(server.get("/agent/settings").await.expect_ok()["autonomy_level"], 1);
}

/// Sends messages until one is refused for lack of space; returns the ids of the accepted ones.
async fn submit_until_full(server: &TestServer, session: &str) -> Vec<String> {
    let text = format!("again {}", "x".repeat(12_000));
    let mut accepted = Vec::new();
    loop {
        let message_id = format!("message-{}", accepted.len());
        let body = json!({
            "session_id": session, "message": text, "message_id": message_id, "on_busy": "queue",
        });
        let request = server.request(Method::POST, "/agent/chat/stream").json(&body);
        // The message is accepted once the response starts; its stream is not read.
        match request.send().await.expect("the server answers").status().as_u16() {
            200 => accepted.push(message_id),
            // The queue is full.
            429 => tokio::time::sleep(POLL_INTERVAL).await,
            503 => return accepted,
            status => panic!("{status}"),
        }
    }
}

#[actix_web::test]
async fn d8_exactly_the_acknowledged_messages_are_stored_on_a_filling_disk() {
    let disk = Disk::mount();
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_database(&disk.database());
    let mut server = setup.start().await;
    let sessions = join_all((0..SESSIONS).map(|_| server.create_session_at(1))).await;
    let accepted = sessions.iter().map(|session| submit_until_full(&server, session));
    let accepted = join_all(accepted).await;
    assert!(accepted.iter().map(Vec::len).sum::<usize>() > SESSIONS, "{accepted:?}");

    disk.remount("size=256m");
    wait_until_ready(&server).await;
    for (session, message_ids) in sessions.iter().zip(&accepted) {
        let mut subscription = server.subscribe(session, "0").await;
        for _ in message_ids {
            assert_eq!(
                subscription.read_until("done").await.last().unwrap().data["outcome"],
                "completed"
            );
        }
        let events = server.events(session).await;
        let stored = events.iter().filter(|event| event["type"] == "message_accepted");
        let stored: Vec<_> = stored.map(|event| event["message_id"].clone()).collect();
        assert_eq!(json!(stored), json!(message_ids));
        let done = events.iter().filter(|event| event["type"] == "done").count();
        assert_eq!(done, message_ids.len());
        assert_eq!(last_message_text(&server.chat_to_end(session, "again").await), "Here I am.");
    }
    assert!(server.stop().await.success());
    let mut connection = second_connection(&disk.database()).await;
    let checked = sqlx::query("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
    assert_eq!(checked.get::<String, _>(0), "ok");
    let database = disk.database();
    let env = [("GREENROOM_DATABASE", database.as_str())];
    let verified = run(server.folder(), &["audit", "verify"], &env).await;
    assert!(verified.status.success(), "{verified:?}");
}

#[actix_web::test]
async fn d8_server_started_on_a_full_disk_serves_reads_and_resumes_when_space_is_freed() {
    let disk = Disk::mount();
    let script = tool_call_script("market_order_create", ORDER);
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script)
        .with_database(&disk.database());
    let mut server = setup.start().await;
    let session = server.create_session_at(1).await;
    let mut run = server.chat(&session, "go").await;
    let plan_id =
        run.read_until("waiting_for_approval").await.last().unwrap().data["plan_id"].clone();
    let before = server.events(&session).await;
    disk.fill();
    server.kill_and_restart().await;
    assert_eq!(server.events(&session).await, before);
    let execute = json!({"session_id": session, "plan_id": plan_id});
    server.post("/agent/execute", execute.clone()).await.expect_problem(503, "unavailable");
    disk.make_room();
    wait_until_ready(&server).await;
    server.post("/agent/execute", execute).await.expect_ok();
    server.wait_for_event(&session, "done").await;
    assert_eq!(server.effects().len(), 1);
}

/// Linux does not remount a disk read-only while a file on it is open for writing.
#[actix_web::test]
async fn d8_read_only_disk_is_reported_at_startup() {
    let disk = Disk::mount();
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_database(&disk.database());
    let mut server = setup.start().await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "again").await;
    let before = server.events(&session).await;
    assert!(server.stop().await.success());
    disk.remount("ro");
    let error = startup_error(server.folder(), &disk.database()).await;
    assert!(error.contains(&disk.database()) && error.contains("Read-only file system"), "{error}");
    disk.remount("rw");
    server.start().await;
    assert_eq!(server.events(&session).await, before);
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

#[actix_web::test]
async fn d8_locked_database_delays_then_refuses_writes_until_unlocked() {
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "again").await;
    let file = server.folder().join("greenroom.db").display().to_string();
    let mut other_writer = second_connection(&file).await;
    let create = || server.post("/agent/session", json!({}));

    // A short lock only delays the request.
    execute(&mut other_writer, "BEGIN IMMEDIATE").await;
    let unlock = async {
        tokio::time::sleep(POLL_INTERVAL).await;
        execute(&mut other_writer, "ROLLBACK").await;
    };
    let (created, ()) = futures::join!(create(), unlock);
    created.expect_ok();

    execute(&mut other_writer, "BEGIN IMMEDIATE").await;
    let path = format!("/agent/session/{session}");
    let (refused, ready, read) = futures::join!(create(), server.get("/readyz"), server.get(&path));
    refused.expect_problem(503, "unavailable");
    assert_eq!(ready.status, 503);
    assert_eq!(read.expect_ok()["status"], "idle");
    // A server that starts while the database is locked serves reads, too.
    server.kill_and_restart().await;
    assert_eq!(server.get(&path).await.expect_ok()["status"], "idle");
    server.post("/agent/session", json!({})).await.expect_problem(503, "unavailable");
    execute(&mut other_writer, "ROLLBACK").await;
    wait_until_ready(&server).await;
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

/// Page size of SQLite's files, in bytes.
const PAGE: usize = 4096;

#[actix_web::test]
async fn d8_damaged_database_is_reported_with_instructions_and_left_unchanged() {
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    for _ in 0..3 {
        server.chat_to_end(&session, &format!("again {}", "x".repeat(3 * PAGE))).await;
    }
    let before = server.events(&session).await;
    assert!(server.stop().await.success());
    let path = server.folder().join("greenroom.db");
    let file = path.display().to_string();
    let log = server.folder().join("greenroom.db-wal");
    let log_is_empty = fs::metadata(&log).map_or(true, |log| log.len() == 0);
    assert!(log_is_empty, "the database file contains all data");
    let mut connection = second_connection(&file).await;
    // The last page becomes the root page of a table, independent of the other content.
    execute(&mut connection, "CREATE TABLE last (page TEXT); PRAGMA wal_checkpoint(TRUNCATE)")
        .await;
    connection.close().await.unwrap();
    let whole = fs::read(&path).unwrap();
    let last = whole.len() - PAGE;
    let filled = |byte: u8| {
        let mut bytes = whole.clone();
        bytes[last..].fill(byte);
        bytes
    };
    let cases = [
        ("the last page is missing", whole[..last].to_vec()),
        ("the last page is truncated", whole[..last + 100].to_vec()),
        ("half of the file is missing", whole[..PAGE * (whole.len() / PAGE / 2)].to_vec()),
        ("the last page is overwritten", filled(0xff)),
        ("the last page was never written", filled(0)),
    ];
    for (case, bytes) in cases {
        fs::write(&path, &bytes).unwrap();
        let error = startup_error(server.folder(), "greenroom.db").await;
        assert!(error.contains(&file) && error.contains("is damaged"), "{case}: {error}");
        assert!(error.contains("docs/storage.md"), "{case}: {error}");
        assert!(fs::read(&path).unwrap() == bytes, "{case}: the file was changed");
    }
    // With an empty database file, SQLite would discard the log and start anew.
    fs::write(&path, "").unwrap();
    fs::write(&log, &whole).unwrap();
    let error = startup_error(server.folder(), "greenroom.db").await;
    assert!(error.contains(&file) && error.contains("is damaged"), "{error}");
    assert!(fs::read(&log).unwrap() == whole);
    fs::remove_file(&log).unwrap();
    fs::write(&path, &whole).unwrap();
    server.start().await;
    assert_eq!(server.events(&session).await, before);
}

#[actix_web::test]
async fn d5_newer_schema_is_refused_and_left_unchanged() {
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    assert!(server.stop().await.success());
    let file = server.folder().join("greenroom.db").display().to_string();
    let version = async || {
        let row =
            sqlx::query("PRAGMA user_version").fetch_one(&mut second_connection(&file).await).await;
        row.unwrap().get::<i64, _>(0)
    };
    let current_version = version().await;
    execute(&mut second_connection(&file).await, "PRAGMA user_version = 99").await;
    let error = startup_error(server.folder(), "greenroom.db").await;
    assert!(error.contains(&file) && error.contains("schema version 99"), "{error}");
    assert!(error.contains("use a newer greenroom"), "{error}");
    assert_eq!(version().await, 99);
    let set = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {current_version}"));
    sqlx::raw_sql(set).execute(&mut second_connection(&file).await).await.unwrap();
    server.start().await;
    assert_eq!(
        server.get(&format!("/agent/session/{session}")).await.expect_ok()["status"],
        "idle"
    );
}
