//! Checks a file for damage as far as possible without delaying the start: a small file is checked
//! completely, of a large one only the newest rows, which an interrupted write would have damaged.
//! Other damage is reported when it is encountered. Must not know the meaning of the rows.

use sqlx::{Row as _, SqliteConnection};

/// Maximum bytes of a file that is checked completely.
const FULL_CHECK_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Checks the newest row of each growing table, through each unique index of the table.
const CHECK_NEWEST_ROWS: &str = "
    SELECT 'commits', codec <> 1 OR json_valid(events) FROM (
        SELECT codec, events FROM commits ORDER BY id DESC LIMIT 1)
    UNION ALL SELECT 'commits', json_valid(last_seq) FROM (
        SELECT last_seq FROM commits ORDER BY session_id DESC, first_seq DESC LIMIT 1)
    UNION ALL SELECT 'sessions', json_valid(content) FROM (
        SELECT content FROM sessions ORDER BY session_id DESC LIMIT 1)
    UNION ALL SELECT 'approvals', json_valid(content) FROM (
        SELECT content FROM approvals ORDER BY id DESC LIMIT 1)
    UNION ALL SELECT 'approvals', json_valid(content) FROM (
        SELECT content FROM approvals ORDER BY approval_id DESC LIMIT 1)
    UNION ALL SELECT 'audit', json_valid(content) FROM (
        SELECT content FROM audit ORDER BY n DESC LIMIT 1)";

/// Returns a description of the damage found in a file of `bytes` bytes. Requires the newest
/// schema.
pub(super) async fn find_corruption(
    connection: &mut SqliteConnection,
    bytes: u64,
) -> sqlx::Result<Option<String>> {
    if bytes > FULL_CHECK_BYTES_MAX {
        for row in sqlx::query(CHECK_NEWEST_ROWS).fetch_all(connection).await? {
            let (table, is_valid): (&str, bool) = (row.try_get(0)?, row.try_get(1)?);
            if !is_valid {
                return Ok(Some(format!("the newest row of `{table}` is unreadable")));
            }
        }
        return Ok(None);
    }
    let report: String =
        sqlx::query("PRAGMA quick_check(1)").fetch_one(connection).await?.try_get(0)?;
    // The lines start with a title.
    Ok((report != "ok").then(|| report.lines().last().unwrap_or_default().to_owned()))
}
