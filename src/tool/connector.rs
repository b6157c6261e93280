//! Connects to MCP servers with the official SDK, over stdio and streamable HTTP, in both of the
//! protocol's lifecycles (T1). Knows how a conversation begins; `link` is the rest of it.

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

/// Time to reach an HTTP server.
const HTTP_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Tries to resume a stream of events that broke off; the delay before them doubles.
const HTTP_RESUMES_MAX: usize = 3;
const HTTP_RESUME_DELAY: Duration = Duration::from_millis(500);

/// A server as configuration describes it.
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
            let link = connect(&config).await;
            let link = link.map(|link| Arc::new(link) as Arc<dyn ToolClient>);
            link.map_err(|problem| config.redactor.redact_text(&problem).into_owned())
        }
        .boxed()
    }
}

async fn connect(config: &ToolServerConfig) -> Result<McpClient, String> {
    match &config.transport {
        ToolTransport::Stdio { command, args, env, cwd } => {
            let (process, stdin, stdout) =
                child_process::spawn(&config.name, command, args, env, cwd.as_deref())?;
            let (ended, fate) = (CancellationToken::new(), process.exit());
            let transport = StdioTransport::new(
                &config.name,
                process,
                stdin,
                stdout,
                config.message_bytes_max,
                ended.clone(),
            );
            handshake(config, transport, ended, Some(fate)).await
        }
        ToolTransport::Http { url, headers, allow_private } => {
            let transport = http_transport(config, url, headers, *allow_private)?;
            handshake(config, transport, CancellationToken::new(), None).await
        }
    }
}

/// Shakes hands over `transport`.
async fn handshake<T, E, A>(
    config: &ToolServerConfig,
    transport: T,
    ended: CancellationToken,
    fate: Option<ProcessExit>,
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
    let limit = config.start_timeout;
    let client = McpClientHandler::new(version);
    let transport =
        LateResultTransport { inner: transport.into_transport(), routes: client.routes.clone() };
    let handshake = serve_client_with_lifecycle_and_ct(client, transport, mode, stop.clone());
    let problem = match tokio::time::timeout(limit, handshake).await {
        Ok(Ok(running)) => {
            let redactor = config.redactor.clone();
            return Ok(McpClient::new(running, stop, ended, fate, limit, redactor));
        }
        Ok(Err(error)) => handshake_error_text(&error),
        Err(_) => format!("no answer within {limit:?}"),
    };
    let Some(fate) = fate else { return Err(problem) };
    // The transport is dropped, so the process is on its way out: wait, so that there is never
    // more than one, and it can say what was wrong.
    fate.wait().await;
    Err(format!("{problem}; {}", fate.describe()))
}

/// Why no conversation came about, without the SDK's inner names.
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
    // A redirect could lead anywhere, and a proxy would resolve names behind our back.
    let mut client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(HTTP_CONNECT_TIMEOUT);
    if !allow_private {
        client = client.dns_resolver(Arc::new(address_policy::PublicAddressResolver));
    }
    let client = client.build().map_err(|error| describe_error(&error))?;
    let mut custom = HashMap::new();
    for (name, value) in headers {
        // The value may be a secret: the error names the key alone.
        let name = HeaderName::try_from(name).map_err(|_| format!("`{name}` is not a header"))?;
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| format!("the value of header `{name}` is not valid"))?;
        value.set_sensitive(true);
        custom.insert(name, value);
    }
    let mut transport = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(custom)
        .max_sse_event_size(config.message_bytes_max);
    // Without an end to it, a call whose server is gone would hang until its timeout.
    let mut resuming = ExponentialBackoff::default();
    resuming.max_times = Some(HTTP_RESUMES_MAX);
    resuming.base_duration = HTTP_RESUME_DELAY;
    transport.retry_config = Arc::new(resuming);
    Ok(StreamableHttpClientTransport::with_client(client, transport))
}
