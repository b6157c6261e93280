//! How commands talk to a running server: over its public HTTP surface, with the token of the
//! same configuration.

use crate::{configuration::Configuration, startup};
use anyhow::Context as _;
use serde_json::Value;

/// A client of the configured server.
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    token: String,
}

impl Client {
    /// The client for the server that `configuration` describes.
    pub(super) fn of(configuration: &Configuration) -> anyhow::Result<Self> {
        let token = match &configuration.token {
            Some(token) => token.expose().to_owned(),
            None => {
                let path = startup::token_path(&configuration.database);
                let read = std::fs::read_to_string(&path);
                let text = read.with_context(|| {
                    format!("can't read {}; is the server's folder this one?", path.display())
                })?;
                text.trim().to_owned()
            }
        };
        let base = format!("http://{}", configuration.listen);
        Ok(Self { http: reqwest::Client::new(), base, token })
    }

    /// Gets a JSON answer.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let response = self.request(path).send().await.with_context(|| self.unreachable())?;
        let status = response.status();
        let body: Value = response.json().await.context("the answer is not JSON")?;
        let detail = body["detail"].as_str().unwrap_or("no reason given");
        anyhow::ensure!(status.is_success(), "the server answered {status}: {detail}");
        Ok(body)
    }

    /// Sends a request, with a JSON body if there is one, and gets its JSON answer.
    pub(super) async fn call(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.base);
        let request = self.http.request(method, url).bearer_auth(&self.token);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let response = request.send().await.with_context(|| self.unreachable())?;
        let status = response.status();
        let body: Value = response.json().await.context("the answer is not JSON")?;
        let detail = body["detail"].as_str().unwrap_or("no reason given");
        anyhow::ensure!(status.is_success(), "the server answered {status}: {detail}");
        Ok(body)
    }

    /// Opens an event stream.
    pub(super) async fn stream(&self, path: &str) -> anyhow::Result<reqwest::Response> {
        let request = self.request(path).header("accept", "text/event-stream");
        let response = request.send().await.with_context(|| self.unreachable())?;
        let status = response.status();
        if !status.is_success() {
            let body: Value = response.json().await.unwrap_or_default();
            let detail = body["detail"].as_str().unwrap_or("no reason given");
            anyhow::bail!("the server answered {status}: {detail}");
        }
        Ok(response)
    }

    fn request(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.get(format!("{}{path}", self.base)).bearer_auth(&self.token)
    }

    fn unreachable(&self) -> String {
        format!("no server answers at {}; start it with `greenroom serve`", self.base)
    }
}
