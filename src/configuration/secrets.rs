//! What of the configuration must never be shown (E7).
//!
//! `redaction` blacks these texts out, and leaves those alone that are too short to be secrets.

use super::{Configuration, McpServerConfig, McpTransportConfig, Secret};
use crate::redaction::{Redactor, is_secret_key};
use reqwest::Url;
use std::{collections::BTreeMap, path::Path};

impl Configuration {
    /// Every text that must not leave, but a token that is beside the database.
    pub fn secrets(&self) -> Vec<String> {
        let keys = self.models.values().filter_map(|model| model.api_key.as_ref());
        let keys = keys.chain(&self.admin_token).map(|secret| secret.expose().to_owned());
        let addresses = self.models.values().map(|model| &model.base_url);
        let addresses = addresses.chain(&self.otlp_endpoint).flat_map(|url| secrets_in_url(url));
        let servers = self.mcp_servers.values().flat_map(McpServerConfig::secrets);
        keys.chain(addresses).chain(servers).chain(self.database.passwords()).collect()
    }

    /// What blacks out `secrets`, and what is configured to be.
    pub fn redactor(&self, secrets: Vec<String>) -> Redactor {
        Redactor::new(secrets).with_patterns(self.redaction_patterns.clone())
    }
}

impl McpServerConfig {
    /// What must never be shown of it.
    pub fn secrets(&self) -> Vec<String> {
        let taken = self.env_secrets.iter().map(Secret::expose).flat_map(url_encoded_forms);
        let written = match &self.transport {
            McpTransportConfig::Stdio { env, .. } => {
                env.values().map(|value| value.expose().to_owned()).collect()
            }
            McpTransportConfig::Http { url, headers } => secrets_in_url(url)
                .into_iter()
                .chain(secrets_in_headers(headers))
                .collect::<Vec<_>>(),
        };
        taken.chain(written).collect()
    }
}

/// Whether what the environment gave may be told: a file or a folder that is there is no secret,
/// and nobody could work with files whose names are blacked out.
pub(super) fn is_a_path(value: &str) -> bool {
    let path = Path::new(value);
    path.is_absolute() && path.exists()
}

/// Whether `value` is a part of where `url` leads to, which every connection tells.
pub(super) fn is_in_origin(value: &str, url: &str) -> bool {
    let origin = Url::parse(url).map(|url| url.origin().ascii_serialization());
    let value = value.trim_end_matches('/').to_ascii_lowercase();
    origin.is_ok_and(|origin| origin.contains(&value))
}

/// A text, and what it looks like in an address.
fn url_encoded_forms(text: &str) -> Vec<String> {
    let mut spellings = vec![text.to_owned()];
    if let Ok(mut url) = Url::parse("http://host/") {
        url.set_path(text);
        url.set_query(Some(text));
        spellings.push(url.path().trim_start_matches('/').to_owned());
        spellings.extend(url.query().map(str::to_owned));
    }
    spellings
}

/// The password in an address, or the name that stands alone for one; its query as a whole; and what
/// the query has under secret keys. Each as it is written and as it is meant.
fn secrets_in_url(url: &str) -> Vec<String> {
    let Ok(url) = Url::parse(url) else { return Vec::new() };
    let mut found = vec![url.password().unwrap_or(url.username()).to_owned()];
    let query = url.query().unwrap_or_default();
    found.push(query.to_owned());
    let parameters = query.split('&').filter_map(|parameter| parameter.split_once('='));
    let secret = parameters.filter(|(key, _)| is_secret_parameter(key));
    found.extend(secret.map(|(_, value)| value.to_owned()));
    let meant: Vec<String> = found.iter().filter_map(|text| percent_decode(text)).collect();
    found.into_iter().chain(meant).collect()
}

/// Addresses say `key` and `sig` where others say `api_key` and `signature`.
fn is_secret_parameter(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    is_secret_key(&key) || ["key", "sig", "signature"].iter().any(|end| key.ends_with(end))
}

