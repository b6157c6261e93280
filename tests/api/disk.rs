//! A disk that is full, read-only or lies, a file that is locked, and files that can't be served
//! (D5, D8): through the whole server, with the database on a small disk of its own.

use crate::{
    harness::{POLL_INTERVAL, TEST_TIMEOUT, TOKEN, TestServer, TestServerBuilder, run},
    scripts::{ORDER, STALLS_ONCE, tool_call_script},
    stream::{format_frames, last_message_text, frames_of_kind, single_frame},
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

/// Bytes of a disk: room for some sessions, and soon full.
const DISK_BYTES: u64 = 4 * 1024 * 1024;
/// Sessions that talk while the disk fills up.
const SESSIONS: usize = 6;

/// A tool that takes its time, and whose side effect is written down elsewhere.
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

/// A small disk in memory, for as long as this lives.
struct Disk(TempDir);

impl Disk {
    fn mount() -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        mount(&format!("size={DISK_BYTES},mode=0700"), folder.path());
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The database on it.
    fn database(&self) -> String {
        self.path().join("greenroom.db").display().to_string()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let file = fs::OpenOptions::new().create(true).append(true).open(self.filler());
        let mut file = file.expect("it can be opened");
        let full = loop {
            if let Err(error) = file.write_all(&[b'x'; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).expect("it is there");
    }

    /// Changes its size, or whether it can be written; the latter while nobody has a file of it open.
    fn remount(&self, option: &str) {
        mount(&format!("remount,{option}"), self.path());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A server that was just killed may still be on it: it goes when the last file is closed.
        let unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", self.path().display());
        }
    }
}

fn mount(options: &str, on: &Path) {
    // Named in full: else `mount` asks for options again that a namespace of one's own refuses.
    let args = ["-t", "tmpfs", "-o", options, "greenroom-test"];
    let output = Command::new("mount").args(args).arg(on).output();
    let output = output.expect("these tests need the program `mount`");
    assert!(
        output.status.success(),
        "these tests mount a small disk: run them as root, or in a namespace of their own with \
         `unshare --map-root-user --mount`. {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A connection beside the server's own.
async fn second_connection(database: &str) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(database);
    options.connect().await.expect("it can be opened")
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.expect("it can be done");
}

/// What the server says that does not start.
async fn startup_error(folder: &Path, database: &str) -> String {
    let env = [
        ("GREENROOM_DATABASE", database),
        ("GREENROOM_LISTEN", "127.0.0.1:0"),
        ("GREENROOM_TOKEN", TOKEN),
    ];
    let output = run(folder, &["serve"], &env).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

async fn wait_until_ready(server: &TestServer) {
    let ready = async {
        while server.get("/readyz").await.status != 200 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, ready).await.expect("it recovers by itself");
}

/// Waits until the session's tool is done and what it said can't be stored.
async fn wait_until_result_deferred(server: &TestServer, session: &str) {
    let of_session = format!("/admin/actors?prefix=/sessions/{session}");
    let keeps = async {
        loop {
            let found = server.get(&of_session).await.expect_ok();
            let actors = found["actors"].as_array().unwrap().clone();
            let is = |kind: &'static str| move |actor: &&Value| actor["kind"] == kind;
            let state = actors.iter().find(is("Session")).map(|actor| &actor["state"]);
            if state == Some(&json!("not storing"))
                && !actors.iter().any(|actor| is("ToolExecutor")(&actor))
            {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, keeps).await.expect("the result comes and can't be stored");
}

#[actix_web::test]
async fn d8_on_a_full_disk_writes_are_refused_reads_go_on_and_results_are_kept() {
    let disk = Disk::mount();
    let script = format!("{SCAN}{STALLS_ONCE}{}", tool_call_script("market_order_create", ORDER));
    let setup = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script)
        .with_database(&disk.database());
    let server = setup.start().await;
    // One waits for a person, one for its tool, and one for the rest of what the model says.
    let asking = server.create_session_at(1).await;
    let mut asked = server.chat(&asking, "go").await;
    let plan_id =
        asked.read_until("waiting_for_approval").await.last().unwrap().data["plan_id"].clone();
    let scanning = server.create_session_at(1).await;
    let mut scan = server.chat(&scanning, "scan").await;
    scan.read_until("tool_call_progress").await;

    disk.fill();
    let execute = json!({"session_id": asking, "plan_id": plan_id});
    server.post("/agent/execute", execute.clone()).await.expect_problem(503, "unavailable");
    server.post("/agent/session", json!({})).await.expect_problem(503, "unavailable");
    let message = json!({"session_id": asking, "message": "again", "on_busy": "queue"});
    server.post("/agent/chat/stream", message).await.expect_problem(503, "unavailable");
    server
        .patch("/agent/settings", json!({"autonomy_level": 0}))
        .await
        .expect_problem(503, "unavailable");
    assert_eq!(server.get("/readyz").await.status, 503);
    assert_eq!(server.get("/healthz").await.status, 200);
    wait_until_result_deferred(&server, &scanning).await;
    // What is stored can be read, and nothing has happened in the world.
    let before = server.events(&scanning).await;
    let is_told = |event: &Value| event["type"] == "tool_call_completed";
    assert!(!before.is_empty() && !before.iter().any(is_told), "{before:?}");
    assert_eq!(
        server.get(&format!("/agent/session/{asking}")).await.expect_ok()["status"],
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
    assert_eq!(frames_of_kind(&all, "tool_call_attempt_started").len(), 1, "{}", format_frames(&all));
    assert_eq!(frames_of_kind(&all, "tool_call_completed").len(), 1);
    assert_eq!(server.calls().len(), 1, "it was not asked again");
    server.post("/agent/execute", execute).await.expect_ok();
    let all = server.wait_for_event(&asking, "done").await;
    // What was refused was not done.
    assert_eq!(frames_of_kind(&all, "message_queued").len(), 0, "{}", format_frames(&all));
    assert_eq!(server.effects().len(), 1);
    assert_eq!(server.get("/agent/settings").await.expect_ok()["autonomy_level"], 1);
}

/// Says something until it is refused for want of room; the messages that were taken.
async fn submit_until_full(server: &TestServer, session: &str) -> Vec<String> {
    let text = format!("again {}", "x".repeat(12_000));
    let mut taken = Vec::new();
    loop {
        let message_id = format!("message-{}", taken.len());
        let body = json!({
            "session_id": session, "message": text, "message_id": message_id, "on_busy": "queue",
        });
        let request = server.request(Method::POST, "/agent/chat/stream").json(&body);
        // Taken as soon as it is answered; nobody stays to listen.
        match request.send().await.expect("the server answers").status().as_u16() {
            200 => taken.push(message_id),
            // There are enough in line.
            429 => tokio::time::sleep(POLL_INTERVAL).await,
            503 => return taken,
            status => panic!("{status}"),
        }
    }
}

#[actix_web::test]
async fn d8_what_was_acknowledged_while_the_disk_filled_up_is_stored_and_nothing_else() {
    let disk = Disk::mount();
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_database(&disk.database());
    let mut server = setup.start().await;
    let sessions = join_all((0..SESSIONS).map(|_| server.create_session_at(1))).await;
    let taken = sessions.iter().map(|session| submit_until_full(&server, session));
    let taken = join_all(taken).await;
    assert!(taken.iter().map(Vec::len).sum::<usize>() > SESSIONS, "{taken:?}");

    disk.remount("size=256m");
    wait_until_ready(&server).await;
    for (session, taken) in sessions.iter().zip(&taken) {
        let mut follow = server.subscribe(session, "0").await;
        for _ in taken {
            assert_eq!(
                follow.read_until("done").await.last().unwrap().data["outcome"],
                "completed"
            );
        }
        let events = server.events(session).await;
        let accepted: Vec<_> =
            events.iter().filter(|event| event["type"] == "message_accepted").collect();
        let stored: Vec<_> = accepted.iter().map(|event| event["message_id"].clone()).collect();
        assert_eq!(json!(stored), json!(taken));
        let done = events.iter().filter(|event| event["type"] == "done").count();
        assert_eq!(done, taken.len());
        assert_eq!(last_message_text(&server.chat_to_end(session, "again").await), "Here I am.");
    }
    assert!(server.stop().await.success());
    let mut beside = second_connection(&disk.database()).await;
    let checked = sqlx::query("PRAGMA integrity_check").fetch_one(&mut beside).await.unwrap();
    assert_eq!(checked.get::<String, _>(0), "ok");
    let database = disk.database();
    let env = [("GREENROOM_DATABASE", database.as_str())];
    let verified = run(server.folder(), &["audit", "verify"], &env).await;
    assert!(verified.status.success(), "{verified:?}");
}

#[actix_web::test]
async fn d8_a_server_that_starts_on_a_full_disk_reads_and_goes_on_when_there_is_room() {
    let disk = Disk::mount();
    let script = tool_call_script("market_order_create", ORDER);
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script)
        .with_database(&disk.database());
    let mut server = setup.start().await;
    let session = server.create_session_at(1).await;
    let mut asked = server.chat(&session, "go").await;
    let plan_id =
        asked.read_until("waiting_for_approval").await.last().unwrap().data["plan_id"].clone();
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

/// Linux lets nobody make a disk read-only while a file on it is open for writing.
#[actix_web::test]
async fn d8_a_read_only_disk_is_named_at_the_start() {
    let disk = Disk::mount();
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_database(&disk.database());
    let mut server = setup.start().await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "again").await;
    let before = server.events(&session).await;
    assert!(server.stop().await.success());
    disk.remount("ro");
    let said = startup_error(server.folder(), &disk.database()).await;
    assert!(said.contains(&disk.database()) && said.contains("Read-only file system"), "{said}");
    disk.remount("rw");
    server.start().await;
    assert_eq!(server.events(&session).await, before);
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

#[actix_web::test]
async fn d8_a_locked_file_is_waited_for_and_then_refused_until_it_is_free() {
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "again").await;
    let file = server.folder().join("greenroom.db").display().to_string();
    let mut outsider = second_connection(&file).await;
    let wish = || server.post("/agent/session", json!({}));

    // For a moment: nobody notices.
    execute(&mut outsider, "BEGIN IMMEDIATE").await;
    let freed = async {
        tokio::time::sleep(POLL_INTERVAL).await;
        execute(&mut outsider, "ROLLBACK").await;
    };
    let (created, ()) = futures::join!(wish(), freed);
    created.expect_ok();

    execute(&mut outsider, "BEGIN IMMEDIATE").await;
    let path = format!("/agent/session/{session}");
    let (refused, ready, read) = futures::join!(wish(), server.get("/readyz"), server.get(&path));
    refused.expect_problem(503, "unavailable");
    assert_eq!(ready.status, 503);
    assert_eq!(read.expect_ok()["status"], "idle");
    // Who starts meanwhile reads, too.
    server.kill_and_restart().await;
    assert_eq!(server.get(&path).await.expect_ok()["status"], "idle");
    server.post("/agent/session", json!({})).await.expect_problem(503, "unavailable");
    execute(&mut outsider, "ROLLBACK").await;
    wait_until_ready(&server).await;
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

/// Pages of SQLite's files.
const PAGE: usize = 4096;

#[actix_web::test]
async fn d8_a_damaged_file_is_named_with_what_to_do_and_left_as_it_is() {
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
    assert!(fs::metadata(&log).map_or(true, |log| log.len() == 0), "the file holds everything");
    let mut beside = second_connection(&file).await;
    // The last page is the beginning of something, whatever the rest looks like.
    execute(&mut beside, "CREATE TABLE last (page TEXT); PRAGMA wal_checkpoint(TRUNCATE)").await;
    beside.close().await.unwrap();
    let whole = fs::read(&path).unwrap();
    let last = whole.len() - PAGE;
    let filled = |byte: u8| {
        let mut bytes = whole.clone();
        bytes[last..].fill(byte);
        bytes
    };
    let cases = [
        ("the last page is gone", whole[..last].to_vec()),
        ("it was cut off in its last page", whole[..last + 100].to_vec()),
        ("half of it is gone", whole[..PAGE * (whole.len() / PAGE / 2)].to_vec()),
        ("the last page is something else", filled(0xff)),
        ("the last page was never written", filled(0)),
    ];
    for (case, bytes) in cases {
        fs::write(&path, &bytes).unwrap();
        let said = startup_error(server.folder(), "greenroom.db").await;
        assert!(said.contains(&file) && said.contains("is damaged"), "{case}: {said}");
        assert!(said.contains("docs/storage.md"), "{case}: {said}");
        assert!(fs::read(&path).unwrap() == bytes, "{case}: it was changed");
    }
    // SQLite would throw the log away, and begin anew.
    fs::write(&path, "").unwrap();
    fs::write(&log, &whole).unwrap();
    let said = startup_error(server.folder(), "greenroom.db").await;
    assert!(said.contains(&file) && said.contains("is damaged"), "{said}");
    assert!(fs::read(&log).unwrap() == whole);
    fs::remove_file(&log).unwrap();
    fs::write(&path, &whole).unwrap();
    server.start().await;
    assert_eq!(server.events(&session).await, before);
}

#[actix_web::test]
async fn d5_a_newer_schema_is_refused_and_left_as_it_is() {
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    assert!(server.stop().await.success());
    let file = server.folder().join("greenroom.db").display().to_string();
    let version = async || {
        let found =
            sqlx::query("PRAGMA user_version").fetch_one(&mut second_connection(&file).await).await;
        found.unwrap().get::<i64, _>(0)
    };
    let ours = version().await;
    execute(&mut second_connection(&file).await, "PRAGMA user_version = 99").await;
    let said = startup_error(server.folder(), "greenroom.db").await;
    assert!(said.contains(&file) && said.contains("schema version 99"), "{said}");
    assert!(said.contains("use a newer greenroom"), "{said}");
    assert_eq!(version().await, 99);
    let set = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {ours}"));
    sqlx::raw_sql(set).execute(&mut second_connection(&file).await).await.unwrap();
    server.start().await;
    assert_eq!(server.get(&format!("/agent/session/{session}")).await.expect_ok()["status"], "idle");
}
