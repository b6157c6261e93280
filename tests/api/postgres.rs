//! The server on PostgreSQL: a run with approval, recovery after SIGKILL, and requests while the
//! database is down (D2, D5, D8).

use crate::{
    harness::{POLL_INTERVAL, TOKEN, TestServer, TestServerBuilder, run},
    scripts::{ORDER, tool_call_script},
    stream::{format_frames, frames_of_kind, kinds_of, single_frame},
    support::{PASSWORD, Postgres},
};
use greenroom::{rehearsal::ProviderProtocol, store::DatabaseLocation};
use serde_json::json;
use std::process::Output;

/// Starts a server with this database, whose model proposes an order.
async fn start_with_order_tool(address: &str) -> TestServer {
    let script = tool_call_script("market_order_create", ORDER);
    TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script)
        .with_database(address)
        .start()
        .await
}

async fn run_command(server: &TestServer, address: &str, args: &[&str]) -> Output {
    let env = [("GREENROOM_DATABASE", address), ("GREENROOM_TOKEN", TOKEN)];
    run(server.folder(), args, &env).await
}

fn combined_output(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

#[actix_web::test]
async fn d5_approval_on_postgresql_survives_sigkill() {
    let address = Postgres::shared().create_database().await;
    let mut server = start_with_order_tool(&address).await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "go").await;
    let request = stream.read_until("waiting_for_approval").await.last().unwrap().data.clone();
    server.kill_and_restart().await;
    let events_after_restart = server.wait_for_event(&session, "waiting_for_approval").await;
    assert_eq!(
        single_frame(&events_after_restart, "waiting_for_approval").data["plan"],
        request["plan"]
    );
    let body = json!({"session_id": session, "plan_id": request["plan_id"]});
    server.post("/agent/execute", body).await.expect_ok();
    let all = server.wait_for_event(&session, "done").await;
    assert_eq!(frames_of_kind(&all, "tool_call_completed").len(), 1, "{}", format_frames(&all));
    assert_eq!(server.effects().len(), 1);
    let log = std::fs::read_to_string(server.folder().join("server.log")).unwrap();
    assert!(!log.contains(PASSWORD), "{log}");
}

/// Commands can read a database that a server uses, and never print its password.
#[actix_web::test]
async fn d5_commands_read_a_postgresql_database_in_use() {
    let address = Postgres::shared().create_database().await;
    let server = start_with_order_tool(&address).await;
    let session = server.create_session_at(1).await;
    server.chat(&session, "go").await.read_until("waiting_for_approval").await;
    let database: DatabaseLocation = address.parse().unwrap();
    let in_use = format!("{database}, in use by a running greenroom");
    for (args, succeeds, expected) in [
        (&["doctor"][..], true, in_use.as_str()),
        (&["audit", "verify"], true, "rows verified"),
        (&["policy", "check"], true, "1 "),
        (&["migrate"], false, "in use by another greenroom process"),
        (&["events", "--session", &session], true, "waiting_for_approval"),
    ] {
        let mut args = args.to_vec();
        let env = [("GREENROOM_LISTEN", server.url().trim_start_matches("http://"))];
        let env = [env[0], ("GREENROOM_DATABASE", &address), ("GREENROOM_TOKEN", TOKEN)];
        if args == ["migrate"] {
            args.extend(["--database", &address]);
        }
        let output = run(server.folder(), &args, &env).await;
        let text = combined_output(&output);
        assert_eq!(output.status.success(), succeeds, "{args:?}: {text}");
        assert!(text.contains(expected) && !text.contains(PASSWORD), "{args:?}: {text}");
    }
    let wrong = address.replace(PASSWORD, "wrong-secret");
    let output = run_command(&server, &wrong, &["serve"]).await;
    let text = combined_output(&output);
    assert!(!output.status.success() && text.contains("postgres://green@127.0.0.1:"), "{text}");
    assert!(text.contains("password authentication failed") && !text.contains("wrong-secret"));
}

#[actix_web::test]
async fn g6_one_of_two_racing_sessions_gets_the_remaining_budget_on_postgresql() {
    let address = Postgres::shared().create_database().await;
    let server = start_with_order_tool(&address).await;
    let limit = json!({"amount": 60.0, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    server.patch("/agent/settings", settings).await.expect_ok();
    let (first, second) = (server.create_session_at(3).await, server.create_session_at(3).await);
    let until_paused = async |session: String| {
        let body = json!({"session_id": session, "message": "go", "until": "pause"});
        server.chat_with(body).await.read_to_end().await
    };
    let (first, second) = futures::join!(until_paused(first), until_paused(second));
    let kinds = ["done", "waiting_for_approval"];
    let mut ends = [kinds_of(&first, &kinds), kinds_of(&second, &kinds)];
    ends.sort();
    assert_eq!(
        ends,
        [["done"], ["waiting_for_approval"]],
        "{}\n{}",
        format_frames(&first),
        format_frames(&second)
    );
    assert_eq!(server.effects().len(), 1);
}

/// D8: requests fail while the database is down, and the server recovers by itself.
#[actix_web::test]
async fn d8_requests_are_refused_while_postgresql_is_down_and_work_afterwards() {
    let mut postgres = Postgres::start();
    let address = postgres.create_database().await;
    let server = start_with_order_tool(&address).await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "go").await;
    let request = stream.read_until("waiting_for_approval").await.last().unwrap().data.clone();
    for crashes in [false, true] {
        if crashes {
            postgres.crash()
        } else {
            postgres.stop()
        }
        let body = json!({"session_id": session, "plan_id": request["plan_id"]});
        assert_eq!(server.post("/agent/execute", body).await.status, 503);
        assert_eq!(server.post("/agent/session", json!({})).await.status, 503);
        assert_eq!(server.get("/readyz").await.status, 503);
        assert_eq!(server.get("/healthz").await.status, 200);
        assert!(server.effects().is_empty());
        postgres.resume();
        while server.get("/readyz").await.status != 200 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    let body = json!({"session_id": session, "plan_id": request["plan_id"]});
    server.post("/agent/execute", body).await.expect_ok();
    let all = server.wait_for_event(&session, "done").await;
    let requests = frames_of_kind(&all, "waiting_for_approval").len();
    assert_eq!((requests, server.effects().len()), (1, 1), "{}", format_frames(&all));
    assert_eq!(server.create_session(json!({})).await.len(), 36);
}
