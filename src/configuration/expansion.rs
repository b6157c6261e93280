//! Expands `${NAME}` and `${NAME:-default}` in the configuration of tool servers.

use super::{Environment, Secret};
use crate::tool::INHERITED_ENVIRONMENT;

/// Returns `text` with every `${NAME}`, `${NAME:-default}` and `${env:NAME}` replaced. A `${` in a
/// variable's value is not expanded. Adds each value to `secrets`, except values of variables that
/// every tool server inherits.
pub(super) fn expand(
    text: &str,
    environment: &Environment,
    secrets: &mut Vec<Secret>,
) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let after = &rest[start + 2..];
        let end = after.find('}').ok_or_else(|| "`${` without a closing `}`".to_owned())?;
        let (name, default) = match after[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&after[..end], None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        let variable = environment.get(name).map(String::as_str).filter(|value| !value.is_empty());
        if let Some(value) = variable
            && !INHERITED_ENVIRONMENT.contains(&name)
        {
            secrets.push(Secret::from(value.to_owned()));
        }
        let value = variable
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
    fn variables_are_replaced_by_their_values() {
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
    fn e7_values_of_the_environment_are_collected_as_secrets() {
        let variables = [("A", "a"), ("B", "b"), ("HOME", "/home")];
        let environment = variables.map(|(name, value)| (name.into(), value.into())).into();
        let mut secrets = Vec::new();
        expand("${A} ${HOME} ${env:B} ${C:-c}", &environment, &mut secrets).unwrap();
        assert_eq!(secrets.iter().map(Secret::expose).collect::<Vec<_>>(), ["a", "b"]);
    }
}
