//! Loads and merges the configuration sources: files, includes and environment variables.

use super::{
    ConfigurationError, Environment, FILE_DEFAULT,
    config_file::{ConfigFile, IncludedFile},
    toml_error,
};
use greenroom_core::policy::catalog::CatalogEntry;
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};
use toml::{Table, Value};

/// Maximum bytes of a configuration file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum depth of nested includes.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Maximum number of included files.
const INCLUDES_MAX: usize = 256;

const PREFIX: &str = "GREENROOM_";
/// Variables with the prefix that are not keys of the configuration file.
const NON_CONFIG_VARIABLES: &[&str] = &[
    "TOKEN",
    "CONFIG",
    "LOG",
    // Belongs to `greenroom rehearse`.
    "REHEARSE_LISTEN",
    // A release build has no fault injection and rejects the variable as unknown.
    #[cfg(debug_assertions)]
    "FAULT",
];
/// Keys that hold the path of a file to load. A path from the environment is relative to the working
/// folder, as on a command line.
const PATH_KEYS: [&str; 3] = ["rehearsal", "mcp_servers_file", "system_file"];

/// Catalog entries by server, if they name one, and key. An entry replaces that of an included file
/// only if both are for the same server.
type CatalogEntries = BTreeMap<(Option<String>, String), CatalogEntry>;

/// The merged configuration sources.
pub(super) struct ConfigSource {
    pub(super) file: Option<PathBuf>,
    /// The folder that the file's relative paths start from.
    pub(super) folder: PathBuf,
    pub(super) document: ConfigFile,
    /// The file's text.
    pub(super) text: String,
    /// The tools of the file and of its includes.
    pub(super) tools: CatalogEntries,
}

