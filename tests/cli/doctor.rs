//! Tests of `greenroom doctor`.

use crate::harness::TestWorkspace;
use std::net::TcpListener;

#[tokio::test]
async fn doctor_reports_port_in_use_unless_by_own_server() {
    let workspace = TestWorkspace::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Accepts each connection and closes it.
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let output = workspace.run_at(&address, &["doctor"]).await;
    assert_eq!(output.code, 1, "{output:?}");
    output.assert_prints(&[&format!(
        "FAIL  address: can't listen on {address}: Address already in use"
    )]);

    let server = workspace.start_server().await;
    let output = server.run(&["doctor"]).await;
    assert_eq!(output.code, 0, "{output:?}");
    output.assert_prints(&[
        &format!("ok    address: {}, in use by a running greenroom", server.address),
        "ok    database: workspace.db, in use by a running greenroom",
    ]);
    let output = server.workspace.run_at("127.0.0.1:0", &["doctor"]).await;
    assert_eq!(output.code, 0, "{output:?}");
    output.assert_prints(&["ok    address: 127.0.0.1:0\n"]);
}

#[tokio::test]
async fn x1_doctor_reports_token_that_serve_rejects() {
    let workspace = TestWorkspace::new();
    let output = workspace.run_with(&[("GREENROOM_TOKEN", "short")], &["doctor"]).await;
    assert_eq!(output.code, 1, "{output:?}");
    output.assert_prints(&["FAIL  token: GREENROOM_TOKEN is invalid"]);
    // The address of another command is not checked.
    let addresses =
        [("GREENROOM_REHEARSE_LISTEN", "127.0.0.1:0"), ("GREENROOM_LISTEN", "127.0.0.1:0")];
    let output = workspace.run_with(&addresses, &["doctor"]).await;
    assert_eq!(output.code, 0, "{output:?}");
    output.assert_prints(&["ok    token: set by GREENROOM_TOKEN"]);
}
