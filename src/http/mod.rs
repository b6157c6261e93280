//! The HTTP API: one file per resource, two stream transports ([`sse`], [`ws`]) and one module for
//! errors ([`error`]).
//!
//! Handlers authenticate, authorize and validate requests and pass inputs to the runtime. They do
//! not decide how a session reacts to an input. Startup builds [`AppState`] and calls
//! [`configure`].

mod access_control;
#[cfg(test)]
mod access_tests;
mod actors;
mod answers;
mod approvals;
mod audit;
mod ceilings;
mod change_stream;
mod chat;
mod commands;
mod context;
mod dashboard;
#[cfg(test)]
mod decoder_fuzz;
mod endpoint;
pub mod error;
mod events;
mod export;
mod extract;
mod feedback;
mod frame_encoder;
mod gateway;
mod grants;
mod health;
mod keys;
mod me;
mod messages;
pub mod metrics;
mod openapi;
#[cfg(test)]
mod openapi_tests;
mod origin;
mod pipe;
mod policy;
mod problem_codes;
mod queue;
mod request_limiter;
mod resources;
mod run_log;
mod session_stream;
mod sessions;
mod settings;
mod sse;
mod sse_data;
mod statistics;
mod stream_filter;
#[cfg(test)]
mod tests;
mod tools;
mod workflows;
mod ws;
mod ws_frame_splitter;
mod ws_frames;
mod ws_protocol;

pub use error::Problem;
pub use request_limiter::RequestLimiter;

use self::endpoint::Endpoint;
use crate::{
    audit::AuditLog,
    auth::{Authenticator, Principal},
    ceilings::CeilingRegistry,
    redaction::Redactor,
    skill::SkillLibrary,
    workflow::WorkflowLibrary,
};
use actix_web::{HttpRequest, Resource, dev::Extensions, middleware::from_fn, web};
use greenroom_actors::{limits::SUBSCRIBERS_PER_SESSION_MAX, runtime::Runtime};
use greenroom_core::{
    agent::AgentProfile,
    approval::Role,
    ids::{AgentName, UserId},
    limits::MESSAGE_BYTES_MAX,
    policy::{EffectiveCeiling, Settings},
};
use std::{
    any::Any,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Number of missed heartbeats after which a connection is closed.
const MISSED_HEARTBEATS_MAX: u32 = 3;

/// The state that all handlers share. Cloning is cheap; clones share the same data.
#[derive(Clone)]
pub struct AppState {
    /// The actor runtime.
    pub runtime: Runtime,
    /// Authenticates callers.
    pub auth: Arc<Authenticator>,
    /// The ceilings, which administrators change at run time (G17).
    pub ceilings: Arc<CeilingRegistry>,
    /// The audit log for actions without a session event. `None` records nothing and removes
    /// `/admin/audit`.
    pub audit_log: Option<Arc<dyn AuditLog>>,
    /// Redacts secrets in responses and frames (E7).
    pub redactor: Arc<Redactor>,
    /// The agent of a session whose request names no agent. All agents are in
    /// [`greenroom_actors::governance::Governance::agents`].
    pub default_agent: AgentName,
    /// The limits of the HTTP API.
    pub limits: Arc<HttpLimits>,
    /// Origins of other sites whose pages may send requests, such as `https://chat.example.org`.
    pub allowed_origins: Arc<Vec<String>>,
    /// Renders `/metrics`. `None` removes that resource.
    pub metrics: Option<metrics::PrometheusHandle>,
    /// The available skills.
    pub skills: Arc<SkillLibrary>,
    /// The workflows that are loaded from files.
    pub workflows: Arc<WorkflowLibrary>,
    /// Limits the request rate per principal. Created by [`HttpLimits::request_limiter`].
    pub request_limiter: Arc<RequestLimiter>,
    /// Held exclusively while a user's settings change, and shared while a session gets settings
    /// within those of its user. No update is lost, and no session keeps wider settings than its
    /// user (G4).
    pub settings_lock: Arc<tokio::sync::RwLock<()>>,
    /// True during shutdown; `/readyz` then fails.
    pub draining: Arc<AtomicBool>,
}

/// The limits of the HTTP API (X4). `docs/limits.md` describes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Maximum bytes of a request body and of a WebSocket frame.
    pub body_bytes_max: usize,
    /// Maximum bytes of a user message.
    pub message_bytes_max: usize,
    /// Maximum sessions of one user that are not closed.
    pub open_sessions_max: u64,
    /// Maximum active runs of one user, including runs that wait.
    pub running_runs_max: u64,
    /// Maximum subscribers of one session.
    pub subscribers_per_session_max: usize,
    /// Maximum sessions that one WebSocket is subscribed to.
    pub subscriptions_per_socket_max: usize,
    /// Maximum requests of one principal per second.
    pub requests_per_second: u32,
    /// Heartbeat interval of streams.
    pub heartbeat: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            message_bytes_max: MESSAGE_BYTES_MAX,
            open_sessions_max: 1_000,
            running_runs_max: 32,
            subscribers_per_session_max: SUBSCRIBERS_PER_SESSION_MAX,
            subscriptions_per_socket_max: 256,
            requests_per_second: 100,
            heartbeat: Duration::from_secs(15),
        }
    }
}

