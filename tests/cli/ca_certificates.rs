//! Tests on a system without CA certificates, such as a minimal container image.

use crate::harness::TestWorkspace;
use serde_json::json;

/// Environment variables that make the system's certificates unavailable.
const NO_CERTIFICATES: [(&str, &str); 2] =
    [("SSL_CERT_FILE", "/nonexistent/ca.pem"), ("SSL_CERT_DIR", "/nonexistent")];

#[tokio::test]
async fn server_without_ca_certificates_serves_http_endpoints() {
    let workspace = TestWorkspace::new();
    let tables = format!("otlp_endpoint = \"http://127.0.0.1:9\"\n{}", crate::harness::CATALOG);
    workspace.write("greenroom.toml", &workspace.configuration(&tables));
    let server = workspace.start_server_with(&NO_CERTIFICATES).await;
    let response = server.post("/agent/chat", json!({"message": "stock up"})).await;
    assert_eq!(response["outcome"], "waiting_for_approval", "{response}");
    let listen = [&NO_CERTIFICATES[..], &[("GREENROOM_LISTEN", &server.address)]].concat();
    let listed = server.workspace.run_with(&listen, &["approvals", "list"]).await;
    listed.assert_prints(&["Execute 2 tools"]);
}

#[tokio::test]
async fn https_endpoint_without_ca_certificates_stops_start_and_names_fix() {
    let workspace = TestWorkspace::new();
    let model = "[models.claude]\nwire = \"anthropic\"\nmodel = \"claude\"\n\
                 base_url = \"https://llm.example:8443/v1\"\n\
                 [agents.default]\nmodel = \"claude\"\n";
    workspace.write("greenroom.toml", model);
    let variables = [&NO_CERTIFICATES[..], &[("GREENROOM_LISTEN", "127.0.0.1:0")]].concat();
    let output = workspace.run_with(&variables, &["serve"]).await;
    assert_eq!(output.code, 1, "{output:?}");
    for text in ["claude", "https://llm.example", "`ca-certificates`", "SSL_CERT_FILE"] {
        assert!(output.err.contains(text), "{text}: {output:?}");
    }
}
