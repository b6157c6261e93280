//! The HTTP surface: one resource a file, two transports ([`sse`], [`ws`]), one place for errors
//! ([`error`]). Handlers check who asks and what, and hand inputs to the runtime; nothing here
//! decides what a session does. Startup builds [`AppState`] and calls [`configure`].

mod access_control;
#[cfg(test)]
mod access_tests;
mod actors;
mod answers;
mod approvals;
mod audit;
mod change_stream;
mod chat;
mod commands;
mod context;
mod dashboard;
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
mod request_limiter;
mod resources;
mod session_stream;
mod sessions;
mod settings;
mod sse;
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
    auth::{Authenticator, CriticalApprovalRule},
    redaction::Redactor,
    skill::SkillLibrary,
    workflow::WorkflowLibrary,
};
use actix_web::{HttpRequest, Resource, dev::Extensions, middleware::from_fn, web};
use greenroom_actors::{limits::SUBSCRIBERS_PER_SESSION_MAX, runtime::Runtime};
use greenroom_core::{
    agent::AgentProfile,
    ids::{AgentName, UserId},
    limits::MESSAGE_BYTES_MAX,
    policy::Settings,
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

/// Heartbeats without any sign of the client; after so many it counts as gone.
const MISSED_HEARTBEATS_MAX: u32 = 3;

/// What the handlers share. Cloning is cheap; all clones are one.
#[derive(Clone)]
pub struct AppState {
    /// The actors.
    pub runtime: Runtime,
    /// Who is calling.
    pub auth: Arc<Authenticator>,
    /// Who may agree to critical steps.
    pub critical_approval: CriticalApprovalRule,
    /// Where decisions without an event are noted; without it nothing is, and `/admin/audit` is
    /// absent.
    pub audit_log: Option<Arc<dyn AuditLog>>,
    /// What may leave.
    pub redactor: Arc<Redactor>,
    /// The agent of a session that names none; the others are the runtime's
    /// [`greenroom_actors::governance::Governance::agents`].
    pub default_agent: AgentName,
    /// How much of everything.
    pub limits: Arc<HttpLimits>,
    /// Other sites whose pages may call, such as `https://chat.example.org`.
    pub allowed_origins: Arc<Vec<String>>,
    /// Renders `/metrics`; without it that resource is absent.
    pub metrics: Option<metrics::PrometheusHandle>,
    /// The skills there are.
    pub skills: Arc<SkillLibrary>,
    /// The workflows there are in files.
    pub workflows: Arc<WorkflowLibrary>,
    /// Requests per principal; make it with [`HttpLimits::throttle`].
    pub request_limiter: Arc<RequestLimiter>,
    /// Held while a user's settings change, and shared by who gives a session settings within
    /// them: so that no change is lost and no session stays wider than its user (G4).
    pub settings_lock: Arc<tokio::sync::RwLock<()>>,
    /// Set while shutting down: `/readyz` says no.
    pub draining: Arc<AtomicBool>,
}

/// The limits of the HTTP surface (X4). `docs/limits.md` explains them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Bytes of a request's body, and of a WebSocket frame.
    pub body_bytes_max: usize,
    /// Bytes of a user's message.
    pub message_bytes_max: usize,
    /// Sessions of one user that are not closed.
    pub open_sessions_max: u64,
    /// Runs of one user that are going, waiting ones included.
    pub running_runs_max: u64,
    /// Subscribers of one session.
    pub subscribers_per_session_max: usize,
    /// Sessions that one WebSocket is subscribed to.
    pub subscriptions_per_socket_max: usize,
    /// Requests of one principal per second.
    pub requests_per_second: u32,
    /// Time between two signs of life on a stream.
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
    /// The throttle that keeps to `requests_per_second`.
    pub fn request_limiter(&self) -> RequestLimiter {
        RequestLimiter::new(self.requests_per_second)
    }
}

