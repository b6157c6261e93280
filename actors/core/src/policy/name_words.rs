//! The words of a tool's name, and the risk that they suggest (G1).

use super::Risk;

/// Words of which one makes a tool `write_high_risk`. Many are nouns as well (`get_order`): a
/// tool that is mistaken for a write needs an approval too many, the opposite error none at all.
#[rustfmt::skip]
const WRITE_WORDS: [&str; 200] = [
    "accept", "activate", "add", "adjust", "allocate", "append", "apply", "approve",
    "archive", "assign", "attach", "authorize", "ban", "bid", "block", "book", "broadcast",
    "buy", "cancel", "change", "charge", "checkout", "chmod", "chown", "claim", "clean",
    "cleanup", "clear", "click", "clone", "close", "comment", "commit", "complete", "confirm",
    "copy", "create", "deactivate", "debit", "decline", "decrement", "delete", "deny",
    "deploy", "deposit", "destroy", "detach", "disable", "disconnect", "dismiss", "dispatch",
    "drag", "drop", "duplicate", "edit", "email", "empty", "enable", "enroll", "erase",
    "eval", "evaluate", "exec", "execute", "expire", "fill", "flush", "follow", "forget",
    "fork", "forward", "fund", "grant", "hide", "import", "increment", "init", "initialize",
    "insert", "install", "invite", "invoke", "join", "kick", "kill", "launch", "leave",
    "lock", "login", "logout", "mark", "merge", "migrate", "mint", "modify", "mount", "move",
    "mutate", "mute", "notify", "open", "order", "overwrite", "patch", "pause", "pay",
    "payout", "pin", "place", "post", "press", "prune", "publish", "purchase", "purge",
    "push", "put", "react", "reassign", "rebase", "reboot", "redeem", "refund", "register",
    "reject", "release", "remove", "rename", "reopen", "reorder", "repay", "replace", "reply",
    "reschedule", "reserve", "reset", "resize", "resolve", "restart", "restore", "resume",
    "retry", "revert", "revoke", "rm", "rollback", "rotate", "run", "save", "schedule",
    "sell", "send", "set", "share", "shell", "ship", "shutdown", "sign", "spawn", "spend",
    "stake", "start", "stop", "store", "submit", "subscribe", "suspend", "swap", "sync",
    "terminate", "toggle", "trade", "transfer", "trash", "trigger", "truncate", "unarchive",
    "unassign", "unban", "unblock", "undo", "unfollow", "uninstall", "unlink", "unlock",
    "unmount", "unpin", "unpublish", "unregister", "unset", "unshare", "unsubscribe",
    "update", "upgrade", "upload", "upsert", "vote", "wipe", "withdraw", "write",
];
/// Words that make a tool of a trusted server `read_only`, unless it has a write word.
const READ_WORDS: [&str; 8] =
    ["get", "list", "search", "find", "check", "calculate", "compare", "export"];

/// Returns the risk that the words of `name` suggest, and the decisive word. Write words take
/// precedence over read words. The caller ignores read words of servers that are not trusted.
pub(super) fn risk_from_words(name: &str) -> Option<(Risk, String)> {
    let words = split_words(name);
    let find = |known: &[&str]| words.iter().find(|word| known.contains(&word.as_str())).cloned();
    find(&WRITE_WORDS)
        .map(|word| (Risk::WriteHighRisk, word))
        .or_else(|| find(&READ_WORDS).map(|word| (Risk::ReadOnly, word)))
}

/// Splits a name into lower-case words: at every character that is not a letter, and before a
/// capital that starts a new word (`getItem`, `HTTPGet`).
fn split_words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = Vec::new();
    let mut word = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let after_small = index > 0 && letters[index - 1].is_lowercase();
        let before_small = letters.get(index + 1).is_some_and(|next| next.is_lowercase());
        let starts_word = letter.is_uppercase() && (after_small || before_small);
        if (starts_word || !letter.is_alphabetic()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_alphabetic() {
            word.extend(letter.to_lowercase());
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g1_tool_name_is_split_into_words() {
        for (name, expected) in [
            ("get_market-stats.v2", "get market stats v"),
            ("getItemInfo", "get item info"),
            ("HTTPGetURL", "http get url"),
            ("set2fa", "set fa"),
            ("_", ""),
            ("ÄndereListe", "ändere liste"),
        ] {
            assert_eq!(split_words(name).join(" "), expected, "{name}");
        }
    }

    #[test]
    fn g1_write_word_takes_precedence_over_read_word() {
        let high = |word: &str| Some((Risk::WriteHighRisk, word.to_owned()));
        let read = |word: &str| Some((Risk::ReadOnly, word.to_owned()));
        for (name, expected) in [
            ("get_item", read("get")),
            ("search_and_delete", high("delete")),
            ("getAndSet", high("set")),
            ("exportList", read("export")),
            ("wallet.transfer", high("transfer")),
            ("list_and_wipe", high("wipe")),
            ("search_destroy_all", high("destroy")),
            ("calculate_withdrawal_and_pay", high("pay")),
            ("getPost", high("post")),
            ("target", None),
            ("settings", None),
        ] {
            assert_eq!(risk_from_words(name), expected, "{name}");
        }
    }
}
