//! A stand-in for a model server on this machine: it lists its models and answers as Ollama or vLLM
//! do. It has no other behaviour.

use actix_web::{App, HttpResponse, HttpServer, dev::ServerHandle, web};
use serde_json::{Value, json};
use std::net::TcpListener;

/// The program whose responses the server copies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ModelProgram {
    Ollama,
    Vllm,
}

/// A running model server.
pub(crate) struct ModelServer {
    /// Scheme, host and port.
    pub(crate) url: String,
    handle: ServerHandle,
}

impl ModelServer {
    /// Starts a server with `models` at the address of `listener`.
    pub(crate) fn start(listener: TcpListener, program: ModelProgram, models: &[&str]) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let models: Vec<String> = models.iter().map(|&model| model.to_owned()).collect();
        let app = move || {
            App::new()
                .app_data(web::Data::new((program, models.clone())))
                .route("/v1/models", web::get().to(list_models))
                .route("/v1/chat/completions", web::post().to(complete))
        };
        let server = HttpServer::new(app).workers(1).disable_signals().listen(listener).unwrap();
        let server = server.run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        Self { url, handle }
    }

    pub(crate) async fn stop(self) {
        self.handle.stop(false).await;
    }
}

type ServedModels = web::Data<(ModelProgram, Vec<String>)>;

async fn list_models(served: ServedModels) -> HttpResponse {
    let (program, models) = &**served;
    let describe = |model: &String| match program {
        ModelProgram::Ollama => {
            json!({"id": model, "object": "model", "created": 1_762_000_000, "owned_by": "library"})
        }
        ModelProgram::Vllm => json!({
            "id": model, "object": "model", "created": 1_762_000_000, "owned_by": "vllm",
            "root": model, "parent": null, "max_model_len": 40_960,
            "permission": [{"id": "modelperm-1", "object": "model_permission"}],
        }),
    };
    let listed: Vec<Value> = models.iter().map(describe).collect();
    // An Ollama server without models sends null.
    let listed = if listed.is_empty() { Value::Null } else { json!(listed) };
    HttpResponse::Ok().json(json!({"object": "list", "data": listed}))
}

async fn complete(served: ServedModels, request: web::Json<Value>) -> HttpResponse {
    let (program, models) = &**served;
    let model = request["model"].as_str().unwrap_or_default().to_owned();
    if !models.contains(&model) {
        return HttpResponse::NotFound().json(match program {
            ModelProgram::Ollama => json!({"error": {
                "message": format!("model \"{model}\" not found, try pulling it first"),
                "type": "api_error", "param": null, "code": null,
            }}),
            ModelProgram::Vllm => json!({
                "object": "error", "message": format!("The model `{model}` does not exist."),
                "type": "NotFoundError", "param": null, "code": 404,
            }),
        });
    }
    let chunk = |delta: Value, finish_reason: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        let chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_762_000_000,
            "model": model, "choices": [choice],
        });
        format!("data: {chunk}\n\n")
    };
    let text = format!("I am {model}.");
    let body = chunk(json!({"role": "assistant", "content": text}), None)
        + &chunk(json!({}), Some("stop"))
        + "data: [DONE]\n\n";
    HttpResponse::Ok().content_type("text/event-stream").body(body)
}
