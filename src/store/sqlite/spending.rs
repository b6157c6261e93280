//! What users have spent (G6): read for decisions, and checked once more when a commit claims that
//! there is room. Sound because one process alone writes.

use super::{batch::Encoded, read::column};
use crate::store::error::journal_error;
use greenroom_actors::ports::JournalError;
use greenroom_core::{
    budget::{Claim, Measure, Posting, Spend, Spent},
    ids::UserId,
    time::Day,
};
use sqlx::{Row as _, SqliteConnection, SqlitePool};
use std::collections::BTreeMap;

const SELECT_SPENT: &str = "
    SELECT measure,
           sum(amount) FILTER (WHERE day >= ?2), sum(amount) FILTER (WHERE day >= ?3), sum(amount)
    FROM spending WHERE user_id = ?1 GROUP BY measure";
const SELECT_CLAIMED: &str = "
    SELECT coalesce(sum(amount), 0.0) FROM spending
    WHERE user_id = ?1 AND measure = ?2 AND day >= ?3";

/// What the user has spent of each measure by `today`.
pub(super) async fn spent(
    pool: &SqlitePool,
    user: &UserId,
    today: Day,
) -> Result<BTreeMap<Measure, Spent>, JournalError> {
    let query =
        sqlx::query(SELECT_SPENT).bind(user.as_str()).bind(today.0).bind(today.first_of_month().0);
    let found = query.fetch_all(pool).await.map_err(|error| journal_error(&error))?;
    let amount = |row, index| Ok(column::<Option<f64>>(row, index)?.unwrap_or(0.0));
    found
        .iter()
        .map(|row| {
            let (day, month, total) = (amount(row, 1)?, amount(row, 2)?, amount(row, 3)?);
            Ok((Measure::named(column(row, 0)?), Spent { day, month, total }))
        })
        .collect()
}

/// For each commit whether its claims hold, those before it counted in.
pub(super) async fn have_room(
    connection: &mut SqliteConnection,
    commits: &[&Encoded],
) -> sqlx::Result<Vec<bool>> {
    let mut before: Vec<&Posting> = Vec::new();
    let mut verdicts = Vec::with_capacity(commits.len());
    for commit in commits {
        let mut has_room = true;
        if let Some(posting) = &commit.posting {
            before.push(posting);
            for claim in &posting.claims {
                let stored = claimed(connection, &posting.user, claim).await?;
                let new = before.iter().map(|new| posted(new, &posting.user, claim));
                has_room &= claim.holds(stored + new.sum::<f64>());
            }
            if !has_room {
                before.pop();
            }
        }
        verdicts.push(has_room);
    }
    Ok(verdicts)
}

/// What is stored of what the claim limits.
async fn claimed(
    connection: &mut SqliteConnection,
    user: &UserId,
    claim: &Claim,
) -> sqlx::Result<f64> {
    let first = claim.first_day().map_or(i32::MIN, |day| day.0);
    let query = sqlx::query(SELECT_CLAIMED).bind(user.as_str()).bind(claim.measure.name());
    query.bind(first).fetch_one(connection).await?.try_get(0)
}

/// What `posting` adds to what the claim limits.
fn posted(posting: &Posting, user: &UserId, claim: &Claim) -> f64 {
    let counts = |spend: &&Spend| {
        posting.user == *user
            && spend.measure == claim.measure
            && claim.first_day().is_none_or(|first| spend.day >= first)
    };
    posting.spends.iter().filter(counts).map(|spend| spend.amount).sum()
}
