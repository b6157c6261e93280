//! Models: what is configured of them, what is built in, and which an agent gets that names none.

use super::{ConfigurationError, Environment, LoadContext, Secret};
use greenroom_core::{duration::ConfigDuration, usage::ModelPrice};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// The name of the scripted model (M5). It has no endpoint of its own in configuration.
pub const REHEARSAL: &str = "rehearsal";

/// Tokens that a model's context must hold.
const CONTEXT_TOKENS_MIN: u64 = 1_000;
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Models that think may be silent for long.
const IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);
/// The most of either.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The language a model's server speaks (M1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelWireFormat {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    #[serde(rename = "openai")]
    OpenAi,
}

/// How a request bounds its output tokens in OpenAI's language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxTokensParameter {
    /// `max_completion_tokens`.
    #[default]
    Current,
    /// `max_tokens`, for servers that know only this one.
    Legacy,
}

/// A model and how to reach it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelEndpoint {
    /// Its name in configuration.
    pub name: String,
    /// The language its server speaks.
    pub wire: ModelWireFormat,
    /// The provider's name for it.
    pub model: String,
    /// Where the provider's own software would be pointed: `https://api.anthropic.com`,
    /// `https://api.openai.com/v1`. Without a slash at the end.
    pub base_url: String,
    /// Sent with requests, where there is one.
    pub api_key: Option<Secret>,
    /// Whether it can be called: a key that is asked for is there.
    pub usable: bool,
    /// The environment variable its key is in, if it needs one.
    pub api_key_env: Option<String>,
    /// How output tokens are bounded.
    pub max_tokens_parameter: MaxTokensParameter,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// Time without a byte.
    pub idle_timeout: Duration,
    /// What it costs; absent, the cost is unknown.
    pub price: Option<ModelPrice>,
    /// Tokens that its context holds; absent, the usual.
    pub context_tokens: Option<u64>,
}

impl ModelEndpoint {
    /// A model that needs no key, with default limits.
    pub fn without_key(name: &str, wire: ModelWireFormat, base_url: String) -> Self {
        Self {
            name: name.to_owned(),
            wire,
            model: name.to_owned(),
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

/// A provider whose model needs no word of configuration.
struct Provider {
    /// Also the name of its built-in model.
    name: &'static str,
    wire: ModelWireFormat,
    model: &'static str,
    base_url: &'static str,
    base_url_env: &'static str,
    api_key_env: &'static str,
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

/// Every model: those that are configured, and the providers' own where their key is set.
pub(super) fn endpoints(
    written: BTreeMap<String, RawModel>,
    surroundings: &LoadContext<'_>,
) -> Result<BTreeMap<String, ModelEndpoint>, ConfigurationError> {
    let mut endpoints = BTreeMap::new();
    for (name, model) in written {
        let endpoint = endpoint(&name, model, surroundings.environment).map_err(|problem| {
            ConfigurationError::invalid(
                format_args!("{}, models.{name}", surroundings.location),
                problem,
            )
        })?;
        endpoints.insert(name, endpoint);
    }
    for provider in &PROVIDERS {
        if !endpoints.contains_key(provider.name)
            && non_empty_variable(surroundings.environment, provider.api_key_env).is_some()
        {
            let built_in = endpoint(provider.name, RawModel::default(), surroundings.environment);
            let built_in = built_in
                .map_err(|problem| ConfigurationError::invalid(provider.base_url_env, problem))?;
            endpoints.insert(provider.name.to_owned(), built_in);
        }
    }
    Ok(endpoints)
}

fn endpoint(
    name: &str,
    written: RawModel,
    environment: &Environment,
) -> Result<ModelEndpoint, String> {
    if name == REHEARSAL {
        return Err(format!("`{REHEARSAL}` is the scripted model; choose another name"));
    }
    let own = PROVIDERS.iter().find(|provider| provider.name == name);
    let wire = written.wire.or(own.map(|provider| provider.wire));
    let wire = wire.ok_or("it needs `wire = \"anthropic\"` or `wire = \"openai\"`")?;
    let model = written.model.or(own.map(|provider| provider.model.to_owned()));
    let model = model.ok_or("it needs `model`, the provider's name for it")?;
    let provider = PROVIDERS.iter().find(|provider| provider.wire == wire);
    let provider = provider.expect("every wire has its provider");
    // The provider's key goes to the provider alone: another server gets a key if it is named.
    let (base_url, key_env_default) = match written.base_url {
        Some(base_url) => (base_url, None),
        None => {
            let elsewhere = non_empty_variable(environment, provider.base_url_env);
            (
                elsewhere.unwrap_or(provider.base_url).to_owned(),
                Some(provider.api_key_env.to_owned()),
            )
        }
    };
    if !(base_url.starts_with("http://") || base_url.starts_with("https://")) {
        return Err(format!("base_url must start with http:// or https://, not `{base_url}`"));
    }
    if let Some(price) = written.price {
        let parts = [price.input, price.output, price.cached.unwrap_or(0.0)];
        if !parts.iter().all(|part| part.is_finite() && *part >= 0.0) {
            return Err("prices must be numbers of 0 or more".to_owned());
        }
    }
    if written.context_tokens.is_some_and(|tokens| tokens < CONTEXT_TOKENS_MIN) {
        return Err(format!("context_tokens must be at least {CONTEXT_TOKENS_MIN}"));
    }
    let timeouts =
        [("connect_timeout", written.connect_timeout), ("idle_timeout", written.idle_timeout)];
    for (key, timeout) in timeouts {
        if timeout.is_some_and(|ConfigDuration(timeout)| timeout.is_zero() || timeout > TIMEOUT_MAX)
        {
            return Err(format!(
                "{key} must be longer than 0 and at most {}",
                ConfigDuration(TIMEOUT_MAX)
            ));
        }
    }
    let api_key_env = written.api_key_env.or(key_env_default);
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
        max_tokens_parameter: if written.legacy_max_tokens {
            MaxTokensParameter::Legacy
        } else {
            MaxTokensParameter::Current
        },
        connect_timeout: written.connect_timeout.map_or(CONNECT_TIMEOUT_DEFAULT, |span| span.0),
        idle_timeout: written.idle_timeout.map_or(IDLE_TIMEOUT_DEFAULT, |span| span.0),
        price: written.price,
        context_tokens: written.context_tokens,
    })
}

/// A variable that is set to something.
fn non_empty_variable<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// What agents may choose from.
pub(super) struct ModelSelector<'a> {
    pub(super) models: &'a BTreeMap<String, ModelEndpoint>,
    /// Whether a script is configured to stand in for models without a key.
    pub(super) has_rehearsal: bool,
}

impl ModelSelector<'_> {
    /// The models of an agent that names `wanted`, or none.
    pub(super) fn select(&self, wanted: Option<Vec<String>>) -> Result<Vec<String>, String> {
        match wanted {
            Some(wanted) if wanted.is_empty() => Err("models must name at least one".to_owned()),
            Some(wanted) => self.select_named(wanted),
            None => self.select_default(),
        }
    }

