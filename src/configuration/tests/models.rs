//! Of models: their keys, who stands in for whom, and their time limits.

use super::*;

#[test]
fn m1_a_key_in_the_environment_is_enough_for_a_model() {
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
fn a_provider_s_key_goes_nowhere_else() {
    let text = "[models.local]\nwire = 'openai'\nmodel = 'm'\nbase_url = 'http://127.0.0.1:1'";
    let configuration = load(&[("g.toml", text)], &[("OPENAI_API_KEY", "k")]).unwrap();
    assert_eq!(configuration.models["local"].api_key, None);
    assert_eq!(agent(&configuration, AGENT_DEFAULT).models, ["local"]);
}

#[test]
fn m4_of_several_models_those_without_a_key_are_passed_over() {
    let text = "[agents.a]\nmodels = ['anthropic', 'openai']";
    let configuration = load(&[("g.toml", text)], &[("OPENAI_API_KEY", "k")]).unwrap();
    assert_eq!(agent(&configuration, "a").models, ["openai"]);
}

#[test]
fn m5_the_rehearsal_stands_in_only_where_it_is_configured() {
    let text = "rehearsal = 's.toml'\n[agents.a]\nmodel = 'anthropic'";
    assert_eq!(agent(&file(text).unwrap(), "a").models, [REHEARSAL]);
    let configuration = load(&[("g.toml", text)], &[("ANTHROPIC_API_KEY", "k")]).unwrap();
    assert_eq!(agent(&configuration, "a").models, ["anthropic"]);
}

#[test]
fn an_agent_must_name_its_model_where_there_are_several() {
    let one = "[models.a]\nwire = 'openai'\nmodel = 'm'\nbase_url = 'http://x'\n";
    let error = file(&format!("{one}{}", one.replace("models.a", "models.b"))).unwrap_err();
    assert!(
        error.contains("agents.default: it names no model, and there are several: a, b"),
        "{error}"
    );
}

#[test]
fn m3_a_time_limit_is_longer_than_nothing_and_an_hour_at_most() {
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
