//! The model of a server that serves a single one (M1).
//!
//! Servers such as Ollama, vLLM and llama.cpp serve models of any name. If none is configured, the
//! client asks `GET {base_url}/models` and uses the only model in the response. This module sends
//! that request and formats what an operator must set otherwise; the core parses the response.

use super::{ERROR_BODY_BYTES_MAX, connection_failure};
use crate::configuration::ModelEndpoint;
use futures::StreamExt as _;
use greenroom_core::{
    model::{
        failure::{self, ModelFailure},
        openai,
    },
    text,
};
use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::timeout;

/// Maximum time of a request for the models of a server.
pub const MODEL_LIST_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum bytes of its response.
const MODEL_LIST_BYTES_MAX: usize = 1024 * 1024;
/// Maximum models that an error names.
const NAMED_MODELS_MAX: usize = 10;

/// The model that the server of an endpoint serves, once it is known.
#[derive(Default)]
pub(super) struct ServedModel(Mutex<Option<String>>);

impl ServedModel {
    /// Returns the provider's name of the endpoint's model. Asks the server if no model is configured
    /// and the server has not been asked successfully.
    pub(super) async fn resolve(
        &self,
        endpoint: &ModelEndpoint,
        http: &reqwest::Client,
    ) -> Result<String, ModelFailure> {
        let known = endpoint.model.clone();
        let known = known.or_else(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).clone());
        if let Some(model) = known {
            return Ok(model);
        }
        let listed = timeout(MODEL_LIST_TIMEOUT, list_models(endpoint, http)).await;
        let listed = listed.map_err(|_| {
            let seconds = MODEL_LIST_TIMEOUT.as_secs();
            ModelFailure::temporary(format!("no list of models within {seconds} s"))
        });
        let models = listed.flatten().map_err(|failure| describe_failure(endpoint, failure))?;
        let [only] = models.as_slice() else {
            return Err(ModelFailure::permanent(describe_choice(endpoint, &models)));
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(only.clone());
        Ok(only.clone())
    }

    /// Forgets the model, which the server no longer serves.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Requests the names of the server's models.
async fn list_models(
    endpoint: &ModelEndpoint,
    http: &reqwest::Client,
) -> Result<Vec<String>, ModelFailure> {
    let key = endpoint.api_key.as_ref().map(|key| key.expose());
    let get = http.get(format!("{}/models", endpoint.base_url));
    let get = key.into_iter().fold(get, |get, key| get.bearer_auth(key));
    let response = get.send().await.map_err(|error| connection_failure(&error))?;
    let status = response.status();
    let bytes_max = if status.is_success() { MODEL_LIST_BYTES_MAX } else { ERROR_BODY_BYTES_MAX };
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.map_err(|error| connection_failure(&error))?);
        if body.len() > bytes_max {
            break;
        }
    }
    if !status.is_success() {
        body.truncate(bytes_max);
        return Err(failure::from_response(status.as_u16(), &body, None));
    }
    if body.len() > bytes_max {
        let problem = format!("the list of models exceeds the limit of {bytes_max} bytes");
        return Err(ModelFailure::permanent(problem));
    }
    let invalid = || ModelFailure::permanent("the response is not a list of models");
    openai::parse_model_list(&body).ok_or_else(invalid)
}

/// Adds the subject and what to set.
fn describe_failure(endpoint: &ModelEndpoint, failure: ModelFailure) -> ModelFailure {
    let (server, setting) = (server_of(endpoint), model_setting(&endpoint.name));
    // The most frequent mistake: the base URL without its path.
    let hint = match failure.status {
        Some(404) => "check the base URL, which usually ends with /v1, or set",
        _ => "start the server, or set",
    };
    let message =
        format!("the model of {server} is unknown: {}; {hint} {setting}", failure.message);
    ModelFailure { message, ..failure }
}

fn describe_choice(endpoint: &ModelEndpoint, models: &[String]) -> String {
    let (server, setting) = (server_of(endpoint), model_setting(&endpoint.name));
    if models.is_empty() {
        return format!("{server} serves no model: load one there, or set {setting}");
    }
    let names: Vec<_> =
        models.iter().take(NAMED_MODELS_MAX).map(|name| text::truncate(name, 128)).collect();
    let more = match models.len().saturating_sub(NAMED_MODELS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let count = models.len();
    format!(
        "{server} serves {count} models: {}{more}; set {setting} to one of them",
        names.join(", ")
    )
}

/// Adds what to set to the failure of a request whose model the server does not know.
pub(super) fn describe_unknown_model(
    endpoint: &ModelEndpoint,
    model: &str,
    failure: ModelFailure,
) -> ModelFailure {
    let summary = ModelSummary {
        name: endpoint.name.clone(),
        server: server_of(endpoint),
        model: Ok(model.to_owned()),
    };
    let setting = model_setting(&endpoint.name);
    let message = format!(
        "unknown model {summary}: {}; set {setting} to a model of this server",
        failure.message
    );
    ModelFailure { message, ..failure }
}

/// Returns the setting of the model named `name`: an environment variable if its name allows one.
fn model_setting(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain && !name.contains("__") {
        format!("GREENROOM_MODELS__{}__MODEL", name.to_ascii_uppercase())
    } else {
        format!("`model` in [models.{name}]")
    }
}

/// Returns the address of the endpoint's server. Omits the rest of the URL, which may contain
/// credentials.
pub(super) fn server_of(endpoint: &ModelEndpoint) -> String {
    let url = reqwest::Url::parse(&endpoint.base_url).ok();
    url.map_or_else(|| "an invalid URL".to_owned(), |url| url.origin().ascii_serialization())
}

/// A configured model, for operators. Its text is `gpt-5-mini (openai, https://api.openai.com)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSummary {
    /// The configured name.
    pub name: String,
    /// The address of its server.
    pub server: String,
    /// The provider's name of the model, or why it is not known.
    pub model: Result<String, ModelFailure>,
}

impl fmt::Display for ModelSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, server, model } = self;
        match model {
            Ok(model) => write!(f, "{model} ({name}, {server})"),
            Err(failure) => write!(f, "{name}: {failure}"),
        }
    }
}
