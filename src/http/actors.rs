//! Live actors, for administrators (A1): reads the board, never the actors; and what they are told
//! (A2).

mod changes;

use super::{
    Problem, State,
    guard::{self, Caller},
    read,
};
use crate::audit::{Action, Actor, Entry, Outcome};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode};
use greenroom_actors::{
    observation::Snapshot,
    order::{Order, Refused},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Actors in one answer where the client says nothing, and at most.
const PAGE: (usize, usize) = (1_000, 10_000);
/// Bytes of a path that the audit log keeps.
const PATH_BYTES_MAX: usize = 256;

#[derive(Deserialize)]
struct ActorsQuery {
    /// The start of a path.
    prefix: Option<String>,
    kind: Option<String>,
    state: Option<String>,
    limit: Option<usize>,
}

/// `GET /admin/actors`: by path, so that children follow their parents; or as a stream of what
/// changes.
pub(super) async fn list(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    caller.must_be_admin()?;
    let query: ActorsQuery = read::query(&request)?;
    let limit = read::page_size(query.limit, PAGE.0, PAGE.1)?;
    if read::wants_stream(&request) {
        let prefix = query.prefix.unwrap_or_default();
        let wanted = changes::Wanted { prefix, kind: query.kind, limit };
        let heartbeat = state.limits.heartbeat;
        let onlooker = changes::Onlooker::new(state, caller.0, wanted);
        return Ok(super::changes::respond(onlooker, heartbeat));
    }
    let mut found = state.runtime.board.snapshots(query.prefix.as_deref().unwrap_or_default());
    found.retain(|actor| {
        query.kind.as_deref().is_none_or(|kind| actor.kind == kind)
            && query.state.as_deref().is_none_or(|state| actor.state == state)
    });
    let total = found.len();
    found.truncate(limit);
    let actors = redacted(&state, &found);
    Ok(HttpResponse::Ok().json(json!({"actors": actors, "total": total})))
}

/// `GET /admin/actors/{path}`: the actor, and those below it.
pub(super) async fn read(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    caller.must_be_admin()?;
    let path = path_of(&request);
    let mut below = state.runtime.board.snapshots(&format!("{path}/"));
    below.truncate(PAGE.0);
    let own = state.runtime.board.snapshot(&path);
    if own.is_none() && below.is_empty() {
        return Err(absent());
    }
    let own = own.map_or(Value::Null, |own| state.redactor.scrubbed(json!(own)));
    let children = redacted(&state, &below);
    Ok(HttpResponse::Ok().json(json!({"actor": own, "children": children})))
}

/// `POST /admin/actors/{path}/stop`
pub(super) async fn stop(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    order(state, caller, request, Order::Stop).await
}

/// `POST /admin/actors/{path}/restart`
pub(super) async fn restart(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    order(state, caller, request, Order::Restart).await
}

async fn order(
    state: State,
    caller: Caller,
    request: HttpRequest,
    order: Order,
) -> Result<HttpResponse, Problem> {
    caller.must_be_admin()?;
    let path = path_of(&request);
    let surface = guard::surface(&request, &caller.0)?;
    let by = caller.0.user.clone();
    let told = state.runtime.board.order(&path, order, by).map_err(|refused| match refused {
        Refused::Absent => absent(),
        Refused::NotTaken { takes, .. } => {
            let detail = refused.to_string();
            Problem::new(StatusCode::CONFLICT, "order_refused", detail).with("takes", takes)
        }
        Refused::Busy => {
            let busy = StatusCode::SERVICE_UNAVAILABLE;
            Problem::new(busy, "actor_busy", refused.to_string()).retry_after(1)
        }
    });
    let action = match order {
        Order::Stop => Action::ActorStopped,
        Order::Restart => Action::ActorRestarted,
    };
    let outcome = if told.is_ok() { Outcome::Done } else { Outcome::Refused };
    let actor = Some(Actor::calling(&caller.0, surface));
    let details = Some(json!({"path": greenroom_core::text::cut(&path, PATH_BYTES_MAX)}));
    let now = state.runtime.clock.now();
    state.note(Entry { details, ..Entry::new(now, action, outcome, actor) }).await?;
    told?;
    tracing::info!(%path, order = order.name(), by = %caller.0.user, "an actor was told");
    Ok(HttpResponse::Accepted().json(json!({"path": path, "order": order})))
}

fn path_of(request: &HttpRequest) -> String {
    format!("/{}", request.match_info().query("path").trim_matches('/'))
}

fn absent() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "actor_not_found", "no live actor stands there")
}

fn redacted(state: &State, actors: &[Snapshot]) -> Value {
    state.redactor.scrubbed(json!(actors))
}
