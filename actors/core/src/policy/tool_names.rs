//! Tool names: the risk guessed from the words of a name (G1), and the assignment of unique names
//! that model providers accept.

use super::Risk;
use crate::{ids::ToolName, json::Digest};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of characters of a tool name that model providers accept.
const NAME_CHARS_MAX: usize = 64;

/// The server of the tools that are built into Greenroom. These tools keep their names.
pub const BUILT_IN_SERVER: &str = "built-in";

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

/// The identity of a tool at its server: (server, remote name).
pub(super) type RemoteToolKey = (String, String);

/// Assigns each tool a name that is unique and matches `^[a-zA-Z0-9_-]{1,64}$`. The result does not
/// depend on the order of the input.
///
/// A tool keeps its own name if that name is legal and no other tool has it. Otherwise the server's
/// name is prepended, and if this is not enough, a digest of both is appended.
pub(super) fn assign_names(origins: &BTreeSet<RemoteToolKey>) -> BTreeMap<RemoteToolKey, ToolName> {
    let mut name_counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, remote_name) in origins {
        *name_counts.entry(remote_name).or_default() += 1;
    }
    let keeps_name = |(server, remote_name): &RemoteToolKey| {
        is_legal(remote_name)
            && (server == BUILT_IN_SERVER || name_counts[remote_name.as_str()] == 1)
    };
    let (plain, others): (Vec<_>, Vec<_>) = origins.iter().partition(|origin| keeps_name(origin));
    let mut taken: BTreeSet<String> = plain.iter().map(|(_, name)| name.clone()).collect();
    let mut names: BTreeMap<RemoteToolKey, ToolName> = BTreeMap::new();
    let mut assign = |origin: &RemoteToolKey, name: &str| {
        let name = ToolName::parse(name).expect("legal names are short and printable");
        names.insert(origin.clone(), name);
    };
    for origin in plain {
        assign(origin, &origin.1);
    }
    for origin in others {
        let qualified = qualified_name(&origin.0, &origin.1);
        // Terminates: each round has another digest, and there are more digests than tools.
        let name = (0..)
            .map(|round| {
                if round == 0 {
                    qualified.clone()
                } else {
                    name_with_digest(&qualified, origin, round)
                }
            })
            .find(|name| is_legal(name) && !taken.contains(name))
            .expect("an infinite sequence contains a free name");
        assign(origin, &name);
        taken.insert(name);
    }
    names
}

/// Separates the server from the tool in a qualified name.
pub(super) const SEPARATOR: &str = "__";

/// Returns `server__tool` in legal characters. The result may be too long.
pub(super) fn qualified_name(server: &str, remote_name: &str) -> String {
    format!("{}{SEPARATOR}{}", legal_text(server), legal_text(remote_name))
}

/// Returns `text` with `_` in place of characters that are not legal in a name.
pub(super) fn legal_text(text: &str) -> String {
    text.chars().map(|c| if is_legal_char(c) { c } else { '_' }).collect()
}

fn name_with_digest(qualified: &str, origin: &RemoteToolKey, round: u64) -> String {
    let name = serde_json::json!([origin.0, origin.1, round]);
    let digest = Digest::hash_canonical_text(&name).to_string();
    let suffix = &digest[..8];
    // `qualified` is ASCII here, so bytes equal characters.
    let prefix = crate::text::truncate(qualified, NAME_CHARS_MAX - 1 - suffix.len());
    format!("{prefix}_{suffix}")
}

fn is_legal(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_legal_char)
}

fn is_legal_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
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

    fn assigned(origins: &[(&str, &str)]) -> Vec<String> {
        let key = |(server, name): &(&str, &str)| ((*server).to_owned(), (*name).to_owned());
        let names = assign_names(&origins.iter().map(key).collect());
        assert_eq!(names.len(), origins.len());
        let unique: BTreeSet<_> = names.values().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        assert!(names.values().all(|name| is_legal(name.as_str())), "{names:?}");
        origins.iter().map(|origin| names[&key(origin)].to_string()).collect()
    }

    #[test]
    fn g19_legal_unique_name_is_kept() {
        assert_eq!(assigned(&[("market", "buy"), ("mail", "send")]), ["buy", "send"]);
    }

    #[test]
    fn g19_tools_with_same_name_all_get_server_prefix() {
        let actual = assigned(&[("b", "search"), ("a", "search"), ("a", "other")]);
        assert_eq!(actual, ["b__search", "a__search", "other"]);
    }

    #[test]
    fn g19_built_in_tool_keeps_name() {
        let actual = assigned(&[("a", "delegate"), (BUILT_IN_SERVER, "delegate")]);
        assert_eq!(actual, ["a__delegate", "delegate"]);
    }

    #[test]
    fn g19_illegal_or_long_name_becomes_legal() {
        assert_eq!(assigned(&[("my server", "näme.x")]), ["my_server__n_me_x"]);
        let long = "x".repeat(100);
        let actual = assigned(&[("s", &long), ("s", &format!("{long}y"))]);
        assert!(actual.iter().all(|name| name.len() == 64 && name.starts_with("s__xxx")));
        assert_eq!(assigned(&[("s", "")]), ["s__"]);
    }

    #[test]
    fn g19_qualified_looking_name_does_not_displace_others() {
        let actual = assigned(&[("a", "b"), ("c", "b"), ("evil", "a__b")]);
        assert_eq!(actual[2], "a__b");
        assert_eq!(actual[1], "c__b");
        assert!(actual[0].starts_with("a__b_"), "{actual:?}");
        let actual = assigned(&[("a", "x.y"), ("a", "x y")]);
        assert_eq!(actual[1], "a__x_y");
        assert!(actual[0].starts_with("a__x_y_"), "{actual:?}");
    }
}
