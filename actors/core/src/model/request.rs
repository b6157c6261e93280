//! What a model is asked, in no provider's words.

use crate::{message::Message, policy::Tool};
use std::sync::Arc;

/// One request to a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model. Sessions name it as configuration does; the client puts the provider's name.
    pub model: String,
    /// The system prompt; may be empty.
    pub system: String,
    /// The conversation, oldest first; it ends with what the model shall answer.
    pub messages: Vec<Message>,
    /// The tools it may propose, in a stable order.
    pub tools: Vec<Arc<Tool>>,
    /// Output tokens at most.
    pub max_tokens: u32,
}
