//! Inspection of live actors for administrators (A1), and the orders stop and restart (A2).
//!
//! Reads the status board and never waits for an actor.

mod change_source;

use self::change_source::ActorChanges;
use super::{
    Problem, State,
    access_control::{self, Caller, SURFACE_HEADER},
    endpoint::{EVENT_STREAM, Endpoint},
    extract,
};
use crate::audit::{AuditAction, AuditActor, AuditEntry, AuditOutcome};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode};
use greenroom_actors::{
    order::{ActorOrder, OrderError},
    status_board::ActorSnapshot,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

/// Default and maximum number of actors in a response.
const PAGE_LIMITS: (usize, usize) = (1_000, 10_000);
/// Maximum bytes of an actor's path in an audit row.
const PATH_BYTES_MAX: usize = 256;

/// Returns the endpoints of this resource. If two paths match, the router takes the first.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let accepted = "The order was sent. The actor's snapshot shows its effect.";
    vec![
        Endpoint::get("/admin/actors", list)
            .operation("list_actors", "Lists live actors by path, or streams their changes.")
            .query::<ActorsQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .returns::<ActorList>("The actors")
            .returns_stream::<ActorChanges>(EVENT_STREAM, "First all actors, then the changes")
            .problems(&["forbidden"]),
        Endpoint::post("/admin/actors/{path:.+}/stop", stop)
            .operation("stop_actor", "Sends an actor the order to stop its current work.")
            .header(SURFACE_HEADER, "The surface that sends the order: `cli` or `rest`")
            .returns_with_status::<ActorOrderResponse>(202, accepted)
            .problems(ORDER_PROBLEMS),
        Endpoint::post("/admin/actors/{path:.+}/restart", restart)
            .operation(
                "restart_actor",
                "Sends an actor the order to stop its current work and to start it again.",
            )
            .header(SURFACE_HEADER, "The surface that sends the order: `cli` or `rest`")
            .returns_with_status::<ActorOrderResponse>(202, accepted)
            .problems(ORDER_PROBLEMS),
        Endpoint::get("/admin/actors/{path:.+}", read)
            .operation("read_actor", "Returns an actor and its descendants.")
            .returns::<ActorView>("The actor and its descendants")
            .problems(&["forbidden", "actor_not_found"]),
    ]
}

const ORDER_PROBLEMS: &[&str] =
    &["forbidden", "surface_invalid", "actor_not_found", "order_refused", "actor_busy"];

/// A list of live actors.
#[derive(Serialize, ToSchema)]
struct ActorList {
    /// The actors, sorted by path.
    #[schema(value_type = Vec<ActorSnapshot>)]
    actors: Value,
    /// Number of matching actors, including those beyond `limit`.
    total: usize,
}

/// A live actor and its descendants.
#[derive(Serialize, ToSchema)]
#[schema(as = LiveActor)]
struct ActorView {
    /// `null` if there are actors only below this path.
    #[schema(value_type = Option<ActorSnapshot>)]
    actor: Value,
    /// The descendants of the actor, sorted by path.
    #[schema(value_type = Vec<ActorSnapshot>)]
    children: Value,
}

/// An order that was sent to an actor.
#[derive(Serialize, ToSchema)]
#[schema(as = OrderAccepted)]
struct ActorOrderResponse {
    /// The actor's path.
    path: String,
    /// The order that was sent.
    order: ActorOrder,
}

#[derive(Deserialize, IntoParams)]
pub(super) struct ActorsQuery {
    /// Only actors whose path starts with this text.
    prefix: Option<String>,
    /// Only actors of this kind, such as `Session`.
    kind: Option<String>,
    /// Only actors in this state. Ignored for streams.
    state: Option<String>,
    /// Maximum number of actors in the response.
    limit: Option<usize>,
}