    fn select_named(&self, wanted: Vec<String>) -> Result<Vec<String>, String> {
        let mut usable: Vec<String> = Vec::new();
        let mut missing_key = None;
        for name in wanted {
            if usable.contains(&name) {
                return Err(format!("models names `{name}` twice"));
            }
            match self.models.get(&name) {
                _ if name == REHEARSAL => usable.push(name),
                Some(endpoint) if endpoint.usable => usable.push(name),
                Some(endpoint) => missing_key = endpoint.api_key_env.clone().map(|key| (name, key)),
                None => match PROVIDERS.iter().find(|provider| provider.name == name) {
                    Some(provider) => missing_key = Some((name, provider.api_key_env.to_owned())),
                    None => return Err(format!("there is no model `{name}`")),
                },
            }
        }
        match missing_key {
            // A list is an order of preference; one of them is enough.
            _ if !usable.is_empty() => Ok(usable),
            // Never the script by surprise: it must be configured.
            _ if self.has_rehearsal => Ok(vec![REHEARSAL.to_owned()]),
            Some((name, key)) => {
                Err(format!("the model `{name}` needs the environment variable {key}"))
            }
            None => Err("no model can be used".to_owned()),
        }
    }

    /// One model, where there is no doubt which; the rehearsal where there is none.
    fn select_default(&self) -> Result<Vec<String>, String> {
        let usable: Vec<&String> = self
            .models
            .iter()
            .filter(|(_, endpoint)| endpoint.usable)
            .map(|(name, _)| name)
            .collect();
        let is_provider = |name: &str| PROVIDERS.iter().any(|provider| provider.name == name);
        let own: Vec<&String> = usable.iter().copied().filter(|name| !is_provider(name)).collect();
        match (own.as_slice(), usable.as_slice()) {
            ([only], _) => Ok(vec![(*only).clone()]),
            ([], [first, ..]) => Ok(vec![(*first).clone()]),
            ([], []) => Ok(vec![REHEARSAL.to_owned()]),
            ([_, _, ..], _) => {
                let names: Vec<&str> = usable.iter().map(|name| name.as_str()).collect();
                Err(format!("it names no model, and there are several: {}", names.join(", ")))
            }
        }
    }
}
