//! Live actors, for administrators (A1): reads the board, never the actors; and what they are told
//! (A2).

mod changes;

use self::changes::Changes;
use super::{
    Problem, State,
    endpoint::{EVENT_STREAM, Endpoint},
    guard::{self, Caller, SURFACE},
    read,
};
use crate::audit::{Action, Actor, Entry, Outcome};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode};
use greenroom_actors::{
    observation::Snapshot,
    order::{Order, Refused},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

/// Actors in one answer where the client says nothing, and at most.
const PAGE: (usize, usize) = (1_000, 10_000);
/// Bytes of a path that the audit log keeps.
const PATH_BYTES_MAX: usize = 256;

/// What stands here. Of two paths that fit, the router takes the first.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let taken = "It was told; the actor's entry shows what became of it";
    vec![
        Endpoint::get("/admin/actors", list)
            .named("list_actors", "Live actors, by path; or a stream of what changes.")
            .query::<ActorsQuery>()
            .at_most("limit", PAGE)
            .answers::<ActorList>("The actors")
            .streams::<Changes>(EVENT_STREAM, "First all of them, then what changes")
            .problems(&["forbidden"]),
        Endpoint::post("/admin/actors/{path:.+}/stop", stop)
            .named("stop_actor", "Tells an actor to end what it does.")
            .header(SURFACE, "`cli` or `rest`: through what it is told")
            .answers_with::<Told>(202, taken)
            .problems(OF_ORDERS),
        Endpoint::post("/admin/actors/{path:.+}/restart", restart)
            .named("restart_actor", "Tells an actor to end what it does, and to begin it again.")
            .header(SURFACE, "`cli` or `rest`: through what it is told")
            .answers_with::<Told>(202, taken)
            .problems(OF_ORDERS),
        Endpoint::get("/admin/actors/{path:.+}", read)
            .named("read_actor", "An actor, and those below it.")
            .answers::<ActorView>("The actor")
            .problems(&["forbidden", "actor_not_found"]),
    ]
}

const OF_ORDERS: &[&str] =
    &["forbidden", "surface_invalid", "actor_not_found", "order_refused", "actor_busy"];

/// Live actors.
#[derive(Serialize, ToSchema)]
struct ActorList {
    #[schema(value_type = Vec<Snapshot>)]
    actors: Value,
    /// How many there are, also beyond `limit`.
    total: usize,
}

/// A live actor.
#[derive(Serialize, ToSchema)]
#[schema(as = LiveActor)]
struct ActorView {
    /// `null` where only others stand below that path.
    #[schema(value_type = Option<Snapshot>)]
    actor: Value,
    #[schema(value_type = Vec<Snapshot>)]
    children: Value,
}

/// An order that was told.
#[derive(Serialize, ToSchema)]
#[schema(as = OrderTold)]
struct Told {
    path: String,
    order: Order,
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
    caller.must_be_admin()?;
    let query: ActorsQuery = read::query(&request)?;
    let limit = read::page_size("limit", query.limit, PAGE.0, PAGE.1)?;
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
    Ok(HttpResponse::Ok().json(ActorList { actors, total }))
}

/// `GET /admin/actors/{path}`: the actor, and those below it.
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
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
    Ok(HttpResponse::Ok().json(ActorView { actor: own, children }))
}

/// `POST /admin/actors/{path}/stop`
async fn stop(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    order(state, caller, request, Order::Stop).await
}

/// `POST /admin/actors/{path}/restart`
async fn restart(
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
    Ok(HttpResponse::Accepted().json(Told { path, order }))
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
