//! Live actors, for administrators (A1): reads the board, never the actors; and what they are told
//! (A2).

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

/// Actors in one answer where the client says nothing, and at most.
const PAGE_LIMITS: (usize, usize) = (1_000, 10_000);
/// Bytes of a path that the audit log keeps.
const PATH_BYTES_MAX: usize = 256;

/// What stands here. Of two paths that fit, the router takes the first.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let taken = "It was told; the actor's entry shows what became of it";
    vec![
        Endpoint::get("/admin/actors", list)
            .operation("list_actors", "Live actors, by path; or a stream of what changes.")
            .query::<ActorsQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .returns::<ActorList>("The actors")
            .returns_stream::<ActorChanges>(EVENT_STREAM, "First all of them, then what changes")
            .problems(&["forbidden"]),
        Endpoint::post("/admin/actors/{path:.+}/stop", stop)
            .operation("stop_actor", "Tells an actor to end what it does.")
            .header(SURFACE_HEADER, "`cli` or `rest`: through what it is told")
            .returns_with_status::<ActorOrderResponse>(202, taken)
            .problems(ORDER_PROBLEMS),
        Endpoint::post("/admin/actors/{path:.+}/restart", restart)
            .operation(
                "restart_actor",
                "Tells an actor to end what it does, and to begin it again.",
            )
            .header(SURFACE_HEADER, "`cli` or `rest`: through what it is told")
            .returns_with_status::<ActorOrderResponse>(202, taken)
            .problems(ORDER_PROBLEMS),
        Endpoint::get("/admin/actors/{path:.+}", read)
            .operation("read_actor", "An actor, and those below it.")
            .returns::<ActorView>("The actor")
            .problems(&["forbidden", "actor_not_found"]),
    ]
}

const ORDER_PROBLEMS: &[&str] =
    &["forbidden", "surface_invalid", "actor_not_found", "order_refused", "actor_busy"];

/// Live actors.
#[derive(Serialize, ToSchema)]
struct ActorList {
    #[schema(value_type = Vec<ActorSnapshot>)]
    actors: Value,
    /// How many there are, also beyond `limit`.
    total: usize,
}

/// A live actor.
#[derive(Serialize, ToSchema)]
#[schema(as = LiveActor)]
struct ActorView {
    /// `null` where only others stand below that path.
    #[schema(value_type = Option<ActorSnapshot>)]
    actor: Value,
    #[schema(value_type = Vec<ActorSnapshot>)]
    children: Value,
}

/// An order that was told.
#[derive(Serialize, ToSchema)]
#[schema(as = OrderTold)]
struct ActorOrderResponse {
    path: String,
    order: ActorOrder,
}

#[derive(Deserialize, IntoParams)]
struct ActorsQuery {
    /// The start of a path.
    prefix: Option<String>,
    /// Only actors of this kind, such as `Session`.
    kind: Option<String>,
    /// Only those in this state; not for streams.
    state: Option<String>,
    limit: Option<usize>,
}

/// `GET /admin/actors`: by path, so that children follow their parents; or as a stream of what
/// changes.
async fn list(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let query: ActorsQuery = extract::parse_query(&request)?;
    let limit = extract::validate_page_size("limit", query.limit, PAGE_LIMITS.0, PAGE_LIMITS.1)?;
    if extract::accepts_event_stream(&request) {
        let prefix = query.prefix.unwrap_or_default();
        let wanted = change_source::ActorFilter { prefix, kind: query.kind, limit };
        let heartbeat = state.limits.heartbeat;
        let onlooker = change_source::ActorChangeSource::new(state, caller.0, wanted);
        return Ok(super::change_stream::stream_changes(onlooker, heartbeat));
    }
    let mut found =
        state.runtime.status_board.snapshots(query.prefix.as_deref().unwrap_or_default());
    found.retain(|actor| {
        query.kind.as_deref().is_none_or(|kind| actor.kind == kind)
            && query.state.as_deref().is_none_or(|state| actor.state == state)
    });
    let total = found.len();
    found.truncate(limit);
    let actors = redact_snapshots(&state, &found);
    Ok(HttpResponse::Ok().json(ActorList { actors, total }))
}

/// `GET /admin/actors/{path}`: the actor, and those below it.
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let path = actor_path(&request);
    let mut below = state.runtime.status_board.snapshots(&format!("{path}/"));
    below.truncate(PAGE_LIMITS.0);
    let own = state.runtime.status_board.snapshot(&path);
    if own.is_none() && below.is_empty() {
        return Err(actor_not_found());
    }
    let own = own.map_or(Value::Null, |own| state.redactor.redact_value(json!(own)));
    let children = redact_snapshots(&state, &below);
    Ok(HttpResponse::Ok().json(ActorView { actor: own, children }))
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
    let by = caller.0.user.clone();
    let told =
        state.runtime.status_board.send_order(&path, order, by).map_err(|refused| match refused {
            OrderError::NotFound => actor_not_found(),
            OrderError::NotSupported { supported, .. } => {
                let detail = refused.to_string();
                Problem::new(StatusCode::CONFLICT, "order_refused", detail).with("takes", supported)
            }
            OrderError::MailboxFull => {
                let busy = StatusCode::SERVICE_UNAVAILABLE;
                Problem::new(busy, "actor_busy", refused.to_string()).retry_after(1)
            }
        });
    let action = match order {
        ActorOrder::Stop => AuditAction::ActorStopped,
        ActorOrder::Restart => AuditAction::ActorRestarted,
    };
    let outcome = if told.is_ok() { AuditOutcome::Done } else { AuditOutcome::Refused };
    let actor = Some(AuditActor::from_principal(&caller.0, surface));
    let details = Some(json!({"path": greenroom_core::text::truncate(&path, PATH_BYTES_MAX)}));
    let now = state.runtime.clock.now();
    state
        .record_audit(AuditEntry { details, ..AuditEntry::new(now, action, outcome, actor) })
        .await?;
    told?;
    tracing::info!(%path, order = order.name(), by = %caller.0.user, "an actor was told");
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
