//! Models over HTTP (M1, M3): opens the connection and feeds the core's parsers.
//!
//! Called by `LlmStream` through the port [`ModelClient`]. What is asked and what an answer means
//! is the core's; here are only addresses, headers, bounds and time limits.

mod idle_timeout;

use crate::configuration::{MaxTokensParameter, ModelEndpoint, ModelWireFormat};
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
use std::{
    collections::BTreeMap,
    error::Error as _,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// Bytes read of an error answer's body.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// The revision of Anthropic's interface that requests are written for.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The configured models, ready to be called.
pub struct HttpModelClient {
    endpoints: BTreeMap<String, Arc<ModelConnection>>,
    clock: Arc<dyn Clock>,
}

struct ModelConnection {
    config: ModelEndpoint,
    /// Where every request goes.
    url: reqwest::Url,
    http: reqwest::Client,
    /// Time from a request to the first text or call.
    first_token: metrics::Histogram,
}

impl HttpModelClient {
    /// Clients for these models. Errs when an address is none, or no TLS can be set up. Metrics must
    /// have been started.
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
            let url = url.parse().with_context(|| format!("the base_url of {}", model.name))?;
            let http = reqwest::Client::builder()
                .connect_timeout(model.connect_timeout)
                // A key must not follow where a server points.
                .redirect(reqwest::redirect::Policy::none())
                .tcp_nodelay(true)
                .build()?;
            let name = model.name.clone();
            let first_token =
                metrics::histogram!("greenroom_model_first_token_seconds", "model" => name.clone());
            Ok((name, Arc::new(ModelConnection { config: model, url, http, first_token })))
        };
        let endpoints = models.into_iter().map(endpoint).collect::<anyhow::Result<_>>()?;
        Ok(Self { endpoints, clock })
    }
}

impl ModelClient for HttpModelClient {
    fn stream(
        &self,
        mut request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        let Some(endpoint) = self.endpoints.get(&request.model).cloned() else {
            let failure = format!("the model `{}` is not configured", request.model);
            return stream::once(async { Err(ModelFailure::permanent(failure)) }).boxed();
        };
        request.model.clone_from(&endpoint.config.model);
        let clock = self.clock.clone();
        let (asked_at, first_token) = (Instant::now(), endpoint.first_token.clone());
        // Boxed: a connection that opens needs more room than one that streams, and gives it back.
        let opened = Box::pin(async move { endpoint.open_stream(&request, clock.as_ref()).await });
        let mut waits = true;
        let heard = move |item: &Result<Vec<Delta>, ModelFailure>| {
            if waits && item.as_ref().is_ok_and(|deltas| deltas.iter().any(has_output)) {
                waits = false;
                first_token.record(asked_at.elapsed().as_secs_f64());
            }
        };
        stream::once(opened).try_flatten().inspect(heard).boxed()
    }
}

fn has_output(delta: &Delta) -> bool {
    match delta {
        Delta::Text(_) | Delta::Reasoning { .. } | Delta::CallStarted { .. } => true,
        Delta::ReasoningStarted { .. }
        | Delta::ReasoningSignature { .. }
        | Delta::CallArguments { .. }
        | Delta::Usage(_)
        | Delta::Stopped(_)
        | Delta::Finished => false,
    }
}

impl ModelConnection {
    async fn open_stream(
        &self,
        request: &ModelRequest,
        clock: &dyn Clock,
    ) -> Result<BoxStream<'static, Result<Vec<Delta>, ModelFailure>>, ModelFailure> {
        let silence_max = self.config.idle_timeout;
        let answered = timeout(silence_max, self.request(request).send()).await;
        let response = answered
            .map_err(|_| idle_timeout_failure(silence_max))?
            .map_err(|error| connection_failure(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(response_failure(response, silence_max, clock).await);
        }
        let bytes = IdleTimeoutStream::new(response.bytes_stream().boxed(), silence_max);
        Ok(match self.config.wire {
            ModelWireFormat::Anthropic => parse_stream(bytes, anthropic::Parser::new()),
            ModelWireFormat::OpenAi => parse_stream(bytes, openai::Parser::new()),
        })
    }

