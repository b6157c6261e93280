//! Whether there is room for what commits claim of their users' budgets (G6), checked once more
//! when they are written. Sound because one process alone writes. Must not know SQL.

use super::{stored::Encoded, writer::Sink};
use greenroom_core::{
    budget::{Claim, Posting, Spend},
    ids::UserId,
};

/// For each commit whether its claims hold, those before it counted in.
pub(super) async fn have_room(
    sink: &mut impl Sink,
    commits: &[&Encoded],
) -> sqlx::Result<Vec<bool>> {
    let mut before: Vec<&Posting> = Vec::new();
    let mut verdicts = Vec::with_capacity(commits.len());
    for commit in commits {
        let mut has_room = true;
        if let Some(posting) = &commit.posting {
            before.push(posting);
            for claim in &posting.claims {
                let stored = sink.claimed(&posting.user, claim).await?;
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

/// What `posting` adds to what the claim limits.
fn posted(posting: &Posting, user: &UserId, claim: &Claim) -> f64 {
    let counts = |spend: &&Spend| {
        posting.user == *user
            && spend.measure == claim.measure
            && claim.first_day().is_none_or(|first| spend.day >= first)
    };
    posting.spends.iter().filter(counts).map(|spend| spend.amount).sum()
}
