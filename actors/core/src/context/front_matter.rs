//! Splits and parses the YAML front matter of a Markdown file: the text between two `---` lines at
//! its start.

use crate::limits::FRONT_MATTER_BYTES_MAX;
use serde::de::DeserializeOwned;

/// Splits `text` into its front matter and the text that follows it.
pub(super) fn split(text: &str) -> Result<(&str, &str), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.lines().next().unwrap_or_default();
    if first.trim_end() != "---" {
        return Err("no front matter: the file must start with a line of `---`".to_owned());
    }
    let start = first.len() + text[first.len()..].find('\n').map_or(0, |end| end + 1);
    let mut end = start;
    for line in text[start..].split_inclusive('\n') {
        if line.trim_end() == "---" {
            let head = &text[start..end];
            if head.len() > FRONT_MATTER_BYTES_MAX {
                return Err(format!(
                    "front matter: {} bytes; the limit is {FRONT_MATTER_BYTES_MAX}",
                    head.len()
                ));
            }
            return Ok((head, &text[end + line.len()..]));
        }
        end += line.len();
    }
    Err("front matter: the closing line of `---` is missing".to_owned())
}

/// Parses a front matter. The parser limits the expansion of aliases.
pub(super) fn parse<T: DeserializeOwned>(head: &str) -> Result<T, String> {
    serde_saphyr::from_str(head).map_err(|error| {
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default();
        format!("front matter: {}", crate::text::truncate(first, 256))
    })
}
