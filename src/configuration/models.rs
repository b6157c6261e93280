//! Models: the configured and the built-in models, and the selection of an agent's models.

use super::{ConfigurationError, Environment, LoadContext, Secret};
use greenroom_core::{duration::ConfigDuration, usage::ModelPrice};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The name of the scripted model (M5), which has no configured endpoint.
pub const REHEARSAL: &str = "rehearsal";

/// Minimum of `context_tokens`.
const CONTEXT_TOKENS_MIN: u64 = 1_000;
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// The default allows for reasoning models, which can be silent for long.
const IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);
/// Maximum of both timeouts.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The API of a model's server (M1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelWireFormat {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    #[serde(rename = "openai")]
    OpenAi,
}

/// The request parameter that limits output tokens in the OpenAI API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxTokensParameter {
    /// `max_completion_tokens`.
    #[default]
    Current,
    /// `max_tokens`, for servers that do not support the current parameter.
    Legacy,
}

/// A model and its endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelEndpoint {
    /// The configured name.
    pub name: String,
    /// The API of its server.
    pub wire: ModelWireFormat,
    /// The provider's name of the model; `None` selects the only model that the server serves.
    pub model: Option<String>,
    /// The base URL as the provider's own SDKs use it: `https://api.anthropic.com`,
    /// `https://api.openai.com/v1`. Without a trailing slash.
    pub base_url: String,
    /// The API key that is sent with requests, if any.
    pub api_key: Option<Secret>,
    /// True if the model can be called: no key is required, or the key is set.
    pub usable: bool,
    /// The environment variable of the key, if a key is required.
    pub api_key_env: Option<String>,
    /// The parameter that limits output tokens.
    pub max_tokens_parameter: MaxTokensParameter,
    /// Timeout for connecting.
    pub connect_timeout: Duration,
    /// Maximum time without a received byte.
    pub idle_timeout: Duration,
    /// The price; `None` if the cost is unknown.
    pub price: Option<ModelPrice>,
    /// The size of the context window in tokens; `None` selects the default.
    pub context_tokens: Option<u64>,
}

impl ModelEndpoint {
    /// Creates a model that requires no key, with default timeouts.
    pub fn without_key(name: &str, wire: ModelWireFormat, base_url: String) -> Self {
        Self {
            name: name.to_owned(),
            wire,
            model: Some(name.to_owned()),
            base_url,
            api_key: None,
            usable: true,
            api_key_env: None,
            max_tokens_parameter: MaxTokensParameter::default(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            idle_timeout: IDLE_TIMEOUT_DEFAULT,
            price: None,
            context_tokens: None,
        }
    }
}

/// `[models.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawModel {
    wire: Option<ModelWireFormat>,
    model: Option<String>,
    base_url: Option<String>,
    api_key_env: Option<String>,
    legacy_max_tokens: bool,
    connect_timeout: Option<ConfigDuration>,
    idle_timeout: Option<ConfigDuration>,
    price: Option<ModelPrice>,
    context_tokens: Option<u64>,
}

/// A provider with a built-in model.
struct Provider {
    /// The name of the provider and of its built-in model.
    name: &'static str,
    wire: ModelWireFormat,
    model: &'static str,
    base_url: &'static str,
    base_url_env: &'static str,
    api_key_env: &'static str,
}

impl Provider {
    /// True if `base_url` is a server of the provider, for example a regional one.
    fn is_own_server(&self, base_url: &str) -> bool {
        let host = |url: &str| Some(reqwest::Url::parse(url).ok()?.host_str()?.to_owned());
        let (Some(own), Some(host)) = (host(self.base_url), host(base_url)) else { return false };
        host == own || host.ends_with(&format!(".{own}"))
    }
}

const PROVIDERS: [Provider; 2] = [
    Provider {
        name: "anthropic",
        wire: ModelWireFormat::Anthropic,
        model: "claude-sonnet-4-5",
        base_url: "https://api.anthropic.com",
        base_url_env: "ANTHROPIC_BASE_URL",
        api_key_env: "ANTHROPIC_API_KEY",
    },
    Provider {
        name: "openai",
        wire: ModelWireFormat::OpenAi,
        model: "gpt-5-mini",
        base_url: "https://api.openai.com/v1",
        base_url_env: "OPENAI_BASE_URL",
        api_key_env: "OPENAI_API_KEY",
    },
];

