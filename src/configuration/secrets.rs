//! The secrets in the configuration (E7).
//!
//! `redaction` redacts them; it ignores texts that are too short to be secrets.

use super::{Configuration, McpServerConfig, McpTransportConfig, Secret};
use crate::redaction::{Redactor, is_secret_key};
use reqwest::Url;
use std::{collections::BTreeMap, path::Path};

impl Configuration {
    /// Returns all configured secrets. The token file beside the database is not included.
    pub fn secrets(&self) -> Vec<String> {
        let keys = self.models.values().filter_map(|model| model.api_key.as_ref());
        let keys = keys.chain(&self.admin_token).map(|secret| secret.expose().to_owned());
        let urls = self.models.values().map(|model| &model.base_url);
        let urls = urls.chain(&self.otlp_endpoint).flat_map(|url| secrets_in_url(url));
        let servers = self.mcp_servers.values().flat_map(McpServerConfig::secrets);
        keys.chain(urls).chain(servers).chain(self.database.passwords()).collect()
    }

    /// Creates a redactor of `secrets` and of the configured keys and patterns.
    pub fn redactor(&self, secrets: Vec<String>) -> Redactor {
        Redactor::new(secrets)
            .with_keys(&self.redaction_keys)
            .with_patterns(self.redaction_patterns.clone())
    }
}

impl McpServerConfig {
    /// Returns the secrets in the server's configuration.
    pub fn secrets(&self) -> Vec<String> {
        let from_environment =
            self.env_secrets.iter().map(Secret::expose).flat_map(url_encoded_forms);
        let from_transport = match &self.transport {
            McpTransportConfig::Stdio { env, .. } => {
                env.values().map(|value| value.expose().to_owned()).collect()
            }
            McpTransportConfig::Http { url, headers } => secrets_in_url(url)
                .into_iter()
                .chain(secrets_in_headers(headers))
                .collect::<Vec<_>>(),
        };
        from_environment.chain(from_transport).collect()
    }
}

/// True if `value` is the absolute path of an existing file or folder. Such a value is not secret, and
/// tools could not be used if file names were redacted.
pub(super) fn is_a_path(value: &str) -> bool {
    let path = Path::new(value);
    path.is_absolute() && path.exists()
}

/// True if `value` is part of the origin of `url`, which every connection reveals.
pub(super) fn is_in_origin(value: &str, url: &str) -> bool {
    let origin = Url::parse(url).map(|url| url.origin().ascii_serialization());
    let value = value.trim_end_matches('/').to_ascii_lowercase();
    origin.is_ok_and(|origin| origin.contains(&value))
}

/// Returns `text` and its encoded forms in a URL's path and query.
fn url_encoded_forms(text: &str) -> Vec<String> {
    let mut forms = vec![text.to_owned()];
    if let Ok(mut url) = Url::parse("http://host/") {
        url.set_path(text);
        url.set_query(Some(text));
        forms.push(url.path().trim_start_matches('/').to_owned());
        forms.extend(url.query().map(str::to_owned));
    }
    forms
}

/// Returns the secrets in a URL, encoded and decoded: the password, or the user name if there is no
/// password; the complete query; and the values of secret query parameters.
fn secrets_in_url(url: &str) -> Vec<String> {
    let Ok(url) = Url::parse(url) else { return Vec::new() };
    let mut secrets = vec![url.password().unwrap_or(url.username()).to_owned()];
    let query = url.query().unwrap_or_default();
    secrets.push(query.to_owned());
    let parameters = query.split('&').filter_map(|parameter| parameter.split_once('='));
    let secret_parameters = parameters.filter(|(key, _)| is_secret_parameter(key));
    secrets.extend(secret_parameters.map(|(_, value)| value.to_owned()));
    let decoded: Vec<String> = secrets.iter().filter_map(|text| percent_decode(text)).collect();
    secrets.into_iter().chain(decoded).collect()
}

/// True for secret keys and for the query parameters `key`, `sig` and `signature`.
fn is_secret_parameter(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    is_secret_key(&key) || ["key", "sig", "signature"].iter().any(|end| key.ends_with(end))
}

/// Decodes the percent-encoding of a part of a URL.
fn percent_decode(text: &str) -> Option<String> {
    // `query_pairs` would decode a plus to a space.
    let parameter = text.replace('+', "%2B").replace('&', "%26");
    let url = Url::parse(&format!("http://host/?p={parameter}")).ok()?;
    url.query_pairs().next().map(|(_, value)| value.into_owned())
}

