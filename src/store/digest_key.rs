//! The key of the digests that leave the process. A migration creates it, so that every server that
//! opens the database has the same key. No other module reads it, and no endpoint returns it.

use super::{
    DatabaseLocation, StoreError,
    error::open_error,
    sql::{ReadPool, SqlQuery},
};
use crate::redaction::DigestKey;

const SELECT_DIGEST_KEY: &str = "SELECT key FROM digest_key WHERE id = 1";

/// Loads the key. The database is damaged if it has none.
pub(super) async fn load_digest_key(
    read_pool: &ReadPool,
    database: &DatabaseLocation,
) -> Result<DigestKey, StoreError> {
    let to_store_error = |source| open_error(database, source);
    let row = read_pool.fetch_optional(SqlQuery::new(SELECT_DIGEST_KEY)).await;
    let row = row.map_err(to_store_error)?;
    let bytes = row.as_ref().map(|row| row.bytes(0)).transpose().map_err(to_store_error)?;
    let key = bytes.and_then(|bytes| <&[u8; DigestKey::BYTES]>::try_from(bytes).ok());
    key.map(DigestKey::from_bytes).ok_or_else(|| StoreError::Corrupted {
        database: database.to_string(),
        detail: "the key of digests is missing".to_owned(),
    })
}

/// Returns every query of this module with the SQLite index it must use.
#[cfg(test)]
pub(super) fn every_query() -> Vec<(SqlQuery, &'static str)> {
    vec![(SqlQuery::new(SELECT_DIGEST_KEY), "INTEGER PRIMARY KEY")]
}
