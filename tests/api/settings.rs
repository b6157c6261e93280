//! User settings, and how sessions narrow them (G4).

use crate::{
    harness::TestServerBuilder,
    scripts::tool_call_script,
    stream::{frames_of_kind, last_message_text, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::json;

#[actix_web::test]
async fn g4_settings_are_read_and_changed() {
    let mut server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let defaults = server.get("/agent/settings").await.expect_ok();
    assert_eq!(defaults["autonomy_level"], 1);
    assert_eq!(defaults["autonomy_name"], "RECOMMENDATIONS");
    assert_eq!(defaults["require_confirmation"], true);
    assert_eq!(
        (&defaults["allowed_regions"], &defaults["blocked_tools"]),
        (&json!(null), &json!([]))
    );
    let patch = json!({"autonomy_level": 2, "blocked_tools": ["get_war_losses"],
        "allowed_regions": [10_000_002], "budget_limit": 5_000_000});
    let changed = server.patch("/agent/settings", patch).await.expect_ok();
    assert_eq!(changed["autonomy_name"], "ASSISTED");
    assert_eq!(changed["require_confirmation"], true, "absent keys are unchanged");
    assert_eq!(changed["budget_limit"]["amount"].as_f64(), Some(5_000_000.0));
    // The settings of another user are separate.
    let other = server.get("/agent/settings?character_id=526379435").await.expect_ok();
    assert_eq!(other["autonomy_level"], 1);
    server.kill_and_restart().await;
    assert_eq!(server.get("/agent/settings").await.expect_ok(), changed);
    for (patch, field) in [
        (json!({"autonomy_level": 7}), "autonomy_level"),
        (json!({"autonomy_level": "high"}), "autonomy_level"),
        (json!({"require_confirmation": 1}), "require_confirmation"),
        (json!({"allowed_regions": ["Jita"]}), "allowed_regions[0]"),
        (json!({"budget_limit": -5}), "budget_limit"),
        (json!({"budget_limit": 0}), "budget_limit"),
        (json!({"colour": "red"}), "colour"),
    ] {
        let refused = server.patch("/agent/settings", patch.clone()).await;
        let refused = refused.expect_problem(422, "invalid_request");
        assert_eq!(refused["field"], field, "{patch}: {refused}");
    }
    let unchanged = server.get("/agent/settings").await.expect_ok();
    assert_eq!(unchanged, changed, "rejected patches have no effect");
}

#[actix_web::test]
async fn g4_session_can_narrow_but_not_widen_settings() {
    let server = TestServerBuilder::tour(ProviderProtocol::OpenAi).start().await;
    let patch = json!({"autonomy_level": 1, "blocked_tools": ["get_war_losses"],
        "allowed_regions": [10_000_002, 10_000_043]});
    server.patch("/agent/settings", patch).await.expect_ok();
    for (body, field) in [
        (json!({"autonomy_level": 2}), "autonomy_level"),
        (json!({"settings": {"require_confirmation": false}}), "require_confirmation"),
        (json!({"settings": {"blocked_tools": []}}), "blocked_tools"),
        (json!({"settings": {"allowed_regions": [10_000_030]}}), "allowed_regions"),
        (json!({"settings": {"allowed_regions": null}}), "allowed_regions"),
    ] {
        let refused = server.post("/agent/session", body.clone()).await;
        let refused = refused.expect_problem(422, "settings_widened");
        assert_eq!(refused["field"], field, "{body}: {refused}");
    }
    let body = json!({"autonomy_level": 0, "settings": {"allowed_regions": [10_000_002]}});
    let session = server.create_session(body).await;
    let path = format!("/agent/session/{session}/settings");
    server.patch(&path, json!({"autonomy_level": 3})).await.expect_problem(422, "settings_widened");
    let wider = server.patch(&path, json!({"autonomy_level": 1})).await.expect_ok();
    assert_eq!(wider["autonomy_level"], 1, "up to the user's level");
}

#[actix_web::test]
async fn g4_blocked_globs_apply_and_entries_without_a_tool_are_kept_with_a_warning() {
    let script = tool_call_script("list_bookmarks", "{}");
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script).start().await;
    let blocked = json!(["high ", "list_*", "market__get_*", "nosuch", "wallet_transfer"]);
    let warnings = json!([
        "blocked_tools: `high ` matches no tool",
        "blocked_tools: `nosuch` matches no tool"
    ]);
    let patch = json!({"blocked_tools": blocked});
    let changed = server.patch("/agent/settings", patch.clone()).await.expect_ok();
    assert_eq!((&changed["blocked_tools"], &changed["warnings"]), (&blocked, &warnings));
    let level = server.patch("/agent/settings", json!({"autonomy_level": 1})).await.expect_ok();
    assert_eq!((&level["blocked_tools"], &level["warnings"]), (&blocked, &json!(null)));
    let session = server.create_session(json!({})).await;
    let path = format!("/agent/session/{session}/settings");
    assert_eq!(server.patch(&path, patch).await.expect_ok()["warnings"], warnings);
    let frames = server.chat_to_end(&session, "go").await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    assert!(denied["reason"].as_str().unwrap().contains("blocked"), "{denied}");
    assert!(server.calls().is_empty());
}

#[actix_web::test]
async fn g4_blocked_read_only_tools_are_denied() {
    let server = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("list_bookmarks", "{}"),
    )
    .start()
    .await;
    let body = json!({"settings": {"blocked_tools": ["list_bookmarks"]}});
    let session = server.create_session(body).await;
    let frames = server.chat_to_end(&session, "go").await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    assert!(denied["reason"].as_str().unwrap().contains("blocked"), "{denied}");
    assert!(last_message_text(&frames).contains("blocked"), "the model gets the reason");
    assert!(server.calls().is_empty());
}

