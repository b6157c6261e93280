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
