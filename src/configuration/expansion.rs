//! `${NAME}` in what is configured for tool servers: the environment's word, or `${NAME:-a default}`.

use super::{Environment, Secret};
use crate::tool::INHERITED_ENVIRONMENT;

/// `text` with every `${NAME}`, `${NAME:-default}` and `${env:NAME}` replaced. What the
/// environment says is taken as it is: a `${` in it stays. It is also added to `taken`, unless every
/// tool server is told it anyway.
pub(super) fn expand(
    text: &str,
    environment: &Environment,
    taken: &mut Vec<Secret>,
) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let after = &rest[start + 2..];
        let end = after.find('}').ok_or_else(|| "`${` has no closing `}`".to_owned())?;
        let (name, default) = match after[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&after[..end], None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        let said = environment.get(name).map(String::as_str).filter(|value| !value.is_empty());
        if let Some(said) = said
            && !INHERITED_ENVIRONMENT.contains(&name)
        {
            taken.push(Secret::from(said.to_owned()));
        }
        let value = said
            .or(default)
            .ok_or_else(|| format!("the environment variable {name} is not set"))?;
        expanded.push_str(&rest[..start]);
        expanded.push_str(value);
        rest = &after[end + 1..];
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_values() {
        let environment =
            Environment::from([("A".into(), "1${B}".into()), ("EMPTY".into(), String::new())]);
        let expand = |text| expand(text, &environment, &mut Vec::new());
        assert_eq!(expand("x"), Ok("x".into()));
        assert_eq!(
            expand("<${A}|${env:A}|${NO:-d e}|${EMPTY:-f}>"),
            Ok("<1${B}|1${B}|d e|f>".into())
        );
        assert_eq!(expand("$A {A}"), Ok("$A {A}".into()));
        assert!(expand("${NO}").unwrap_err().contains("NO is not set"));
        assert!(expand("${A").is_err());
    }

    #[test]
    fn e7_what_the_environment_gives_is_remembered() {
        let said = [("A", "a"), ("B", "b"), ("HOME", "/home")];
        let environment = said.map(|(name, value)| (name.into(), value.into())).into();
        let mut taken = Vec::new();
        expand("${A} ${HOME} ${env:B} ${C:-c}", &environment, &mut taken).unwrap();
        assert_eq!(taken.iter().map(Secret::expose).collect::<Vec<_>>(), ["a", "b"]);
    }
}
