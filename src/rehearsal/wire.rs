//! Parts that both wire formats share: response ids, errors and the text of content blocks.
//!
//! Pure. Called by `anthropic`, `openai` and the server.

use serde_json::Value;

use super::decoded_request::ProviderProtocol;

/// The identification of one response. New for each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResponseMeta {
    /// The random part of the ids.
    pub id: String,
    /// Creation time in seconds since 1970.
    pub created: u64,
    /// The requested model.
    pub model: String,
}

impl ResponseMeta {
    /// Returns the id of the call at `index` among the reply's parts, or `fixed` if it is set.
    pub(super) fn call_id(
        &self,
        wire: ProviderProtocol,
        fixed: Option<&str>,
        index: usize,
    ) -> String {
        match (fixed, wire) {
            (Some(fixed), _) => fixed.to_owned(),
            (None, ProviderProtocol::Anthropic) => format!("toolu_{}{index:02}", self.id),
            (None, ProviderProtocol::OpenAi) => format!("call_{}{index:02}", self.id),
        }
    }
}

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderError {
    /// The HTTP status.
    pub status: u16,
    /// The error message.
    pub message: String,
    /// OpenAI's `code`; `None` selects the default code of the status.
    pub code: Option<&'static str>,
    /// OpenAI's `param`.
    pub param: Option<&'static str>,
}

impl ProviderError {
    /// Creates an error with a status and a message.
    pub(super) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), code: None, param: None }
    }

    /// Creates the error of an invalid request (400).
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }
}

/// Returns the text of a content field: a string, or its text blocks joined by line breaks.
pub(super) fn join_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => blocks
            .iter()
            .filter_map(|block| block.get("text").and_then(Value::as_str))
            .collect::<Vec<_>>()
            .join("\n"),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            String::new()
        }
    }
}

/// Returns the string at `pointer` in each element of a list.
pub(super) fn collect_strings(list: Option<&Value>, pointer: &str) -> Vec<String> {
    let items = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .map(|item| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned())
        .collect()
}
