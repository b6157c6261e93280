//! Bodies and frames with two forms of one field: a 422 that names both, even if the values are
//! equal.

use crate::{harness::TestServerBuilder, scripts::STALLS_ONCE};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

const UNKNOWN_ID: &str = "0198c0de-0000-7000-8000-000000000001";

#[actix_web::test]
async fn x4_body_with_two_forms_of_a_field_is_rejected_and_names_both() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::Anthropic, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let plan = json!({
        "session_id": session, "plan_id": UNKNOWN_ID, "approval_id": UNKNOWN_ID,
    });
    let step = |step: Value| json!({"decision": "approve", "steps": [step]});
    let approval = format!("/agent/approvals/{UNKNOWN_ID}");
    let cases: Vec<(&str, Value, &str, &str)> = vec![
        (
            "/agent/session",
            json!({"user_id": "admin", "character_id": "admin"}),
            "user_id",
            "character_id",
        ),
        ("/agent/session", json!({"character_id": 91, "user_id": null}), "user_id", "character_id"),
        (
            "/agent/session",
            json!({"autonomy_level": 1, "settings": {"autonomy_level": 1}}),
            "autonomy_level",
            "settings.autonomy_level",
        ),
        (
            "/agent/session",
            json!({"preflight": true, "settings": {"preflight": true}}),
            "preflight",
            "settings.preflight",
        ),
        (
            "/agent/chat",
            json!({"message": "hi", "user_id": "admin", "character_id": "admin"}),
            "user_id",
            "character_id",
        ),
        (
            "/agent/chat/stream",
            json!({
                "session_id": session, "message": "hi", "user_id": "admin", "character_id": "admin",
            }),
            "user_id",
            "character_id",
        ),
        ("/agent/execute", plan.clone(), "plan_id", "approval_id"),
        ("/agent/reject", plan, "plan_id", "approval_id"),
        (
            "/admin/keys",
            json!({"user_id": "ann", "user": "ann", "role": "user"}),
            "user_id",
            "user",
        ),
        (
            &approval,
            step(json!({"position": 1, "toolName": "buy", "tool_name": "buy"})),
            "steps[0].toolName",
            "steps[0].tool_name",
        ),
    ];
    for (path, body, field, other) in cases {
        let problem = server.post(path, body.clone()).await;
        let problem = problem.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], field, "{path} {body}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        for name in [field, other] {
            assert!(detail.contains(&format!("`{name}`")), "{path} {body}: {detail}");
        }
    }
    let sessions = server.get("/agent/session").await.expect_ok();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "no session was created");
    let keys = server.get("/admin/keys").await.expect_ok();
    assert_eq!(keys["keys"], json!([]), "no key was created");
}
