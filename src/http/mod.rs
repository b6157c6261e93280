//! The HTTP surface: one resource a file, two transports ([`sse`], [`ws`]), one place for errors
//! ([`error`]). Handlers check who asks and what, and hand inputs to the runtime; nothing here
//! decides what a session does. Startup builds [`AppState`] and calls [`configure`].

#[cfg(test)]
mod access_tests;
mod actors;
mod approvals;
mod audit;
mod changes;
mod chat;
mod commands;
mod context;
mod dashboard;
mod decisions;
pub mod error;
mod events;
mod export;
mod feedback;
mod follow;
mod gateway;
mod grants;
mod guard;
mod keys;
mod me;
mod messages;
pub mod metrics;
mod operations;
mod origin;
mod pipe;
mod policy;
mod read;
mod sessions;
mod settings;
mod sse;
mod statistics;
mod stream;
mod talk;
#[cfg(test)]
mod tests;
mod throttle;
mod tools;
mod workflows;
mod ws;
mod ws_frames;

pub use error::Problem;
pub use throttle::Throttle;

use crate::{
    audit::AuditLog,
    auth::{Authenticator, CriticalRule},
    redaction::Redactor,
    skill::Library,
    workflow::Workflows,
};
use actix_web::{HttpRequest, Resource, Route, dev::Extensions, middleware::from_fn, web};
use greenroom_actors::{limits::SUBSCRIBERS_PER_SESSION_MAX, runtime::Runtime};
use greenroom_core::{
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
const SILENT_HEARTBEATS_MAX: u32 = 3;

/// What the handlers share. Cloning is cheap; all clones are one.
#[derive(Clone)]
pub struct AppState {
    /// The actors.
    pub runtime: Runtime,
    /// Who is calling.
    pub auth: Arc<Authenticator>,
    /// Who may agree to critical steps.
    pub critical: CriticalRule,
    /// Where decisions without an event are noted; without it nothing is, and `/admin/audit` is
    /// absent.
    pub audit: Option<Arc<dyn AuditLog>>,
    /// What may leave.
    pub redactor: Arc<Redactor>,
    /// The agent of a session that names none; the others are the runtime's
    /// [`greenroom_actors::governance::Governance::agents`].
    pub default_agent: AgentName,
    /// The settings of users who stored none.
    pub default_settings: Arc<Settings>,
    /// How much of everything.
    pub limits: Arc<HttpLimits>,
    /// Other sites whose pages may call, such as `https://chat.example.org`.
    pub allowed_origins: Arc<Vec<String>>,
    /// Renders `/metrics`; without it that resource is absent.
    pub metrics: Option<metrics::PrometheusHandle>,
    /// The skills there are.
    pub skills: Arc<Library>,
    /// The workflows there are in files.
    pub workflows: Arc<Workflows>,
    /// Requests per principal; make it with [`HttpLimits::throttle`].
    pub throttle: Arc<Throttle>,
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
    pub fn throttle(&self) -> Throttle {
        Throttle::new(self.requests_per_second)
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
            critical: CriticalRule::default(),
            audit: None,
            redactor: Arc::default(),
            default_agent,
            default_settings: Arc::default(),
            throttle: Arc::new(limits.throttle()),
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
        self.throttle = Arc::new(limits.throttle());
        self.limits = Arc::new(limits);
        self
    }

    /// The settings of that user.
    async fn user_settings(&self, user: &UserId) -> Result<Settings, Problem> {
        let stored = self.runtime.journal.settings(user).await?;
        Ok(stored.unwrap_or_else(|| (*self.default_settings).clone()))
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
        .wrap(from_fn(guard::guard))
        .wrap(from_fn(metrics::observe))
        .configure(resources)
        .default_service(web::to(not_found));
    cfg.app_data(web::Data::new(state)).service(surface);
}

fn resources(cfg: &mut web::ServiceConfig) {
    let get = web::get;
    let post = web::post;
    for resource in [
        at("/agent/session", "GET, POST", [get().to(sessions::list), post().to(sessions::create)]),
        at(
            "/agent/session/{session_id}",
            "GET, DELETE",
            [get().to(sessions::read), web::delete().to(sessions::close)],
        ),
        at(
            "/agent/session/{session_id}/settings",
            "PATCH",
            [web::patch().to(sessions::change_settings)],
        ),
        at(
            "/agent/session/{session_id}/grants",
            "GET, DELETE",
            [get().to(grants::list), web::delete().to(grants::revoke_all)],
        ),
        at(
            "/agent/session/{session_id}/grants/{grant_id}",
            "DELETE",
            [web::delete().to(grants::revoke)],
        ),
        at("/agent/session/{session_id}/cancel", "POST", [post().to(sessions::cancel)]),
        at("/agent/session/{session_id}/fork", "POST", [post().to(sessions::fork)]),
        at("/agent/session/{session_id}/events", "GET", [get().to(events::events)]),
        at("/agent/session/{session_id}/context", "GET", [get().to(context::context)]),
        at("/agent/session/{session_id}/messages", "GET", [get().to(messages::messages)]),
        at("/agent/chat", "POST", [post().to(chat::chat)]),
        at("/agent/chat/stream", "POST", [post().to(chat::stream)]),
        at("/agent/approvals", "GET", [get().to(approvals::list)]),
        at(
            "/agent/approvals/{approval_id}",
            "GET, POST",
            [get().to(approvals::read), post().to(approvals::decide)],
        ),
        at("/agent/feedback", "POST", [post().to(feedback::give)]),
        at("/agent/statistics", "GET", [get().to(statistics::read)]),
        at("/agent/export", "GET", [get().to(export::export)]),
        at("/agent/execute", "POST", [post().to(approvals::execute)]),
        at("/agent/reject", "POST", [post().to(approvals::reject)]),
        at("/agent/tools", "GET", [get().to(tools::list)]),
        at("/agent/workflows", "GET", [get().to(workflows::list)]),
        at("/agent/policy", "GET", [get().to(policy::read)]),
        at("/agent/judge", "POST", [post().to(policy::judge)]),
        at("/agent/me", "GET", [get().to(me::read)]),
        at(
            "/agent/settings",
            "GET, PATCH",
            [get().to(settings::read), web::patch().to(settings::change)],
        ),
        at("/agent/stream", "GET", [get().to(stream::many_sessions)]),
        at("/agent/stream/{session_id}", "GET", [get().to(stream::one_session)]),
        at("/gateway", "GET", [get().to(gateway::gateway)]),
        at("/admin/actors", "GET", [get().to(actors::list)]),
        at("/admin/actors/{path:.+}/stop", "POST", [post().to(actors::stop)]),
        at("/admin/actors/{path:.+}/restart", "POST", [post().to(actors::restart)]),
        at("/admin/actors/{path:.+}", "GET", [get().to(actors::read)]),
        at("/admin/events", "GET", [get().to(events::all_events)]),
        at("/admin/keys", "GET, POST", [get().to(keys::list), post().to(keys::create)]),
        at("/admin/keys/{key_id}", "DELETE", [web::delete().to(keys::revoke)]),
        at("/admin/audit", "GET", [get().to(audit::list)]),
        at("/metrics", "GET", [get().to(metrics::render)]),
        at("/healthz", "GET", [get().to(operations::healthz)]),
        at("/readyz", "GET", [get().to(operations::readyz)]),
        at("/", "GET", [get().to(dashboard::index)]),
        at("/assets/{file}", "GET", [get().to(dashboard::asset)]),
    ] {
        cfg.service(resource);
    }
}

/// A resource that answers wrong methods with a problem, as the rest of the surface does.
fn at<const N: usize>(path: &str, methods: &'static str, routes: [Route; N]) -> Resource {
    let refuse = move || async move {
        let status = actix_web::http::StatusCode::METHOD_NOT_ALLOWED;
        let detail = format!("this resource knows {methods}");
        let problem = Problem::new(status, "method_not_allowed", detail);
        Err::<&'static str, _>(Problem { allow: Some(methods), ..problem })
    };
    let resource = web::resource(path).default_service(web::to(refuse));
    routes.into_iter().fold(resource, Resource::route)
}

async fn not_found(request: HttpRequest) -> Result<&'static str, Problem> {
    let status = actix_web::http::StatusCode::NOT_FOUND;
    let detail = format!("there is nothing at {}", greenroom_core::text::cut(request.path(), 200));
    Err(Problem::new(status, "not_found", detail))
}

/// For `HttpServer::on_connect`: small frames leave at once instead of waiting to be joined by
/// others; and a client that has acknowledged nothing for so many heartbeats is gone, which
/// otherwise shows after a quarter of an hour (E4).
pub fn on_connect(heartbeat: Duration) -> impl Fn(&dyn Any, &mut Extensions) + Send + Sync {
    move |connection, _| {
        let stream = connection.downcast_ref::<actix_web::rt::net::TcpStream>();
        if let Some(stream) = stream
            && let Err(error) = prepare(stream, heartbeat)
        {
            tracing::debug!(error = %error, "could not set the options of a connection");
        }
    }
}

fn prepare(stream: &actix_web::rt::net::TcpStream, heartbeat: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_user_timeout(Some(heartbeat * SILENT_HEARTBEATS_MAX))?;
    // Elsewhere it shows when the system gives up.
    #[cfg(not(target_os = "linux"))]
    let _ = heartbeat;
    Ok(())
}
