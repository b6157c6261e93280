//! The keys whose values are secret (E7). A key is secret if it contains a sensitive word, in any
//! spelling, in the plural and with any prefix or suffix. Pure.
//!
//! A key is split into words at everything that is not a letter and at the humps of camel case. The
//! check runs for each key of each frame; for a key in ASCII it allocates nothing.

use std::ops::Range;

/// Letters of a key that are examined on the stack. Longer keys are examined on the heap.
const STACK_LETTERS_MAX: usize = 64;

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// The value is not secret because of its key.
    Plain,
    /// A number is a count, such as `max_tokens`, and is not secret. Any other value is.
    Count,
    /// The value is secret.
    Secret,
}

/// A sensitive word, or several words written as one.
struct SensitiveWord {
    letters: &'static [u8],
    /// Ends that make it another word, such as `ary` of `secretary`.
    unless_followed_by: &'static [&'static [u8]],
}

const fn word(letters: &'static str) -> SensitiveWord {
    SensitiveWord { letters: letters.as_bytes(), unless_followed_by: &[] }
}

const TOKEN: SensitiveWord = SensitiveWord {
    letters: b"token",
    unless_followed_by: &[b"iz", b"ise", b"ising", b"isation", b"omic"],
};
const SECRET: SensitiveWord = SensitiveWord {
    letters: b"secret",
    unless_followed_by: &[b"ary", b"aria", b"ion", b"ive", b"ly"],
};

/// Returns the sensitive words that begin with these two letters. Most pairs of letters begin none,
/// so that most keys are not compared with any word.
const fn words_with_initials(initials: [u8; 2]) -> &'static [SensitiveWord] {
    const PASS: &[SensitiveWord] =
        &[word("password"), word("passwd"), word("passcode"), word("passphrase")];
    match &initials {
        b"ac" => const { &[word("accesskey")] },
        b"ap" => const { &[word("apikey")] },
        b"au" => const { &[word("authorization"), word("authorisation")] },
        b"be" => const { &[word("bearer")] },
        b"co" => const { &[word("cookie")] },
        b"cr" => const { &[word("credential")] },
        b"jw" => const { &[word("jwt")] },
        b"ss" => const { &[word("sshkey")] },
        b"en" => const { &[word("encryptionkey")] },
        b"ma" => const { &[word("masterkey")] },
        b"pa" => PASS,
        b"pr" => const { &[word("privatekey")] },
        b"pw" => const { &[word("pwd")] },
        b"se" => const { &[SECRET, word("sessionkey")] },
        b"si" => const { &[word("signingkey")] },
        b"to" => const { &[TOKEN] },
        _ => &[],
    }
}

/// For the first letter of a word, by its place in the alphabet, the set of possible second letters.
/// Most keys contain no such pair of letters, so that nothing else is compared.
const SECOND_LETTERS: [u32; 32] = {
    let mut sets = [0; 32];
    let (mut first, mut second) = (b'a', b'a');
    while first <= b'z' {
        if !words_with_initials([first, second]).is_empty() {
            sets[(first & 31) as usize] |= 1 << (second & 31);
        }
        (first, second) = if second == b'z' { (first + 1, b'a') } else { (first, second + 1) };
    }
    sets
};

/// Returns the first word in `letters` at or after `from`, regardless of the limits of words. No word
/// begins with another one.
fn find_word(letters: &[u8], from: usize) -> Option<(usize, &'static SensitiveWord)> {
    for index in from..letters.len().saturating_sub(1) {
        let [first, second] = [letters[index], letters[index + 1]];
        if SECOND_LETTERS[usize::from(first & 31)] >> (second & 31) & 1 == 0 {
            continue;
        }
        let rest = &letters[index..];
        for word in words_with_initials([first, second]) {
            if rest.len() >= word.letters.len() && rest.starts_with(word.letters) {
                return Some((index, word));
            }
        }
    }
    None
}

/// Words that make a key with `token` the key of a count: `token_count`, `tokenLimit`.
const COUNT_WORDS: &[&[u8]] = &[
    b"budget",
    b"cost",
    b"count",
    b"counts",
    b"estimate",
    b"limit",
    b"max",
    b"min",
    b"per",
    b"price",
    b"rate",
    b"total",
    b"usage",
    b"used",
];

/// The sensitive words: the built-in ones, and those that the configuration adds.
#[derive(Clone, Debug, Default)]
pub struct SecretKeys {
    /// The letters of each added key, in lower case. Unlike a built-in word, an added one must be a
    /// whole word of the key, or several, because it may be short: `pin` is no part of `shipping`.
    added: Vec<Box<[u8]>>,
}

impl SecretKeys {
    /// Adds key words such as `pin` and `license key`. Ignores words without letters.
    pub fn with_added(words: &[String]) -> Self {
        let added = words.iter().map(|word| KeyLetters::from_text(word).letters.into_boxed_slice());
        Self { added: added.filter(|letters| !letters.is_empty()).collect() }
    }

