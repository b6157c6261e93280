//! The YAML between two lines of `---` at the start of a Markdown file.

use crate::limits::FRONT_MATTER_BYTES_MAX;
use serde::de::DeserializeOwned;

/// The front matter and what follows it.
pub(super) fn split(text: &str) -> Result<(&str, &str), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.lines().next().unwrap_or_default();
    if first.trim_end() != "---" {
        return Err("it does not begin with a front matter between lines of `---`".to_owned());
    }
    let start = first.len() + text[first.len()..].find('\n').map_or(0, |end| end + 1);
    let mut at = start;
    for line in text[start..].split_inclusive('\n') {
        if line.trim_end() == "---" {
            let head = &text[start..at];
            if head.len() > FRONT_MATTER_BYTES_MAX {
                return Err(format!(
                    "its front matter may have at most {FRONT_MATTER_BYTES_MAX} bytes"
                ));
            }
            return Ok((head, &text[at + line.len()..]));
        }
        at += line.len();
    }
    Err("its front matter has no end, a line of `---`".to_owned())
}

/// What it says. Aliases are bounded by the parser.
pub(super) fn parse<T: DeserializeOwned>(head: &str) -> Result<T, String> {
    serde_saphyr::from_str(head).map_err(|error| {
        let said = error.to_string();
        let first = said.lines().next().unwrap_or_default();
        format!("its front matter: {}", crate::text::truncate(first, 256))
    })
}
