//! The names of tools: what their words say of their risk (G1), and how each gets a name that
//! models accept and no other tool has.

use super::Risk;
use crate::{ids::ToolName, json::Digest};
use std::collections::{BTreeMap, BTreeSet};

/// The longest name providers accept.
const NAME_CHARS_MAX: usize = 64;

/// The server of tools that are part of Greenroom; their names stay as they are.
pub const BUILT_IN_SERVER: &str = "built-in";

const WRITE_VERBS: [&str; 14] = [
    "create", "delete", "update", "transfer", "add", "remove", "set", "mark", "clear", "apply",
    "send", "buy", "sell", "cancel",
];
const READ_VERBS: [&str; 8] =
    ["get", "list", "search", "find", "check", "calculate", "compare", "export"];

/// What the words of `name` say, and the word that says it. Words that write win.
pub(super) fn risk_from_words(name: &str) -> Option<(Risk, String)> {
    let words = words(name);
    let find = |known: &[&str]| words.iter().find(|word| known.contains(&word.as_str())).cloned();
    find(&WRITE_VERBS)
        .map(|word| (Risk::WriteHighRisk, word))
        .or_else(|| find(&READ_VERBS).map(|word| (Risk::ReadOnly, word)))
}

/// The words in lower case: split at whatever is no letter, and before the capital that starts a
/// new word (`getItem`, `HTTPGet`).
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = Vec::new();
    let mut word = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_small = at > 0 && letters[at - 1].is_lowercase();
        let before_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
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

/// A tool as its server names it: (server, remote name).
pub(super) type RemoteToolKey = (String, String);

/// A name for each tool, unique among them and matching `^[a-zA-Z0-9_-]{1,64}$`. Depends on what
/// there is and not on the order it came in.
///
/// A tool keeps its own name where that is legal and nobody else's; else its server's name goes
/// before it, and where that is not enough, a digest of both after it.
pub(super) fn assign_names(origins: &BTreeSet<RemoteToolKey>) -> BTreeMap<RemoteToolKey, ToolName> {
    let mut bearers: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, remote_name) in origins {
        *bearers.entry(remote_name).or_default() += 1;
    }
    let keeps = |(server, remote_name): &RemoteToolKey| {
        is_legal(remote_name) && (server == BUILT_IN_SERVER || bearers[remote_name.as_str()] == 1)
    };
    let (plain, others): (Vec<_>, Vec<_>) = origins.iter().partition(|origin| keeps(origin));
    let mut taken: BTreeSet<String> = plain.iter().map(|(_, name)| name.clone()).collect();
    let mut names: BTreeMap<RemoteToolKey, ToolName> = BTreeMap::new();
    let mut give = |origin: &RemoteToolKey, name: &str| {
        let name = ToolName::parse(name).expect("legal names are short and printable");
        names.insert(origin.clone(), name);
    };
    for origin in plain {
        give(origin, &origin.1);
    }
    for origin in others {
        let qualified = qualified_name(&origin.0, &origin.1);
        // Ends: every round has another digest, and there are fewer tools than digests.
        let name = (0..)
            .map(|round| {
                if round == 0 {
                    qualified.clone()
                } else {
                    name_with_digest(&qualified, origin, round)
                }
            })
            .find(|name| is_legal(name) && !taken.contains(name))
            .expect("an endless sequence has a free name");
        give(origin, &name);
        taken.insert(name);
    }
    names
}

/// `server__tool` in legal characters; it may be too long.
pub(super) fn qualified_name(server: &str, remote_name: &str) -> String {
    let legal = |c: char| if is_legal_char(c) { c } else { '_' };
    server.chars().chain("__".chars()).chain(remote_name.chars()).map(legal).collect()
}

fn name_with_digest(qualified: &str, origin: &RemoteToolKey, round: u64) -> String {
    let digest = Digest::hash_json(&serde_json::json!([origin.0, origin.1, round])).to_string();
    let mark = &digest[..8];
    // ASCII by now, so bytes are characters.
    let kept = crate::text::truncate(qualified, NAME_CHARS_MAX - 1 - mark.len());
    format!("{kept}_{mark}")
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
    fn names_fall_into_words() {
        for (name, expected) in [
            ("get_market-stats.v2", "get market stats v"),
            ("getItemInfo", "get item info"),
            ("HTTPGetURL", "http get url"),
            ("set2fa", "set fa"),
            ("_", ""),
            ("ÄndereListe", "ändere liste"),
        ] {
            assert_eq!(words(name).join(" "), expected, "{name}");
        }
    }

    #[test]
    fn g1_words_that_write_win() {
        let high = |word: &str| Some((Risk::WriteHighRisk, word.to_owned()));
        let read = |word: &str| Some((Risk::ReadOnly, word.to_owned()));
        for (name, expected) in [
            ("get_item", read("get")),
            ("search_and_delete", high("delete")),
            ("getAndSet", high("set")),
            ("exportList", read("export")),
            ("wallet.transfer", high("transfer")),
            ("target", None),
            ("address_book", None),
            ("settings", None),
        ] {
            assert_eq!(risk_from_words(name), expected, "{name}");
        }
    }

    fn assigned(origins: &[(&str, &str)]) -> Vec<String> {
        let own = |(server, name): &(&str, &str)| ((*server).to_owned(), (*name).to_owned());
        let names = assign_names(&origins.iter().map(own).collect());
        assert_eq!(names.len(), origins.len());
        let unique: BTreeSet<_> = names.values().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        assert!(names.values().all(|name| is_legal(name.as_str())), "{names:?}");
        origins.iter().map(|origin| names[&own(origin)].to_string()).collect()
    }

    #[test]
    fn legal_unique_names_stay() {
        assert_eq!(assigned(&[("market", "buy"), ("mail", "send")]), ["buy", "send"]);
    }

    #[test]
    fn tools_that_share_a_name_all_get_their_servers() {
        let found = assigned(&[("b", "search"), ("a", "search"), ("a", "other")]);
        assert_eq!(found, ["b__search", "a__search", "other"]);
    }

    #[test]
    fn built_in_tools_keep_their_names() {
        let found = assigned(&[("a", "delegate"), (BUILT_IN_SERVER, "delegate")]);
        assert_eq!(found, ["a__delegate", "delegate"]);
    }

    #[test]
    fn illegal_and_long_names_become_legal() {
        assert_eq!(assigned(&[("my server", "näme.x")]), ["my_server__n_me_x"]);
        let long = "x".repeat(100);
        let found = assigned(&[("s", &long), ("s", &format!("{long}y"))]);
        assert!(found.iter().all(|name| name.len() == 64 && name.starts_with("s__xxx")));
        assert_eq!(assigned(&[("s", "")]), ["s__"]);
    }

    #[test]
    fn qualified_looking_names_do_not_displace_others() {
        let found = assigned(&[("a", "b"), ("c", "b"), ("evil", "a__b")]);
        assert_eq!(found[2], "a__b");
        assert_eq!(found[1], "c__b");
        assert!(found[0].starts_with("a__b_"), "{found:?}");
        let found = assigned(&[("a", "x.y"), ("a", "x y")]);
        assert_eq!(found[1], "a__x_y");
        assert!(found[0].starts_with("a__x_y_"), "{found:?}");
    }
}
