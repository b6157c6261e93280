//! Checks the spending preconditions of commits against their users' budgets when the commits are
//! written (G6). Relies on this process being the only writer. Must not know SQL.

use super::{stored_commit::StoredCommit, writer::WriterBackend};
use greenroom_core::{
    amount::Amount,
    budget::{SpendingEntry, SpendingPrecondition, SpendingUpdate},
    ids::UserId,
};

/// Returns for each commit if its preconditions are met, counting the accepted commits before it.
pub(super) async fn validate_preconditions(
    backend: &mut impl WriterBackend,
    commits: &[&StoredCommit],
) -> sqlx::Result<Vec<bool>> {
    let mut accepted: Vec<&SpendingUpdate> = Vec::new();
    let mut verdicts = Vec::with_capacity(commits.len());
    for commit in commits {
        let mut is_met = true;
        if let Some(update) = &commit.spending_update {
            accepted.push(update);
            for precondition in &update.preconditions {
                let stored = backend.load_counted_spending(&update.user, precondition).await?;
                let added = accepted
                    .iter()
                    .map(|added| counted_spending(added, &update.user, precondition));
                is_met &= precondition.is_met(stored + added.sum::<Amount>());
            }
            if !is_met {
                accepted.pop();
            }
        }
        verdicts.push(is_met);
    }
    Ok(verdicts)
}

/// Returns the amount that `update` adds to the spending limited by `precondition`.
fn counted_spending(
    update: &SpendingUpdate,
    user: &UserId,
    precondition: &SpendingPrecondition,
) -> Amount {
    let is_counted = |entry: &&SpendingEntry| {
        update.user == *user
            && entry.measure == precondition.measure
            && precondition.first_day().is_none_or(|first_day| entry.day >= first_day)
    };
    update.entries.iter().filter(is_counted).map(|entry| entry.amount).sum()
}
