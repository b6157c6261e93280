//! Finds what is said, in files and the environment, and where it was said.

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

/// Bytes of any file that is read.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Files that include each other in a chain.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Files that are included, all told.
const INCLUDES_MAX: usize = 256;

const PREFIX: &str = "GREENROOM_";
/// Variables with our prefix that are no keys of the document.
const NON_CONFIG_VARIABLES: &[&str] = &[
    "TOKEN",
    "CONFIG",
    "LOG",
    // Of `greenroom rehearse`.
    "REHEARSE_LISTEN",
    // A release build has no faults, and says that it knows of none.
    #[cfg(debug_assertions)]
    "FAULT",
];
/// Keys that hold a path of a file to read. From the environment it is relative to the working
/// folder, as on any command line.
const PATH_KEYS: [&str; 3] = ["rehearsal", "mcp_servers_file", "system_file"];

/// What is said.
pub(super) struct ConfigSource {
    pub(super) file: Option<PathBuf>,
    /// Where the file's relative paths start.
    pub(super) folder: PathBuf,
    pub(super) document: ConfigFile,
    /// The file's text.
    pub(super) text: String,
    /// The document's tools and those it includes.
    pub(super) tools: BTreeMap<String, CatalogEntry>,
}

impl ConfigSource {
    pub(super) fn load(
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, ConfigurationError> {
        let (file, text) = find_file(file, environment)?;
        let place = file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
        let document: ConfigFile = parse(&text, &place)?;
        let document = apply_environment(document, &text, environment)?;
        let folder = file.as_deref().map(folder_of).unwrap_or_default();
        let mut includes = IncludeResolver::default();
        if let Some(file) = &file {
            includes.include_stack.push(canonical_path(file));
        }
        includes.resolve(&document.include, &folder, &place)?;
        let mut tools = includes.tools;
        tools.extend(document.tools.clone());
        Ok(Self { file, folder, document, text, tools })
    }

    /// The file, for errors.
    pub(super) fn location(&self) -> String {
        match &self.file {
            Some(file) => file.display().to_string(),
            None => "the environment".to_owned(),
        }
    }
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

/// The text of a file that `named_by` names.
pub(super) fn read_text(path: &Path, named_by: &str) -> Result<String, ConfigurationError> {
    let read = || {
        let mut text = String::new();
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            let problem = format!("it has more than {FILE_BYTES_MAX} bytes");
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

/// The folder a file is in.
pub(super) fn folder_of(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(text: &str, place: &str) -> Result<T, ConfigurationError> {
    toml_error::parse_toml(text).map_err(|mistake| {
        ConfigurationError::invalid(format_args!("{place}:{}", mistake.line), mistake.problem)
    })
}

/// The document with what the environment says in place of what the file says. Variables are laid
/// over it one by one, so that an error can name its variable.
fn apply_environment(
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

/// The table with one more value, and what it means then. What the key wants decides whether `7`
/// is a number or a text.
fn apply_variable(table: &Table, key: &str, text: &str) -> Result<(Table, ConfigFile), String> {
    let typed = format!("value = {text}").parse::<Table>().ok();
    let typed = typed.and_then(|mut table| table.remove("value"));
    let plain = Value::String(text.to_owned());
    let mut mistakes = Vec::new();
    for value in typed.into_iter().chain([plain]) {
        let mut table = table.clone();
        set_key(&mut table, key, value)?;
        match toml_error::parse_table(table.clone()) {
            Ok(document) => return Ok((table, document)),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    // What is wrong with a value of the right type says more than that another's is wrong.
    mistakes.sort_by_key(|mistake| mistake.is_type_mismatch);
    Err(mistakes.into_iter().next().map(|mistake| mistake.problem).unwrap_or_default())
}

/// Sets the value at `A__B__C`. Names that exist are found whatever their case.
fn set_key(table: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let mut parts: Vec<&str> = key.split("__").collect();
    let last = parts.pop().unwrap_or_default();
    let mut table = table;
    for part in parts {
        let name = canonical_key(table, part);
        let inner = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
        table = inner.as_table_mut().ok_or_else(|| format!("`{part}` has no keys in it"))?;
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

/// Follows `include`. The nearer file's word on a tool stands, and of two neighbours the later's.
#[derive(Default)]
struct IncludeResolver {
    tools: BTreeMap<String, CatalogEntry>,
    /// The files we are inside of.
    include_stack: Vec<PathBuf>,
    count: usize,
}

impl IncludeResolver {
    fn resolve(
        &mut self,
        include: &[PathBuf],
        folder: &Path,
        place: &str,
    ) -> Result<(), ConfigurationError> {
        for path in include {
            let path = folder.join(path);
            let identity = canonical_path(&path);
            if self.include_stack.contains(&identity) {
                let problem = format!("it includes {}, which includes it", path.display());
                return Err(ConfigurationError::invalid(place, problem));
            }
            self.count += 1;
            if self.include_stack.len() > INCLUDE_DEPTH_MAX || self.count > INCLUDES_MAX {
                return Err(ConfigurationError::invalid(place, "too many files are included"));
            }
            let text = read_text(&path, place)?;
            let inner_place = path.display().to_string();
            let included: IncludedFile = parse(&text, &inner_place)?;
            self.include_stack.push(identity);
            self.resolve(&included.include, &folder_of(&path), &inner_place)?;
            self.include_stack.pop();
            self.tools.extend(included.tools);
        }
        Ok(())
    }
}

/// The same for two names of one file.
fn canonical_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
