//! The HTTP client of models (M1, M3): opens connections and feeds the core's parsers.
//!
//! The actor `LlmStream` calls it through the port [`ModelClient`]. The core encodes requests and
//! interprets responses; this module only knows addresses, headers, size limits and timeouts.

mod idle_timeout;
mod served_model;

pub use served_model::{MODEL_LIST_TIMEOUT, ModelSummary};

use crate::{
    configuration::{MaxTokensParameter, ModelEndpoint, ModelWireFormat},
    http_client,
    redaction::Redactor,
};
use anyhow::Context as _;
use bytes::Bytes;
use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use greenroom_actors::ports::{Clock, ModelClient};
use greenroom_core::model::{
    anthropic,
    delta::Delta,
    failure::{self, ModelFailure},
    openai,
    request::ModelRequest,
};
use idle_timeout::{IdleTimeoutStream, idle_timeout_failure};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use served_model::{ServedModel, describe_unknown_model};
use std::{
    collections::BTreeMap,
    error::Error as _,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// Maximum bytes read of the body of an error response.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// The host of OpenAI's own API, as opposed to compatible servers.
const OPENAI_HOST: &str = "api.openai.com";
/// The version of the Anthropic API that requests use.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The client of the configured models.
pub struct HttpModelClient {
    endpoints: BTreeMap<String, Arc<ModelConnection>>,
    clock: Arc<dyn Clock>,
    redactor: Arc<Redactor>,
}

struct ModelConnection {
    config: ModelEndpoint,
    /// The URL of all requests.
    url: reqwest::Url,
    http: reqwest::Client,
    served_model: ServedModel,
    /// Histogram of the time from a request to the first text or call.
    first_token: metrics::Histogram,
}

impl HttpModelClient {
    /// Creates clients of `models`. Fails if a URL is invalid or TLS cannot be initialized. Requires
    /// started metrics.
    pub fn new(
        models: impl IntoIterator<Item = ModelEndpoint>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let endpoint = |model: ModelEndpoint| {
            let path = match model.wire {
                ModelWireFormat::Anthropic => "/v1/messages",
                ModelWireFormat::OpenAi => "/chat/completions",
            };
            let url = format!("{}{path}", model.base_url);
            let url =
                url.parse().with_context(|| format!("invalid base_url of model {}", model.name))?;
            let http = http_client::build_client(&url, |client| {
                client
                    .connect_timeout(model.connect_timeout)
                    // A redirect must not receive the key.
                    .redirect(reqwest::redirect::Policy::none())
                    .tcp_nodelay(true)
            })
            .with_context(|| format!("can't use model {}", model.name))?;
            let name = model.name.clone();
            let first_token =
                metrics::histogram!("greenroom_model_first_token_seconds", "model" => name.clone());
            let served_model = ServedModel::default();
            let connection =
                ModelConnection { config: model, url, http, served_model, first_token };
            Ok((name, Arc::new(connection)))
        };
        let endpoints = models.into_iter().map(endpoint).collect::<anyhow::Result<_>>()?;
        Ok(Self { endpoints, clock, redactor: Arc::default() })
    }

    /// Sets the redactor of the requests that are logged at DEBUG.
    pub fn with_redactor(self, redactor: Arc<Redactor>) -> Self {
        Self { redactor, ..self }
    }

    /// Describes the models named `names`, in this order. Asks the servers of those without a
    /// configured model, all at once, for at most [`MODEL_LIST_TIMEOUT`].
    pub async fn summarize(&self, names: &[String]) -> Vec<ModelSummary> {
        let connections = names.iter().filter_map(|name| self.endpoints.get(name));
        let summaries = connections.map(async |connection| ModelSummary {
            name: connection.config.name.clone(),
            server: served_model::server_of(&connection.config),
            model: connection.served_model.resolve(&connection.config, &connection.http).await,
        });
        futures::future::join_all(summaries).await
    }
}

impl ModelClient for HttpModelClient {
    fn stream(
        &self,
        request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        let Some(endpoint) = self.endpoints.get(&request.model).cloned() else {
            let failure = format!("the model `{}` is not configured", request.model);
            let failure = ModelFailure::permanent(failure).into_unsent();
            return stream::once(async { Err(failure) }).boxed();
        };
        let (clock, redactor) = (self.clock.clone(), self.redactor.clone());
        let (requested_at, first_token) = (Instant::now(), endpoint.first_token.clone());
        // Boxed, because opening a connection needs more memory than streaming and releases it.
        let opened =
            Box::pin(async move { endpoint.open_stream(request, clock.as_ref(), &redactor).await });
        let mut is_pending = true;
        let record_first_token = move |item: &Result<Vec<Delta>, ModelFailure>| {
            if is_pending && item.as_ref().is_ok_and(|deltas| deltas.iter().any(has_output)) {
                is_pending = false;
                first_token.record(requested_at.elapsed().as_secs_f64());
            }
        };
        stream::once(opened).try_flatten().inspect(record_first_token).boxed()
    }
}

fn has_output(delta: &Delta) -> bool {
    match delta {
        Delta::Text(_) | Delta::Reasoning { .. } | Delta::CallStarted { .. } => true,
        Delta::ReasoningStarted { .. }
        | Delta::ReasoningSignature { .. }
        | Delta::CallArguments { .. }
        | Delta::CallDropped
        | Delta::Usage(_)
        | Delta::Stopped(_)
        | Delta::Finished => false,
    }
}

impl ModelConnection {
    async fn open_stream(
        &self,
        mut request: ModelRequest,
        clock: &dyn Clock,
        redactor: &Redactor,
    ) -> Result<BoxStream<'static, Result<Vec<Delta>, ModelFailure>>, ModelFailure> {
        let idle_timeout = self.config.idle_timeout;
        request.model = self.served_model.resolve(&self.config, &self.http).await?;
        let post = self.request(&request, redactor);
        let response = timeout(idle_timeout, post.send()).await;
        let response = response
            .map_err(|_| idle_timeout_failure(idle_timeout))?
            .map_err(|error| connection_failure(&error))?;
        let status = response.status();
        if !status.is_success() {
            let (failure, is_unknown_model) = response_failure(response, idle_timeout, clock).await;
            if !is_unknown_model {
                return Err(failure);
            }
            self.served_model.clear();
            return Err(describe_unknown_model(&self.config, &request.model, failure));
        }
        if let Some(media_type) = other_media_type(response.headers()) {
            let body = read_start(response, idle_timeout).await;
            let body = redactor.redact_text(&String::from_utf8_lossy(&body)).into_owned();
            return Err(ModelFailure::not_event_stream(&media_type, body.as_bytes()));
        }
        let bytes = IdleTimeoutStream::new(response.bytes_stream().boxed(), idle_timeout);
        Ok(match self.config.wire {
            ModelWireFormat::Anthropic => parse_stream(bytes, anthropic::Parser::new()),
            ModelWireFormat::OpenAi => parse_stream(bytes, openai::Parser::new()),
        })
    }

    fn request(&self, request: &ModelRequest, redactor: &Redactor) -> reqwest::RequestBuilder {
        let body = match self.config.wire {
            ModelWireFormat::Anthropic => anthropic::encode(request),
            ModelWireFormat::OpenAi => {
                let legacy = self.config.max_tokens_parameter == MaxTokensParameter::Legacy;
                let options = openai::EncodeOptions {
                    legacy_max_tokens: legacy,
                    sends_exact_arguments: self.url.host_str() == Some(OPENAI_HOST),
                    ..Default::default()
                };
                openai::encode(request, options)
            }
        };
        if tracing::enabled!(tracing::Level::DEBUG) {
            log_request(&self.config.name, request, &body, redactor);
        }
        let key = self.config.api_key.as_ref().map(|key| key.expose());
        let post = self.http.post(self.url.clone()).header("content-type", "application/json");
        let with_trace = |post: reqwest::RequestBuilder| match request.trace_context {
            Some(trace) => post.header("traceparent", trace.to_string()),
            None => post,
        };
        with_trace(match self.config.wire {
            ModelWireFormat::Anthropic => {
                let post = post.header("anthropic-version", ANTHROPIC_VERSION);
                key.into_iter().fold(post, |post, key| post.header("x-api-key", key))
            }
            ModelWireFormat::OpenAi => {
                key.into_iter().fold(post, |post, key| post.bearer_auth(key))
            }
        })
        .body(body)
    }
}

