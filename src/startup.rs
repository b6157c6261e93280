//! Assembles the server from its configuration and shuts it down.
//!
//! The only module that knows all parts of the server. `greenroom serve` and tests that run a whole
//! server in their own process call [`Server::start`].

use crate::{
    auth::{AdminToken, Authenticator, KeyStore},
    ceilings::CeilingRegistry,
    configuration::{self, Configuration, ModelEndpoint, ModelWireFormat, REHEARSAL},
    http::{self, AppState, HttpLimits},
    model::{HttpModelClient, ModelSummary},
    redaction::SECRET_BYTES_MIN,
    rehearsal::{RehearsalServer, Script},
    skill::{ReadSkillTool, SCAN_INTERVAL, SkillLibrary},
    store::{self, Store, StoreOptions},
    telemetry::{self, Metrics, SessionMeter, TraceExporter},
    tool::{self, ReadResourceTool, ToolServerConfig},
    workflow::WorkflowLibrary,
};
use actix_web::{App, HttpServer, dev::ServerHandle};
use anyhow::Context as _;
use greenroom_actors::{
    built_in::{self, BuiltInTool, DelegateTool},
    circuit_breaker::GuardedModelClient,
    governance::Governance,
    ports::{Clock, Journal},
    runtime::{Runtime, RuntimeParams},
    status_board::StatusBoard,
    tool_servers::{ToolServerSpec, ToolServers},
};
use greenroom_core::{
    Timestamp,
    agent::AgentProfile,
    delegation,
    ids::{AgentName, ToolName},
    model::request::MessageLimits,
    policy::{BUILT_IN_SERVER, ServerProfile, Tool, units::USD},
    scrub::prepare_secrets,
    usage::ModelPrice,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Interval at which a draining server checks for running attempts.
const DRAIN_POLL: Duration = Duration::from_millis(50);
/// Maximum time for the session actors to stop during shutdown.
const SESSION_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The system's clock and source of random seeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    fn seed(&self) -> u64 {
        uuid::Uuid::new_v4().as_u64_pair().0
    }
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    admin_token: AdminToken,
    store: Arc<Store>,
    state: AppState,
    tools: ToolServers,
    models: Vec<ModelSummary>,
    rehearsal: Option<RehearsalServer>,
    http: ServerHandle,
    drain_timeout: Duration,
    /// The tasks that run the metrics upkeep, rescan skills and workflows, and store tool names.
    background_tasks: [actix_web::rt::task::JoinHandle<()>; 3],
    trace_exporter: Option<Arc<TraceExporter>>,
}

