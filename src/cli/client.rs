//! The HTTP client of the commands that need a running server.
//!
//! The client uses the public HTTP API and the admin token of the same configuration.

use super::partial_id::PartialId;
use crate::{configuration::Configuration, http_client};
use anyhow::Context as _;
use greenroom_core::ids::SessionId;
use reqwest::StatusCode;
use serde_json::Value;
use tokio_tungstenite::tungstenite::{client::IntoClientRequest as _, http};

/// Header that marks a request as sent by the command line; the server records it with answers.
const SURFACE: (&str, &str) = ("x-greenroom-surface", "cli");

/// Sessions requested per page; the server's maximum.
const SESSIONS_PAGE: usize = 200;
/// Maximum number of sessions, newest first, searched for an abbreviated id.
const SESSIONS_SEARCHED: usize = 10_000;

/// A client of the configured server.
#[derive(Clone)]
pub(super) struct ApiClient {
    http: reqwest::Client,
    base: String,
    token: String,
}

/// An error response of the server.
#[derive(Debug, thiserror::Error)]
#[error("the server responded with status {status}: {}", self.detail())]
pub(super) struct ApiError {
    /// The HTTP status.
    pub(super) status: StatusCode,
    /// The problem document; null if the response has none.
    pub(super) body: Value,
}

impl ApiError {
    /// Returns the stable error code.
    pub(super) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// True if the server reports that nothing with the given id exists.
    pub(super) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && self.code().ends_with("_not_found")
    }

    /// Returns the human-readable reason.
    pub(super) fn detail(&self) -> &str {
        self.body["detail"].as_str().unwrap_or("no reason given")
    }
}

impl ApiClient {
    /// Creates the client for the server that `configuration` describes.
    pub(super) fn from_configuration(configuration: &Configuration) -> anyhow::Result<Self> {
        let token = match &configuration.admin_token {
            Some(token) => token.expose().to_owned(),
            None => {
                let path = configuration.database.token_path();
                let read = std::fs::read_to_string(&path);
                let text = read.with_context(|| {
                    format!(
                        "can't read {}; is this the server's working directory?",
                        path.display()
                    )
                })?;
                text.trim().to_owned()
            }
        };
        let base = format!("http://{}", configuration.listen);
        Self::new(base, &token)
    }

    /// Creates the client for the server at `base`.
    pub(super) fn new(base: String, token: &str) -> anyhow::Result<Self> {
        let http = http_client::build_client(&base.parse()?, |client| client)?;
        Ok(Self { http, base, token: token.to_owned() })
    }

    /// Sends GET and returns the JSON response.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.send_for_json(self.http.get(self.url(path))).await
    }

    /// Sends POST with a JSON body and returns the JSON response.
    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send_for_json(self.http.post(self.url(path)).json(body)).await
    }

    /// Sends PATCH with a JSON body and returns the JSON response.
    pub(super) async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send_for_json(self.http.patch(self.url(path)).json(body)).await
    }

    /// Sends POST with a JSON body and returns the event stream response.
    pub(super) async fn post_for_stream(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<reqwest::Response> {
        let request = self.http.post(self.url(path)).json(body);
        self.send(request.header("accept", "text/event-stream")).await
    }

    /// Sends DELETE and returns the JSON response.
    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<Value> {
        self.send_for_json(self.http.delete(self.url(path))).await
    }

    /// Returns the only session whose id matches `id`.
    pub(super) async fn find_session(&self, id: &PartialId) -> anyhow::Result<SessionId> {
        let mut matching = Vec::new();
        let (mut searched, mut before) = (0, String::new());
        while id.as_full().is_none() && searched < SESSIONS_SEARCHED {
            let path = format!("/agent/session?children=true&limit={SESSIONS_PAGE}{before}");
            let page = self.get(&path).await?;
            let sessions = page["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
            searched += sessions.len();
            let ids = sessions.iter().filter_map(|session| session["session_id"].as_str());
            matching.extend(ids.filter(|candidate| id.matches(candidate)).map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => before = format!("&before={next}"),
                None => break,
            }
        }
        matching.extend(id.as_full().map(str::to_owned));
        Ok(id.resolve(matching, "session")?.parse()?)
    }

    /// Sends GET and returns the event stream response.
    pub(super) async fn stream(&self, path: &str) -> anyhow::Result<reqwest::Response> {
        self.send(self.http.get(self.url(path)).header("accept", "text/event-stream")).await
    }

    /// Builds the request that opens a WebSocket.
    pub(super) fn websocket_request(&self, path: &str) -> anyhow::Result<http::Request<()>> {
        let url = self.url(path).replacen("http", "ws", 1);
        let mut request = url.into_client_request()?;
        let bearer = format!("Bearer {}", self.token);
        request.headers_mut().insert(http::header::AUTHORIZATION, bearer.parse()?);
        request.headers_mut().insert(SURFACE.0, http::HeaderValue::from_static(SURFACE.1));
        Ok(request)
    }

    /// Returns the server's base URL.
    pub(super) fn base_url(&self) -> &str {
        &self.base
    }

    async fn send_for_json(&self, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
        self.send(request).await?.json().await.context("the response is not JSON")
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<reqwest::Response> {
        let request = request.bearer_auth(&self.token).header(SURFACE.0, SURFACE.1);
        let unreachable =
            || format!("no server at {}; start one with `greenroom serve`", self.base);
        let response = request.send().await.with_context(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.json().await.unwrap_or_default();
        Err(ApiError { status, body }.into())
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}
