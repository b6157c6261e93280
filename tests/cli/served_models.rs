//! Tests of the lines of the README for Ollama and vLLM: `OPENAI_BASE_URL` names a server, and no model
//! is configured (M1).

use crate::{
    harness::{RunningServer, TestWorkspace},
    model_server::{ModelProgram, ModelServer},
};
use serde_json::{Value, json};
use std::net::TcpListener;

fn any_port() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Returns the environment of the README's lines, with a model or without.
fn environment<'a>(base_url: &'a str, model: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    let model = model.map(|model| ("GREENROOM_MODELS__OPENAI__MODEL", model));
    let provider = [("OPENAI_API_KEY", "none"), ("OPENAI_BASE_URL", base_url)];
    provider.into_iter().chain(model).collect()
}

async fn start(base_url: &str, model: Option<&str>) -> RunningServer {
    TestWorkspace::new().start_server_with(&environment(base_url, model)).await
}

async fn chat(server: &RunningServer) -> Value {
    server.post("/agent/chat", json!({"message": "Who are you?"})).await
}

/// Returns the lines of the banner about models, without their label.
fn model_lines(server: &RunningServer) -> Vec<&str> {
    server.banner.iter().filter_map(|line| line.strip_prefix("  Model      ")).collect()
}

#[actix_web::test]
async fn m1_only_model_of_a_server_is_used_and_shown() {
    for (program, model) in
        [(ModelProgram::Ollama, "qwen3:8b"), (ModelProgram::Vllm, "Qwen/Qwen3-8B")]
    {
        let models = ModelServer::start(any_port(), program, &[model]);
        let base_url = format!("{}/v1", models.url);
        let server = start(&base_url, None).await;
        assert_eq!(model_lines(&server), [format!("{model} (openai, {})", models.url)]);
        let answered = chat(&server).await;
        let answer = (answered["outcome"].clone(), answered["response"].clone());
        assert_eq!(answer, (json!("completed"), json!(format!("I am {model}."))), "{answered}");
        let workspace = TestWorkspace::new();
        let listen = [("GREENROOM_LISTEN", "127.0.0.1:0")];
        let variables = [&environment(&base_url, None)[..], &listen].concat();
        let doctor = workspace.run_with(&variables, &["doctor"]).await;
        let line = format!("ok    agent default: model {model} (openai, {})\n", models.url);
        assert!(doctor.out.contains(&line), "{doctor:?}");
        models.stop().await;
    }
}

#[actix_web::test]
async fn m1_choice_of_several_models_is_requested() {
    let models = ModelServer::start(any_port(), ModelProgram::Ollama, &["qwen3:8b", "llama3.2"]);
    let base_url = format!("{}/v1", models.url);
    let problem = format!(
        "{} serves 2 models: llama3.2, qwen3:8b; set GREENROOM_MODELS__OPENAI__MODEL to one of them",
        models.url
    );
    let server = start(&base_url, None).await;
    assert_eq!(model_lines(&server), [format!("openai: {problem}")]);
    let failed = chat(&server).await;
    assert_eq!(failed["code"], "run_failed", "{failed}");
    assert!(failed["detail"].as_str().unwrap().contains(&problem), "{failed}");
    let variables = [&environment(&base_url, None)[..], &[("GREENROOM_LISTEN", "127.0.0.1:0")]];
    let doctor = TestWorkspace::new().run_with(&variables.concat(), &["doctor"]).await;
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let line = format!("FAIL  agent default: model openai: {problem}\n");
    assert!(doctor.out.contains(&line), "{doctor:?}");

    // What the error says to do works.
    let server = start(&base_url, Some("llama3.2")).await;
    assert_eq!(model_lines(&server), [format!("llama3.2 (openai, {})", models.url)]);
    assert_eq!(chat(&server).await["response"], "I am llama3.2.");
    models.stop().await;
}

#[actix_web::test]
async fn m1_server_without_models_or_without_list_is_named() {
    let models = ModelServer::start(any_port(), ModelProgram::Ollama, &[]);
    let base_url = format!("{}/v1", models.url);
    let server = start(&base_url, None).await;
    let expected = format!(
        "openai: {} serves no model: load one there, or set GREENROOM_MODELS__OPENAI__MODEL",
        models.url
    );
    assert_eq!(model_lines(&server), [expected]);
    // The path is missing.
    let server = start(&models.url, None).await;
    let expected = format!(
        "openai: the model of {} is unknown: the model provider responded with status 404; check the base \
         URL, which usually ends with /v1, or set GREENROOM_MODELS__OPENAI__MODEL",
        models.url
    );
    assert_eq!(model_lines(&server), [expected]);
    models.stop().await;
}

#[actix_web::test]
async fn m1_model_of_a_server_that_starts_later_is_found_at_first_use() {
    let port = any_port();
    let address = port.local_addr().unwrap();
    drop(port);
    let server = start(&format!("http://{address}/v1"), None).await;
    let [line] = model_lines(&server)[..] else { panic!("{:?}", server.banner) };
    let expected = format!(
        "openai: the model of http://{address} is unknown: the model's server can't be reached"
    );
    assert!(line.starts_with(&expected), "{line}");
    assert!(line.ends_with("start the server, or set GREENROOM_MODELS__OPENAI__MODEL"), "{line}");
    let listener = TcpListener::bind(address).unwrap();
    let models = ModelServer::start(listener, ModelProgram::Vllm, &["Qwen/Qwen3-8B"]);
    assert_eq!(chat(&server).await["response"], "I am Qwen/Qwen3-8B.");
    models.stop().await;
}

#[actix_web::test]
async fn m1_silent_model_server_delays_the_start_by_three_seconds() {
    // The system accepts connections, but nothing answers.
    let listener = any_port();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let started = start(&format!("{server}/v1"), None).await;
    let expected = format!(
        "openai: the model of {server} is unknown: no list of models within 3 s; start the server, or set \
         GREENROOM_MODELS__OPENAI__MODEL"
    );
    assert_eq!(model_lines(&started), [expected]);
}

#[actix_web::test]
async fn m1_error_of_an_unknown_model_names_the_setting() {
    for (program, message) in [
        (ModelProgram::Ollama, "model \"gpt-5-mini\" not found, try pulling it first"),
        (ModelProgram::Vllm, "The model `gpt-5-mini` does not exist."),
    ] {
        let models = ModelServer::start(any_port(), program, &["qwen3:8b"]);
        let base_url = format!("{}/v1", models.url);
        let server = start(&base_url, Some("gpt-5-mini")).await;
        let failed = chat(&server).await;
        let expected = format!(
            "unknown model gpt-5-mini (openai, {}): {message}; set GREENROOM_MODELS__OPENAI__MODEL to a \
             model of this server",
            models.url
        );
        assert_eq!(failed["code"], "run_failed", "{failed}");
        assert!(failed["detail"].as_str().unwrap().contains(&expected), "{failed}");
        models.stop().await;
    }
}
