//! Where a database is: a file, or a PostgreSQL server. A server's password is in it and is never
//! shown.

use serde::{Deserialize, Deserializer, de};
use sqlx::postgres::PgConnectOptions;
use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// The schemes of an address of PostgreSQL; everything else is a path.
const POSTGRES_SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
/// What may stand in an address behind the question mark.
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
/// The administrator's token where there is no database file to stand beside.
const TOKEN_FILE: &str = "greenroom.token";

/// Where a database is.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseLocation {
    /// A file of SQLite's, relative to the working folder.
    Sqlite(PathBuf),
    /// A database on a PostgreSQL server.
    Postgres(PostgresAddress),
}

/// `postgres://USER:PASSWORD@HOST:PORT/DATABASE?…`.
#[derive(Clone)]
pub struct PostgresAddress {
    url: String,
    /// Boxed: it is large, and a database is usually a path.
    pub(super) options: Box<PgConnectOptions>,
}

impl PostgresAddress {
    /// Errs with what is wrong, which does not repeat the address: it may hold a password.
    fn parse(url: &str) -> Result<Self, String> {
        let wrong = |why: &dyn fmt::Display| format!("it is no address of PostgreSQL: {why}");
        let parsed = reqwest::Url::parse(url).map_err(|error| wrong(&error))?;
        let unknown = |(key, _): &(Cow<'_, str>, _)| {
            !POSTGRES_PARAMETERS.contains(&&**key) && !key.starts_with("options[")
        };
        if let Some((key, _)) = parsed.query_pairs().find(unknown) {
            return Err(wrong(&format_args!("unknown parameter `{key}`")));
        }
        let options: PgConnectOptions = url.parse().map_err(|error: sqlx::Error| wrong(&error))?;
        Ok(Self { url: url.to_owned(), options: Box::new(options) })
    }

    /// The password, as it is written in the address and as it is meant.
    pub fn passwords(&self) -> Vec<String> {
        let Ok(url) = reqwest::Url::parse(&self.url) else { return Vec::new() };
        let mut found: Vec<String> = url.password().map(str::to_owned).into_iter().collect();
        // Decoded as the values of a query are, in which a plus would be a space.
        let query = found.iter().map(|password| format!("p={}", password.replace('+', "%2B")));
        let decoded: Vec<String> = query
            .flat_map(|query| {
                let mut decoder = url.clone();
                decoder.set_query(Some(&query));
                decoder.query_pairs().map(|(_, value)| value.into_owned()).collect::<Vec<_>>()
            })
            .collect();
        found.extend(decoded);
        let named = url.query_pairs().filter(|(key, _)| key == "password");
        found.extend(named.map(|(_, value)| value.into_owned()));
        found.sort();
        found.dedup();
        found
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
    /// Whether it is known to be missing. A server is asked when it is opened.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Sqlite(path) => !path.exists(),
            Self::Postgres(_) => false,
        }
    }

    /// The file of the administrator's token: beside the database's, or in the working folder.
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

    /// The passwords in it, which must never be shown.
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
            return Err("a database is a path or postgres://USER@HOST/NAME".to_owned());
        }
        Ok(Self::Sqlite(text.into()))
    }
}

impl<'de> Deserialize<'de> for DatabaseLocation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|problem| de::Error::custom(format_args!("database: {problem}")))
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
    fn d5_an_address_is_shown_without_its_password() {
        let text = "postgres://ann:s3cr%40t+x@db.example:6543/green?sslmode=require";
        let database: DatabaseLocation = text.parse().unwrap();
        assert_eq!(database.to_string(), "postgres://ann@db.example:6543/green");
        assert_eq!(format!("{database:?}"), database.to_string());
        assert_eq!(database.passwords(), ["s3cr%40t+x", "s3cr@t+x"]);
        assert_eq!(database.token_path(), Path::new("greenroom.token"));
        let named: DatabaseLocation = "postgresql://h/d?user=u&password=other".parse().unwrap();
        assert_eq!(named.to_string(), "postgres://u@h:5432/d");
        assert_eq!(named.passwords(), ["other"]);
    }

    #[test]
    fn d5_what_is_no_address_is_a_path_and_what_can_be_neither_is_refused() {
        for path in ["greenroom.db", "7", "/a/b.db", "postgres.db", ":memory:"] {
            assert_eq!(path.parse(), Ok(DatabaseLocation::Sqlite(path.into())));
        }
        for wrong in [
            "mysql://h/d",
            "postgres://u:hunter2@h:port/d",
            "postgres://u:hunter2@[",
            "postgres://h/d?pasword=hunter2",
        ] {
            let problem = wrong.parse::<DatabaseLocation>().unwrap_err();
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }
}
