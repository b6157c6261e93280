//! The location of a database: a file, or a PostgreSQL server. The server's password is never
//! shown.

use serde::{Deserialize, Deserializer, de};
use sqlx::postgres::PgConnectOptions;
use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// The schemes of PostgreSQL addresses. Everything else is a path.
const POSTGRES_SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
/// The allowed query parameters of a PostgreSQL address.
const POSTGRES_PARAMETERS: [&str; 12] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "options",
    "statement-cache-capacity",
];
/// The file of the administrator's token if there is no database file to put it next to.
const TOKEN_FILE: &str = "greenroom.token";

/// The location of a database.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseLocation {
    /// An SQLite file, relative to the working directory.
    Sqlite(PathBuf),
    /// A database on a PostgreSQL server.
    Postgres(PostgresAddress),
}

/// A PostgreSQL address: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?…`.
#[derive(Clone)]
pub struct PostgresAddress {
    url: String,
    /// Boxed because it is large and most locations are paths.
    pub(super) options: Box<PgConnectOptions>,
}

impl PostgresAddress {
    /// Parses an address. The error does not repeat the address, which may contain a password.
    fn parse(url: &str) -> Result<Self, String> {
        let invalid = |why: &dyn fmt::Display| format!("not a valid PostgreSQL address: {why}");
        let parsed = reqwest::Url::parse(url).map_err(|error| invalid(&error))?;
        let is_unknown = |(key, _): &(Cow<'_, str>, _)| {
            !POSTGRES_PARAMETERS.contains(&&**key) && !key.starts_with("options[")
        };
        if let Some((key, _)) = parsed.query_pairs().find(is_unknown) {
            // A name with other characters may be an address that was pasted twice, with a password.
            let is_name = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            let name = if is_name { &*key } else { "…" };
            return Err(invalid(&format_args!("unknown parameter `{name}`")));
        }
        // Of an address that was pasted twice, it is followed by a password, which would be shown.
        if parsed.path().contains('@') {
            return Err(invalid(&"the name of the database contains `@`; write it as `%40`"));
        }
        let options: PgConnectOptions = url.parse().map_err(|error: sqlx::Error| {
            let text = error.to_string();
            // The error repeats a value, which may be an address with a password.
            let has_password = text.contains('@');
            invalid(if has_password { &"a value contains `@`; write it as `%40`" } else { &text })
        })?;
        Ok(Self { url: url.to_owned(), options: Box::new(options) })
    }

    /// Returns the password, both as written in the address and decoded.
    pub fn passwords(&self) -> Vec<String> {
        let Ok(url) = reqwest::Url::parse(&self.url) else { return Vec::new() };
        let mut passwords: Vec<String> = url.password().map(str::to_owned).into_iter().collect();
        // Decoded as a query value. A plus sign, which would become a space, is escaped first.
        let query = passwords.iter().map(|password| format!("p={}", password.replace('+', "%2B")));
        let decoded: Vec<String> = query
            .flat_map(|query| {
                let mut decoder = url.clone();
                decoder.set_query(Some(&query));
                decoder.query_pairs().map(|(_, value)| value.into_owned()).collect::<Vec<_>>()
            })
            .collect();
        passwords.extend(decoded);
        let parameters = url.query_pairs().filter(|(key, _)| key == "password");
        passwords.extend(parameters.map(|(_, value)| value.into_owned()));
        passwords.sort();
        passwords.dedup();
        passwords
    }
}

impl PartialEq for PostgresAddress {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

impl Eq for PostgresAddress {}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.options;
        let (user, port) = (options.get_username(), options.get_port());
        match options.get_socket() {
            Some(socket) => write!(f, "postgres://{user}@{}:{port}", socket.display())?,
            None => write!(f, "postgres://{user}@{}:{port}", options.get_host())?,
        }
        write!(f, "/{}", options.get_database().unwrap_or(user))
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl DatabaseLocation {
    /// True if the file does not exist. Always false for a server, which is checked when it is
    /// opened.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Sqlite(path) => !path.exists(),
            Self::Postgres(_) => false,
        }
    }

    /// Returns the path of the administrator's token: next to the database file, or in the working
    /// directory.
    pub fn token_path(&self) -> PathBuf {
        match self {
            Self::Sqlite(path) => {
                let mut path = path.as_os_str().to_owned();
                path.push(".token");
                path.into()
            }
            Self::Postgres(_) => PathBuf::from(TOKEN_FILE),
        }
    }

    /// Returns the passwords in the address, which must never be shown.
    pub fn passwords(&self) -> Vec<String> {
        match self {
            Self::Sqlite(_) => Vec::new(),
            Self::Postgres(address) => address.passwords(),
        }
    }
}

impl FromStr for DatabaseLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if POSTGRES_SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return PostgresAddress::parse(text).map(Self::Postgres);
        }
        if text.contains("://") {
            return Err("must be a path or postgres://USER@HOST/NAME".to_owned());
        }
        Ok(Self::Sqlite(text.into()))
    }
}

impl<'de> Deserialize<'de> for DatabaseLocation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| de::Error::custom(format_args!("database: {error}")))
    }
}

impl fmt::Display for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Postgres(address) => address.fmt(f),
        }
    }
}

impl fmt::Debug for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<&Path> for DatabaseLocation {
    fn from(path: &Path) -> Self {
        Self::Sqlite(path.to_owned())
    }
}

impl From<PathBuf> for DatabaseLocation {
    fn from(path: PathBuf) -> Self {
        Self::Sqlite(path)
    }
}

impl From<&PathBuf> for DatabaseLocation {
    fn from(path: &PathBuf) -> Self {
        Self::Sqlite(path.clone())
    }
}

impl From<&Self> for DatabaseLocation {
    fn from(database: &Self) -> Self {
        database.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d5_address_is_displayed_without_its_password() {
        let text = "postgres://ann:s3cr%40t+x@db.example:6543/green?sslmode=require";
        let database: DatabaseLocation = text.parse().unwrap();
        assert_eq!(database.to_string(), "postgres://ann@db.example:6543/green");
        assert_eq!(format!("{database:?}"), database.to_string());
        assert_eq!(database.passwords(), ["s3cr%40t+x", "s3cr@t+x"]);
        assert_eq!(database.token_path(), Path::new("greenroom.token"));
        let from_query: DatabaseLocation =
            "postgresql://h/d?user=u&password=other".parse().unwrap();
        assert_eq!(from_query.to_string(), "postgres://u@h:5432/d");
        assert_eq!(from_query.passwords(), ["other"]);
    }

    #[test]
    fn d5_other_texts_are_paths_and_invalid_addresses_are_rejected() {
        for path in ["greenroom.db", "7", "/a/b.db", "postgres.db", ":memory:"] {
            assert_eq!(path.parse(), Ok(DatabaseLocation::Sqlite(path.into())));
        }
        for invalid in [
            "mysql://h/d",
            "postgres://u:hunter2@h:port/d",
            "postgres://u:hunter2@[",
            "postgres://h/d?pasword=hunter2",
            "postgres://u:hunter2@h/dpostgres://u:hunter2@h/d",
            "postgres://u:hunter2@h/d?postgres://u:hunter2@h/d?sslmode=require",
            "postgres://u:hunter2@h/d?sslmode=postgres://u:hunter2@h/d",
        ] {
            let error = invalid.parse::<DatabaseLocation>().unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
