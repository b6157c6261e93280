//! `GET /agent/statistics`: figures of agents, workflows, models, tools and approvals (C5, W6).
//!
//! The figures are counted from the logs of the newest sessions at each request, not kept in a
//! table: they cannot diverge from the logs, include events that older versions recorded, and cost
//! nothing until they are requested. The scan is bounded; the response contains its coverage.

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

/// Default and maximum number of sessions that are scanned.
const SESSION_LIMITS: (usize, usize) = (100, 500);
/// Number of events after which the scan stops.
const EVENTS_MAX: usize = 50_000;
/// Permits of concurrent scans; further requests wait.
static SCAN_PERMITS: Semaphore = Semaphore::const_new(2);

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/statistics", read)
            .operation(
                "statistics",
                "Returns figures of agents, workflows, models, tools and approvals.",
            )
            .query::<StatisticsQuery>()
            .limit_param("sessions", SESSION_LIMITS)
            .returns::<Statistics>("The figures, counted from the logs of the newest sessions")
            .problems(&["forbidden", "invalid_id"]),
    ]
}

#[derive(Deserialize, IntoParams)]
pub(super) struct StatisticsQuery {
    /// Number of newest sessions to scan.
    sessions: Option<usize>,
    /// Only sessions of this user; only administrators may name another user.
    #[param(value_type = Option<UserId>)]
    user: Option<String>,
    /// Only events at or after this time.
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
    let user = extract::parse_optional_id("user", query.user.as_deref())?;
    let own_user = Some(caller.0.user.clone());
    let owner = match user {
        Some(_) if caller.0.role < Role::Admin && user != own_user => {
            let detail = "only administrators may read the statistics of another user";
            return Err(Problem::forbidden(detail));
        }
        Some(user) => Some(user),
        None if caller.0.role == Role::Admin => None,
        None => own_user,
    };
    let _permit = SCAN_PERMITS.acquire().await;
    let filter = StatisticsFilter { owner, since: query.since, limit };
    let (counters, looked_at) = scan(&state, filter).await?;
    Ok(HttpResponse::Ok().json(Statistics { figures: counters.view(), looked_at }))
}

/// The figures and the coverage of the scan.
#[derive(Serialize, ToSchema)]
struct Statistics {
    #[serde(flatten)]
    figures: Figures,
    /// The coverage of the scan.
    looked_at: ScanCoverage,
}

/// The coverage of a scan.
#[derive(Serialize, ToSchema)]
struct ScanCoverage {
    /// Number of sessions that were scanned.
    sessions: usize,
    /// Number of events that were scanned.
    events: usize,
    /// True if all sessions and events were scanned.
    complete: bool,
    /// Creation time of the oldest scanned session.
    since: Option<Timestamp>,
}

/// Selects the sessions and events that are counted.
struct StatisticsFilter {
    owner: Option<UserId>,
    since: Option<Timestamp>,
    limit: usize,
}

async fn scan(
    state: &AppState,
    filter: StatisticsFilter,
) -> Result<(StatisticsCounters, ScanCoverage), Problem> {
    let StatisticsFilter { owner, since, limit } = filter;
    let journal = &state.runtime.journal;
    let query = SessionQuery { owner, limit: limit + 1, ..SessionQuery::default() };
    let mut rows = journal.list_sessions(query).await?;
    let mut coverage =
        ScanCoverage { sessions: 0, events: 0, complete: rows.len() <= limit, since: None };
    rows.truncate(limit);
    let mut counters = StatisticsCounters::default();
    for row in rows {
        let mut log = LogScanner::new(&row, since);
        let mut after = Seq(0);
        loop {
            let page = journal.load_events(row.session_id, after, LOG_PAGE_EVENTS).await?;
            for record in &page {
                log.apply_event(record, &mut counters);
                after = record.seq;
            }
            coverage.events += page.len();
            if page.len() < LOG_PAGE_EVENTS || coverage.events >= EVENTS_MAX {
                break;
            }
        }
        log.finish(&mut counters);
        coverage.sessions += 1;
        coverage.since = Some(row.created_at);
        if coverage.events >= EVENTS_MAX {
            coverage.complete = false;
            break;
        }
    }
    Ok((counters, coverage))
}
