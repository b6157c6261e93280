//! The events of a session as pages or as a stream, and the stream of all sessions for
//! administrators (E2, E3).

use super::{
    Problem, State,
    access_control::Caller,
    commands,
    endpoint::{EVENT_STREAM, Endpoint, LAST_EVENT_ID},
    extract,
    problem_codes::CURSOR_PROBLEMS,
    sse,
};
use crate::dialect::{Dialect, FlatFrame, Frame};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{cursor::Cursor, ids::Seq, session::EventRecord};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Default and maximum number of events on a page.
const PAGE_LIMITS: (usize, usize) = (100, 500);

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/session/{session_id}/events", events)
            .operation("session_events", "Returns a session's events, as a page or as a stream.")
            .query::<EventsQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .query::<DialectQuery>()
            .header(LAST_EVENT_ID, "The cursor to resume from; takes precedence over `after`")
            .returns::<EventPage>("A page of events, in the requested dialect")
            .returns_stream::<FlatFrame>(
                EVENT_STREAM,
                "One frame per `data:` line, as events occur",
            )
            .problems(CURSOR_PROBLEMS)
            .problems(&["session_not_found", "unknown_dialect", "too_many_subscribers"]),
    ]
}

/// Returns the endpoints for administrators.
pub(super) fn admin_endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/admin/events", all_events)
            .operation(
                "all_events",
                "Streams the events of all sessions from now on, without deltas.",
            )
            .query::<DialectQuery>()
            .returns_stream::<FlatFrame>(EVENT_STREAM, "One frame per `data:` line, without `id:`")
            .problems(&["forbidden", "unknown_dialect"]),
    ]
}

#[derive(Deserialize, IntoParams)]
pub(super) struct EventsQuery {
    /// A cursor: `seq`, or `seq.offset` inside an open message; or `now`, the last event.
    after: Option<String>,
    /// Maximum number of events on a page.
    limit: Option<usize>,
}

/// The query parameter that selects the wire vocabulary.
#[derive(Deserialize, IntoParams)]
pub(super) struct DialectQuery {
    /// `agent` (default) or `task`.
    dialect: Option<String>,
}

/// Returns the dialect that the request's `?dialect=` names, by default `agent`.
pub(super) fn parse_dialect(request: &HttpRequest) -> Result<Dialect, Problem> {
    let name = extract::parse_query::<DialectQuery>(request)?.dialect;
    let name = name.as_deref().map(str::parse).transpose();
    let unknown = |error: crate::dialect::UnknownDialect| {
        Problem::bad_request("unknown_dialect", error.to_string())
    };
    Ok(name.map_err(unknown)?.unwrap_or_default())
}

/// `GET /agent/session/{session_id}/events`
async fn events(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let session_id = extract::path_id(&request, "session_id")?;
    let query: EventsQuery = extract::parse_query(&request)?;
    let dialect = parse_dialect(&request)?;
    let start = extract::parse_stream_start(&request, query.after.as_deref())?;
    let session = commands::load_visible_session(&state, &caller.0, session_id).await?;
    let cursor = state.runtime.resolve_stream_start(session_id, start).await?;
    if extract::accepts_event_stream(&request) {
        sse::check_subscriber_limit(&state, &session)?;
        return Ok(sse::stream_session(&state, &session, cursor, dialect));
    }
    let limit = extract::validate_page_size("limit", query.limit, PAGE_LIMITS.0, PAGE_LIMITS.1)?;
    let records = state.runtime.journal.load_events(session_id, cursor.seq, limit).await?;
    let next = records.last().map_or(cursor.seq, |record| record.seq);
    let item = |record: EventRecord| {
        let (agent, cursor) = (session.agent.clone(), Cursor::after_seq(record.seq));
        FeedItem { session_id, agent, cursor, kind: FeedKind::Event(record.into()) }
    };
    let items: Vec<_> = records.into_iter().map(|record| (record.at, item(record))).collect();
    let mut frames = Vec::with_capacity(items.len());
    for (at, item) in &items {
        dialect.encode(item, *at, &state.redactor, |frame| frames.push(frame));
    }
    let events = frames.iter().map(Frame::flat).collect();
    Ok(HttpResponse::Ok().json(EventPage { events, next }))
}

/// A page of events.
#[derive(Serialize, ToSchema)]
#[schema(as = EventPage)]
struct EventPage<'a> {
    /// The events as frames, oldest first.
    events: Vec<FlatFrame<'a>>,
    /// The cursor of the next page, also if the page does not exist yet.
    next: Seq,
}

/// `GET /admin/events`: streams the events of all sessions from now on.
async fn all_events(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    Ok(sse::stream_all(&state, parse_dialect(&request)?))
}