    fn request(&self, request: &ModelRequest) -> reqwest::RequestBuilder {
        let key = self.config.api_key.as_ref().map(|key| key.expose());
        let post = self.http.post(self.url.clone()).header("content-type", "application/json");
        let traced = |post: reqwest::RequestBuilder| match request.trace_context {
            Some(trace) => post.header("traceparent", trace.to_string()),
            None => post,
        };
        traced(match self.config.wire {
            ModelWireFormat::Anthropic => {
                let post = post.header("anthropic-version", ANTHROPIC_VERSION);
                let post = key.into_iter().fold(post, |post, key| post.header("x-api-key", key));
                post.body(anthropic::encode(request))
            }
            ModelWireFormat::OpenAi => {
                let post = key.into_iter().fold(post, |post, key| post.bearer_auth(key));
                let legacy = self.config.max_tokens_parameter == MaxTokensParameter::Legacy;
                let options =
                    openai::EncodeOptions { legacy_max_tokens: legacy, ..Default::default() };
                post.body(openai::encode(request, options))
            }
        })
    }
}

/// The stream of one answer: its bytes, and what reads them.
struct ResponseReader<W> {
    bytes: IdleTimeoutStream<BoxStream<'static, reqwest::Result<Bytes>>>,
    parser: model_stream::StreamParser<W>,
    /// What ended it, to be told after what was read before.
    failure: Option<ModelFailure>,
    ended: bool,
}

use greenroom_core::model::stream_parser as model_stream;

fn parse_stream<W: model_stream::EventDecoder + Send + 'static>(
    bytes: IdleTimeoutStream<BoxStream<'static, reqwest::Result<Bytes>>>,
    parser: model_stream::StreamParser<W>,
) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
    let reading = ResponseReader { bytes, parser, failure: None, ended: false };
    stream::unfold(reading, |mut reading| async move {
        loop {
            if let Some(failure) = reading.failure.take() {
                return Some((Err(failure), reading));
            }
            if reading.ended {
                return None;
            }
            let mut deltas = Vec::new();
            let result = match reading.bytes.next().await {
                Some(Ok(bytes)) => reading.parser.push(&bytes, &mut deltas),
                Some(Err(failure)) => Err(failure),
                None => reading.parser.finish(&mut deltas),
            };
            reading.ended = result.is_err() || reading.parser.is_finished();
            reading.failure = result.err();
            // Half an event says nothing yet.
            if !deltas.is_empty() {
                return Some((Ok(deltas), reading));
            }
        }
    })
    .boxed()
}

/// What an answer with an error status tells of.
async fn response_failure(
    response: reqwest::Response,
    silence_max: Duration,
    clock: &dyn Clock,
) -> ModelFailure {
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let wait =
        failure::parse_retry_after(header("retry-after-ms"), header("retry-after"), clock.now());
    let status = response.status().as_u16();
    let mut body = Vec::new();
    let mut bytes = IdleTimeoutStream::new(response.bytes_stream().boxed(), silence_max);
    while let Some(Ok(more)) = bytes.next().await {
        let room = ERROR_BODY_BYTES_MAX - body.len();
        body.extend_from_slice(&more[..more.len().min(room)]);
        if body.len() == ERROR_BODY_BYTES_MAX {
            break;
        }
    }
    failure::from_response(status, &body, wait)
}

/// A connection that failed. The address is left out: it may hold a key.
fn connection_failure(error: &reqwest::Error) -> ModelFailure {
    let kind = if error.is_timeout() {
        "the model did not answer in time"
    } else if error.is_connect() {
        "the model's server can't be reached"
    } else {
        "the connection to the model broke"
    };
    let mut source = error.source();
    while let Some(deeper) = source.and_then(|source| source.source()) {
        source = Some(deeper);
    }
    match source {
        Some(source) => ModelFailure::temporary(format!("{kind}: {source}")),
        None => ModelFailure::temporary(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::startup::SystemClock;
    use std::net::TcpListener;

    #[actix_web::test]
    async fn m3_a_server_that_never_answers_is_given_up() {
        crate::install_crypto();
        // Connections are taken by the system, and read by nobody.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let idle_timeout = Duration::from_millis(200);
        let endpoint = ModelEndpoint {
            idle_timeout,
            ..ModelEndpoint::without_key("deaf", ModelWireFormat::OpenAi, address)
        };
        let models = HttpModelClient::new([endpoint], Arc::new(SystemClock)).unwrap();
        let request = ModelRequest { model: "deaf".to_owned(), ..ModelRequest::default() };
        let heard: Vec<_> = models.stream(request).collect().await;
        assert_eq!(heard, [Err(idle_timeout_failure(idle_timeout))]);
    }
}