impl AppState {
    /// The state with default limits and settings, for these actors, credentials and
    /// default agent.
    pub fn new(runtime: Runtime, auth: Authenticator, default_agent: AgentName) -> Self {
        let limits = HttpLimits::default();
        Self {
            runtime,
            auth: Arc::new(auth),
            critical_approval: CriticalApprovalRule::default(),
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

    /// Replaces the limits, and the throttle that keeps to them.
    pub fn with_limits(mut self, limits: HttpLimits) -> Self {
        self.request_limiter = Arc::new(limits.request_limiter());
        self.limits = Arc::new(limits);
        self
    }

    /// The settings of that user.
    async fn load_user_settings(&self, user: &UserId) -> Result<Settings, Problem> {
        let stored = self.runtime.journal.load_settings(user).await?;
        Ok(stored.unwrap_or_else(|| (*self.runtime.governance().default_settings).clone()))
    }

    /// The agent of that name; the error says which there are.
    fn find_agent(&self, name: &AgentName) -> Result<Arc<AgentProfile>, Problem> {
        let agents = &self.runtime.governance().agents;
        let unknown = || {
            let names: Vec<_> = agents.keys().map(|name| format!("`{name}`")).collect();
            let detail = format!("there is no agent `{name}`; there are {}", names.join(", "));
            let status = actix_web::http::StatusCode::UNPROCESSABLE_ENTITY;
            Problem::new(status, "unknown_agent", detail).with("field", "agent")
        };
        agents.get(name).cloned().ok_or_else(unknown)
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }
}

type State = web::Data<AppState>;

/// Puts the whole surface into an application. Workers share `state`.
pub fn configure(cfg: &mut web::ServiceConfig, state: AppState) {
    let surface = web::scope("")
        // The last one wrapped is the first one asked.
        .wrap(from_fn(access_control::enforce_access))
        .wrap(from_fn(metrics::observe))
        .configure(routes)
        .default_service(web::to(not_found));
    cfg.app_data(web::Data::new(state)).service(surface);
}

/// Everything that stands anywhere, with the tag of `/openapi.json`. Of two paths that fit, the
/// router takes the first.
fn endpoints() -> Vec<(&'static str, Endpoint)> {
    let all = [
        ("sessions", sessions::endpoints()),
        ("sessions", grants::endpoints()),
        ("sessions", events::endpoints()),
        ("sessions", messages::endpoints()),
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
        ("administration", keys::endpoints()),
        ("administration", audit::endpoints()),
        ("operations", metrics::endpoints()),
        ("operations", health::endpoints()),
        ("operations", openapi::endpoints()),
        ("operations", dashboard::endpoints()),
    ];
    let tagged =
        |(tag, endpoints): (_, Vec<Endpoint>)| endpoints.into_iter().map(move |it| (tag, it));
    all.into_iter().flat_map(tagged).collect()
}

/// A resource for each path, which answers wrong methods with a problem, as the rest of the surface
/// does.
fn routes(cfg: &mut web::ServiceConfig) {
    let mut by_path: Vec<(&'static str, Vec<Endpoint>)> = Vec::new();
    for (_, endpoint) in endpoints() {
        match by_path.iter_mut().find(|(path, _)| *path == endpoint.path) {
            Some((_, same)) => same.push(endpoint),
            None => by_path.push((endpoint.path, vec![endpoint])),
        }
    }
    for (path, endpoints) in by_path {
        let methods: Vec<_> = endpoints.iter().map(|it| it.method.as_str()).collect();
        let methods = methods.join(", ");
        let refuse = move || {
            let methods = methods.clone();
            async move {
                let status = actix_web::http::StatusCode::METHOD_NOT_ALLOWED;
                let detail = format!("this resource knows {methods}");
                let problem = Problem::new(status, "method_not_allowed", detail);
                Err::<&'static str, _>(Problem { allow: Some(methods), ..problem })
            }
        };
        let resource = web::resource(path).default_service(web::to(refuse));
        cfg.service(endpoints.into_iter().map(|it| it.route).fold(resource, Resource::route));
    }
}

async fn not_found(request: HttpRequest) -> Result<&'static str, Problem> {
    let status = actix_web::http::StatusCode::NOT_FOUND;
    let detail =
        format!("there is nothing at {}", greenroom_core::text::truncate(request.path(), 200));
    Err(Problem::new(status, "not_found", detail))
}

/// For `HttpServer::on_connect`: small frames leave at once instead of waiting to be joined by
/// others; and a client that has acknowledged nothing for so many heartbeats is gone, which
/// otherwise shows after a quarter of an hour (E4).
pub fn on_connect(heartbeat: Duration) -> impl Fn(&dyn Any, &mut Extensions) + Send + Sync {
    move |connection, _| {
        let stream = connection.downcast_ref::<actix_web::rt::net::TcpStream>();
        if let Some(stream) = stream
            && let Err(error) = set_socket_options(stream, heartbeat)
        {
            tracing::debug!(error = %error, "could not set the options of a connection");
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
    // Elsewhere it shows when the system gives up.
    #[cfg(not(target_os = "linux"))]
    let _ = heartbeat;
    Ok(())
}