/// Returns all configured models, and the built-in models whose provider's key is set.
pub(super) fn endpoints(
    raw: BTreeMap<String, RawModel>,
    context: &LoadContext<'_>,
) -> Result<BTreeMap<String, ModelEndpoint>, ConfigurationError> {
    let mut endpoints = BTreeMap::new();
    for (name, model) in raw {
        let endpoint = endpoint(&name, model, context.environment).map_err(|problem| {
            ConfigurationError::invalid(
                format_args!("{}, models.{name}", context.location),
                problem,
            )
        })?;
        endpoints.insert(name, endpoint);
    }
    for provider in &PROVIDERS {
        if !endpoints.contains_key(provider.name)
            && non_empty_variable(context.environment, provider.api_key_env).is_some()
        {
            let built_in = endpoint(provider.name, RawModel::default(), context.environment);
            let built_in = built_in
                .map_err(|problem| ConfigurationError::invalid(provider.base_url_env, problem))?;
            endpoints.insert(provider.name.to_owned(), built_in);
        }
    }
    Ok(endpoints)
}

fn endpoint(name: &str, raw: RawModel, environment: &Environment) -> Result<ModelEndpoint, String> {
    if name == REHEARSAL {
        return Err(format!(
            "`{REHEARSAL}` is the name of the scripted model; choose another name"
        ));
    }
    let built_in = PROVIDERS.iter().find(|provider| provider.name == name);
    let wire = raw.wire.or(built_in.map(|provider| provider.wire));
    let wire = wire.ok_or("`wire` is missing; it must be \"anthropic\" or \"openai\"")?;
    let provider = PROVIDERS.iter().find(|provider| provider.wire == wire);
    let provider = provider.expect("every wire format has a provider");
    // The provider's key is only sent to the provider; a configured base_url requires api_key_env.
    let (base_url, key_env_default) = match raw.base_url {
        Some(base_url) => (base_url, None),
        None => {
            let override_url = non_empty_variable(environment, provider.base_url_env);
            (
                override_url.unwrap_or(provider.base_url).to_owned(),
                Some(provider.api_key_env.to_owned()),
            )
        }
    };
    if !(base_url.starts_with("http://") || base_url.starts_with("https://")) {
        return Err(format!("base_url must start with http:// or https://, not `{base_url}`"));
    }
    let model = match (raw.model, built_in, wire) {
        (Some(model), _, _) => Some(model),
        // Compatible servers serve models of their own, and list them.
        (None, _, ModelWireFormat::OpenAi) if !provider.is_own_server(&base_url) => None,
        (None, Some(built_in), _) => Some(built_in.model.to_owned()),
        (None, None, _) => {
            return Err("`model` is missing; it must be the provider's name of the model".into());
        }
    };
    if let Some(tokens) = raw.context_tokens.filter(|tokens| *tokens < CONTEXT_TOKENS_MIN) {
        return Err(format!("context_tokens must be at least {CONTEXT_TOKENS_MIN}, not {tokens}"));
    }
    let timeouts = [("connect_timeout", raw.connect_timeout), ("idle_timeout", raw.idle_timeout)];
    for (key, timeout) in timeouts {
        let is_invalid = |timeout: &ConfigDuration| timeout.0.is_zero() || timeout.0 > TIMEOUT_MAX;
        if let Some(timeout) = timeout.filter(is_invalid) {
            return Err(format!(
                "{key} must be longer than 0 and at most {}, not {timeout}",
                ConfigDuration(TIMEOUT_MAX)
            ));
        }
    }
    let api_key_env = raw.api_key_env.or(key_env_default);
    let api_key =
        api_key_env.as_deref().and_then(|variable| non_empty_variable(environment, variable));
    Ok(ModelEndpoint {
        name: name.to_owned(),
        wire,
        model,
        base_url: base_url.trim_end_matches('/').to_owned(),
        usable: api_key.is_some() || api_key_env.is_none(),
        api_key: api_key.map(|key| Secret::from(key.to_owned())),
        api_key_env,
        max_tokens_parameter: if raw.legacy_max_tokens {
            MaxTokensParameter::Legacy
        } else {
            MaxTokensParameter::Current
        },
        connect_timeout: raw.connect_timeout.map_or(CONNECT_TIMEOUT_DEFAULT, |span| span.0),
        idle_timeout: raw.idle_timeout.map_or(IDLE_TIMEOUT_DEFAULT, |span| span.0),
        price: raw.price,
        context_tokens: raw.context_tokens,
    })
}