    /// Returns the kind of `key`.
    pub(crate) fn kind(&self, key: &str) -> KeyKind {
        if !key.is_ascii() || key.len() > STACK_LETTERS_MAX {
            let key = KeyLetters::from_text(key);
            return self.kind_of_words(KeyWords { letters: &key.letters, starts: &key.starts });
        }
        let key = key.as_bytes();
        let (mut letters, mut length) = ([0; STACK_LETTERS_MAX], 0);
        for byte in key.iter().filter(|byte| byte.is_ascii_alphabetic()) {
            letters[length] = byte | 0x20;
            length += 1;
        }
        let letters = &letters[..length];
        if self.added.is_empty() && find_word(letters, 0).is_none() {
            return KeyKind::Plain;
        }
        let (mut starts, mut count) = ([false; STACK_LETTERS_MAX], 0);
        let mut previous = b'_';
        for (index, byte) in key.iter().copied().enumerate() {
            if byte.is_ascii_alphabetic() {
                let next = key.get(index + 1).copied().unwrap_or(b'_');
                starts[count] = !previous.is_ascii_alphabetic()
                    || (byte.is_ascii_uppercase()
                        && (previous.is_ascii_lowercase() || next.is_ascii_lowercase()));
                count += 1;
            }
            previous = byte;
        }
        self.kind_of_words(KeyWords { letters, starts: &starts[..count] })
    }

    fn kind_of_words(&self, key: KeyWords<'_>) -> KeyKind {
        let mut kind = KeyKind::Plain;
        let mut from = 0;
        while let Some((index, word)) = find_word(key.letters, from) {
            from = index + 1;
            let range = index..index + word.letters.len();
            if !key.is_within_words(range.clone())
                || word.unless_followed_by.iter().any(|end| key.continues_with(range.end, end))
            {
                continue;
            }
            if word.letters != TOKEN.letters || !key.is_count(range.end) {
                return KeyKind::Secret;
            }
            kind = KeyKind::Count;
        }
        let is_added = |letters: &[u8]| {
            let last_start = key.letters.len().saturating_sub(letters.len());
            (0..=last_start).any(|start| key.is_whole_words(start, letters))
        };
        if self.added.iter().any(|letters| is_added(letters)) { KeyKind::Secret } else { kind }
    }
}

/// True if the value under `key` is secret because of a built-in word.
pub(crate) fn is_secret_key(key: &str) -> bool {
    SecretKeys::default().kind(key) == KeyKind::Secret
}

/// The letters of a key, in lower case and without separators.
#[derive(Clone, Copy)]
struct KeyWords<'a> {
    letters: &'a [u8],
    /// True for each letter that starts a word.
    starts: &'a [bool],
}

impl KeyWords<'_> {
    fn starts_word(self, index: usize) -> bool {
        self.starts.get(index).copied().unwrap_or(true)
    }

    /// True if the range begins with a word or is part of one word: `auto_kenya` contains no `token`.
    fn is_within_words(self, range: Range<usize>) -> bool {
        self.starts_word(range.start)
            || !self.starts[range.start + 1..range.end].iter().any(|starts| *starts)
    }

    /// True if the word goes on with `end` at `index`.
    fn continues_with(self, index: usize, end: &[u8]) -> bool {
        !self.starts_word(index) && self.letters[index..].starts_with(end)
    }

    /// True if whole words, the last in the singular or plural, make up `letters` at `start`.
    fn is_whole_words(self, start: usize, letters: &[u8]) -> bool {
        let end = start + letters.len();
        let is_plural = || self.letters.get(end) == Some(&b's') && self.starts_word(end + 1);
        self.starts_word(start)
            && self.letters.get(start..end) == Some(letters)
            && (self.starts_word(end) || is_plural())
    }

    /// True if a key that contains `token` up to `end` is that of a count: it is plural, or contains
    /// a word such as `count`.
    fn is_count(self, end: usize) -> bool {
        let is_plural = self.continues_with(end, b"s") && self.starts_word(end + 1);
        let mut starts = (0..self.letters.len()).filter(|index| self.starts_word(*index));
        let is_count_word = |start: usize| {
            let ends_word = |word: &&[u8]| self.starts_word(start + word.len());
            let mut words =
                COUNT_WORDS.iter().filter(|word| self.letters[start..].starts_with(word));
            words.any(ends_word)
        };
        is_plural || starts.any(is_count_word)
    }
}

/// The letters of a key of any length and alphabet. Bytes beyond ASCII are letters.
#[derive(Default)]
struct KeyLetters {
    letters: Vec<u8>,
    starts: Vec<bool>,
}

