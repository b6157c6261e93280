//! Request metrics, the Prometheus endpoint (A4) and the access log at DEBUG.

pub use metrics_exporter_prometheus::PrometheusHandle;

use super::{Problem, State, access_control::Caller, endpoint::Endpoint};
use actix_web::{
    Error, HttpResponse,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{StatusCode, header},
    middleware::Next,
};
use greenroom_actors::circuit_breaker::CIRCUIT_PATH_PREFIX;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use std::{collections::BTreeMap, time::Instant};

/// Histograms with fixed buckets, which can be added up over several servers, and their upper bounds.
const BUCKETS: [(&str, &[f64]); 5] = [
    ("greenroom_journal_batch_commits", &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
    ("greenroom_journal_batch_seconds", &[0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0]),
    ("greenroom_bus_lag_seconds", &[0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0]),
    ("greenroom_http_request_seconds", LATENCY_BUCKETS),
    ("greenroom_model_first_token_seconds", LATENCY_BUCKETS),
];

/// Upper bounds of latencies, in seconds.
const LATENCY_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Installs the metrics recorder of the process. Call it once; the handle belongs in
/// [`super::AppState::metrics`].
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for (name, buckets) in BUCKETS {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)?;
    }
    let handle = builder.install_recorder()?;
    metrics::describe_counter!(
        "greenroom_http_requests_total",
        "HTTP requests, by method, route and status"
    );
    metrics::describe_histogram!(
        "greenroom_http_request_seconds",
        "Time until the response head, by route"
    );
    metrics::describe_histogram!(
        "greenroom_journal_batch_commits",
        "Commits that were stored together with one fsync"
    );
    metrics::describe_histogram!(
        "greenroom_journal_batch_seconds",
        "Time to store one batch of commits"
    );
    metrics::describe_counter!("greenroom_frames_total", "Frames sent to streams");
    metrics::describe_gauge!("greenroom_subscribers", "Open streams");
    metrics::describe_gauge!("greenroom_live_sessions", "Sessions in memory");
    metrics::describe_gauge!("greenroom_approvals_waiting", "Pending approvals");
    metrics::describe_gauge!("greenroom_actors", "Live actors, by kind");
    metrics::describe_gauge!("greenroom_actors_waiting", "Live actors that wait, by kind");
    metrics::describe_gauge!("greenroom_mailbox_depth", "Messages in mailboxes, by kind of actor");
    metrics::describe_gauge!(
        "greenroom_mailbox_depth_max",
        "Depth of the fullest mailbox, by kind of actor"
    );
    metrics::describe_gauge!(
        "greenroom_circuit_open",
        "Circuit breakers of models and tool servers: 0 closed, 1 open, 0.5 half-open"
    );
    Ok(handle)
}

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/metrics", render)
            .operation("metrics", "Returns the metrics for Prometheus.")
            .returns_text("text/plain", "The metrics in Prometheus' text format")
            .problems(&["forbidden", "not_found"]),
    ]
}

/// `GET /metrics`
async fn render(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let disabled = || Problem::new(StatusCode::NOT_FOUND, "not_found", "metrics are disabled");
    let handle = state.metrics.as_ref().ok_or_else(disabled)?;
    let live = u32::try_from(state.runtime.live_session_count().await).unwrap_or(u32::MAX);
    metrics::gauge!("greenroom_live_sessions").set(f64::from(live));
    let waiting = u32::try_from(state.runtime.pending_approval_count().await).unwrap_or(u32::MAX);
    metrics::gauge!("greenroom_approvals_waiting").set(f64::from(waiting));
    measure_actors(&state);
    for circuit in state.runtime.status_board.snapshots(CIRCUIT_PATH_PREFIX) {
        let endpoint = circuit.path[CIRCUIT_PATH_PREFIX.len()..].to_owned();
        let open = match circuit.state.as_str() {
            "open" => 1.0,
            "half_open" => 0.5,
            _ => 0.0,
        };
        metrics::gauge!("greenroom_circuit_open", "endpoint" => endpoint).set(open);
    }
    handle.run_upkeep();
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"))
        .body(handle.render()))
}

/// Sets the actor gauges from the status board, summed up by kind, so that their number is bounded.
fn measure_actors(state: &State) {
    // Kinds without live actors are reported as 0.
    let mut kinds: BTreeMap<&str, ActorKindTotals> =
        KINDS.iter().map(|kind| (*kind, ActorKindTotals::default())).collect();
    for actor in state.runtime.status_board.snapshots("/") {
        let kind = kinds.entry(actor.kind).or_default();
        kind.count += 1;
        kind.waiting += u32::from(actor.waiting.is_some());
        let depth = u32::try_from(actor.mailbox_depth).unwrap_or(u32::MAX);
        kind.depth = kind.depth.saturating_add(depth);
        kind.depth_max = kind.depth_max.max(depth);
    }
    for (name, kind) in kinds {
        metrics::gauge!("greenroom_actors", "kind" => name.to_owned()).set(kind.count);
        metrics::gauge!("greenroom_actors_waiting", "kind" => name.to_owned()).set(kind.waiting);
        metrics::gauge!("greenroom_mailbox_depth", "kind" => name.to_owned()).set(kind.depth);
        let deepest = metrics::gauge!("greenroom_mailbox_depth_max", "kind" => name.to_owned());
        deepest.set(kind.depth_max);
    }
}

/// The kinds of actors that start and stop at run time.
const KINDS: [&str; 6] =
    ["Session", "LlmStream", "ToolExecutor", "Subscriber", "FirehoseSubscriber", "Socket"];

#[derive(Default)]
struct ActorKindTotals {
    count: u32,
    waiting: u32,
    depth: u32,
    depth_max: u32,
}

/// The middleware that counts requests. It is the outermost, so that rejected requests count too.
pub(super) async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let started_at = Instant::now();
    let method = request.method().clone();
    let response = next.call(request).await?.map_into_boxed_body();
    // The route pattern, not the path: ids in paths would create one time series each.
    let route = response.request().match_pattern().unwrap_or_else(|| "(none)".to_owned());
    let status = response.status().as_u16();
    let elapsed = started_at.elapsed();
    metrics::counter!(
        "greenroom_http_requests_total",
        "method" => method.as_str().to_owned(), "route" => route.clone(),
        "status" => status.to_string(),
    )
    .increment(1);
    metrics::histogram!("greenroom_http_request_seconds", "route" => route.clone())
        .record(elapsed.as_secs_f64());
    // The query is not logged: the query of the sign-in link contains the token.
    tracing::debug!(
        method = %method, path = response.request().path(), route, status,
        elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), "request"
    );
    Ok(response)
}
