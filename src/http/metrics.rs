//! Counting requests, and showing the counts to Prometheus (A4). Access log at DEBUG.

pub use metrics_exporter_prometheus::PrometheusHandle;

use super::{Problem, State, guard::Caller};
use actix_web::{
    Error, HttpResponse,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{StatusCode, header},
    middleware::Next,
};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder};
use std::time::Instant;

/// Installs the recorder for the whole process; the handle goes into
/// [`super::AppState::metrics`]. Once per process.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new().install_recorder()?;
    metrics::describe_counter!("greenroom_http_requests_total", "Requests by route and status");
    metrics::describe_histogram!(
        "greenroom_http_request_seconds",
        "Time until the answer's head, by route"
    );
    metrics::describe_counter!("greenroom_frames_total", "Frames put into streams");
    metrics::describe_gauge!("greenroom_subscribers", "Streams that are open");
    metrics::describe_gauge!("greenroom_live_sessions", "Sessions in memory");
    Ok(handle)
}

/// `GET /metrics`
pub(super) async fn render(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    caller.must_be_admin()?;
    let absent = || Problem::new(StatusCode::NOT_FOUND, "not_found", "metrics are switched off");
    let handle = state.metrics.as_ref().ok_or_else(absent)?;
    let live = u32::try_from(state.runtime.live_sessions().await).unwrap_or(u32::MAX);
    metrics::gauge!("greenroom_live_sessions").set(f64::from(live));
    handle.run_upkeep();
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"))
        .body(handle.render()))
}

/// The middleware: outermost, so that refusals at the door count too.
pub(super) async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let began = Instant::now();
    let method = request.method().clone();
    let answer = next.call(request).await?.map_into_boxed_body();
    // The pattern, not the path: ids would make a series each.
    let route = answer.request().match_pattern().unwrap_or_else(|| "(none)".to_owned());
    let status = answer.status().as_u16();
    let elapsed = began.elapsed();
    metrics::counter!(
        "greenroom_http_requests_total",
        "method" => method.as_str().to_owned(), "route" => route.clone(),
        "status" => status.to_string(),
    )
    .increment(1);
    metrics::histogram!("greenroom_http_request_seconds", "route" => route.clone())
        .record(elapsed.as_secs_f64());
    // The query stays out of the log: the first link's has the token.
    tracing::debug!(
        method = %method, path = answer.request().path(), route, status,
        elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), "request"
    );
    Ok(answer)
}