/// Returns the values of headers and the credentials in them: the text after a scheme such as
/// `Bearer`, and the values of cookies and parameters of headers with a secret name.
fn secrets_in_headers(headers: &BTreeMap<String, Secret>) -> Vec<String> {
    let mut secrets = Vec::new();
    for (name, value) in headers {
        let value = value.expose();
        secrets.push(value.to_owned());
        secrets.extend(value.split_once(' ').map(|(_, credential)| credential.trim().to_owned()));
        if is_secret_key(name) {
            let parts = value.split([' ', ';', ',']).filter_map(|part| part.split_once('='));
            secrets.extend(parts.map(|(_, value)| value.trim_matches('"').to_owned()));
        }
    }
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Environment;

    /// Redacts `text` with the secrets of a configuration that contains `servers`.
    fn redact_with(servers: &str, environment: &[(&str, &str)], text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("greenroom.toml");
        std::fs::write(&file, servers).unwrap();
        let environment: Environment =
            environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let configuration = Configuration::load(Some(&file), &environment).unwrap();
        Redactor::new(configuration.secrets()).redact_text(text).into_owned()
    }

    #[test]
    fn e7_header_credentials_are_redacted_without_their_scheme() {
        let server = "[mcpServers.a]\nurl = 'https://h/mcp'\nheaders = {";
        let from_environment = format!("{server} Authorization = 'Bearer ${{KEY}}' }}");
        assert_eq!(
            redact_with(&from_environment, &[("KEY", "k3y-k3y-k3y")], "is k3y-k3y-k3y"),
            "is [redacted]"
        );
        let raw = format!(
            "{server} Authorization = 'Token token=\"t0ken-t0ken\"', Cookie = 'a=1; s=c00kie-c00kie' }}"
        );
        assert_eq!(redact_with(&raw, &[], "t0ken-t0ken, c00kie-c00kie"), "[redacted], [redacted]");
        let other = format!("{server} X-What = 'Bearer b3arer-b3arer' }}");
        assert_eq!(redact_with(&other, &[], "b3arer-b3arer"), "[redacted]");
    }

    #[test]
    fn e7_values_of_the_environment_are_redacted_in_any_position() {
        let environment = [("KEY", "k3y/k3y+k3y#"), ("HOST", "search.example.com")];
        let url = "[mcpServers.a]\nurl = 'https://${HOST}/s/${KEY}/mcp'";
        let text = "https://search.example.com/s/k3y/k3y+k3y%23/mcp k3y/k3y+k3y#";
        assert_eq!(redact_with(url, &environment, text), {
            "https://search.example.com/s/[redacted]/mcp [redacted]"
        });
        let stdio =
            "[mcpServers.a]\ncommand = 'x'\nargs = ['--key=${KEY}']\nenv = {A = 'p-${KEY}'}";
        assert_eq!(redact_with(stdio, &environment, "k3y/k3y+k3y# p-k3y/k3y+k3y#"), {
            "[redacted] [redacted]"
        });
    }

    #[test]
    fn e7_paths_and_defaults_are_not_redacted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_string_lossy();
        let environment = [("HOME", "/no/such/home"), ("ROOT", &*root)];
        let server = "[mcpServers.a]\ncommand = 'x'\n\
                      args = ['${HOME}/notes', '${ROOT}', '${REGION:-eu-west-1}']";
        let text = format!("/no/such/home {root} eu-west-1");
        assert_eq!(redact_with(server, &environment, &text), text);
    }

    #[test]
    fn e7_url_credentials_are_redacted() {
        let server = |url: &str| format!("[mcpServers.a]\nurl = '{url}'");
        let url = "https://u:p%40ssw0rd@h/mcp?key=k3y-k3y-k3y&mode=readonly";
        let text = "p%40ssw0rd p@ssw0rd k3y-k3y-k3y readonly ?key=k3y-k3y-k3y&mode=readonly";
        assert_eq!(redact_with(&server(url), &[], text), {
            "[redacted] [redacted] [redacted] readonly ?[redacted]"
        });
        let token_url = server("https://t0ken-t0ken@h/mcp");
        assert_eq!(redact_with(&token_url, &[], "t0ken-t0ken"), "[redacted]");
        let model = "[models.a]\nwire = 'openai'\nmodel = 'm'\n\
                     base_url = 'https://h/v1?api_key=k3y-k3y-k3y'";
        assert_eq!(redact_with(model, &[], "k3y-k3y-k3y"), "[redacted]");
    }
}