impl Server {
    /// Starts all configured parts and listens for connections. Requires a running actix system.
    pub async fn start(configuration: Configuration, metrics: Metrics) -> anyhow::Result<Self> {
        let opened_store = check_exposure_with_keys(&configuration).await?;
        // Bound first: an occupied port is the most frequent mistake and the cheapest to detect.
        let listener = TcpListener::bind(configuration.listen)
            .with_context(|| format!("can't listen on {}", configuration.listen))?;
        let address = listener.local_addr()?;
        let token = load_admin_token(&configuration)?;
        let store = match opened_store {
            Some(store) => store,
            None => open_store(&configuration).await?,
        };
        let redactor = configuration.redactor(collect_secrets(&configuration, &token));
        let redactor = Arc::new(redactor.with_digest_key(store.digest_key().clone()));
        telemetry::set_log_redactor(redactor.clone());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let board = StatusBoard::new(clock.clone());
        let (models, rehearsal) = resolve_models(&configuration)?;
        let servers = configuration.mcp_servers.values().map(ToolServerConfig::from);
        let skills = Arc::new(SkillLibrary::open(configuration.skills.clone()));
        let host = Arc::new(OnceLock::new());
        let built_in = built_in_server(&configuration, &skills, &host);
        let names = store.load_tool_names().await.context("can't load the names of tools")?;
        let catalog = (configuration.catalog.clone(), names.clone());
        let tools = tool::start_with_built_in(servers, built_in, catalog, &board, &clock);
        let name_storage = store.clone().store_tool_name_changes(tools.subscribe_names(), names);
        let name_storage = actix_web::rt::spawn(name_storage);
        host.get_or_init(|| tools.clone());
        // A resumed session must find the tools that it used before.
        tools.wait_until_started().await;
        let limits = &configuration.limits;
        let (ceilings, agents) =
            (configuration.ceilings.clone(), configuration.agents.keys().cloned());
        let ceilings = CeilingRegistry::open(ceilings, agents, store.clone()).await?;
        let governance = Governance {
            ceilings: ceilings.in_force().clone(),
            critical: configuration.critical,
            default_settings: Arc::new(configuration.default_settings.clone()),
            parallel_calls_max: limits.parallel_calls.get(),
            queued_messages_max: limits.queued_messages.get(),
            message_limits: MessageLimits {
                calls: limits.calls_per_step.get(),
                text_bytes: limits.model_text_bytes.get(),
            },
            delegate_tools: Arc::new(delegate_tools(&configuration)),
            children_max: limits.children_per_run.get(),
            delegation_depth_max: u32::try_from(limits.delegation_depth.get())?,
            prices: Arc::new(prices(&configuration)),
            units: configuration.units.clone(),
            system: configuration.system_prompt.as_str().into(),
            context_windows: Arc::new(context_windows(&configuration)),
            compact_at: configuration.compact_at,
            skills: skills.registry(),
            secrets: prepare_secrets(collect_secrets(&configuration, &token)),
            ..Governance::new(configuration.agents.values().cloned(), configuration.matrix.clone())
        };
        let endpoint = configuration.otlp_endpoint.as_deref();
        let traces =
            endpoint.map(|endpoint| TraceExporter::start(endpoint, redactor.clone())).transpose();
        let traces = traces.context("can't export traces")?.map(Arc::new);
        let names: Vec<_> = models.iter().map(|model| model.name.clone()).collect();
        let models = HttpModelClient::new(models, clock.clone())?.with_redactor(redactor.clone());
        let models = Arc::new(models);
        let summarized = {
            let (models, names) = (models.clone(), agents_models(&configuration));
            actix_web::rt::spawn(async move { models.summarize(&names).await })
        };
        let models = GuardedModelClient::new(models, names, &board, &clock);
        let parts = RuntimeParams {
            journal: store.clone(),
            models: Arc::new(models),
            tools: Arc::new(tools.clone()),
            clock,
            status_board: board,
            governance,
            meter: Arc::new(SessionMeter::new(redactor.clone(), traces.clone())),
            idle_timeout: limits.idle_timeout.0,
            flush_interval: configuration.flush_interval,
            shard_count: std::thread::available_parallelism().map_or(1, usize::from),
        };
        #[cfg(debug_assertions)]
        let parts = crate::fault_injection::inject_faults(parts)?;
        let runtime = Runtime::start(parts).await.with_context(|| {
            format!("can't load the stored data from {}", configuration.database)
        })?;
        let default_agent = AgentName::parse(configuration::AGENT_DEFAULT)?;
        let auth = Authenticator::new(token.clone()).with_key_store(store.clone());
        let mut state = AppState::new(runtime, auth, default_agent).with_limits(HttpLimits {
            body_bytes_max: limits.request_body_bytes.get(),
            message_bytes_max: limits.message_bytes.get(),
            open_sessions_max: u64::try_from(limits.open_sessions_per_user.get())?,
            running_runs_max: u64::try_from(limits.running_runs_per_user.get())?,
            subscribers_per_session_max: limits.subscribers_per_session.get(),
            requests_per_second: u32::try_from(limits.requests_per_second.get())?,
            heartbeat: limits.heartbeat.0,
            ..HttpLimits::default()
        });
        let workflows = Arc::new(WorkflowLibrary::open(configuration.workflows.clone()));
        state.ceilings = Arc::new(ceilings);
        state.skills = skills.clone();
        state.workflows = workflows.clone();
        state.audit_log = Some(store.clone());
        state.redactor = redactor;
        state.metrics = Some(metrics.handle());
        let metrics_upkeep = actix_web::rt::spawn(metrics.run_upkeep());
        let handler_state = state.clone();
        let server = HttpServer::new(move || {
            // Each worker thread of the server calls this closure.
            #[cfg(target_os = "linux")]
            crate::thread_scheduling::use_batch_scheduling();
            let state = handler_state.clone();
            App::new().configure(|app| http::configure(app, state))
        })
        .on_connect(http::on_connect(limits.heartbeat.0))
        .disable_signals()
        .shutdown_timeout(1)
        .listen(listener)?
        .run();
        let http = server.handle();
        actix_web::rt::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the HTTP server failed");
            }
        });
        let library_refresh = actix_web::rt::spawn(refresh_periodically(skills, workflows));
        let background_tasks = [metrics_upkeep, library_refresh, name_storage];
        // The server is started: only its operator waits for a model server that does not answer.
        let models = summarized.await.context("can't describe the models")?;
        Ok(Self {
            address,
            admin_token: token,
            store,
            state,
            tools,
            models,
            rehearsal,
            http,
            drain_timeout: configuration.drain_timeout,
            background_tasks,
            trace_exporter: traces,
        })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the administrator's token.
    pub fn admin_token(&self) -> &AdminToken {
        &self.admin_token
    }

    /// Returns the models of the agents as they were known at start.
    pub fn models(&self) -> &[ModelSummary] {
        &self.models
    }

    /// Returns the URL of the rehearsal server, if one is running.
    pub fn rehearsal_url(&self) -> Option<String> {
        self.rehearsal.as_ref().map(RehearsalServer::url)
    }

    /// Returns the state that the HTTP handlers share.
    pub fn state(&self) -> &AppState {
        &self.state
    }

    /// Returns the connections to the tool servers.
    pub fn tools(&self) -> &ToolServers {
        &self.tools
    }

    /// Shuts the server down (D8): accepts no new work, notifies the clients and waits for running
    /// model and tool attempts until they end, the drain timeout passes or `abort_drain` resolves.
    /// Unfinished work resumes at the next start.
    pub async fn shut_down(self, abort_drain: impl Future<Output = ()>) {
        self.state.draining.store(true, Relaxed);
        self.state.runtime.drain();
        let running = async {
            while self.has_running_attempts() {
                tokio::time::sleep(DRAIN_POLL).await;
            }
        };
        let is_drained = tokio::select! {
            () = running => true,
            () = tokio::time::sleep(self.drain_timeout) => false,
            () = abort_drain => false,
        };
        if !is_drained {
            tracing::info!("model or tool attempts are still running; aborting them");
        }
        self.background_tasks.iter().for_each(|task| task.abort());
        self.http.stop(true).await;
        // Sessions stop before the tool servers, so that no session records a lost tool server.
        self.state.runtime.shut_down(SESSION_STOP_TIMEOUT).await;
        self.tools.shut_down().await;
        if let Some(rehearsal) = self.rehearsal {
            rehearsal.stop().await;
        }
        if let Some(traces) = self.trace_exporter
            && let Err(error) =
                actix_web::rt::task::spawn_blocking(move || traces.shut_down()).await
        {
            tracing::warn!(%error, "failed to export the remaining traces");
        }
        if let Err(error) = self.store.checkpoint().await {
            tracing::warn!(%error, "failed to close the database cleanly");
        }
    }

    fn has_running_attempts(&self) -> bool {
        let board = &self.state.runtime.status_board;
        let is_attempt = |kind: &str| ["LlmStream", "ToolExecutor"].contains(&kind);
        board.snapshots("/sessions/").iter().any(|actor| is_attempt(actor.kind))
    }
}

