//! Models over HTTP (M1, M3): opens the connection and feeds the core's parsers.
//!
//! Called by `LlmStream` through the port [`ModelClient`]. What is asked and what an answer means
//! is the core's; here are only addresses, headers, bounds and time limits.

mod silence;

use crate::configuration::{MaxTokensParameter, ModelEndpoint, Wire};
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
use silence::{Watched, silent};
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
pub struct HttpModels {
    endpoints: BTreeMap<String, Arc<Endpoint>>,
    clock: Arc<dyn Clock>,
}

struct Endpoint {
    model: ModelEndpoint,
    /// Where every request goes.
    url: reqwest::Url,
    http: reqwest::Client,
    /// Time from a request to the first text or call.
    first_token: metrics::Histogram,
}

impl HttpModels {
    /// Clients for these models. Errs when an address is none, or no TLS can be set up. Metrics must
    /// have been started.
    pub fn new(
        models: impl IntoIterator<Item = ModelEndpoint>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let endpoint = |model: ModelEndpoint| {
            let path = match model.wire {
                Wire::Anthropic => "/v1/messages",
                Wire::OpenAi => "/chat/completions",
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
            Ok((name, Arc::new(Endpoint { model, url, http, first_token })))
        };
        let endpoints = models.into_iter().map(endpoint).collect::<anyhow::Result<_>>()?;
        Ok(Self { endpoints, clock })
    }
}

impl ModelClient for HttpModels {
    fn stream(
        &self,
        mut request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        let Some(endpoint) = self.endpoints.get(&request.model).cloned() else {
            let failure = format!("the model `{}` is not configured", request.model);
            return stream::once(async { Err(ModelFailure::permanent(failure)) }).boxed();
        };
        request.model.clone_from(&endpoint.model.model);
        let clock = self.clock.clone();
        let (asked_at, first_token) = (Instant::now(), endpoint.first_token.clone());
        // Boxed: a connection that opens needs more room than one that streams, and gives it back.
        let opened = Box::pin(async move { endpoint.open(&request, clock.as_ref()).await });
        let mut waits = true;
        let heard = move |item: &Result<Vec<Delta>, ModelFailure>| {
            if waits && item.as_ref().is_ok_and(|deltas| deltas.iter().any(says_something)) {
                waits = false;
                first_token.record(asked_at.elapsed().as_secs_f64());
            }
        };
        stream::once(opened).try_flatten().inspect(heard).boxed()
    }
}

fn says_something(delta: &Delta) -> bool {
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

impl Endpoint {
    async fn open(
        &self,
        request: &ModelRequest,
        clock: &dyn Clock,
    ) -> Result<BoxStream<'static, Result<Vec<Delta>, ModelFailure>>, ModelFailure> {
        let silence_max = self.model.idle_timeout;
        let answered = timeout(silence_max, self.request(request).send()).await;
        let response =
            answered.map_err(|_| silent(silence_max))?.map_err(|error| broken(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(refused(response, silence_max, clock).await);
        }
        let bytes = Watched::new(response.bytes_stream().boxed(), silence_max);
        Ok(match self.model.wire {
            Wire::Anthropic => parsed(bytes, anthropic::Parser::new()),
            Wire::OpenAi => parsed(bytes, openai::Parser::new()),
        })
    }

    fn request(&self, request: &ModelRequest) -> reqwest::RequestBuilder {
        let key = self.model.api_key.as_ref().map(|key| key.expose());
        let post = self.http.post(self.url.clone()).header("content-type", "application/json");
        let traced = |post: reqwest::RequestBuilder| match request.trace {
            Some(trace) => post.header("traceparent", trace.to_string()),
            None => post,
        };
        traced(match self.model.wire {
            Wire::Anthropic => {
                let post = post.header("anthropic-version", ANTHROPIC_VERSION);
                let post = key.into_iter().fold(post, |post, key| post.header("x-api-key", key));
                post.body(anthropic::encode(request))
            }
            Wire::OpenAi => {
                let post = key.into_iter().fold(post, |post, key| post.bearer_auth(key));
                let legacy = self.model.max_tokens_parameter == MaxTokensParameter::Legacy;
                let options = openai::Options { legacy_max_tokens: legacy, ..Default::default() };
                post.body(openai::encode(request, options))
            }
        })
    }
}

/// The stream of one answer: its bytes, and what reads them.
struct Reading<W> {
    bytes: Watched<BoxStream<'static, reqwest::Result<Bytes>>>,
    parser: model_stream::Parser<W>,
    /// What ended it, to be told after what was read before.
    failure: Option<ModelFailure>,
    ended: bool,
}

use greenroom_core::model::stream as model_stream;

fn parsed<W: model_stream::Wire + Send + 'static>(
    bytes: Watched<BoxStream<'static, reqwest::Result<Bytes>>>,
    parser: model_stream::Parser<W>,
) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
    let reading = Reading { bytes, parser, failure: None, ended: false };
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
                None => reading.parser.end(&mut deltas),
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
async fn refused(
    response: reqwest::Response,
    silence_max: Duration,
    clock: &dyn Clock,
) -> ModelFailure {
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let wait = failure::retry_after(header("retry-after-ms"), header("retry-after"), clock.now());
    let status = response.status().as_u16();
    let mut body = Vec::new();
    let mut bytes = Watched::new(response.bytes_stream().boxed(), silence_max);
    while let Some(Ok(more)) = bytes.next().await {
        let room = ERROR_BODY_BYTES_MAX - body.len();
        body.extend_from_slice(&more[..more.len().min(room)]);
        if body.len() == ERROR_BODY_BYTES_MAX {
            break;
        }
    }
    failure::of_response(status, &body, wait)
}

/// A connection that failed. The address is left out: it may hold a key.
fn broken(error: &reqwest::Error) -> ModelFailure {
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
            ..ModelEndpoint::unlocked("deaf", Wire::OpenAi, address)
        };
        let models = HttpModels::new([endpoint], Arc::new(SystemClock)).unwrap();
        let request = ModelRequest { model: "deaf".to_owned(), ..ModelRequest::default() };
        let heard: Vec<_> = models.stream(request).collect().await;
        assert_eq!(heard, [Err(silent(idle_timeout))]);
    }
}