/// Returns the value of a variable that is set and not empty.
fn non_empty_variable<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// Selects the models of agents.
pub(super) struct ModelSelector<'a> {
    pub(super) models: &'a BTreeMap<String, ModelEndpoint>,
    /// True if a rehearsal script is configured to replace models without a key.
    pub(super) has_rehearsal: bool,
}

impl ModelSelector<'_> {
    /// Returns the models of an agent that configures `names`, in order of preference.
    pub(super) fn select(&self, names: Option<Vec<String>>) -> Result<Vec<String>, String> {
        match names {
            Some(names) if names.is_empty() => {
                Err("models must contain at least one model".to_owned())
            }
            Some(names) => self.select_named(names),
            None => self.select_default(),
        }
    }

    fn unknown_model(&self, name: &str) -> String {
        let built_in = PROVIDERS.iter().map(|provider| provider.name);
        let known: BTreeSet<&str> =
            self.models.keys().map(String::as_str).chain(built_in).collect();
        let known = Vec::from_iter(known).join(", ");
        format!("unknown model `{name}`; add the table `[models.{name}]`, or use one of: {known}")
    }

    fn select_named(&self, names: Vec<String>) -> Result<Vec<String>, String> {
        let mut usable: Vec<String> = Vec::new();
        let mut missing_key = None;
        for name in names {
            if usable.contains(&name) {
                return Err(format!("models contains `{name}` twice"));
            }
            match self.models.get(&name) {
                _ if name == REHEARSAL => usable.push(name),
                Some(endpoint) if endpoint.usable => usable.push(name),
                Some(endpoint) => missing_key = endpoint.api_key_env.clone().map(|key| (name, key)),
                None => match PROVIDERS.iter().find(|provider| provider.name == name) {
                    Some(provider) => missing_key = Some((name, provider.api_key_env.to_owned())),
                    None => return Err(self.unknown_model(&name)),
                },
            }
        }
        match missing_key {
            // The list is an order of preference, so one usable model is sufficient.
            _ if !usable.is_empty() => Ok(usable),
            // The rehearsal replaces models without a key only if its script is configured.
            _ if self.has_rehearsal => Ok(vec![REHEARSAL.to_owned()]),
            Some((name, key)) => {
                Err(format!("the model `{name}` requires the environment variable {key}"))
            }
            None => Err("no model is usable".to_owned()),
        }
    }

    /// Returns the only configured model, else the first usable built-in model, else the rehearsal.
    /// Fails if several models are configured.
    fn select_default(&self) -> Result<Vec<String>, String> {
        let usable: Vec<&String> = self
            .models
            .iter()
            .filter(|(_, endpoint)| endpoint.usable)
            .map(|(name, _)| name)
            .collect();
        let is_provider = |name: &str| PROVIDERS.iter().any(|provider| provider.name == name);
        let configured: Vec<&String> =
            usable.iter().copied().filter(|name| !is_provider(name)).collect();
        match (configured.as_slice(), usable.as_slice()) {
            ([only], _) => Ok(vec![(*only).clone()]),
            ([], [first, ..]) => Ok(vec![(*first).clone()]),
            ([], []) => Ok(vec![REHEARSAL.to_owned()]),
            ([_, _, ..], _) => {
                let names: Vec<&str> = usable.iter().map(|name| name.as_str()).collect();
                Err(format!("no model is set, and several are usable: {}", names.join(", ")))
            }
        }
    }
}
