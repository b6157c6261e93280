//! The whole house on PostgreSQL: what a person does on the tour, what a `kill -9` leaves, and what
//! happens while the database's server is away (D2, D5, D8).

use crate::{
    harness::{House, LOOK_AGAIN, Setup, TOKEN, run},
    scripts::{ORDER, calls},
    stream::{kinds_of, of_kind, the, told},
    support::{PASSWORD, Postgres},
};
use greenroom::{rehearsal::Wire, store::Database};
use serde_json::json;
use std::process::Output;

/// A house that sells, with its database.
async fn selling(address: &str) -> House {
    let script = calls("market_order_create", ORDER);
    Setup::script(Wire::Anthropic, &script).database(address).start().await
}

async fn command(house: &House, address: &str, args: &[&str]) -> Output {
    let env = [("GREENROOM_DATABASE", address), ("GREENROOM_TOKEN", TOKEN)];
    run(house.folder(), args, &env).await
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned()).concat()
}

#[actix_web::test]
async fn d5_an_approval_on_postgresql_outlives_kill_9() {
    let address = Postgres::shared().database().await;
    let mut house = selling(&address).await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "go").await;
    let asked = stream.until("waiting_for_approval").await.last().unwrap().data.clone();
    house.crash().await;
    let again = house.wait_for(&session, "waiting_for_approval").await;
    assert_eq!(the(&again, "waiting_for_approval").data["plan"], asked["plan"]);
    let body = json!({"session_id": session, "plan_id": asked["plan_id"]});
    house.post("/agent/execute", body).await.ok();
    let all = house.wait_for(&session, "done").await;
    assert_eq!(of_kind(&all, "tool_call_completed").len(), 1, "{}", told(&all));
    assert_eq!(house.effects().len(), 1);
    let log = std::fs::read_to_string(house.folder().join("server.log")).unwrap();
    assert!(!log.contains(PASSWORD), "{log}");
}

/// What reads the database beside the server reads this one, too, and never says its password.
#[actix_web::test]
async fn d5_commands_beside_a_server_on_postgresql() {
    let address = Postgres::shared().database().await;
    let house = selling(&address).await;
    let session = house.session_at(1).await;
    house.chat(&session, "go").await.until("waiting_for_approval").await;
    let database: Database = address.parse().unwrap();
    let in_use = format!("{database}, in use by a running greenroom");
    for (args, succeeds, expected) in [
        (&["doctor"][..], true, in_use.as_str()),
        (&["audit", "verify"], true, "rows, all sound"),
        (&["policy", "check"], true, "1 "),
        (&["migrate"], false, "in use by another greenroom process"),
        (&["events", "--session", &session], true, "waiting_for_approval"),
    ] {
        let mut args = args.to_vec();
        let env = [("GREENROOM_LISTEN", house.url().trim_start_matches("http://"))];
        let env = [env[0], ("GREENROOM_DATABASE", &address), ("GREENROOM_TOKEN", TOKEN)];
        if args == ["migrate"] {
            args.extend(["--database", &address]);
        }
        let output = run(house.folder(), &args, &env).await;
        let said = said(&output);
        assert_eq!(output.status.success(), succeeds, "{args:?}: {said}");
        assert!(said.contains(expected) && !said.contains(PASSWORD), "{args:?}: {said}");
    }
    let wrong = address.replace(PASSWORD, "wrong-secret");
    let output = command(&house, &wrong, &["serve"]).await;
    let said = said(&output);
    assert!(!output.status.success() && said.contains("postgres://green@127.0.0.1:"), "{said}");
    assert!(said.contains("password authentication failed") && !said.contains("wrong-secret"));
}

#[actix_web::test]
async fn g6_of_two_sessions_racing_for_the_last_of_a_budget_on_postgresql_one_wins() {
    let address = Postgres::shared().database().await;
    let house = selling(&address).await;
    let limit = json!({"amount": 60.0, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    house.patch("/agent/settings", settings).await.ok();
    let (one, two) = (house.session_at(3).await, house.session_at(3).await);
    let until_paused = async |session: String| {
        let body = json!({"session_id": session, "message": "go", "until": "pause"});
        house.chat_with(body).await.rest().await
    };
    let (one, two) = futures::join!(until_paused(one), until_paused(two));
    let order = ["done", "waiting_for_approval"];
    let mut ends = [kinds_of(&one, &order), kinds_of(&two, &order)];
    ends.sort();
    assert_eq!(ends, [["done"], ["waiting_for_approval"]], "{}\n{}", told(&one), told(&two));
    assert_eq!(house.effects().len(), 1);
}

/// D8: nothing is acknowledged meanwhile, and everything goes on by itself.
#[actix_web::test]
async fn d8_requests_are_refused_while_the_database_is_away_and_then_everything_goes_on() {
    let mut server = Postgres::start();
    let address = server.database().await;
    let house = selling(&address).await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "go").await;
    let asked = stream.until("waiting_for_approval").await.last().unwrap().data.clone();
    for crashes in [false, true] {
        if crashes {
            server.crash()
        } else {
            server.stop()
        }
        let body = json!({"session_id": session, "plan_id": asked["plan_id"]});
        assert_eq!(house.post("/agent/execute", body).await.status, 503);
        assert_eq!(house.post("/agent/session", json!({})).await.status, 503);
        assert_eq!(house.get("/readyz").await.status, 503);
        assert_eq!(house.get("/healthz").await.status, 200);
        assert!(house.effects().is_empty());
        server.resume();
        while house.get("/readyz").await.status != 200 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
    let body = json!({"session_id": session, "plan_id": asked["plan_id"]});
    house.post("/agent/execute", body).await.ok();
    let all = house.wait_for(&session, "done").await;
    let asked = of_kind(&all, "waiting_for_approval").len();
    assert_eq!((asked, house.effects().len()), (1, 1), "{}", told(&all));
    assert_eq!(house.session(json!({})).await.len(), 36);
}
