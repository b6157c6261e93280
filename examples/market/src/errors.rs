//! The errors of a tool call.
//!
//! Every variant becomes an MCP tool error result: a text for the model, and in the structured content
//! a code and a `retryable` flag, so that a host need not parse the text. Created by `queries`, `state`
//! and `ledger`; converted to a result by `server`.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Value, json};

/// `_meta` key of an error result after which the host may retry the call.
pub(crate) const META_RETRYABLE: &str = "greenroom/retryable";

/// The reason why a tool call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error("invalid arguments for {tool}: {problem}")]
    InvalidArguments { tool: String, problem: String },
    #[error("unknown region_id {0}: no such region in this market")]
    UnknownRegion(u32),
    #[error("unknown type_id {0}: no such item in this market")]
    UnknownType(u32),
    #[error("type_id {type_id} is not traded in region_id {region_id}")]
    NotTraded { type_id: u32, region_id: u32 },
    #[error("type_id {0} ({1}) can't be built: there is no blueprint for it")]
    NoBlueprint(u32, String),
    #[error("unknown list_id {0}: no such shopping list")]
    UnknownList(u64),
    #[error("unknown bookmark_id {0}: no such bookmark")]
    UnknownBookmark(u64),
    #[error("{operation} needs {needed:.2} ISK but the wallet holds {balance:.2} ISK")]
    InsufficientFunds { operation: &'static str, needed: f64, balance: f64 },
    #[error("idempotency key {0:?} was already used for this tool with other arguments")]
    KeyReused(String),
    #[error("idempotency key is longer than {0} bytes")]
    KeyTooLong(usize),
    #[error("the record file holds its maximum of {0} records; start a new one")]
    RecordFull(usize),
    #[error("temporary: price feed unavailable, try again")]
    PriceFeed,
    #[error("{0}")]
    Scripted(String),
    #[error("the record file can't be used: {0}")]
    Record(String),
}

impl ToolError {
    /// Returns the stable code.
    fn code(&self) -> &'static str {
        match self {
            Self::InvalidArguments { .. } => "invalid_arguments",
            Self::UnknownRegion(_) => "unknown_region",
            Self::UnknownType(_) => "unknown_type",
            Self::NotTraded { .. } => "not_traded",
            Self::NoBlueprint(..) => "no_blueprint",
            Self::UnknownList(_) => "unknown_list",
            Self::UnknownBookmark(_) => "unknown_bookmark",
            Self::InsufficientFunds { .. } => "insufficient_funds",
            Self::KeyReused(_) => "idempotency_key_reused",
            Self::KeyTooLong(_) => "idempotency_key_too_long",
            Self::RecordFull(_) => "record_full",
            Self::PriceFeed => "temporary",
            Self::Scripted(_) => "scripted",
            Self::Record(_) => "record_unusable",
        }
    }

    /// True if the same call may succeed later.
    fn retryable(&self) -> bool {
        matches!(self, Self::PriceFeed)
    }

    /// Converts the error to an MCP tool error result.
    pub(crate) fn into_result(self) -> CallToolResult {
        let message = self.to_string();
        let mut result = CallToolResult::structured_error(json!({
            "error": {
                "code": self.code(),
                "message": message,
                "retryable": self.retryable(),
            }
        }));
        result.content = vec![ContentBlock::text(message)];
        if self.retryable() {
            let mut meta = MetaObject::default();
            meta.insert(META_RETRYABLE.to_owned(), Value::Bool(true));
            result.meta = Some(meta);
        }
        result
    }
}
