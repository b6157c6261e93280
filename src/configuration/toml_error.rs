//! Explains errors in TOML: suggests the nearest known name for an unknown name, and states the
//! expected value for an invalid value.

use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Table;

/// An error in a TOML text.
pub(super) struct TomlError {
    /// The line in the text, from 1.
    pub(super) line: usize,
    /// The description of the problem.
    pub(super) problem: String,
    /// True if the value has another type than its key requires.
    pub(super) is_type_mismatch: bool,
}

/// The message of the parser, with the key that it is about.
struct RawTomlError {
    key: String,
    message: String,
    span: Option<Range<usize>>,
}

/// Parses a TOML text.
pub(super) fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, TomlError> {
    deserialize::<T>(text).map_err(|error| {
        let start = error.span.as_ref().map_or(0, |span| span.start);
        let before = text.get(..start).unwrap_or_default();
        let expects_duration = error.expects_string() && expects_duration::<T>(text, &error);
        TomlError {
            line: before.matches('\n').count() + 1,
            ..error.to_toml_error(expects_duration)
        }
    })
}

/// Parses a TOML table. Errors have no meaningful line.
pub(super) fn parse_table<T: DeserializeOwned>(table: Table) -> Result<T, TomlError> {
    serde_path_to_error::deserialize(table)
        .map_err(|error| RawTomlError::from(error).to_toml_error(false))
}

fn deserialize<T: DeserializeOwned>(text: &str) -> Result<T, RawTomlError> {
    let syntax_error = |error: toml::de::Error| RawTomlError {
        key: String::new(),
        message: error.message().to_owned(),
        span: error.span(),
    };
    let parsed = toml::Deserializer::parse(text).map_err(syntax_error)?;
    serde_path_to_error::deserialize(parsed).map_err(RawTomlError::from)
}

/// True if the key of an error "expected a string" requires a duration: the same value in quotes is
/// then rejected as an invalid duration.
fn expects_duration<T: DeserializeOwned>(text: &str, error: &RawTomlError) -> bool {
    let Some(span) = &error.span else { return false };
    let Some(value) = text.get(span.clone()) else { return false };
    let quoted = format!("{}\"{value}\"{}", &text[..span.start], &text[span.end..]);
    deserialize::<T>(&quoted)
        .is_err_and(|error| error.message.starts_with(&format!("`{value}` is not a duration")))
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
        split_expected(&self.message).is_some_and(|(_, expected)| expected == "a string")
    }

    /// Converts the error to a message for operators, without the line.
    fn to_toml_error(&self, expects_duration: bool) -> TomlError {
        let problem = match split_expected(&self.message) {
            Some((actual, _)) if expects_duration => {
                format_must_be(&self.key, "a duration such as \"30s\"", actual)
            }
            Some(_) | None => explain_message(&self.key, &self.message),
        };
        TomlError { line: 1, problem, is_type_mismatch: self.message.starts_with("invalid type") }
    }
}

/// Converts serde's message about `key` to a message for operators.
pub(super) fn explain_message(key: &str, message: &str) -> String {
    match split_expected(message) {
        Some((actual, expected)) => format_must_be(key, describe_expected(expected), actual),
        None => suggest_name(message),
    }
}

/// Splits serde's message about an invalid value into the actual and the expected value.
fn split_expected(message: &str) -> Option<(&str, &str)> {
    let rest = message.strip_prefix("invalid type: ");
    let rest = rest.or_else(|| message.strip_prefix("invalid value: "))?;
    rest.trim_end().rsplit_once(", expected ")
}

fn format_must_be(key: &str, expected: &str, actual: &str) -> String {
    // serde reports an unknown part of the path as `?`; the line identifies it.
    let known = key.rsplit_once('?').map_or(key, |(_, key)| key);
    let key = match known.trim_start_matches('.') {
        "" => "the value",
        key => key,
    };
    format!("{key} must be {expected}, not {}", describe_actual(actual))
}

/// Describes serde's name of an expected type.
fn describe_expected(expected: &str) -> &str {
    match expected {
        "a nonzero usize" => "a whole number of 1 or more",
        "usize" | "u64" | "u32" => "a whole number of 0 or more",
        "u8" => "a whole number from 0 to 255",
        "i64" => "a whole number",
        "f64" => "a number",
        "a string" | "path string" => "a string in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        expected if expected.starts_with("struct ") => "a table",
        expected => expected,
    }
}

/// Describes an actual value as it is written in the file.
fn describe_actual(actual: &str) -> &str {
    match actual {
        "sequence" => "a list",
        "map" => "a table",
        actual => {
            let value = ["integer `", "floating point `", "boolean `"]
                .iter()
                .find_map(|kind| actual.strip_prefix(kind)?.strip_suffix('`'));
            value.or_else(|| actual.strip_prefix("string ")).unwrap_or(actual)
        }
    }
}

/// Adds the nearest known name to serde's message about an unknown name.
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
        format!("unknown {kind} `{unknown}`; known {kind}s: {}", known.join(", "))
    }
}

/// Returns the Levenshtein distance of two words.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, left_char) in left.chars().enumerate() {
        let mut diagonal = index;
        row[0] = index + 1;
        for (column, right_char) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(left_char != *right_char);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
