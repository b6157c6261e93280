//! Requests of chat clients, by user and by the id that the client chose (S5). Must not know which ids
//! are stored.

use super::{
    error::journal_error,
    queries::{column_value, fetch_optional},
    sql::{ReadPool, SqlQuery, SqlRow},
};
use greenroom_actors::ports::{JournalError, RequestRow};
use greenroom_core::{
    Timestamp,
    ids::{MessageId, SessionId, UserId},
};

const SELECT_REQUEST: &str = "SELECT session_id, digest, at FROM requests
    WHERE user_id = $1 AND request_id = $2 AND at >= $3";

/// Returns the user's request with this id that was stored at `valid_since` or later.
pub(super) async fn find_request(
    read_pool: &ReadPool,
    user: &UserId,
    request_id: &MessageId,
    valid_since: Timestamp,
) -> Result<Option<RequestRow>, JournalError> {
    let query = SqlQuery::new(SELECT_REQUEST)
        .bind(user.as_str())
        .bind(request_id.as_str())
        .bind(valid_since.0);
    let row = fetch_optional(read_pool, query).await?;
    row.map(|row| decode_request(&row, user, request_id)).transpose()
}

fn decode_request(
    row: &SqlRow,
    user: &UserId,
    request_id: &MessageId,
) -> Result<RequestRow, JournalError> {
    let digest = row.bytes(1).map_err(|error| journal_error(&error))?;
    let digest = <[u8; 32]>::try_from(digest).map_err(|_| {
        JournalError::Corrupt(format!(
            "request {request_id}: the digest has {} bytes",
            digest.len()
        ))
    })?;
    Ok(RequestRow {
        user: user.clone(),
        request_id: request_id.clone(),
        session_id: SessionId(column_value(row.id(0))?),
        digest: digest.into(),
        at: Timestamp(column_value(row.number(2))?),
    })
}

/// Returns every query of this module with the SQLite index it must use.
#[cfg(test)]
pub(super) fn every_query() -> Vec<(SqlQuery, &'static str)> {
    vec![(SqlQuery::new(SELECT_REQUEST).bind("x").bind("x").bind(1), "requests_by_id")]
}
