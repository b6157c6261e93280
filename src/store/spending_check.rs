//! Whether there is room for what commits claim of their users' budgets (G6), checked once more
//! when they are written. Sound because one process alone writes. Must not know SQL.

use super::{stored_commit::StoredCommit, writer::WriterBackend};
use greenroom_core::{
    budget::{SpendingEntry, SpendingPrecondition, SpendingUpdate},
    ids::UserId,
};

/// For each commit whether its claims hold, those before it counted in.
pub(super) async fn validate_preconditions(
    sink: &mut impl WriterBackend,
    commits: &[&StoredCommit],
) -> sqlx::Result<Vec<bool>> {
    let mut before: Vec<&SpendingUpdate> = Vec::new();
    let mut verdicts = Vec::with_capacity(commits.len());
    for commit in commits {
        let mut has_room = true;
        if let Some(posting) = &commit.spending_update {
            before.push(posting);
            for claim in &posting.preconditions {
                let stored = sink.load_counted_spending(&posting.user, claim).await?;
                let new = before.iter().map(|new| counted_spending(new, &posting.user, claim));
                has_room &= claim.is_met(stored + new.sum::<f64>());
            }
            if !has_room {
                before.pop();
            }
        }
        verdicts.push(has_room);
    }
    Ok(verdicts)
}

/// What `posting` adds to what the claim limits.
fn counted_spending(posting: &SpendingUpdate, user: &UserId, claim: &SpendingPrecondition) -> f64 {
    let counts = |spend: &&SpendingEntry| {
        posting.user == *user
            && spend.measure == claim.measure
            && claim.first_day().is_none_or(|first| spend.day >= first)
    };
    posting.entries.iter().filter(counts).map(|spend| spend.amount).sum()
}
