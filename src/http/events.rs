//! A session's events, as pages or as a stream; and, for administrators, everybody's (E2, E3).

use super::{
    Problem, State,
    access_control::Caller,
    commands,
    endpoint::{EVENT_STREAM, Endpoint, LAST_EVENT_ID},
    extract,
    problem_codes::CURSOR_PROBLEMS,
    sse,
    stream_filter::StreamFilter,
};
use crate::dialect::{Dialect, FlatFrame, Frame};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{cursor::Cursor, ids::Seq, session::EventRecord};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Events on a page where the client says nothing, and at most.
const PAGE_LIMITS: (usize, usize) = (100, 500);

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/session/{session_id}/events", events)
            .operation("session_events", "A session's events: a page, or a stream that goes on.")
            .query::<EventsQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .query::<DialectQuery>()
            .header(LAST_EVENT_ID, "Where the stream was left; it wins over `after`")
            .returns::<EventPage>("A page of events, in the dialect that was asked for")
            .returns_stream::<FlatFrame>(
                EVENT_STREAM,
                "One frame in each `data:` line, as things happen",
            )
            .problems(CURSOR_PROBLEMS)
            .problems(&["session_not_found", "unknown_dialect", "too_many_subscribers"]),
    ]
}

/// What stands here for administrators.
pub(super) fn admin_endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/admin/events", all_events)
            .operation(
                "all_events",
                "The events of all sessions from now on, without text on its way.",
            )
            .query::<DialectQuery>()
            .returns_stream::<FlatFrame>(
                EVENT_STREAM,
                "One frame in each `data:` line; there is no `id:`",
            )
            .problems(&["forbidden", "unknown_dialect"]),
    ]
}

#[derive(Deserialize, IntoParams)]
struct EventsQuery {
    /// A cursor: `seq`, or `seq.offset` inside an open message.
    after: Option<String>,
    limit: Option<usize>,
}

/// In which words events are told.
#[derive(Deserialize, IntoParams)]
pub(super) struct DialectQuery {
    /// `agent` or `task`.
    dialect: Option<String>,
}

/// The dialect that `?dialect=` of a request asks for, or the native one.
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
    let cursor = extract::parse_cursor(&request, query.after.as_deref())?;
    let session = commands::load_visible_session(&state, &caller.0, session_id).await?;
    state.runtime.validate_cursor(session_id, cursor).await?;
    if extract::accepts_event_stream(&request) {
        sse::check_subscriber_limit(&state, &session)?;
        return Ok(sse::stream_session(&state, &session, cursor, StreamFilter::All, dialect));
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
    events: Vec<FlatFrame<'a>>,
    /// Where the next page begins, also when there is none yet.
    next: Seq,
}

/// `GET /admin/events`: the stream of all sessions from now on.
async fn all_events(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    Ok(sse::stream_all(&state, parse_dialect(&request)?))
}
