//! Putting the server together from its configuration, and taking it down again.
//!
//! The only place that knows all parts at once. `greenroom serve` calls [`Server::start`]; so do
//! tests that want a whole server in their own process.

use crate::{
    auth::{AdminToken, Authenticator, KeyStore},
    configuration::{self, Configuration, ModelEndpoint, ModelWireFormat, REHEARSAL},
    http::{self, AppState, HttpLimits},
    model::HttpModelClient,
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
    policy::{BUILT_IN_SERVER, ServerProfile, Tool},
    scrub::prepare_secrets,
    usage::ModelPrice,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How often the wait for running steps looks again while the server drains.
const DRAIN_POLL: Duration = Duration::from_millis(50);
/// How long sessions have to leave memory at the end.
const SESSION_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The machine's clock, and its randomness.
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
    rehearsal: Option<RehearsalServer>,
    http: ServerHandle,
    drain_timeout: Duration,
    /// Who looks for changes of skills and workflows, and who sums up the metrics.
    background_tasks: [actix_web::rt::task::JoinHandle<()>; 2],
    trace_exporter: Option<Arc<TraceExporter>>,
}

impl Server {
    /// Starts everything `configuration` asks for, and listens. Needs a running actix system.
    pub async fn start(configuration: Configuration, metrics: Metrics) -> anyhow::Result<Self> {
        let opened = check_exposure_with_keys(&configuration).await?;
        // Early: a port that is taken is the most likely mistake, and the cheapest to find.
        let listener = TcpListener::bind(configuration.listen)
            .with_context(|| format!("can't listen on {}", configuration.listen))?;
        let address = listener.local_addr()?;
        let token = admin_token(&configuration)?;
        let store = match opened {
            Some(store) => store,
            None => open_store(&configuration).await?,
        };
        let redactor = Arc::new(configuration.redactor(collect_secrets(&configuration, &token)));
        telemetry::set_log_redactor(redactor.clone());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let board = StatusBoard::new(clock.clone());
        let (models, rehearsal) = resolve_models(&configuration)?;
        let servers = configuration.mcp_servers.values().map(ToolServerConfig::from);
        let skills = Arc::new(SkillLibrary::open(configuration.skills.clone()));
        let host = Arc::new(OnceLock::new());
        let built_in = built_in_server(&configuration, &skills, &host);
        let catalog = configuration.catalog.clone();
        let tools = tool::start_with_built_in(servers, built_in, catalog, &board, &clock);
        host.get_or_init(|| tools.clone());
        // A session that comes back to life must find the tools it was using.
        tools.wait_until_started().await;
        let limits = &configuration.limits;
        let governance = Governance {
            default_settings: Arc::new(configuration.default_settings.clone()),
            parallel_calls_max: limits.parallel_calls.get(),
            queued_messages_max: limits.queued_messages.get(),
            delegate_tools: Arc::new(delegate_tools(&configuration)),
            children_max: limits.children_per_run.get(),
            delegation_depth_max: u32::try_from(limits.delegation_depth.get())?,
            prices: Arc::new(prices(&configuration)),
            system: configuration.system_prompt.as_str().into(),
            context_windows: Arc::new(context_windows(&configuration)),
            compact_at: configuration.compact_at,
            skills: skills.registry(),
            secrets: prepare_secrets(collect_secrets(&configuration, &token)),
            ..Governance::new(configuration.agents.values().cloned(), configuration.matrix.clone())
        };
        let endpoint = configuration.otlp_endpoint.as_deref();
        let traces = endpoint.map(|to| TraceExporter::start(to, redactor.clone())).transpose();
        let traces = traces.context("can't export traces")?.map(Arc::new);
        let names: Vec<_> = models.iter().map(|model| model.name.clone()).collect();
        let models = Arc::new(HttpModelClient::new(models, clock.clone())?);
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
        let runtime = Runtime::start(parts)
            .await
            .with_context(|| format!("can't read what is stored in {}", configuration.database))?;
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
        state.skills = skills.clone();
        state.workflows = workflows.clone();
        state.critical_approval = configuration.critical_approval;
        state.audit_log = Some(store.clone());
        state.redactor = redactor;
        state.metrics = Some(metrics.handle());
        let sums = actix_web::rt::spawn(metrics.run_upkeep());
        let served = state.clone();
        let server = HttpServer::new(move || {
            // This is called by each of its threads.
            #[cfg(target_os = "linux")]
            crate::thread_scheduling::use_batch_scheduling();
            let state = served.clone();
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
        let chores = [sums, actix_web::rt::spawn(refresh_periodically(skills, workflows))];
        let drain = configuration.drain_timeout;
        Ok(Self {
            address,
            admin_token: token,
            store,
            state,
            tools,
            rehearsal,
            http,
            drain_timeout: drain,
            background_tasks: chores,
            trace_exporter: traces,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The administrator's token.
    pub fn load_admin_token(&self) -> &AdminToken {
        &self.admin_token
    }

    /// Where the rehearsal listens, if one is running.
    pub fn rehearsal_url(&self) -> Option<String> {
        self.rehearsal.as_ref().map(RehearsalServer::url)
    }

    /// What its handlers share.
    pub fn state(&self) -> &AppState {
        &self.state
    }

    /// The connections to its tools.
    pub fn tools(&self) -> &ToolServers {
        &self.tools
    }

    /// Takes nothing new, tells the clients, lets models and tools that are at work come to their end
    /// for the configured time or until somebody can't wait, and ends (D8). What is unfinished then
    /// continues at the next start.
    pub async fn shut_down(self, hurry: impl Future<Output = ()>) {
        self.state.draining.store(true, Relaxed);
        self.state.runtime.drain();
        let running = async {
            while self.has_running_attempts() {
                tokio::time::sleep(DRAIN_POLL).await;
            }
        };
        let is_over = tokio::select! {
            () = running => true,
            () = tokio::time::sleep(self.drain_timeout) => false,
            () = hurry => false,
        };
        if !is_over {
            tracing::info!("models or tools are still at work; they are cut off");
        }
        self.background_tasks.iter().for_each(|chore| chore.abort());
        self.http.stop(true).await;
        // Before the tools: that they are gone then is nothing a session should hear of.
        self.state.runtime.shut_down(SESSION_STOP_TIMEOUT).await;
        self.tools.shut_down().await;
        if let Some(rehearsal) = self.rehearsal {
            rehearsal.stop().await;
        }
        if let Some(traces) = self.trace_exporter
            && let Err(error) =
                actix_web::rt::task::spawn_blocking(move || traces.shut_down()).await
        {
            tracing::warn!(%error, "the last traces could not be exported");
        }
        if let Err(error) = self.store.checkpoint().await {
            tracing::warn!(%error, "the database could not be closed cleanly");
        }
    }

    fn has_running_attempts(&self) -> bool {
        let board = &self.state.runtime.status_board;
        let works = |kind: &str| ["LlmStream", "ToolExecutor"].contains(&kind);
        board.snapshots("/sessions/").iter().any(|actor| works(actor.kind))
    }
}

/// The administrator's token: the environment's, or the one beside the database (X1).
pub fn admin_token(configuration: &Configuration) -> anyhow::Result<AdminToken> {
    match &configuration.admin_token {
        Some(token) => AdminToken::parse(token.expose()).context("GREENROOM_TOKEN is not usable"),
        None => Ok(AdminToken::load_or_create(&configuration.database.token_path())?),
    }
}

/// Refuses to listen where others reach unless a token is set or a key exists (X1); the database,
/// if it had to be opened to know.
async fn check_exposure_with_keys(
    configuration: &Configuration,
) -> anyhow::Result<Option<Arc<Store>>> {
    let is_missing = configuration.database.is_missing();
    if configuration.validate_exposure(false).is_ok() || is_missing {
        configuration.validate_exposure(false)?;
        return Ok(None);
    }
    let journal = open_store(configuration).await?;
    let has_keys = journal.list_keys().await?.iter().any(|key| key.revoked_at.is_none());
    configuration.validate_exposure(has_keys)?;
    Ok(Some(journal))
}

/// Opens the database that is configured, bringing it up to date.
pub async fn open_journal(configuration: &Configuration) -> anyhow::Result<Arc<dyn Journal>> {
    Ok(open_store(configuration).await?)
}

/// The same, with its keys and its audit log.
pub async fn open_store(configuration: &Configuration) -> anyhow::Result<Arc<Store>> {
    let durability = match configuration.durability {
        configuration::Durability::Fsync => store::Durability::Fsync,
        configuration::Durability::Process => store::Durability::Process,
    };
    let options = StoreOptions { durability, ..StoreOptions::default() };
    let database = &configuration.database;
    let journal = Store::open(database, options)
        .await
        .with_context(|| format!("can't open the database {database}"))?;
    Ok(Arc::new(journal))
}

/// The models there are; a rehearsal is started if an agent wants one (M5).
fn resolve_models(
    configuration: &Configuration,
) -> anyhow::Result<(Vec<ModelEndpoint>, Option<RehearsalServer>)> {
    let mut models: Vec<_> = configuration.models.values().cloned().collect();
    let rehearses = |model: &String| model == REHEARSAL;
    if !configuration.agents.values().any(|agent| agent.models.iter().any(rehearses)) {
        return Ok((models, None));
    }
    let script = match &configuration.rehearsal {
        Some(path) => {
            Script::load(path).with_context(|| format!("can't use {}", path.display()))?
        }
        None => Script::tour()?,
    };
    let rehearsal = RehearsalServer::start(script, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .context("can't start the rehearsal")?;
    models.push(ModelEndpoint::without_key(REHEARSAL, ModelWireFormat::Anthropic, rehearsal.url()));
    Ok((models, Some(rehearsal)))
}

/// Looks for changes of skills and workflows, for as long as it is polled.
async fn refresh_periodically(skills: Arc<SkillLibrary>, workflows: Arc<WorkflowLibrary>) {
    let mut ticks = tokio::time::interval(SCAN_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (skills, workflows) = (skills.clone(), workflows.clone());
        let look = tokio::task::spawn_blocking(move || {
            skills.refresh();
            workflows.refresh();
        });
        if look.await.is_err() {
            tracing::error!("reading skills and workflows failed; it is tried again");
        }
    }
}

/// The tools of our own that the configuration asks for, as a server (T7). `host` is filled in once all
/// servers are there, this one among them.
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

/// The tool `delegate` as each agent has it (S8).
fn delegate_tools(configuration: &Configuration) -> BTreeMap<AgentName, Arc<Tool>> {
    let server =
        ServerProfile { name: BUILT_IN_SERVER.to_owned(), trusted: true, unavailable_reason: None };
    let name = ToolName::parse(delegation::DELEGATE_TOOL).expect("a plain word is a tool's name");
    let delegating = configuration.agents.values().filter(|agent| !agent.delegates.is_empty());
    let of_agent = |agent: &AgentProfile| {
        let named = agent.delegates.iter().filter_map(|name| configuration.agents.get(name));
        let remote = delegation::delegate_tool(named);
        let tool = configuration.catalog.resolve_tool(&server, &remote, name.clone());
        (agent.name.clone(), Arc::new(tool))
    };
    delegating.map(of_agent).collect()
}

/// The tokens that models' contexts hold, where that is known (C1).
fn context_windows(configuration: &Configuration) -> BTreeMap<String, u64> {
    let known = |model: &ModelEndpoint| Some((model.name.clone(), model.context_tokens?));
    configuration.models.values().filter_map(known).collect()
}

/// The models whose price is known (M6).
fn prices(configuration: &Configuration) -> BTreeMap<String, ModelPrice> {
    let priced = |model: &ModelEndpoint| Some((model.name.clone(), model.price?));
    configuration.models.values().filter_map(priced).collect()
}

/// Everything that must never leave, wherever it turns up (E7).
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

    /// X1, X2: an open address needs a lock, and a revoked key is none.
    #[tokio::test]
    async fn x1_public_address_requires_a_valid_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("greenroom.toml");
        let database = folder.path().join("green.db");
        std::fs::write(&file, format!("listen = '0.0.0.0:1'\ndatabase = {database:?}")).unwrap();
        let configuration = Configuration::load(Some(&file), &BTreeMap::new()).unwrap();
        check_exposure_with_keys(&configuration).await.unwrap_err();
        assert!(!database.exists(), "a refusal makes no files");

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
