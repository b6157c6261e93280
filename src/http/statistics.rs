//! `GET /agent/statistics`: how agents, workflows, models, tools and people are doing (C5, W6), counted
//! from the logs of the newest sessions when it is asked for. A bounded scan and not a table of its own: the log is the truth, so
//! nothing can drift from it, what was recorded before this version counts, and a question nobody
//! asks costs nothing. What it looked at is said with it.

mod counters;
mod log_scanner;
mod timeline;

use self::{
    counters::{Figures, StatisticsCounters},
    log_scanner::LogScanner,
};
use super::{AppState, Problem, State, access_control::Caller, endpoint::Endpoint, extract};
use crate::auth::Role;
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::{limits::LOG_PAGE_EVENTS, ports::SessionQuery};
use greenroom_core::{
    Timestamp,
    ids::{Seq, UserId},
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use utoipa::{IntoParams, ToSchema};

/// Sessions that are looked at where the client says nothing, and at most.
const SESSION_LIMITS: (usize, usize) = (100, 500);
/// Events that are looked at; then it is enough.
const EVENTS_MAX: usize = 50_000;
/// Requests that scan at once; others wait for their turn.
static SCAN_PERMITS: Semaphore = Semaphore::const_new(2);

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/statistics", read)
            .operation("statistics", "How agents, workflows, models, tools and people are doing.")
            .query::<StatisticsQuery>()
            .limit_param("sessions", SESSION_LIMITS)
            .returns::<Statistics>("Counted from the logs of the newest sessions")
            .problems(&["forbidden", "invalid_id"]),
    ]
}

#[derive(Deserialize, IntoParams)]
struct StatisticsQuery {
    /// How many of the newest sessions.
    sessions: Option<usize>,
    #[param(value_type = Option<UserId>)]
    /// Only this user's; for administrators.
    user: Option<String>,
    /// Only what happened then or later.
    since: Option<Timestamp>,
}

/// `GET /agent/statistics`
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let query: StatisticsQuery = extract::parse_query(&request)?;
    let limit = extract::validate_page_size(
        "sessions",
        query.sessions,
        SESSION_LIMITS.0,
        SESSION_LIMITS.1,
    )?;
    let asked = extract::parse_optional_id("user", query.user.as_deref())?;
    let own = Some(caller.0.user.clone());
    let owner = match asked {
        Some(_) if caller.0.role < Role::Admin && asked != own => {
            return Err(Problem::forbidden("the statistics of others are for administrators"));
        }
        Some(asked) => Some(asked),
        None if caller.0.role == Role::Admin => None,
        None => own,
    };
    let _turn = SCAN_PERMITS.acquire().await;
    let wanted = StatisticsFilter { owner, since: query.since, limit };
    let (counted, looked_at) = scan(&state, wanted).await?;
    Ok(HttpResponse::Ok().json(Statistics { figures: counted.view(), looked_at }))
}

/// How all are doing, and of how much that is said.
#[derive(Serialize, ToSchema)]
struct Statistics {
    #[serde(flatten)]
    figures: Figures,
    looked_at: ScanCoverage,
}

/// What was looked at.
#[derive(Serialize, ToSchema)]
struct ScanCoverage {
    sessions: usize,
    events: usize,
    /// Whether these were all that there are.
    complete: bool,
    /// When the oldest of the sessions was created.
    since: Option<Timestamp>,
}

/// What is to be counted.
struct StatisticsFilter {
    owner: Option<UserId>,
    since: Option<Timestamp>,
    limit: usize,
}

async fn scan(
    state: &AppState,
    wanted: StatisticsFilter,
) -> Result<(StatisticsCounters, ScanCoverage), Problem> {
    let StatisticsFilter { owner, since, limit } = wanted;
    let journal = &state.runtime.journal;
    let query = SessionQuery { owner, limit: limit + 1, ..SessionQuery::default() };
    let mut rows = journal.list_sessions(query).await?;
    let mut looked_at =
        ScanCoverage { sessions: 0, events: 0, complete: rows.len() <= limit, since: None };
    rows.truncate(limit);
    let mut counted = StatisticsCounters::default();
    for row in rows {
        let mut log = LogScanner::new(&row, since);
        let mut after = Seq(0);
        loop {
            let page = journal.load_events(row.session_id, after, LOG_PAGE_EVENTS).await?;
            for record in &page {
                log.apply_event(record, &mut counted);
                after = record.seq;
            }
            looked_at.events += page.len();
            if page.len() < LOG_PAGE_EVENTS || looked_at.events >= EVENTS_MAX {
                break;
            }
        }
        log.finish(&mut counted);
        looked_at.sessions += 1;
        looked_at.since = Some(row.created_at);
        if looked_at.events >= EVENTS_MAX {
            looked_at.complete = false;
            break;
        }
    }
    Ok((counted, looked_at))
}
