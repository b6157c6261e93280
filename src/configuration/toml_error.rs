//! What is wrong with a text in TOML, in words for people: of a name, the nearest that there is; of
//! a value, what is wanted instead of it.

use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Table;

/// Something that makes no sense.
pub(super) struct TomlError {
    /// Its line in the text, from 1.
    pub(super) line: usize,
    /// What is wrong.
    pub(super) problem: String,
    /// Whether it is a value of another type than its key takes.
    pub(super) is_type_mismatch: bool,
}

/// What the parser says, and of which key.
struct RawTomlError {
    key: String,
    message: String,
    span: Option<Range<usize>>,
}

/// Reads a text in TOML.
pub(super) fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, TomlError> {
    deserialize::<T>(text).map_err(|refusal| {
        let start = refusal.span.as_ref().map_or(0, |span| span.start);
        let before = text.get(..start).unwrap_or_default();
        let wants_duration = refusal.expects_string() && expects_duration::<T>(text, &refusal);
        TomlError {
            line: before.matches('\n').count() + 1,
            ..refusal.to_toml_error(wants_duration)
        }
    })
}

/// The same of a table, which has no lines.
pub(super) fn parse_table<T: DeserializeOwned>(table: Table) -> Result<T, TomlError> {
    serde_path_to_error::deserialize(table)
        .map_err(|error| RawTomlError::from(error).to_toml_error(false))
}

fn deserialize<T: DeserializeOwned>(text: &str) -> Result<T, RawTomlError> {
    let of_syntax = |error: toml::de::Error| RawTomlError {
        key: String::new(),
        message: error.message().to_owned(),
        span: error.span(),
    };
    let parsed = toml::Deserializer::parse(text).map_err(of_syntax)?;
    serde_path_to_error::deserialize(parsed).map_err(RawTomlError::from)
}

/// Whether the value that should be a text should be a duration: then that is what the same value
/// in quotes is told.
fn expects_duration<T: DeserializeOwned>(text: &str, refusal: &RawTomlError) -> bool {
    let Some(span) = &refusal.span else { return false };
    let Some(value) = text.get(span.clone()) else { return false };
    let quoted = format!("{}\"{value}\"{}", &text[..span.start], &text[span.end..]);
    deserialize::<T>(&quoted)
        .is_err_and(|refusal| refusal.message.starts_with(&format!("`{value}` is not a duration")))
}

impl From<serde_path_to_error::Error<toml::de::Error>> for RawTomlError {
    fn from(error: serde_path_to_error::Error<toml::de::Error>) -> Self {
        let key = error.path().to_string();
        let inner = error.into_inner();
        Self { key, message: inner.message().to_owned(), span: inner.span() }
    }
}

impl RawTomlError {
    fn expects_string(&self) -> bool {
        split_expected(&self.message).is_some_and(|(_, wanted)| wanted == "a string")
    }

    /// In words for people; without the line.
    fn to_toml_error(&self, wants_duration: bool) -> TomlError {
        let problem = match split_expected(&self.message) {
            Some((given, _)) if wants_duration => {
                format_must_be(&self.key, "a duration such as \"30s\"", given)
            }
            Some(_) | None => explain_message(&self.key, &self.message),
        };
        TomlError { line: 1, problem, is_type_mismatch: self.message.starts_with("invalid type") }
    }
}

/// What serde says of that key, in words for people.
pub(super) fn explain_message(key: &str, message: &str) -> String {
    match split_expected(message) {
        Some((given, wanted)) => format_must_be(key, describe_expected(wanted), given),
        None => suggest_name(message),
    }
}

/// A wrong value, as serde has it: what it is, and what was expected.
fn split_expected(message: &str) -> Option<(&str, &str)> {
    let rest = message.strip_prefix("invalid type: ");
    let rest = rest.or_else(|| message.strip_prefix("invalid value: "))?;
    rest.trim_end().rsplit_once(", expected ")
}

fn format_must_be(key: &str, wanted: &str, given: &str) -> String {
    // What stands before a part that can't be told is told by the line.
    let known = key.rsplit_once('?').map_or(key, |(_, key)| key);
    let key = match known.trim_start_matches('.') {
        "" => "it",
        key => key,
    };
    format!("{key} must be {wanted}, not {}", describe_given(given))
}

/// What serde calls that kind of value, in words.
fn describe_expected(wanted: &str) -> &str {
    match wanted {
        "a nonzero usize" => "a whole number of 1 or more",
        "usize" | "u64" | "u32" => "a whole number of 0 or more",
        "u8" => "a whole number from 0 to 255",
        "i64" => "a whole number",
        "f64" => "a number",
        "a string" | "path string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        wanted if wanted.starts_with("struct ") => "a table",
        wanted => wanted,
    }
}

/// What serde says that there is, as it is written.
fn describe_given(given: &str) -> &str {
    match given {
        "sequence" => "a list",
        "map" => "a table",
        given => {
            let value = ["integer `", "floating point `", "boolean `"]
                .iter()
                .find_map(|kind| given.strip_prefix(kind)?.strip_suffix('`'));
            value.or_else(|| given.strip_prefix("string ")).unwrap_or(given)
        }
    }
}

/// What the parser says of a name it does not know, with the nearest one it does.
fn suggest_name(message: &str) -> String {
    let message = message.trim_end().replace('\n', ", ");
    let mut quoted = message.split('`').skip(1).step_by(2);
    let kind = if message.starts_with("unknown field") {
        "key"
    } else if message.starts_with("unknown variant") {
        "value"
    } else {
        return message;
    };
    let Some(unknown) = quoted.next() else { return message };
    let known: Vec<&str> = quoted.collect();
    let Some(nearest) = known.iter().min_by_key(|name| distance(unknown, name)) else {
        return format!("unknown {kind} `{unknown}`");
    };
    if distance(unknown, nearest) * 2 <= unknown.chars().count().max(2) {
        format!("unknown {kind} `{unknown}`; did you mean `{nearest}`?")
    } else {
        format!("unknown {kind} `{unknown}`; there are {}", known.join(", "))
    }
}

/// How many letters must change to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = at;
        row[0] = at + 1;
        for (column, other_letter) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other_letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