impl KeyLetters {
    fn from_text(key: &str) -> Self {
        let (mut found, mut previous) = (Self::default(), '_');
        let mut characters = key.chars().peekable();
        while let Some(character) = characters.next() {
            if character.is_alphabetic() {
                let next_is_lower = characters.peek().is_some_and(|next| next.is_lowercase());
                let starts_word = !previous.is_alphabetic()
                    || (character.is_uppercase() && (previous.is_lowercase() || next_is_lower));
                let start = found.letters.len();
                for lower in character.to_lowercase() {
                    found.letters.extend_from_slice(lower.encode_utf8(&mut [0; 4]).as_bytes());
                }
                found.starts.resize(found.letters.len(), false);
                if let Some(starts) = found.starts.get_mut(start) {
                    *starts = starts_word;
                }
            }
            previous = character;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_kind(kind: KeyKind, keys: &[&str]) {
        for key in keys {
            assert_eq!(SecretKeys::default().kind(key), kind, "{key}");
        }
    }

    #[test]
    fn e7_secret_keys_are_matched_by_words_with_prefix_suffix_and_plural() {
        let keys = [
            "password",
            "Password",
            "PASSWORD",
            "pass_word",
            "passWord",
            "user-password",
            "dbpassword",
            "password_hash",
            "passwordHash",
            "passwords",
            "passwd",
            "pwd",
            "DB_PWD",
            "passphrase",
            "ssh passphrase",
            "passcode",
            "token",
            "access_token",
            "accessToken",
            "accesstoken",
            "token_value",
            "tokenHash",
            "id.token",
            "oauth2token",
            "secret",
            "secrets",
            "secret_key",
            "secretkey",
            "aws_secret_access_key",
            "AWSSecretAccessKey",
            "client_secret",
            "private_key",
            "sshKey",
            "ssh_private_key",
            "jwt",
            "id_jwt",
            "privateKeyPem",
            "PRIVATE KEY",
            "api_key",
            "X-Api-Key",
            "apikey",
            "apiKeys",
            "api_keys",
            "APIKey",
            "api_key_id",
            "access_key",
            "accessKeyId",
            "credential",
            "credentials.pass",
            "credentials",
            "Authorization",
            "proxy-authorization",
            "bearer",
            "bearer_value",
            "cookie",
            "Set-Cookie",
            "cookies",
            "cookieJar",
            "session_key",
            "signingKey",
            "encryption-key",
            "master_key",
            "clé-Token",
            "to\u{212a}en",
            "ключToken",
            "user[password]",
            "secret_tokens",
        ];
        assert_kind(KeyKind::Secret, &keys);
        let long = format!("{}_password", "x".repeat(3 * STACK_LETTERS_MAX));
        assert_kind(KeyKind::Secret, &[&long]);
    }

    #[test]
    fn e7_keys_of_counts_are_not_secret_for_numbers() {
        let keys = [
            "max_tokens",
            "input_tokens",
            "outputTokens",
            "cached_tokens",
            "estimated_tokens",
            "tokens",
            "tokens_per_second",
            "token_count",
            "tokenCount",
            "tokenLimit",
            "usedToken",
            "TOKEN_BUDGET",
        ];
        assert_kind(KeyKind::Count, &keys);
    }

    #[test]
    fn e7_words_that_contain_no_sensitive_word_are_plain() {
        let keys = [
            "",
            "secretary",
            "Secretariat",
            "secretion",
            "keyboard",
            "key",
            "primary_key",
            "keys",
            "tokenizer",
            "tokenized",
            "tokenisation",
            "auto_kenya",
            "author",
            "authorized",
            "api",
            "access",
            "compass",
            "passenger",
            "pass",
            "map_i_keys",
            "_",
            "日本語",
        ];
        assert_kind(KeyKind::Plain, &keys);
    }

    #[test]
    fn e7_added_keys_match_whole_words() {
        let keys = SecretKeys::with_added(&[
            "pin".into(),
            "License Key".into(),
            "código".into(),
            "_".into(),
        ]);
        for key in
            ["pin", "PIN", "card_pin", "pins", "pinCode", "license_keys", "licenseKey", "CÓDIGO"]
        {
            assert_eq!(keys.kind(key), KeyKind::Secret, "{key}");
        }
        for key in ["shipping", "pinned", "license", "spin", "key"] {
            assert_eq!(keys.kind(key), KeyKind::Plain, "{key}");
        }
    }

    proptest! {
        /// The two ways to split a key into words agree.
        #[test]
        fn e7_ascii_keys_are_split_alike_on_stack_and_heap(key in "[a-zA-Z_.0-9 -]{0,24}|(Max|max_|x)?(tokens?|Secret|api_?Key|PASSWORD)(_count|Ary|s)?") {
            let letters = KeyLetters::from_text(&key);
            let words = KeyWords { letters: &letters.letters, starts: &letters.starts };
            let keys = SecretKeys::default();
            prop_assert_eq!(keys.kind(&key), keys.kind_of_words(words));
        }
    }
}
