//! Live actors, for administrators (A1). Reads the board, never the actors.

use super::{Problem, State, guard::Caller, read};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode};
use greenroom_actors::observation::Snapshot;
use serde::Deserialize;
use serde_json::{Value, json};

/// Actors in one answer where the client says nothing, and at most.
const PAGE: (usize, usize) = (1_000, 10_000);

#[derive(Deserialize)]
struct ActorsQuery {
    /// The start of a path.
    prefix: Option<String>,
    kind: Option<String>,
    state: Option<String>,
    limit: Option<usize>,
}

/// `GET /admin/actors`: by path, so that children follow their parents.
pub(super) async fn actors(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    caller.must_be_admin()?;
    let query: ActorsQuery = read::query(&request)?;
    let limit = read::page_size(query.limit, PAGE.0, PAGE.1)?;
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
pub(super) async fn actor(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    caller.must_be_admin()?;
    let path = format!("/{}", request.match_info().query("path").trim_end_matches('/'));
    let mut below = state.runtime.board.snapshots(&format!("{path}/"));
    below.truncate(PAGE.0);
    let own = state.runtime.board.snapshot(&path);
    if own.is_none() && below.is_empty() {
        let detail = "no live actor stands there";
        return Err(Problem::new(StatusCode::NOT_FOUND, "actor_not_found", detail));
    }
    let own = own.map_or(Value::Null, |own| state.redactor.scrubbed(json!(own)));
    let children = redacted(&state, &below);
    Ok(HttpResponse::Ok().json(json!({"actor": own, "children": children})))
}

fn redacted(state: &State, actors: &[Snapshot]) -> Value {
    state.redactor.scrubbed(json!(actors))
}