/// Logs the body of a request, redacted. Its trace is that of the run.
fn log_request(model: &str, request: &ModelRequest, body: &[u8], redactor: &Redactor) {
    let payload = serde_json::from_slice(body).unwrap_or_default();
    let payload = redactor.redact_value(payload).to_string();
    let traceparent = request.trace_context.map(tracing::field::display);
    tracing::debug!(model, traceparent, payload, "model request");
}

/// Reads one response: its byte stream and the parser.
struct ResponseReader<W> {
    bytes: IdleTimeoutStream<BoxStream<'static, reqwest::Result<Bytes>>>,
    parser: model_stream::StreamParser<W>,
    /// The failure that ended the stream, returned after the deltas that precede it.
    failure: Option<ModelFailure>,
    ended: bool,
}

use greenroom_core::model::stream_parser as model_stream;

fn parse_stream<W: model_stream::EventDecoder + Send + 'static>(
    bytes: IdleTimeoutStream<BoxStream<'static, reqwest::Result<Bytes>>>,
    parser: model_stream::StreamParser<W>,
) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
    let reader = ResponseReader { bytes, parser, failure: None, ended: false };
    stream::unfold(reader, |mut reader| async move {
        loop {
            if let Some(failure) = reader.failure.take() {
                return Some((Err(failure), reader));
            }
            if reader.ended {
                return None;
            }
            let mut deltas = Vec::new();
            let result = match reader.bytes.next().await {
                Some(Ok(bytes)) => reader.parser.push(&bytes, &mut deltas),
                Some(Err(failure)) => Err(failure),
                None => reader.parser.finish(&mut deltas),
            };
            reader.ended = result.is_err() || reader.parser.is_finished();
            reader.failure = result.err();
            // An incomplete event yields no deltas.
            if !deltas.is_empty() {
                return Some((Ok(deltas), reader));
            }
        }
    })
    .boxed()
}