/// Returns the administrator's token: from the environment, or from the file beside the database,
/// which is created if it does not exist (X1).
pub fn load_admin_token(configuration: &Configuration) -> anyhow::Result<AdminToken> {
    match &configuration.admin_token {
        Some(token) => AdminToken::parse(token.expose()).context("GREENROOM_TOKEN is invalid"),
        None => Ok(AdminToken::load_or_create(&configuration.database.token_path())?),
    }
}

/// Rejects a listen address that other machines can reach unless a token is set or a valid API key
/// exists (X1). Returns the store if checking for keys required opening it.
async fn check_exposure_with_keys(
    configuration: &Configuration,
) -> anyhow::Result<Option<Arc<Store>>> {
    let is_missing = configuration.database.is_missing();
    if configuration.validate_exposure(false).is_ok() || is_missing {
        configuration.validate_exposure(false)?;
        return Ok(None);
    }
    let store = open_store(configuration).await?;
    let has_keys = store.list_keys().await?.iter().any(|key| key.revoked_at.is_none());
    configuration.validate_exposure(has_keys)?;
    Ok(Some(store))
}

/// Opens the configured database as a journal and migrates it to the current schema.
pub async fn open_journal(configuration: &Configuration) -> anyhow::Result<Arc<dyn Journal>> {
    Ok(open_store(configuration).await?)
}