impl HttpLimits {
    /// Returns a limiter for `requests_per_second`.
    pub fn request_limiter(&self) -> RequestLimiter {
        RequestLimiter::new(self.requests_per_second)
    }
}

impl AppState {
    /// Creates the state with default limits and no optional parts.
    pub fn new(runtime: Runtime, auth: Authenticator, default_agent: AgentName) -> Self {
        let limits = HttpLimits::default();
        let ceilings = CeilingRegistry::fixed(runtime.governance().ceilings.clone());
        Self {
            runtime,
            ceilings: Arc::new(ceilings),
            auth: Arc::new(auth),
            audit_log: None,
            redactor: Arc::default(),
            default_agent,
            request_limiter: Arc::new(limits.request_limiter()),
            limits: Arc::new(limits),
            allowed_origins: Arc::default(),
            metrics: None,
            skills: Arc::default(),
            workflows: Arc::default(),
            settings_lock: Arc::default(),
            draining: Arc::default(),
        }
    }

    /// Replaces the limits and creates the request limiter for them.
    pub fn with_limits(mut self, limits: HttpLimits) -> Self {
        self.request_limiter = Arc::new(limits.request_limiter());
        self.limits = Arc::new(limits);
        self
    }

    /// Returns the stored settings of `user`, or the defaults.
    async fn load_user_settings(&self, user: &UserId) -> Result<Settings, Problem> {
        let stored = self.runtime.journal.load_settings(user).await?;
        Ok(stored.unwrap_or_else(|| (*self.runtime.governance().default_settings).clone()))
    }

    /// Returns the ceiling of what the principal requests for `user`: for sessions of `agent`, or for
    /// all sessions of the user (G17). The role of another user is not known; the role with the
    /// fewest rights counts.
    fn ceiling(
        &self,
        principal: &Principal,
        agent: Option<&AgentName>,
        user: &UserId,
    ) -> EffectiveCeiling {
        let role = if principal.user == *user { principal.role } else { Role::User };
        self.ceilings.in_force().get().combine([role], agent, Some(user))
    }

    /// Returns the agent `name`; the error lists the available agents.
    fn find_agent(&self, name: &AgentName) -> Result<Arc<AgentProfile>, Problem> {
        let agents = &self.runtime.governance().agents;
        let unknown = || {
            let names: Vec<_> = agents.keys().map(|name| format!("`{name}`")).collect();
            let detail = format!("unknown agent `{name}`; available: {}", names.join(", "));
            let status = actix_web::http::StatusCode::UNPROCESSABLE_ENTITY;
            Problem::new(status, "unknown_agent", detail).with_member("field", "agent")
        };
        agents.get(name).cloned().ok_or_else(unknown)
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }
}

type State = web::Data<AppState>;

/// Registers the whole HTTP API in an application. All workers share `state`.
pub fn configure(cfg: &mut web::ServiceConfig, state: AppState) {
    let scope = web::scope("")
        // Middleware that is registered last runs first.
        .wrap(from_fn(access_control::enforce_access))
        .wrap(from_fn(metrics::observe))
        .configure(routes)
        .default_service(web::to(not_found));
    cfg.app_data(web::Data::new(state)).service(scope);
}

