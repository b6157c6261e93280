//! What both wires share: ids of an answer, a problem to report, text hidden in content blocks.
//!
//! Pure. Called by `anthropic`, `openai` and the server.

use serde_json::Value;

use super::decoded_request::ProviderProtocol;

/// What identifies one answer. Fresh per request, as providers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResponseMeta {
    /// Random part of the ids.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The model that was asked for, echoed.
    pub model: String,
}

impl ResponseMeta {
    /// The id of the call at `index` among the reply's parts.
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

/// An error to answer with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderError {
    /// HTTP status.
    pub status: u16,
    /// What the provider would say.
    pub message: String,
    /// OpenAI's `code`, if it is not the usual one of the status.
    pub code: Option<&'static str>,
    /// OpenAI's `param`.
    pub param: Option<&'static str>,
}

impl ProviderError {
    /// A problem with a status and a message.
    pub(super) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), code: None, param: None }
    }

    /// A request the provider would refuse (400).
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }
}

/// Text of a content field: a string, or its text blocks joined.
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

/// The string at `pointer` in each element of a list.
pub(super) fn collect_strings(list: Option<&Value>, pointer: &str) -> Vec<String> {
    let items = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .map(|item| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned())
        .collect()
}
