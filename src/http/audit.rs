//! The audit log, for administrators (X6): pages as JSON, or all of it as JSON lines. And the one
//! way of the other handlers to note what has no event of a session.

use super::{
    AppState, Problem, State,
    access_control::Caller,
    endpoint::{Endpoint, JSON_LINES},
    extract,
};
use crate::{
    audit::{AuditAction, AuditEntry, AuditLog, AuditOrder, AuditQuery, AuditRow},
    redaction::Redactor,
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web::Bytes,
};
use futures::stream;
use greenroom_actors::ports::JournalError;
use greenroom_core::{ids::SessionId, json::Digest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Rows on a page where the client says nothing, and at most; an export reads as many at once.
const PAGE_LIMITS: (usize, usize) = (100, 1_000);

impl AppState {
    /// Notes what a handler did.
    pub(super) async fn record_audit(&self, entry: AuditEntry) -> Result<(), JournalError> {
        match &self.audit_log {
            Some(audit) => audit.append_audit(entry).await,
            None => Ok(()),
        }
    }
}

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/admin/audit", list)
            .operation("audit", "The audit log: a page, or all of it as JSON lines.")
            .description("As JSON lines by `format=jsonl` or `Accept: application/jsonl`.")
            .query::<ListAuditQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .returns::<AuditPage>("A page of rows")
            .returns_stream::<AuditRowSchema>(
                JSON_LINES,
                "A row in each line; without `limit` all of them",
            )
            .problems(&["forbidden", "not_found", "invalid_id"]),
    ]
}

/// A page of the audit log.
#[derive(Serialize, ToSchema)]
struct AuditPage {
    #[schema(value_type = Vec<AuditRowSchema>)]
    rows: Vec<Value>,
    /// What the next page goes on from, if there is one: `after`, or `before` where the newest come first.
    next: Option<u64>,
}

/// A row of the audit log. What somebody has put in the place of a row is shown as `unreadable`.
#[derive(ToSchema)]
#[schema(as = AuditRow)]
#[expect(dead_code, reason = "a row is shown as it was stored, byte for byte what was hashed")]
struct AuditRowSchema {
    /// Its number, from 1 without gaps.
    n: u64,
    /// Its hash, over the hash before it and its content.
    hash: Digest,
    #[serde(flatten)]
    entry: AuditEntry,
}

#[derive(Deserialize, IntoParams)]
struct ListAuditQuery {
    /// Only rows about this session.
    #[param(value_type = Option<SessionId>)]
    session_id: Option<String>,
    /// Only what this user did.
    user: Option<String>,
    /// Only this action.
    #[param(inline)]
    action: Option<AuditAction>,
    /// Only rows with a greater number.
    after: Option<u64>,
    /// Only rows with a smaller number.
    before: Option<u64>,
    /// `oldest` (default) or `newest` first.
    #[param(inline)]
    #[serde(default)]
    order: AuditOrder,
    limit: Option<usize>,
    /// `json` or `jsonl`.
    format: Option<String>,
}

/// `GET /admin/audit`
async fn list(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let absent =
        || Problem::new(StatusCode::NOT_FOUND, "not_found", "this server keeps no audit log");
    let audit = state.audit_log.clone().ok_or_else(absent)?;
    let query: ListAuditQuery = extract::parse_query(&request)?;
    let as_lines = wants_lines(&request, query.format.as_deref())?;
    let wanted = AuditQuery {
        session_id: extract::parse_optional_id::<SessionId>(
            "session_id",
            query.session_id.as_deref(),
        )?,
        user: query.user,
        action: query.action,
        after: query.after.unwrap_or(0),
        before: query.before,
        order: query.order,
        limit: PAGE_LIMITS.1,
    };
    if as_lines {
        return Ok(export(audit, wanted, query.limit, state.redactor.clone()));
    }
    let limit = extract::validate_page_size("limit", query.limit, PAGE_LIMITS.0, PAGE_LIMITS.1)?;
    // One more than the page tells whether there is another.
    let mut rows = audit.list_audit_rows(AuditQuery { limit: limit + 1, ..wanted }).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.n);
    let rows = rows.iter().map(|row| row_view(row, &state.redactor)).collect();
    Ok(HttpResponse::Ok().json(AuditPage { rows, next }))
}

fn wants_lines(request: &HttpRequest, format: Option<&str>) -> Result<bool, Problem> {
    match format {
        Some("jsonl") => return Ok(true),
        Some("json") => return Ok(false),
        Some(_) => {
            let detail = "format must be `json` or `jsonl`";
            return Err(extract::invalid_query("format", detail));
        }
        None => {}
    }
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    Ok(accept.is_some_and(|accept| accept.to_ascii_lowercase().contains(JSON_LINES)))
}

/// A row as administrators see it: its content, and its hash.
fn row_view(row: &AuditRow, redactor: &Redactor) -> Value {
    // What somebody has put in the place of a row's content is shown as it is.
    let view = match serde_json::from_str(&row.content) {
        Ok(Value::Object(content)) => Value::Object(content),
        Ok(_) | Err(_) => json!({"n": row.n, "unreadable": row.content}),
    };
    let mut view = redactor.redact_value(view);
    view["hash"] = json!(row.hash);
    view
}

/// Everything that is wanted, a row a line, read as the client takes it. If the log can't be read
/// any more, the connection breaks rather than look complete.
fn export(
    audit: Arc<dyn AuditLog>,
    wanted: AuditQuery,
    limit: Option<usize>,
    redactor: Arc<Redactor>,
) -> HttpResponse {
    let first = Some((wanted, limit.unwrap_or(usize::MAX)));
    let pages = stream::unfold(first, move |next| {
        let (audit, redactor) = (audit.clone(), redactor.clone());
        async move {
            let (mut wanted, left) = next?;
            wanted.limit = left.min(PAGE_LIMITS.1);
            let rows = match audit.list_audit_rows(wanted.clone()).await {
                Ok(rows) => rows,
                Err(error) => return Some((Err(error), None)),
            };
            wanted.advance_past(rows.last()?.n);
            let left = left - rows.len();
            let more = rows.len() == wanted.limit && left > 0;
            let lines = rows.iter().map(|row| format!("{}\n", row_view(row, &redactor)));
            let lines: String = lines.collect();
            Some((Ok(Bytes::from(lines)), more.then_some((wanted, left))))
        }
    });
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, JSON_LINES))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(pages)
}