/// Returns all endpoints, each with its tag in `/openapi.json`. If two path patterns match a
/// request, the router takes the first.
fn endpoints() -> Vec<(&'static str, Endpoint)> {
    let all = [
        ("sessions", sessions::endpoints()),
        ("sessions", grants::endpoints()),
        ("sessions", events::endpoints()),
        ("sessions", messages::endpoints()),
        ("sessions", queue::endpoints()),
        ("sessions", context::endpoints()),
        ("chat", chat::endpoints()),
        ("approvals", approvals::endpoints()),
        ("agents", me::endpoints()),
        ("agents", tools::endpoints()),
        ("agents", resources::endpoints()),
        ("agents", workflows::endpoints()),
        ("agents", policy::endpoints()),
        ("agents", settings::endpoints()),
        ("quality", feedback::endpoints()),
        ("quality", statistics::endpoints()),
        ("quality", export::endpoints()),
        ("websockets", session_stream::endpoints()),
        ("websockets", gateway::endpoints()),
        ("administration", actors::endpoints()),
        ("administration", events::admin_endpoints()),
        ("administration", ceilings::endpoints()),
        ("administration", keys::endpoints()),
        ("administration", audit::endpoints()),
        ("operations", metrics::endpoints()),
        ("operations", health::endpoints()),
        ("operations", openapi::endpoints()),
        ("operations", dashboard::endpoints()),
    ];
    let tagged = |(tag, endpoints): (_, Vec<Endpoint>)| {
        endpoints.into_iter().map(move |endpoint| (tag, endpoint))
    };
    all.into_iter().flat_map(tagged).collect()
}

/// Registers one resource per path. A resource answers methods that it does not support with a
/// problem.
fn routes(cfg: &mut web::ServiceConfig) {
    let mut by_path: Vec<(&'static str, Vec<Endpoint>)> = Vec::new();
    for (_, endpoint) in endpoints() {
        match by_path.iter_mut().find(|(path, _)| *path == endpoint.path) {
            Some((_, same)) => same.push(endpoint),
            None => by_path.push((endpoint.path, vec![endpoint])),
        }
    }
    for (path, endpoints) in by_path {
        let methods: Vec<_> = endpoints.iter().map(|endpoint| endpoint.method.as_str()).collect();
        let methods = methods.join(", ");
        let method_not_allowed = move || {
            let methods = methods.clone();
            async move {
                let status = actix_web::http::StatusCode::METHOD_NOT_ALLOWED;
                let detail = format!("allowed methods: {methods}");
                let problem = Problem::new(status, "method_not_allowed", detail);
                Err::<&'static str, _>(Problem { allow: Some(methods), ..problem })
            }
        };
        let resource = web::resource(path).default_service(web::to(method_not_allowed));
        let routes = endpoints.into_iter().map(|endpoint| endpoint.route);
        cfg.service(routes.fold(resource, Resource::route));
    }
}

async fn not_found(request: HttpRequest) -> Result<&'static str, Problem> {
    let status = actix_web::http::StatusCode::NOT_FOUND;
    let path = greenroom_core::text::truncate(request.path(), 200);
    let detail = format!("no resource at {path}");
    Err(Problem::new(status, "not_found", detail))
}

/// Returns the callback for `HttpServer::on_connect`. It sets `TCP_NODELAY`, so that small frames
/// are sent immediately, and a TCP user timeout of [`MISSED_HEARTBEATS_MAX`] heartbeats: a client
/// that acknowledges nothing for that long is disconnected (E4). The default of the system is about
/// 15 minutes.
pub fn on_connect(heartbeat: Duration) -> impl Fn(&dyn Any, &mut Extensions) + Send + Sync {
    move |connection, _| {
        let stream = connection.downcast_ref::<actix_web::rt::net::TcpStream>();
        if let Some(stream) = stream
            && let Err(error) = set_socket_options(stream, heartbeat)
        {
            tracing::debug!(error = %error, "failed to set socket options");
        }
    }
}

fn set_socket_options(
    stream: &actix_web::rt::net::TcpStream,
    heartbeat: Duration,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_user_timeout(Some(heartbeat * MISSED_HEARTBEATS_MAX))?;
    // Other systems have only their default timeout.
    #[cfg(not(target_os = "linux"))]
    let _ = heartbeat;
    Ok(())
}