impl ConfigSource {
    pub(super) fn load(
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, ConfigurationError> {
        let (file, text) = find_file(file, environment)?;
        let location = file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
        let document: ConfigFile = parse(&text, &location)?;
        let document = apply_environment(document, &text, environment)?;
        let folder = file.as_deref().map(folder_of).unwrap_or_default();
        let mut includes = IncludeResolver::default();
        if let Some(file) = &file {
            includes.include_stack.push(canonical_path(file));
        }
        includes.resolve(&document.include, &folder, &location)?;
        let mut tools = includes.tools;
        tools.extend(with_server(document.tools.clone(), document.server.as_deref()));
        Ok(Self { file, folder, document, text, tools })
    }

    /// Returns the path of the file, for errors.
    pub(super) fn location(&self) -> String {
        match &self.file {
            Some(file) => file.display().to_string(),
            None => "the environment".to_owned(),
        }
    }
}

/// Returns the entries of a file, each with its server: its own, else the `server` of the file.
fn with_server(
    tools: BTreeMap<String, CatalogEntry>,
    server: Option<&str>,
) -> impl Iterator<Item = ((Option<String>, String), CatalogEntry)> {
    tools.into_iter().map(move |(key, mut entry)| {
        entry.server = entry.server.or_else(|| server.map(str::to_owned));
        ((entry.server.clone(), key), entry)
    })
}

fn find_file(
    file: Option<&Path>,
    environment: &Environment,
) -> Result<(Option<PathBuf>, String), ConfigurationError> {
    let variable = environment.get("GREENROOM_CONFIG").filter(|file| !file.is_empty());
    let named = match (file, variable) {
        (Some(file), _) => Some((file.to_owned(), "the command line")),
        (None, Some(file)) => Some((PathBuf::from(file), "GREENROOM_CONFIG")),
        (None, None) => None,
    };
    match named {
        Some((file, named_by)) => {
            let text = read_text(&file, named_by)?;
            Ok((Some(file), text))
        }
        None if Path::new(FILE_DEFAULT).exists() => {
            let file = PathBuf::from(FILE_DEFAULT);
            let text = read_text(&file, "the working folder")?;
            Ok((Some(file), text))
        }
        None => Ok((None, String::new())),
    }
}

/// Reads the file at `path`, which `named_by` references.
pub(super) fn read_text(path: &Path, named_by: &str) -> Result<String, ConfigurationError> {
    let read = || {
        let mut text = String::new();
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            let problem = format!("the file exceeds the limit of {FILE_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        Ok(text)
    };
    read().map_err(|source| ConfigurationError::Unreadable {
        path: path.to_owned(),
        named_by: named_by.to_owned(),
        source,
    })
}

/// Returns the folder of a file.
pub(super) fn folder_of(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}

pub(super) fn parse<T: DeserializeOwned>(
    text: &str,
    location: &str,
) -> Result<T, ConfigurationError> {
    toml_error::parse_toml(text).map_err(|error| {
        ConfigurationError::invalid(format_args!("{location}:{}", error.line), error.problem)
    })
}

/// Returns the document with the values of environment variables, which override those of the file.
/// Variables are applied one by one, so that an error can name its variable.
pub(super) fn apply_environment(
    document: ConfigFile,
    text: &str,
    environment: &Environment,
) -> Result<ConfigFile, ConfigurationError> {
    let mut table: Table = parse(text, "")?;
    let mut document = document;
    for (variable, value) in environment {
        let Some(key) = variable.strip_prefix(PREFIX) else { continue };
        if NON_CONFIG_VARIABLES.contains(&key) {
            continue;
        }
        (table, document) = apply_variable(&table, key, value)
            .map_err(|problem| ConfigurationError::invalid(variable, problem))?;
    }
    Ok(document)
}

/// Returns the table with one more value, and the document parsed from it. Tries the text as a TOML
/// value first and as a string second, so that the type of the key decides.
fn apply_variable(table: &Table, key: &str, text: &str) -> Result<(Table, ConfigFile), String> {
    let typed = format!("value = {text}").parse::<Table>().ok();
    let typed = typed.and_then(|mut table| table.remove("value"));
    let plain = Value::String(text.to_owned());
    let mut errors = Vec::new();
    for value in typed.into_iter().chain([plain]) {
        let mut table = table.clone();
        set_key(&mut table, key, value)?;
        match toml_error::parse_table(table.clone()) {
            Ok(document) => return Ok((table, document)),
            Err(error) => errors.push(error),
        }
    }
    // The error of a value of the right type is more specific than a type mismatch.
    errors.sort_by_key(|error| error.is_type_mismatch);
    Err(errors.into_iter().next().map(|error| error.problem).unwrap_or_default())
}

/// Sets the value at the key path `A__B__C`. Existing names match in any case.
fn set_key(table: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let mut parts: Vec<&str> = key.split("__").collect();
    let last = parts.pop().unwrap_or_default();
    let mut table = table;
    for part in parts {
        let name = canonical_key(table, part);
        let inner = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
        table = inner.as_table_mut().ok_or_else(|| format!("`{part}` is not a table"))?;
    }
    let name = canonical_key(table, last);
    let value = if let (true, Some(path)) = (PATH_KEYS.contains(&name.as_str()), value.as_str()) {
        let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
        Value::String(absolute.to_string_lossy().into_owned())
    } else {
        value
    };
    table.insert(name, value);
    Ok(())
}

fn canonical_key(table: &Table, part: &str) -> String {
    let known = table.keys().find(|name| name.eq_ignore_ascii_case(part)).cloned();
    known.unwrap_or_else(|| match part {
        "MCPSERVERS" | "MCP_SERVERS" => "mcpServers".to_owned(),
        "L0" | "L1" | "L2" | "L3" => part.to_owned(),
        other => other.to_lowercase(),
    })
}

/// Resolves `include`. The including file overrides the included files; of two files included by the
/// same file, the later one overrides the earlier one.
#[derive(Default)]
struct IncludeResolver {
    tools: CatalogEntries,
    /// The files that are currently being resolved.
    include_stack: Vec<PathBuf>,
    count: usize,
}

impl IncludeResolver {
    fn resolve(
        &mut self,
        include: &[PathBuf],
        folder: &Path,
        location: &str,
    ) -> Result<(), ConfigurationError> {
        for path in include {
            let path = folder.join(path);
            let identity = canonical_path(&path);
            if self.include_stack.contains(&identity) {
                let problem = format!("circular include of {}", path.display());
                return Err(ConfigurationError::invalid(location, problem));
            }
            self.count += 1;
            if self.include_stack.len() > INCLUDE_DEPTH_MAX || self.count > INCLUDES_MAX {
                let problem = format!(
                    "too many included files; the limits are {INCLUDES_MAX} files and a depth of \
                     {INCLUDE_DEPTH_MAX}"
                );
                return Err(ConfigurationError::invalid(location, problem));
            }
            let text = read_text(&path, location)?;
            let inner_location = path.display().to_string();
            let included: IncludedFile = parse(&text, &inner_location)?;
            self.include_stack.push(identity);
            self.resolve(&included.include, &folder_of(&path), &inner_location)?;
            self.include_stack.pop();
            self.tools.extend(with_server(included.tools, included.server.as_deref()));
        }
        Ok(())
    }
}

/// Returns a path that is the same for all names of one file.
fn canonical_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