/// Opens the configured database with its API keys and audit log, and migrates it to the current
/// schema.
pub async fn open_store(configuration: &Configuration) -> anyhow::Result<Arc<Store>> {
    let durability = match configuration.durability {
        configuration::Durability::Fsync => store::Durability::Fsync,
        configuration::Durability::Process => store::Durability::Process,
    };
    let options = StoreOptions { durability, ..StoreOptions::default() };
    let database = &configuration.database;
    let store = Store::open(database, options)
        .await
        .with_context(|| format!("can't open the database {database}"))?;
    Ok(Arc::new(store))
}

/// Returns the configured models. Starts a rehearsal server and adds it if an agent uses it (M5).
fn resolve_models(
    configuration: &Configuration,
) -> anyhow::Result<(Vec<ModelEndpoint>, Option<RehearsalServer>)> {
    let mut models: Vec<_> = configuration.models.values().cloned().collect();
    let is_rehearsal = |model: &String| model == REHEARSAL;
    if !configuration.agents.values().any(|agent| agent.models.iter().any(is_rehearsal)) {
        return Ok((models, None));
    }
    let script = match &configuration.rehearsal {
        Some(path) => {
            Script::load(path).with_context(|| format!("can't use {}", path.display()))?
        }
        None => Script::tour()?,
    };
    let rehearsal = RehearsalServer::start(script, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .context("can't start the rehearsal server")?;
    models.push(ModelEndpoint::without_key(REHEARSAL, ModelWireFormat::Anthropic, rehearsal.url()));
    Ok((models, Some(rehearsal)))
}

/// Returns the names of the models that agents use, each once. The models of the default agent come
/// first.
pub fn agents_models(configuration: &Configuration) -> Vec<String> {
    let agents = &configuration.agents;
    let default = agents.iter().filter(|(name, _)| name.as_str() == configuration::AGENT_DEFAULT);
    let mut names: Vec<String> = Vec::new();
    for model in default.chain(agents).flat_map(|(_, agent)| &agent.models) {
        if !names.contains(model) {
            names.push(model.clone());
        }
    }
    names
}

/// Rescans skills and workflows every [`SCAN_INTERVAL`]. Never returns.
async fn refresh_periodically(skills: Arc<SkillLibrary>, workflows: Arc<WorkflowLibrary>) {
    let mut ticks = tokio::time::interval(SCAN_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (skills, workflows) = (skills.clone(), workflows.clone());
        let scan = tokio::task::spawn_blocking(move || {
            skills.refresh();
            workflows.refresh();
        });
        if scan.await.is_err() {
            tracing::error!("scanning skills and workflows failed; retrying at the next interval");
        }
    }
}

/// Returns the server of the built-in tools that the configuration enables, if any (T7). `host` is
/// set once all tool servers, including this one, have been started.
pub fn built_in_server(
    configuration: &Configuration,
    skills: &Arc<SkillLibrary>,
    host: &Arc<OnceLock<ToolServers>>,
) -> Option<ToolServerSpec> {
    let mut tools: Vec<Arc<dyn BuiltInTool>> = Vec::new();
    if skills.is_configured() {
        let agents = configuration.agents.values();
        tools.push(Arc::new(ReadSkillTool::new(skills.clone(), agents)));
    }
    if let Some(tool) = ReadResourceTool::new(configuration.agents.values(), host) {
        tools.push(Arc::new(tool));
    }
    let delegated: BTreeSet<_> =
        configuration.agents.values().flat_map(|agent| &agent.delegates).collect();
    if !delegated.is_empty() {
        let agents = delegated.iter().filter_map(|name| configuration.agents.get(*name));
        tools.push(Arc::new(DelegateTool::new(delegation::delegate_tool(agents))));
    }
    built_in::built_in_server(tools)
}

/// Returns each delegating agent's definition of the tool `delegate` (S8).
fn delegate_tools(configuration: &Configuration) -> BTreeMap<AgentName, Arc<Tool>> {
    let server =
        ServerProfile { name: BUILT_IN_SERVER.to_owned(), trusted: true, unavailable_reason: None };
    let name = ToolName::parse(delegation::DELEGATE_TOOL).expect("`delegate` is a valid tool name");
    let delegating = configuration.agents.values().filter(|agent| !agent.delegates.is_empty());
    let tool_of_agent = |agent: &AgentProfile| {
        let delegates = agent.delegates.iter().filter_map(|name| configuration.agents.get(name));
        let remote = delegation::delegate_tool(delegates);
        let tool = configuration.catalog.resolve_tool(&server, &remote, name.clone());
        (agent.name.clone(), Arc::new(tool))
    };
    delegating.map(tool_of_agent).collect()
}

/// Returns the context window of each model in tokens, if configured (C1).
fn context_windows(configuration: &Configuration) -> BTreeMap<String, u64> {
    let window = |model: &ModelEndpoint| Some((model.name.clone(), model.context_tokens?));
    configuration.models.values().filter_map(window).collect()
}

/// Returns the price of each model, if configured (M6).
fn prices(configuration: &Configuration) -> BTreeMap<String, ModelPrice> {
    let decimals = configuration.units.decimals(USD);
    let price =
        |model: &ModelEndpoint| Some((model.name.clone(), ModelPrice { decimals, ..model.price? }));
    configuration.models.values().filter_map(price).collect()
}

/// Returns all texts that are redacted wherever they occur (E7).
fn collect_secrets(configuration: &Configuration, token: &AdminToken) -> Vec<String> {
    let secrets = configuration.secrets().into_iter().chain([token.expose().to_owned()]);
    secrets.filter(|secret| secret.len() >= SECRET_BYTES_MIN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        audit::{AuditAction, AuditEntry, AuditOutcome},
        auth::{ApiKey, KeyId, Role, api_key},
    };

    /// X1, X2: a public address requires a valid key; a revoked key does not count.
    #[tokio::test]
    async fn x1_public_address_requires_a_valid_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("greenroom.toml");
        let database = folder.path().join("green.db");
        std::fs::write(&file, format!("listen = '0.0.0.0:1'\ndatabase = {database:?}")).unwrap();
        let configuration = Configuration::load(Some(&file), &BTreeMap::new()).unwrap();
        check_exposure_with_keys(&configuration).await.unwrap_err();
        assert!(!database.exists(), "a rejected configuration creates no files");

        let store = open_store(&configuration).await.unwrap();
        let key_id = KeyId(uuid::Uuid::nil());
        let user = greenroom_core::ids::UserId::parse("ada").unwrap();
        let (role, created_at) = (Role::User, Timestamp(1));
        let key = ApiKey { key_id, user, role, name: None, created_at, revoked_at: None };
        let entry =
            || AuditEntry::new(Timestamp(1), AuditAction::KeyCreated, AuditOutcome::Done, None);
        let hash = api_key::hash_key(&api_key::generate_key()).unwrap();
        drop(store);
        check_exposure_with_keys(&configuration).await.unwrap_err();

        let store = open_store(&configuration).await.unwrap();
        store.store_key(&key, hash, entry()).await.unwrap();
        drop(store);
        let store = check_exposure_with_keys(&configuration).await.unwrap().unwrap();
        store.revoke_key(key_id, Timestamp(2), entry()).await.unwrap();
        drop(store);
        check_exposure_with_keys(&configuration).await.unwrap_err();
    }
}
