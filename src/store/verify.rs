//! Checking the audit log of a database file, whether a server has it open or not (X6). Reads
//! alone, and takes no lock.

use super::{StoreError, sqlite};
use crate::audit::{Broken, Head, Verifier};
use std::path::Path;

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

/// Checks every row of the audit log in the database at `path`, and `anchor`, a row as it was once
/// seen; returns the last row.
pub async fn verify_audit(path: &Path, anchor: Option<Head>) -> Result<Head, AuditError> {
    let mut verifier = Verifier::new(anchor);
    let mut broken = None;
    let noted = sqlite::each_audit_row(path, |row| {
        broken = verifier.check(&row).err();
        broken.is_none()
    })
    .await?;
    match broken {
        Some(broken) => Err(broken.into()),
        None => Ok(verifier.finish(noted)?),
    }
}
