//! Tests of models: keys, fallbacks and timeouts.

use super::*;

#[test]
fn m1_provider_key_in_environment_enables_built_in_model() {
    let keys =
        [("ANTHROPIC_API_KEY", "k1"), ("OPENAI_API_KEY", "k2"), ("OPENAI_BASE_URL", "http://x/v1")];
    let configuration = load(&[], &keys).unwrap();
    assert_eq!(agent(&configuration, AGENT_DEFAULT).models, ["anthropic"]);
    let anthropic = &configuration.models["anthropic"];
    assert_eq!(anthropic.base_url, "https://api.anthropic.com");
    assert_eq!(anthropic.api_key.as_ref().map(Secret::expose), Some("k1"));
    assert_eq!(configuration.models["openai"].base_url, "http://x/v1");
    let configuration = load(&[], &keys[1..]).unwrap();
    assert_eq!(agent(&configuration, AGENT_DEFAULT).models, ["openai"]);
}

#[test]
fn m1_model_of_another_server_is_unknown_unless_configured() {
    let model = |variables: &[(&str, &str)], name: &str| {
        load(&[], variables).unwrap().models[name].model.clone()
    };
    for (base_url, expected) in [
        ("https://api.openai.com/v1", Some("gpt-5-mini")),
        ("https://eu.api.openai.com/v1", Some("gpt-5-mini")),
        ("http://127.0.0.1:11434/v1", None),
        ("https://notapi.openai.com.example/v1", None),
    ] {
        let variables = [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", base_url)];
        assert_eq!(model(&variables, "openai").as_deref(), expected, "{base_url}");
        let choice = ("GREENROOM_MODELS__OPENAI__MODEL", "qwen3:8b");
        let variables = [&variables[..], &[choice]].concat();
        assert_eq!(model(&variables, "openai").as_deref(), Some("qwen3:8b"), "{base_url}");
    }
    let variables = [("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")];
    assert_eq!(model(&variables, "anthropic").as_deref(), Some("claude-sonnet-4-5"));
    let text = "[models.local]\nwire = 'openai'\nbase_url = 'http://127.0.0.1:1'";
    assert_eq!(file(text).unwrap().models["local"].model, None);
    let error = file(&text.replace("openai", "anthropic")).unwrap_err();
    assert!(error.contains("models.local: `model` is missing"), "{error}");
}

#[test]
fn provider_key_is_not_sent_to_other_servers() {
    let text = "[models.local]\nwire = 'openai'\nmodel = 'm'\nbase_url = 'http://127.0.0.1:1'";
    let configuration = load(&[("g.toml", text)], &[("OPENAI_API_KEY", "k")]).unwrap();
    assert_eq!(configuration.models["local"].api_key, None);
    assert_eq!(agent(&configuration, AGENT_DEFAULT).models, ["local"]);
}

#[test]
fn m4_models_without_key_are_skipped() {
    let text = "[agents.a]\nmodels = ['anthropic', 'openai']";
    let configuration = load(&[("g.toml", text)], &[("OPENAI_API_KEY", "k")]).unwrap();
    assert_eq!(agent(&configuration, "a").models, ["openai"]);
}

#[test]
fn m5_rehearsal_replaces_models_only_if_configured() {
    let text = "rehearsal = 's.toml'\n[agents.a]\nmodel = 'anthropic'";
    assert_eq!(agent(&file(text).unwrap(), "a").models, [REHEARSAL]);
    let configuration = load(&[("g.toml", text)], &[("ANTHROPIC_API_KEY", "k")]).unwrap();
    assert_eq!(agent(&configuration, "a").models, ["anthropic"]);
}

#[test]
fn agent_without_model_is_rejected_if_several_are_configured() {
    let model = "[models.a]\nwire = 'openai'\nmodel = 'm'\nbase_url = 'http://x'\n";
    let error = file(&format!("{model}{}", model.replace("models.a", "models.b"))).unwrap_err();
    assert!(
        error.contains("agents.default: no model is set, and several are usable: a, b"),
        "{error}"
    );
}

#[test]
fn m3_timeout_must_be_positive_and_at_most_one_hour() {
    let timeouts = |key: &str, span: &str| file(&format!("[models.openai]\n{key} = '{span}'"));
    for key in ["connect_timeout", "idle_timeout"] {
        for span in ["0s", "61m"] {
            let error = timeouts(key, span).unwrap_err();
            let expected = format!("models.openai: {key} must be longer than 0 and at most 1h");
            assert!(error.contains(&expected), "{error}");
        }
    }
    let configuration = timeouts("idle_timeout", "1h").unwrap();
    assert_eq!(configuration.models["openai"].idle_timeout, Duration::from_secs(3600));
}