/// Converts a response with an error status to a failure. Returns true with it if the server does
/// not know the requested model.
async fn response_failure(
    response: reqwest::Response,
    idle_timeout: Duration,
    clock: &dyn Clock,
) -> (ModelFailure, bool) {
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let wait =
        failure::parse_retry_after(header("retry-after-ms"), header("retry-after"), clock.now());
    let status = response.status().as_u16();
    let body = read_start(response, idle_timeout).await;
    (failure::from_response(status, &body, wait), failure::is_unknown_model(status, &body))
}

/// Returns the media type of a response that is certainly not an event stream: JSON or a web page.
/// Other types are accepted, because some servers label their streams wrongly.
fn other_media_type(headers: &HeaderMap) -> Option<String> {
    let media_type = headers.get(CONTENT_TYPE)?.to_str().ok()?.split(';').next()?;
    let media_type = media_type.trim().to_ascii_lowercase();
    (media_type.contains("json") || media_type == "text/html").then_some(media_type)
}

/// Returns the start of a response's body, as far as it can be read.
async fn read_start(response: reqwest::Response, idle_timeout: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    let mut bytes = IdleTimeoutStream::new(response.bytes_stream().boxed(), idle_timeout);
    while let Some(Ok(chunk)) = bytes.next().await {
        let room = ERROR_BODY_BYTES_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == ERROR_BODY_BYTES_MAX {
            break;
        }
    }
    body
}

