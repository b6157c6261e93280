//! Checking the audit log of a database, whether a server has it open or not (X6). Reads alone, and
//! takes no lock.

use super::{
    DatabaseLocation, StoreError, admin_records, error::open_error, postgres,
    sql::SnapshotConnection, sqlite,
};
use crate::audit::{ChainError, ChainHead, ChainVerifier};

/// Why there is no verdict, or which it is.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The log is not what it was.
    #[error(transparent)]
    Broken(#[from] ChainError),
    /// The database can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks every row of the audit log in the database, and `anchor`, a row as it was once seen;
/// returns the last row. Sees one moment, though a server may be writing.
pub async fn verify_audit(
    database: impl Into<DatabaseLocation>,
    anchor: Option<ChainHead>,
) -> Result<ChainHead, AuditError> {
    let database = database.into();
    let mut snapshot = match &database {
        DatabaseLocation::Sqlite(path) => sqlite::open_snapshot(path).await?,
        DatabaseLocation::Postgres(address) => postgres::open_snapshot(address).await?,
    };
    let failed = |source| open_error(&database, source);
    let mut verifier = ChainVerifier::new(anchor);
    let verdict = verify_rows(&mut snapshot, &mut verifier).await.map_err(failed)?;
    snapshot.close().await.map_err(failed)?;
    Ok(verifier.finish(verdict?)?)
}

/// Shows the verifier every row until one is wrong; the log's noted end.
async fn verify_rows(
    snapshot: &mut SnapshotConnection,
    verifier: &mut ChainVerifier,
) -> sqlx::Result<Result<Option<ChainHead>, ChainError>> {
    snapshot.begin().await?;
    let mut broken = None;
    let noted = admin_records::visit_audit_rows(snapshot, |row| {
        broken = verifier.verify_row(&row).err();
        broken.is_none()
    })
    .await?;
    Ok(broken.map_or(Ok(noted), Err))
}
