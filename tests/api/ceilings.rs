//! Ceilings (G17): no user lifts a control that an administrator set.

use crate::{
    harness::{ApiResponse, TestServer, TestServerBuilder, send},
    scripts::tool_call_script,
    stream::{Frame, frames_of_kind, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

/// A user with an API key.
struct ApiUser<'a> {
    server: &'a TestServer,
    key: String,
}

impl<'a> ApiUser<'a> {
    async fn with_role(server: &'a TestServer, user: &str, role: &str) -> Self {
        let body = json!({"user_id": user, "role": role});
        let key = server.post("/admin/keys", body).await.body;
        Self { server, key: key["key"].as_str().unwrap().to_owned() }
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.server.request_without_token(method, path).bearer_auth(&self.key)
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> ApiResponse {
        send(self.request(method, path).json(&body)).await
    }

    /// Sends a message to a new session and returns all frames of its run.
    async fn run(&self, message: &str) -> Vec<Frame> {
        let session = self.send(Method::POST, "/agent/session", json!({})).await.expect_ok();
        let body = json!({
            "session_id": session["session_id"], "message": message, "until": "pause",
        });
        let request = self.request(Method::POST, "/agent/chat/stream").json(&body);
        self.server.stream(request).await.read_to_end().await
    }
}

fn transfer_server(configuration: &str) -> TestServerBuilder {
    let transfer = tool_call_script("wallet_transfer", r#"{ to = "Bob", amount = 1000 }"#);
    TestServerBuilder::with_script(ProviderProtocol::OpenAi, &transfer).with_config(configuration)
}

#[actix_web::test]
async fn g17_user_can_not_lift_the_ceiling_of_its_role() {
    let server = transfer_server(
        "[ceilings.roles.user]\nautonomy_level = 2\nrequire_confirmation = true\n\
         allowed_regions = [10000002]\n\
         budget_limits = [{ amount = 5000, unit = \"ISK\", period = \"day\" }]",
    )
    .start()
    .await;
    let ada = ApiUser::with_role(&server, "ada", "user").await;
    let owner = json!({"scope": "role", "name": "user"});
    for (patch, field) in [
        (
            json!({
                "autonomy_level": 3,
                "budget_limit": {"amount": 1e15, "unit": "ISK", "period": "day"},
            }),
            "autonomy_level",
        ),
        (json!({"require_confirmation": false}), "require_confirmation"),
        (json!({"allowed_regions": null}), "allowed_regions"),
        (json!({"allowed_regions": [10_000_030]}), "allowed_regions"),
        (json!({"budget_limit": {"amount": 1e15, "unit": "ISK", "period": "day"}}), "budget_limit"),
    ] {
        let refused = ada.send(Method::PATCH, "/agent/settings", patch.clone()).await;
        let refused = refused.expect_problem(422, "settings_widened");
        assert_eq!((&refused["field"], &refused["ceiling"]), (&json!(field), &owner), "{patch}");
        let refused = ada.send(Method::POST, "/agent/session", json!({"settings": patch})).await;
        refused.expect_problem(422, "settings_widened");
    }
    let body = json!({"message": "go", "autonomy_level": 3});
    let refused = ada.send(Method::POST, "/agent/chat", body).await;
    let refused = refused.expect_problem(422, "settings_widened");
    assert_eq!(refused["detail"], "autonomy_level: 3 exceeds 2, the ceiling of role `user`");
    let body = json!({"tool": "wallet_transfer", "autonomy_level": 3});
    ada.send(Method::POST, "/agent/judge", body).await.expect_problem(422, "settings_widened");

    // At the ceiling, the transfer needs approval.
    let at_ceiling = json!({
        "autonomy_level": 2,
        "budget_limit": {"amount": 5000, "unit": "ISK", "period": "day"},
    });
    ada.send(Method::PATCH, "/agent/settings", at_ceiling).await.expect_ok();
    let frames = ada.run("go").await;
    assert_eq!(frames_of_kind(&frames, "waiting_for_approval").len(), 1);
    assert_eq!(server.effects(), Vec::<Value>::new());
}

#[actix_web::test]
async fn g17_settings_stored_before_a_ceiling_do_not_exceed_it() {
    let mut server = transfer_server("").start().await;
    let wide = json!({
        "autonomy_level": 3, "require_confirmation": false,
        "budget_limit": {"amount": 1e15, "unit": "ISK", "period": "day"},
    });
    let key = {
        let ada = ApiUser::with_role(&server, "ada", "user").await;
        ada.send(Method::PATCH, "/agent/settings", wide).await.expect_ok();
        ada.run("go").await;
        ada.key
    };
    assert_eq!(server.effects().len(), 1, "L3 allows the transfer within the budget");
    server.kill().await;
    server.append_config(
        "[ceilings]\nautonomy_level = 1\n\
         budget_limits = [{ amount = 5000, unit = \"ISK\", period = \"day\" }]",
    );
    server.start().await;
    let ada = ApiUser { server: &server, key };
    let settings = send(ada.request(Method::GET, "/agent/settings")).await.expect_ok();
    assert_eq!(settings["autonomy_level"], 3);
    assert_eq!(settings["effective"]["autonomy_level"], 1);
    assert_eq!(settings["effective"]["budget_limit"]["amount"].as_f64(), Some(5000.0));
    let installation = json!({"scope": "installation"});
    assert_eq!(
        settings["ceilings"][0],
        json!({"field": "autonomy_level", "value": 1, "ceiling": installation})
    );
    let frames = ada.run("go").await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    let reason = denied["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("the ceiling of the installation permits at most RECOMMENDATIONS (L1)"),
        "{denied}"
    );
    assert_eq!(server.effects().len(), 1);
}

#[actix_web::test]
async fn g17_budget_of_a_ceiling_holds_over_all_sessions() {
    let server = transfer_server(
        "[ceilings.users.ada]\n\
         budget_limits = [{ amount = 1500, unit = \"ISK\", period = \"day\" }]",
    )
    .start()
    .await;
    let ada = ApiUser::with_role(&server, "ada", "user").await;
    let settings = json!({
        "autonomy_level": 3,
        "budget_limit": {"amount": 1500, "unit": "ISK", "period": "day"},
    });
    ada.send(Method::PATCH, "/agent/settings", settings).await.expect_ok();
    ada.run("go").await;
    let frames = ada.run("go").await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    assert!(denied["reason"].as_str().unwrap().contains("the ceiling of user `ada`"), "{denied}");
    assert_eq!(server.effects().len(), 1);
}

/// Sends a PUT of the ceilings as administrator.
async fn put_ceilings(server: &TestServer, version: u64, ceilings: &Value) -> ApiResponse {
    let body = json!({"version": version, "ceilings": ceilings});
    send(server.request(Method::PUT, "/admin/ceilings").json(&body)).await
}

#[actix_web::test]
async fn g17_administrator_changes_ceilings_at_run_time() {
    let mut server = transfer_server("[ceilings]\nautonomy_level = 2").start().await;
    let file = json!({"autonomy_level": 2});
    let initial = server.get("/admin/ceilings").await.expect_ok();
    let expected = json!({"version": 0, "configured": file, "stored": {}, "in_force": file});
    assert_eq!(initial, expected);
    let user = ApiUser::with_role(&server, "ada", "user").await;
    let approver = ApiUser::with_role(&server, "bob", "approver").await;
    for refused in [&user, &approver] {
        let body = json!({"version": 0, "ceilings": {}});
        let request = refused.request(Method::GET, "/admin/ceilings");
        send(request).await.expect_problem(403, "forbidden");
        let response = refused.send(Method::PUT, "/admin/ceilings", body).await;
        response.expect_problem(403, "forbidden");
    }
    user.send(Method::PATCH, "/agent/settings", json!({"autonomy_level": 2})).await.expect_ok();

    let stored = json!({"roles": {"user": {"autonomy_level": 0}}});
    let changed = put_ceilings(&server, 0, &stored).await.expect_ok();
    let in_force = json!({"autonomy_level": 2, "roles": {"user": {"autonomy_level": 0}}});
    let expected =
        json!({"version": 1, "configured": file, "stored": stored, "in_force": in_force});
    assert_eq!(changed, expected);
    // The next evaluation reads the change, which survives a restart.
    let key = user.key.clone();
    let frames = user.run("go").await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    assert!(denied["reason"].as_str().unwrap().contains("the ceiling of role `user`"), "{denied}");
    server.kill_and_restart().await;
    assert_eq!(server.get("/admin/ceilings").await.expect_ok(), expected);
    let user = ApiUser { server: &server, key };
    let refused = user.send(Method::PATCH, "/agent/settings", json!({"autonomy_level": 1})).await;
    refused.expect_problem(422, "settings_widened");

    let audit = server.get("/admin/audit?action=ceilings_changed").await.expect_ok();
    let rows = audit["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{audit}");
    assert_eq!(rows[0]["details"], json!({"before": {}, "after": stored}), "{audit}");
    assert_eq!(rows[0]["user"], "admin");
}

#[actix_web::test]
async fn g17_role_of_the_author_decides_which_ceiling_applies() {
    let server = transfer_server("[ceilings.roles.user]\nautonomy_level = 1").start().await;
    for (user, role, is_denied) in [("ada", "user", true), ("carl", "approver", false)] {
        let caller = ApiUser::with_role(&server, user, role).await;
        let patch = json!({"autonomy_level": if is_denied { 1 } else { 2 }});
        caller.send(Method::PATCH, "/agent/settings", patch).await.expect_ok();
        let frames = caller.run("go").await;
        assert_eq!(frames_of_kind(&frames, "authorization_denied").len(), usize::from(is_denied));
    }
}

#[actix_web::test]
async fn g17_change_of_ceilings_is_validated() {
    let server = transfer_server("[ceilings.roles.user]\nautonomy_level = 1").start().await;
    let many: Vec<_> = (0..=1000).collect();
    for (ceilings, code, field) in [
        (
            json!({"roles": {"user": {"autonomy_level": 2}}}),
            "settings_widened",
            "ceilings.roles.user.autonomy_level",
        ),
        (json!({"autonomy": 1}), "invalid_request", "ceilings.autonomy"),
        (json!({"autonomy_level": 9}), "invalid_request", "ceilings.autonomy_level"),
        (
            json!({"users": {"ada": {"budget_limits": [{"amount": -1, "unit": "ISK"}]}}}),
            "invalid_request",
            "ceilings.users.ada.budget_limits[0]",
        ),
        (
            json!({"agents": {"nobody": {"autonomy_level": 1}}}),
            "invalid_request",
            "ceilings.agents.nobody",
        ),
        (
            json!({"users": {"ada": {"allowed_regions": many}}}),
            "invalid_request",
            "ceilings.users.ada.allowed_regions",
        ),
    ] {
        let refused = put_ceilings(&server, 0, &ceilings).await;
        assert_eq!(refused.status.as_u16(), 422, "{ceilings}: {}", refused.body);
        let refused = refused.expect_problem(422, code);
        assert_eq!(refused["field"], field, "{refused}");
    }
    let refused =
        put_ceilings(&server, 0, &json!({"roles": {"user": {"autonomy_level": 2}}})).await;
    assert_eq!(
        refused.body["detail"],
        "roles.user.autonomy_level: 2 exceeds 1, the ceiling of role `user` in the configuration file"
    );
    assert_eq!(server.get("/admin/ceilings").await.expect_ok()["version"], 0);
}

#[actix_web::test]
async fn g17_one_of_two_racing_changes_conflicts() {
    let server = transfer_server("").start().await;
    let (left, right) = (json!({"autonomy_level": 1}), json!({"autonomy_level": 2}));
    let (left, right) =
        tokio::join!(put_ceilings(&server, 0, &left), put_ceilings(&server, 0, &right));
    let (winner, loser) = if left.status == 200 { (left, right) } else { (right, left) };
    let winner = winner.expect_ok();
    let refused = loser.expect_problem(409, "version_conflict");
    assert_eq!((&winner["version"], &refused["version"]), (&json!(1), &json!(1)));
    assert_eq!(server.get("/admin/ceilings").await.expect_ok(), winner);
}

#[actix_web::test]
async fn g17_change_applies_to_a_call_that_waits_for_approval() {
    let server = transfer_server("").start().await;
    let ada = ApiUser::with_role(&server, "ada", "user").await;
    ada.send(Method::PATCH, "/agent/settings", json!({"autonomy_level": 2})).await.expect_ok();
    let frames = ada.run("go").await;
    let plan = &single_frame(&frames, "waiting_for_approval").data["plan"];
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    let blocked = json!({"blocked_tools": ["wallet_*"]});
    put_ceilings(&server, 0, &blocked).await.expect_ok();
    server.post(&path, json!({"decision": "approve"})).await.expect_ok();
    let approval = server.get(&path).await.expect_ok();
    let session = approval["session_id"].as_str().unwrap();
    let frames = server.wait_for_event(session, "authorization_denied").await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    assert_eq!(
        denied["reason"], "wallet_transfer is blocked by the ceiling of the installation",
        "{denied}"
    );
    assert_eq!(server.effects(), Vec::<Value>::new());
}