/// Converts a connection error to a failure. Omits the URL, which may contain a key.
fn connection_failure(error: &reqwest::Error) -> ModelFailure {
    let kind = if error.is_timeout() {
        "the model did not answer in time"
    } else if error.is_connect() {
        "the model's server can't be reached"
    } else {
        "the connection to the model was lost"
    };
    let mut source = error.source();
    while let Some(deeper) = source.and_then(|source| source.source()) {
        source = Some(deeper);
    }
    let failure = match source {
        Some(source) => ModelFailure::temporary(format!("{kind}: {source}")),
        None => ModelFailure::temporary(kind),
    };
    if error.is_connect() { failure.into_unsent() } else { failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::startup::SystemClock;
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
    };

    #[actix_web::test]
    async fn m3_server_without_response_times_out() {
        crate::install_crypto();
        // The system accepts connections, but nothing reads from them.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let idle_timeout = Duration::from_millis(200);
        let endpoint = ModelEndpoint {
            idle_timeout,
            ..ModelEndpoint::without_key("silent", ModelWireFormat::OpenAi, address)
        };
        let models = HttpModelClient::new([endpoint], Arc::new(SystemClock)).unwrap();
        let request = ModelRequest { model: "silent".to_owned(), ..ModelRequest::default() };
        let items: Vec<_> = models.stream(request).collect().await;
        assert_eq!(items, [Err(idle_timeout_failure(idle_timeout))]);
    }

    /// Returns the items of a request to a server that answers with status 200 and this content.
    async fn respond_with(
        content_type: &str,
        body: &str,
        redactor: Redactor,
    ) -> Vec<Result<Vec<Delta>, ModelFailure>> {
        crate::install_crypto();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let length = body.len();
        let response = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n{body}"
        );
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
            while !request.ends_with(b"}") {
                let length = connection.read(&mut chunk).unwrap();
                request.extend_from_slice(&chunk[..length]);
            }
            connection.write_all(response.as_bytes()).unwrap();
        });
        let endpoint = ModelEndpoint::without_key("odd", ModelWireFormat::OpenAi, address);
        let models = HttpModelClient::new([endpoint], Arc::new(SystemClock)).unwrap();
        let models = models.with_redactor(Arc::new(redactor));
        let request = ModelRequest { model: "odd".to_owned(), ..ModelRequest::default() };
        let items = models.stream(request).collect().await;
        server.join().unwrap();
        items
    }

    #[actix_web::test]
    async fn m3_json_instead_of_a_stream_is_a_permanent_failure() {
        let body = r#"{"password":"pw-in-json","choices":[]}"#;
        for content_type in ["application/json; charset=utf-8", "application/x-ndjson", "text/html"]
        {
            let items = respond_with(content_type, body, Redactor::default()).await;
            let media_type = content_type.split(';').next().unwrap();
            let message = format!(
                "the provider responded with {media_type} instead of an event stream: \
                 `{{\"password\":\"[redacted]\",\"choices\":[]}}`"
            );
            assert_eq!(items, [Err(ModelFailure::permanent(message))], "{content_type}");
        }
        let error = r#"{"error":{"message":"no such model","code":429}}"#;
        let items = respond_with("application/json", error, Redactor::default()).await;
        let message = "the provider responded with application/json instead of an event stream: \
                       no such model";
        assert_eq!(items, [Err(ModelFailure::permanent(message))]);
    }

    #[actix_web::test]
    async fn m3_stream_with_another_content_type_is_read() {
        let body = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: [DONE]\n\n";
        for content_type in ["text/event-stream", "text/plain", "application/octet-stream"] {
            let items = respond_with(content_type, body, Redactor::default()).await;
            let deltas: Vec<_> = items.into_iter().flat_map(Result::unwrap).collect();
            assert!(deltas.contains(&Delta::Text("Hi".to_owned())), "{content_type}: {deltas:?}");
        }
    }
}
