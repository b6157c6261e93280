//! Verifies the audit log of a database, even while a server has it open (X6). Only reads, and
//! takes no lock.

use super::{
    DatabaseLocation, StoreError, admin_records, error::open_error, postgres,
    sql::SnapshotConnection, sqlite,
};
use crate::audit::{ChainError, ChainHead, ChainVerifier};

/// The reason why the verification failed.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The audit log was altered.
    #[error(transparent)]
    Broken(#[from] ChainError),
    /// The database can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Verifies every row of the audit log, and that the log still contains `anchor`, a row seen
/// earlier. Returns the last row. Reads one consistent snapshot, even while a server is writing.
pub async fn verify_audit(
    database: impl Into<DatabaseLocation>,
    anchor: Option<ChainHead>,
) -> Result<ChainHead, AuditError> {
    let database = database.into();
    let mut snapshot = match &database {
        DatabaseLocation::Sqlite(path) => sqlite::open_snapshot(path).await?,
        DatabaseLocation::Postgres(address) => postgres::open_snapshot(address).await?,
    };
    let to_store_error = |source| open_error(&database, source);
    let mut verifier = ChainVerifier::new(anchor);
    let result = verify_rows(&mut snapshot, &mut verifier).await.map_err(to_store_error)?;
    snapshot.close().await.map_err(to_store_error)?;
    Ok(verifier.finish(result?)?)
}

/// Passes rows to the verifier until one is invalid. Returns the stored head of the log.
async fn verify_rows(
    snapshot: &mut SnapshotConnection,
    verifier: &mut ChainVerifier,
) -> sqlx::Result<Result<Option<ChainHead>, ChainError>> {
    snapshot.start_snapshot().await?;
    let mut broken = None;
    let stored_head = admin_records::visit_audit_rows(snapshot, |row| {
        broken = verifier.verify_row(&row).err();
        broken.is_none()
    })
    .await?;
    Ok(broken.map_or(Ok(stored_head), Err))
}