/// A part of an address without its `%`.
fn percent_decode(text: &str) -> Option<String> {
    // A query's plus would be a space.
    let parameter = text.replace('+', "%2B").replace('&', "%26");
    let url = Url::parse(&format!("http://host/?p={parameter}")).ok()?;
    url.query_pairs().next().map(|(_, value)| value.into_owned())
}

/// The values of headers, and the credentials in them: a server knows its client by what comes
/// after `Bearer`, or after a cookie's name.
fn secrets_in_headers(headers: &BTreeMap<String, Secret>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in headers {
        let value = value.expose();
        found.push(value.to_owned());
        found.extend(value.split_once(' ').map(|(_, credential)| credential.trim().to_owned()));
        if is_secret_key(name) {
            let parts = value.split([' ', ';', ',']).filter_map(|part| part.split_once('='));
            found.extend(parts.map(|(_, value)| value.trim_matches('"').to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Environment;

    /// What is left of `told` where `servers` are configured.
    fn redact_with(servers: &str, environment: &[(&str, &str)], told: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("greenroom.toml");
        std::fs::write(&file, servers).unwrap();
        let environment: Environment =
            environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let configuration = Configuration::load(Some(&file), &environment).unwrap();
        Redactor::new(configuration.secrets()).redact_text(told).into_owned()
    }

    #[test]
    fn e7_a_headers_credential_is_secret_without_its_scheme() {
        let server = "[mcpServers.a]\nurl = 'https://h/mcp'\nheaders = {";
        let taken = format!("{server} Authorization = 'Bearer ${{KEY}}' }}");
        assert_eq!(
            redact_with(&taken, &[("KEY", "k3y-k3y-k3y")], "is k3y-k3y-k3y"),
            "is [redacted]"
        );
        let written = format!(
            "{server} Authorization = 'Token token=\"t0ken-t0ken\"', Cookie = 'a=1; s=c00kie-c00kie' }}"
        );
        assert_eq!(
            redact_with(&written, &[], "t0ken-t0ken, c00kie-c00kie"),
            "[redacted], [redacted]"
        );
        let other = format!("{server} X-What = 'Bearer b3arer-b3arer' }}");
        assert_eq!(redact_with(&other, &[], "b3arer-b3arer"), "[redacted]");
    }

    #[test]
    fn e7_what_the_environment_gives_is_secret_wherever_it_stands() {
        let environment = [("KEY", "k3y/k3y+k3y#"), ("HOST", "search.example.com")];
        let url = "[mcpServers.a]\nurl = 'https://${HOST}/s/${KEY}/mcp'";
        let told = "https://search.example.com/s/k3y/k3y+k3y%23/mcp k3y/k3y+k3y#";
        assert_eq!(redact_with(url, &environment, told), {
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
        let told = format!("/no/such/home {root} eu-west-1");
        assert_eq!(redact_with(server, &environment, &told), told);
    }

    #[test]
    fn e7_url_credentials_are_redacted() {
        let of = |url: &str| format!("[mcpServers.a]\nurl = '{url}'");
        let url = "https://u:p%40ssw0rd@h/mcp?key=k3y-k3y-k3y&mode=readonly";
        let told = "p%40ssw0rd p@ssw0rd k3y-k3y-k3y readonly ?key=k3y-k3y-k3y&mode=readonly";
        assert_eq!(redact_with(&of(url), &[], told), {
            "[redacted] [redacted] [redacted] readonly ?[redacted]"
        });
        assert_eq!(redact_with(&of("https://t0ken-t0ken@h/mcp"), &[], "t0ken-t0ken"), "[redacted]");
        let model = "[models.a]\nwire = 'openai'\nmodel = 'm'\n\
                     base_url = 'https://h/v1?api_key=k3y-k3y-k3y'";
        assert_eq!(redact_with(model, &[], "k3y-k3y-k3y"), "[redacted]");
    }
}
