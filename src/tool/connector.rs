//! Connects to MCP servers with the official SDK, over stdio and streamable HTTP, in both lifecycles
//! of the protocol (T1). Performs the handshake; `mcp_client` implements the connection after it.

use crate::http_client;
use futures::future::{BoxFuture, FutureExt};
use greenroom_actors::tool_connection::{ToolClient, ToolServer};
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::{
    RoleClient,
    model::ProtocolVersion,
    service::{ClientInitializeError, ClientLifecycleMode, serve_client_with_lifecycle_and_ct},
    transport::{
        IntoTransport, StreamableHttpClientTransport, common::client_side_sse::ExponentialBackoff,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

use super::{
    McpLifecycle, ToolServerConfig, ToolTransport, address_policy,
    call::describe_error,
    child_process::{self, ProcessExit},
    late_results::LateResultTransport,
    mcp_client::{McpClient, McpClientHandler},
    stdio::StdioTransport,
};

/// Timeout for connecting to an HTTP server.
const HTTP_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum attempts to resume an interrupted event stream. The delay before them doubles.
const HTTP_RESUMES_MAX: usize = 3;
const HTTP_RESUME_DELAY: Duration = Duration::from_millis(500);

/// Connects to a configured server.
pub(super) struct McpConnector {
    config: Arc<ToolServerConfig>,
}

impl McpConnector {
    pub(super) fn new(config: ToolServerConfig) -> Self {
        Self { config: Arc::new(config) }
    }
}

impl ToolServer for McpConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn ToolClient>, String>> {
        let config = self.config.clone();
        async move {
            let client = connect(&config).await;
            let client = client.map(|client| Arc::new(client) as Arc<dyn ToolClient>);
            client.map_err(|problem| config.redactor.redact_text(&problem).into_owned())
        }
        .boxed()
    }
}

async fn connect(config: &ToolServerConfig) -> Result<McpClient, String> {
    match &config.transport {
        ToolTransport::Stdio { command, args, env, cwd } => {
            let (process, stdin, stdout) =
                child_process::spawn(&config.name, command, args, env, cwd.as_deref())?;
            let (ended, process_exit) = (CancellationToken::new(), process.exit());
            let transport = StdioTransport::new(
                &config.name,
                process,
                stdin,
                stdout,
                config.message_bytes_max,
                ended.clone(),
            );
            handshake(config, transport, ended, Some(process_exit)).await
        }
        ToolTransport::Http { url, headers, allow_private } => {
            let transport = http_transport(config, url, headers, *allow_private)?;
            handshake(config, transport, CancellationToken::new(), None).await
        }
    }
}

/// Performs the MCP handshake over `transport`.
async fn handshake<T, E, A>(
    config: &ToolServerConfig,
    transport: T,
    ended: CancellationToken,
    process_exit: Option<ProcessExit>,
) -> Result<McpClient, String>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let preferred_versions = || vec![ProtocolVersion::V_2026_07_28];
    let legacy = ProtocolVersion::V_2025_11_25;
    let (mode, version) = match config.lifecycle {
        McpLifecycle::Auto => {
            let legacy_version = Some(legacy.clone());
            let mode = ClientLifecycleMode::Auto {
                preferred_versions: preferred_versions(),
                legacy_version,
            };
            (mode, legacy)
        }
        McpLifecycle::Initialize => (ClientLifecycleMode::Initialize, legacy),
        McpLifecycle::Discover => {
            let mode = ClientLifecycleMode::Discover { preferred_versions: preferred_versions() };
            (mode, ProtocolVersion::V_2026_07_28)
        }
    };
    let stop = CancellationToken::new();
    let start_timeout = config.start_timeout;
    let client = McpClientHandler::new(version);
    let transport =
        LateResultTransport { inner: transport.into_transport(), routes: client.routes.clone() };
    let handshake = serve_client_with_lifecycle_and_ct(client, transport, mode, stop.clone());
    let problem = match tokio::time::timeout(start_timeout, handshake).await {
        Ok(Ok(running)) => {
            let redactor = config.redactor.clone();
            return Ok(McpClient::new(running, stop, ended, process_exit, start_timeout, redactor));
        }
        Ok(Err(error)) => handshake_error_text(&error),
        Err(_) => format!("no response within {start_timeout:?}"),
    };
    let Some(process_exit) = process_exit else { return Err(problem) };
    // The transport is dropped, so the process is terminating. Waiting prevents a second process of
    // the server and includes its last line of standard error in the error.
    process_exit.wait().await;
    Err(format!("{problem}; {}", process_exit.describe()))
}

/// Formats a handshake error without the SDK's type names.
fn handshake_error_text(error: &ClientInitializeError) -> String {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    match error {
        ClientInitializeError::TransportError { error, .. } => describe_error(&*error.error),
        ClientInitializeError::ConnectionClosed(_) => {
            "the connection was closed during the handshake".to_owned()
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            handshake_error_text(fallback)
        }
        other => describe_error(other),
    }
}

fn http_transport(
    config: &ToolServerConfig,
    url: &str,
    headers: &BTreeMap<String, String>,
    allow_private: bool,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    address_policy::validate_url(url, allow_private).map_err(|error| error.to_string())?;
    // A redirect could lead to a private address, and a proxy would resolve names unchecked.
    let configure = |client: reqwest::ClientBuilder| {
        let client = client
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(HTTP_CONNECT_TIMEOUT);
        if allow_private {
            return client;
        }
        client.dns_resolver(Arc::new(address_policy::PublicAddressResolver))
    };
    let parsed_url = url.parse().map_err(|_| "the URL is invalid".to_owned())?;
    let client = http_client::build_client(&parsed_url, configure)
        .map_err(|error| describe_error(&error))?;
    let mut custom = HashMap::new();
    for (name, value) in headers {
        // The value may be a secret, so the error contains only the name.
        let name = HeaderName::try_from(name)
            .map_err(|_| format!("`{name}` is not a valid header name"))?;
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| format!("the value of header `{name}` is invalid"))?;
        value.set_sensitive(true);
        custom.insert(name, value);
    }
    let mut transport = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(custom)
        .max_sse_event_size(config.message_bytes_max);
    // Without a limit, a call to an unreachable server would wait until its timeout.
    let mut backoff = ExponentialBackoff::default();
    backoff.max_times = Some(HTTP_RESUMES_MAX);
    backoff.base_duration = HTTP_RESUME_DELAY;
    transport.retry_config = Arc::new(backoff);
    Ok(StreamableHttpClientTransport::with_client(client, transport))
}
