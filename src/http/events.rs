//! A session's events, as pages or as a stream; and, for administrators, everybody's (E2, E3).

use super::{Problem, State, commands, follow::Follow, guard::Caller, read, sse};
use crate::dialect::Dialect;
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{cursor::Cursor, ids::Seq};
use serde::Deserialize;
use std::sync::Arc;

/// Events on a page where the client says nothing, and at most.
const PAGE: (usize, usize) = (100, 500);

#[derive(Deserialize)]
struct EventsQuery {
    after: Option<String>,
    limit: Option<usize>,
}

/// The dialect that `?dialect=` of a request asks for, or the native one.
pub(super) fn asked_for(request: &HttpRequest) -> Result<Dialect, Problem> {
    #[derive(Deserialize)]
    struct DialectQuery {
        dialect: Option<String>,
    }
    let name = read::query::<DialectQuery>(request)?.dialect;
    let name = name.as_deref().map(str::parse).transpose();
    let unknown = |error: crate::dialect::UnknownDialect| {
        Problem::bad_request("unknown_dialect", error.to_string())
    };
    Ok(name.map_err(unknown)?.unwrap_or_default())
}

/// `GET /agent/session/{session_id}/events`
pub(super) async fn events(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let session_id = read::path_id(&request, "session_id")?;
    let query: EventsQuery = read::query(&request)?;
    let dialect = asked_for(&request)?;
    let cursor = read::cursor(&request, query.after.as_deref())?;
    let session = commands::session_for(&state, &caller.0, session_id).await?;
    state.runtime.check_cursor(session_id, cursor).await?;
    if read::wants_stream(&request) {
        sse::check_room(&state, &session)?;
        return Ok(sse::of_session(&state, &session, cursor, Follow::Everything, dialect));
    }
    let limit = read::page_size(query.limit, PAGE.0, PAGE.1)?;
    let records = state.runtime.journal.read(session_id, cursor.seq, limit).await?;
    let next = records.last().map_or(cursor.seq, |record| record.seq);
    let mut frames = Vec::with_capacity(records.len());
    for record in records {
        let (at, cursor) = (record.at, Cursor::after(record.seq));
        let kind = FeedKind::Event(Arc::new(record));
        let item = FeedItem { session_id, agent: session.agent.clone(), cursor, kind };
        dialect.encode(&item, at, &state.redactor, |frame| frames.push(frame));
    }
    let events: Vec<_> = frames.iter().map(crate::dialect::Frame::flat).collect();
    Ok(HttpResponse::Ok().json(Page { events, next }))
}

#[derive(serde::Serialize)]
struct Page<'a> {
    events: Vec<crate::dialect::Flat<'a>>,
    /// Where the next page begins, also when there is none yet.
    next: Seq,
}

/// `GET /admin/events`: the stream of all sessions from now on.
pub(super) async fn all_events(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    caller.must_be_admin()?;
    Ok(sse::of_all(&state, asked_for(&request)?))
}
