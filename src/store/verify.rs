//! Checking the audit log of a database, whether a server has it open or not (X6). Reads alone, and
//! takes no lock.

use super::{Database, StoreError, error::open_error, postgres, query::Snapshot, records, sqlite};
use crate::audit::{Broken, Head, Verifier};

/// Why there is no verdict, or which it is.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The log is not what it was.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The database can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks every row of the audit log in the database, and `anchor`, a row as it was once seen;
/// returns the last row. Sees one moment, though a server may be writing.
pub async fn verify_audit(
    database: impl Into<Database>,
    anchor: Option<Head>,
) -> Result<Head, AuditError> {
    let database = database.into();
    let mut snapshot = match &database {
        Database::Sqlite(path) => sqlite::snapshot(path).await?,
        Database::Postgres(address) => postgres::snapshot(address).await?,
    };
    let failed = |source| open_error(&database, source);
    let mut verifier = Verifier::new(anchor);
    let verdict = walk(&mut snapshot, &mut verifier).await.map_err(failed)?;
    snapshot.close().await.map_err(failed)?;
    Ok(verifier.finish(verdict?)?)
}

/// Shows the verifier every row until one is wrong; the log's noted end.
async fn walk(
    snapshot: &mut Snapshot,
    verifier: &mut Verifier,
) -> sqlx::Result<Result<Option<Head>, Broken>> {
    snapshot.begin().await?;
    let mut broken = None;
    let noted = records::each_audit_row(snapshot, |row| {
        broken = verifier.check(&row).err();
        broken.is_none()
    })
    .await?;
    Ok(broken.map_or(Ok(noted), Err))
}
