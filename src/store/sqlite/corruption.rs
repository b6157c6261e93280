//! Whether a file is whole, as far as that can be seen without delaying the start: a small one is
//! read from end to end, of a large one the newest entries, which a write that was cut off would
//! have ruined. Damage elsewhere is told where it is met. Must not know what the entries mean.

use sqlx::{Row as _, SqliteConnection};

/// Bytes of a file that is read from end to end.
const FULL_CHECK_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Whether the newest entry of each table that grows is whole, and the way to it through each of the
/// indexes that tell one entry from the others.
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

/// What is wrong with a file of that size, if anything can be seen. Its schema is the newest one.
pub(super) async fn find_corruption(
    connection: &mut SqliteConnection,
    bytes: u64,
) -> sqlx::Result<Option<String>> {
    if bytes > FULL_CHECK_BYTES_MAX {
        for row in sqlx::query(CHECK_NEWEST_ROWS).fetch_all(connection).await? {
            let (table, is_whole): (&str, bool) = (row.try_get(0)?, row.try_get(1)?);
            if !is_whole {
                return Ok(Some(format!("the newest entry of `{table}` can't be read")));
            }
        }
        return Ok(None);
    }
    let told: String =
        sqlx::query("PRAGMA quick_check(1)").fetch_one(connection).await?.try_get(0)?;
    // Its lines begin with a title.
    Ok((told != "ok").then(|| told.lines().last().unwrap_or_default().to_owned()))
}