/// `GET /admin/actors`: actors sorted by path, so that children follow their parents; or a stream
/// of changes.
async fn list(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let query: ActorsQuery = extract::parse_query(&request)?;
    let limit = extract::validate_page_size("limit", query.limit, PAGE_LIMITS.0, PAGE_LIMITS.1)?;
    if extract::accepts_event_stream(&request) {
        let prefix = query.prefix.unwrap_or_default();
        let filter = change_source::ActorFilter { prefix, kind: query.kind, limit };
        let heartbeat = state.limits.heartbeat;
        let source = change_source::ActorChangeSource::new(state, caller.0, filter);
        return Ok(super::change_stream::stream_changes(source, heartbeat));
    }
    let mut actors =
        state.runtime.status_board.snapshots(query.prefix.as_deref().unwrap_or_default());
    actors.retain(|actor| {
        query.kind.as_deref().is_none_or(|kind| actor.kind == kind)
            && query.state.as_deref().is_none_or(|state| actor.state == state)
    });
    let total = actors.len();
    actors.truncate(limit);
    let actors = redact_snapshots(&state, &actors);
    Ok(HttpResponse::Ok().json(ActorList { actors, total }))
}

/// `GET /admin/actors/{path}`: the actor and its descendants.
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let path = actor_path(&request);
    let mut descendants = state.runtime.status_board.snapshots(&format!("{path}/"));
    descendants.truncate(PAGE_LIMITS.0);
    let actor = state.runtime.status_board.snapshot(&path);
    if actor.is_none() && descendants.is_empty() {
        return Err(actor_not_found());
    }
    let actor = actor.map_or(Value::Null, |actor| state.redactor.redact_value(json!(actor)));
    let children = redact_snapshots(&state, &descendants);
    Ok(HttpResponse::Ok().json(ActorView { actor, children }))
}

/// `POST /admin/actors/{path}/stop`
async fn stop(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    send_order(state, caller, request, ActorOrder::Stop).await
}

/// `POST /admin/actors/{path}/restart`
async fn restart(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    send_order(state, caller, request, ActorOrder::Restart).await
}

async fn send_order(
    state: State,
    caller: Caller,
    request: HttpRequest,
    order: ActorOrder,
) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let path = actor_path(&request);
    let surface = access_control::resolve_surface(&request, &caller.0)?;
    let user = caller.0.user.clone();
    let sent =
        state.runtime.status_board.send_order(&path, order, user).map_err(|error| match error {
            OrderError::NotFound => actor_not_found(),
            OrderError::NotSupported { supported, .. } => {
                let detail = error.to_string();
                Problem::new(StatusCode::CONFLICT, "order_refused", detail)
                    .with_member("takes", supported)
            }
            OrderError::MailboxFull => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Problem::new(status, "actor_busy", error.to_string()).retry_after(1)
            }
        });
    let action = match order {
        ActorOrder::Stop => AuditAction::ActorStopped,
        ActorOrder::Restart => AuditAction::ActorRestarted,
    };
    let outcome = if sent.is_ok() { AuditOutcome::Done } else { AuditOutcome::Refused };
    let actor = Some(AuditActor::from_principal(&caller.0, surface));
    let details = Some(json!({"path": greenroom_core::text::truncate(&path, PATH_BYTES_MAX)}));
    let now = state.runtime.clock.now();
    state
        .record_audit(AuditEntry { details, ..AuditEntry::new(now, action, outcome, actor) })
        .await?;
    sent?;
    tracing::info!(%path, order = order.name(), by = %caller.0.user, "sent an order to an actor");
    Ok(HttpResponse::Accepted().json(ActorOrderResponse { path, order }))
}

fn actor_path(request: &HttpRequest) -> String {
    format!("/{}", request.match_info().query("path").trim_matches('/'))
}

fn actor_not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "actor_not_found", "no live actor at this path")
}

fn redact_snapshots(state: &State, actors: &[ActorSnapshot]) -> Value {
    state.redactor.redact_value(json!(actors))
}
