//! The audit log for administrators (X6), as JSON pages or as JSON lines; and the function by which
//! other handlers record actions that have no session event.

use super::{
    AppState, Problem, State,
    access_control::Caller,
    endpoint::{Endpoint, JSON_LINES},
    extract,
};
use crate::{
    audit::{AuditAction, AuditEntry, AuditLog, AuditOrder, AuditQuery, AuditRow},
    redaction::{Redactor, redact_plain_digests},
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

/// Default and maximum number of rows on a page; an export reads the maximum at a time.
const PAGE_LIMITS: (usize, usize) = (100, 1_000);

impl AppState {
    /// Appends an entry to the audit log, if there is one.
    pub(super) async fn record_audit(&self, entry: AuditEntry) -> Result<(), JournalError> {
        match &self.audit_log {
            Some(audit) => audit.append_audit(entry).await,
            None => Ok(()),
        }
    }
}

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/admin/audit", list)
            .operation("audit", "Returns the audit log, as a page or as JSON lines.")
            .description(
                "`format=jsonl` or `Accept: application/jsonl` returns JSON lines: all matching \
                 rows, or the first `limit` of them.",
            )
            .query::<ListAuditQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .returns::<AuditPage>("A page of rows")
            .returns_stream::<AuditRowSchema>(
                JSON_LINES,
                "One row per line; all rows unless `limit` is given",
            )
            .problems(&["forbidden", "not_found", "invalid_id"]),
    ]
}

/// A page of the audit log.
#[derive(Serialize, ToSchema)]
struct AuditPage {
    /// The rows, in the requested order.
    #[schema(value_type = Vec<AuditRowSchema>)]
    rows: Vec<Value>,
    /// The cursor of the next page: the value of `after`, or of `before` for `order=newest`. `null`
    /// on the last page.
    next: Option<u64>,
}

/// A row of the audit log. A row whose content is not valid JSON has the member `unreadable`.
#[derive(ToSchema)]
#[schema(as = AuditRow)]
#[expect(dead_code, reason = "a row is shown as it was stored, byte for byte what was hashed")]
struct AuditRowSchema {
    /// Row number, from 1 without gaps.
    n: u64,
    /// Hash over the previous row's hash and this row's content.
    #[schema(value_type = String, pattern = "^[0-9a-f]{64}$")]
    hash: Digest,
    #[serde(flatten)]
    entry: AuditEntry,
}

#[derive(Deserialize, IntoParams)]
pub(super) struct ListAuditQuery {
    /// Only rows about this session.
    #[param(value_type = Option<SessionId>)]
    session_id: Option<String>,
    /// Only actions of this user.
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
    /// Maximum number of rows.
    limit: Option<usize>,
    /// `json` or `jsonl`.
    format: Option<String>,
}

/// `GET /admin/audit`
async fn list(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let not_found =
        || Problem::new(StatusCode::NOT_FOUND, "not_found", "this server has no audit log");
    let audit = state.audit_log.clone().ok_or_else(not_found)?;
    let query: ListAuditQuery = extract::parse_query(&request)?;
    let as_lines = accepts_json_lines(&request, query.format.as_deref())?;
    let audit_query = AuditQuery {
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
        return Ok(export(audit, audit_query, query.limit, state.redactor.clone()));
    }
    let limit = extract::validate_page_size("limit", query.limit, PAGE_LIMITS.0, PAGE_LIMITS.1)?;
    // One row more than the page shows if there is another page.
    let mut rows = audit.list_audit_rows(AuditQuery { limit: limit + 1, ..audit_query }).await?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| row.n);
    let rows = rows.iter().map(|row| row_view(row, &state.redactor)).collect();
    Ok(HttpResponse::Ok().json(AuditPage { rows, next }))
}

fn accepts_json_lines(request: &HttpRequest, format: Option<&str>) -> Result<bool, Problem> {
    match format {
        Some("jsonl") => return Ok(true),
        Some("json") => return Ok(false),
        Some(_) => {
            let detail = "`format` must be `json` or `jsonl`";
            return Err(extract::invalid_query("format", detail));
        }
        None => {}
    }
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    Ok(accept.is_some_and(|accept| accept.to_ascii_lowercase().contains(JSON_LINES)))
}

/// Returns the administrator's view of a row: its content and its hash.
fn row_view(row: &AuditRow, redactor: &Redactor) -> Value {
    // Content that was tampered with is shown as stored.
    let view = match serde_json::from_str(&row.content) {
        Ok(Value::Object(content)) => Value::Object(content),
        Ok(_) | Err(_) => json!({"n": row.n, "unreadable": row.content}),
    };
    let mut view = redactor.redact_value(view);
    redact_plain_digests(&mut view);
    view["hash"] = json!(row.hash);
    view
}

/// Streams the rows of `query` as JSON lines, reading pages as the client consumes them. If reading
/// the log fails, the connection is aborted, so that a partial export does not look complete.
fn export(
    audit: Arc<dyn AuditLog>,
    query: AuditQuery,
    limit: Option<usize>,
    redactor: Arc<Redactor>,
) -> HttpResponse {
    let first = Some((query, limit.unwrap_or(usize::MAX)));
    let pages = stream::unfold(first, move |next| {
        let (audit, redactor) = (audit.clone(), redactor.clone());
        async move {
            let (mut query, remaining) = next?;
            query.limit = remaining.min(PAGE_LIMITS.1);
            let rows = match audit.list_audit_rows(query.clone()).await {
                Ok(rows) => rows,
                Err(error) => return Some((Err(error), None)),
            };
            query.advance_past(rows.last()?.n);
            let remaining = remaining - rows.len();
            let has_more = rows.len() == query.limit && remaining > 0;
            let lines = rows.iter().map(|row| format!("{}\n", row_view(row, &redactor)));
            let lines: String = lines.collect();
            Some((Ok(Bytes::from(lines)), has_more.then_some((query, remaining))))
        }
    });
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, JSON_LINES))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chain covers the plain digests of rows of earlier versions, but no response shows them.
    #[test]
    fn x6_plain_digests_of_earlier_rows_are_not_shown() {
        let plain = Digest::hash_bytes(b"x").to_string();
        let keyed = format!("hmac-sha256:{plain}");
        for (digest, shown) in [(plain, "[redacted]"), (keyed.clone(), &*keyed)] {
            let content = json!({"n": 1, "digest": digest}).to_string();
            let row = AuditRow { n: 1, hash: Digest::hash_bytes(b"row"), content };
            let view = row_view(&row, &Redactor::default());
            let expected = json!({"n": 1, "digest": shown, "hash": Digest::hash_bytes(b"row")});
            assert_eq!(view, expected);
        }
    }
}
