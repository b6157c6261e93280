//! The list of a server's models: the response to `GET /models`.

use serde::Deserialize;
use std::collections::BTreeSet;

/// Maximum bytes of a model's name; longer names are ignored.
pub const MODEL_NAME_BYTES_MAX: usize = 256;

#[derive(Deserialize)]
struct ModelList {
    /// Null if an Ollama server has no model. With a function, the key is required.
    #[serde(deserialize_with = "Option::deserialize")]
    data: Option<Vec<ListedModel>>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
}

/// Parses a list of models. Returns their names in order, each once, or `None` if the body is not
/// such a list.
pub fn parse_model_list(body: &[u8]) -> Option<Vec<String>> {
    let list: ModelList = serde_json::from_slice(body).ok()?;
    let names = list.data.unwrap_or_default().into_iter().map(|model| model.id);
    let is_valid = |name: &String| !name.is_empty() && name.len() <= MODEL_NAME_BYTES_MAX;
    Some(names.filter(is_valid).collect::<BTreeSet<_>>().into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m1_model_lists_of_compatible_servers_are_parsed() {
        let long = format!(r#"{{"data":[{{"id":"{}"}},{{"id":""}}]}}"#, "x".repeat(257));
        for (body, expected) in [
            // Ollama, without and with models.
            (r#"{"object":"list","data":null}"#, Some(vec![])),
            (
                r#"{"object":"list","data":[{"id":"qwen3:8b","object":"model","created":1762000000,"owned_by":"library"},{"id":"llama3.2:latest","object":"model","created":1762000001,"owned_by":"library"}]}"#,
                Some(vec!["llama3.2:latest", "qwen3:8b"]),
            ),
            // vLLM.
            (
                r#"{"object":"list","data":[{"id":"Qwen/Qwen3-8B","object":"model","created":1762000000,"owned_by":"vllm","root":"Qwen/Qwen3-8B","parent":null,"max_model_len":40960,"permission":[{"id":"modelperm-1","allow_sampling":true}]}]}"#,
                Some(vec!["Qwen/Qwen3-8B"]),
            ),
            // llama.cpp.
            (
                r#"{"models":[{"name":"a.gguf"}],"object":"list","data":[{"id":"a.gguf","meta":{"n_ctx_train":4096}}]}"#,
                Some(vec!["a.gguf"]),
            ),
            (r#"{"data":[{"id":"a"},{"id":"a"}]}"#, Some(vec!["a"])),
            (long.as_str(), Some(vec![])),
            (r#"{"object":"list"}"#, None),
            (r#"{"data":[{"name":"a"}]}"#, None),
            (r#"[{"id":"a"}]"#, None),
            ("404 page not found", None),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(parse_model_list(body.as_bytes()), expected, "{body}");
        }
    }
}
