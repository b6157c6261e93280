//! `greenroom doctor`.

use crate::harness::TestWorkspace;
use std::net::TcpListener;

#[tokio::test]
async fn a_port_that_is_taken_is_something_wrong_unless_it_is_by_this_server() {
    let desk = TestWorkspace::new();
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stranger.local_addr().unwrap().to_string();
    // It takes what comes and hangs up.
    std::thread::spawn(move || stranger.incoming().for_each(drop));
    let ended = desk.run_at(&address, &["doctor"]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    ended.assert_prints(&[&format!(
        "FAIL  address: can't listen on {address}: Address already in use"
    )]);

    let server = desk.start_server().await;
    let ended = server.run(&["doctor"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.assert_prints(&[
        &format!("ok    address: {}, in use by a running greenroom", server.address),
        "ok    database: desk.db, in use by a running greenroom",
    ]);
    let ended = server.workspace.run_at("127.0.0.1:0", &["doctor"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.assert_prints(&["ok    address: 127.0.0.1:0\n"]);
}

#[tokio::test]
async fn x1_a_token_that_the_server_would_refuse_is_something_wrong() {
    let desk = TestWorkspace::new();
    let ended = desk.run_with(&[("GREENROOM_TOKEN", "short")], &["doctor"]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    ended.assert_prints(&["FAIL  token: GREENROOM_TOKEN is invalid"]);
    // What another command listens to is none of its business.
    let elsewhere =
        [("GREENROOM_REHEARSE_LISTEN", "127.0.0.1:0"), ("GREENROOM_LISTEN", "127.0.0.1:0")];
    let ended = desk.run_with(&elsewhere, &["doctor"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.assert_prints(&["ok    token: set by GREENROOM_TOKEN"]);
}