#[actix_web::test]
async fn g3_autonomy_level_determines_required_approval() {
    let order = tool_call_script("market_order_create", crate::scripts::ORDER);
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &order).start().await;
    // An order needs no approval at L2 without confirmation, and at L3.
    server
        .patch("/agent/settings", json!({"autonomy_level": 3, "require_confirmation": false}))
        .await
        .expect_ok();
    for (level, confirm, needs_approval) in [(2, false, false), (3, true, false), (2, true, true)] {
        let settings = json!({"require_confirmation": confirm});
        let body = json!({"autonomy_level": level, "settings": settings});
        let session = server.create_session(body).await;
        let body = json!({"session_id": session, "message": "go", "until": "pause"});
        let frames = server.chat_with(body).await.read_to_end().await;
        let requested = frames_of_kind(&frames, "waiting_for_approval").len() == 1;
        assert_eq!(requested, needs_approval, "level {level}, confirmation {confirm}");
        assert_eq!(
            frames_of_kind(&frames, "done").len() == 1,
            !needs_approval,
            "`until: pause` ends the stream at the approval"
        );
    }
    assert_eq!(server.effects().len(), 2);
}

#[actix_web::test]
async fn g4_narrowed_user_settings_apply_to_every_session() {
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let wide = server.create_session_at(1).await;
    let narrow =
        server.create_session(json!({"settings": {"blocked_tools": ["list_bookmarks"]}})).await;
    let allowed = json!({"autonomy_level": 0, "blocked_tools": ["get_war_losses"]});
    server.patch("/agent/settings", allowed).await.expect_ok();
    let settings = async |session: &str| {
        server.get(&format!("/agent/session/{session}")).await.expect_ok()["settings"].clone()
    };
    assert_eq!(settings(&wide).await["autonomy_level"], 0);
    let both = json!(["get_war_losses", "list_bookmarks"]);
    assert_eq!(settings(&narrow).await["blocked_tools"], both, "the session's own entries stay");
    // The new level applies to the next call.
    let frames = server.chat_to_end(&wide, "Buy 1000 Tritanium at market price").await;
    assert_eq!(single_frame(&frames, "authorization_denied").data["required_level"], 1);
    // Widening the user's settings does not widen a session.
    server.patch("/agent/settings", json!({"autonomy_level": 3})).await.expect_ok();
    assert_eq!(settings(&wide).await["autonomy_level"], 0);
}

#[actix_web::test]
async fn s1_concurrent_changes_are_all_kept() {
    let server = TestServerBuilder::tour(ProviderProtocol::OpenAi).start().await;
    for round in 0..10 {
        let session = server.create_session(json!({})).await;
        let path = format!("/agent/session/{session}/settings");
        let title = format!("round {round}");
        let (narrowed, blocked, renamed) = tokio::join!(
            server.patch(&path, json!({"autonomy_level": 0})),
            server.patch(&path, json!({"blocked_tools": ["get_war_losses"]})),
            server.patch(&path, json!({ "title": title })),
        );
        for response in [narrowed, blocked, renamed] {
            response.expect_ok();
        }
        let row = server.get(&format!("/agent/session/{session}")).await.expect_ok();
        assert_eq!(row["settings"]["autonomy_level"], 0, "{row}");
        assert_eq!(row["settings"]["blocked_tools"], json!(["get_war_losses"]), "{row}");
        assert_eq!(row["title"], title.as_str(), "{row}");
    }
}
