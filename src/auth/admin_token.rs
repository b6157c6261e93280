//! The administrator's token: made at first start, kept in a file that only its owner can read,
//! compared in constant time (X1). It never appears in `Debug` output.

use greenroom_core::json::Digest;
use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

/// The shortest token that is taken from outside.
pub const TOKEN_CHARS_MIN: usize = 16;
/// The longest token; longer credentials are refused unread.
pub const TOKEN_CHARS_MAX: usize = 512;

/// A secret that opens everything.
#[derive(Clone)]
pub struct AdminToken(Box<str>);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    /// Too short, too long, or not plain text.
    #[error("a token must have {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} printable ASCII characters")]
    Malformed,
    /// The file with the token holds something else.
    #[error("{path} does not hold a token")]
    MalformedFile {
        /// The file.
        path: PathBuf,
    },
    /// The file can't be read or written.
    #[error("the token file {path} can't be used")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl AdminToken {
    /// Takes a token that somebody chose.
    pub fn parse(text: &str) -> Result<Self, AdminTokenError> {
        let fits = (TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&text.len());
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits && plain { Ok(Self(text.into())) } else { Err(AdminTokenError::Malformed) }
    }

    /// The token in the file at `path`; makes a fresh one there first, readable for its owner
    /// alone, if there is none.
    pub fn load_or_create(path: &Path) -> Result<Self, AdminTokenError> {
        let failed = |source| AdminTokenError::Io { path: path.to_owned(), source };
        let fresh = random_hex();
        match create_private(path) {
            Ok(mut file) => {
                file.write_all(format!("{fresh}\n").as_bytes()).map_err(failed)?;
                file.sync_all().map_err(failed)?;
                return Ok(Self(fresh.into()));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        make_private(path).map_err(failed)?;
        let text = fs::read_to_string(path).map_err(failed)?;
        Self::parse(text.trim())
            .map_err(|_| AdminTokenError::MalformedFile { path: path.to_owned() })
    }

    /// Whether `text` is this token. Takes as long whatever they have in common.
    pub fn matches(&self, text: &str) -> bool {
        if text.len() > TOKEN_CHARS_MAX {
            return false;
        }
        constant_time_eq(&self.0, text)
    }

    /// The token itself, to print the first link.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Compares in constant time; digests hide even the lengths.
pub(super) fn constant_time_eq(one: &str, other: &str) -> bool {
    let digest = |text: &str| Digest::hash_bytes(text.as_bytes()).to_string();
    bool::from(digest(one).as_bytes().ct_eq(digest(other).as_bytes()))
}

/// 256 unpredictable bits.
pub(super) fn random_bytes() -> [u8; 32] {
    // Each random UUID brings 122 bits from the operating system; three are more than enough.
    let bits: Vec<u8> = (0..3).flat_map(|_| Uuid::new_v4().into_bytes()).collect();
    *Digest::hash_bytes(&bits).as_bytes()
}

/// 256 unpredictable bits, as hexadecimal digits.
pub(super) fn random_hex() -> String {
    Digest::from(random_bytes()).to_string()
}

fn create_private(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Takes back what a copy or a careless `chmod` gave to others.
fn make_private(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            tracing::warn!(path = %path.display(), "the token file was open to others; closed it");
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x1_the_first_start_makes_a_token_and_the_next_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let first = AdminToken::load_or_create(&path).unwrap();
        assert_eq!(first.expose().len(), 64);
        let again = AdminToken::load_or_create(&path).unwrap();
        assert_eq!(again.expose(), first.expose());
        let other = AdminToken::load_or_create(&folder.path().join("other")).unwrap();
        assert_ne!(other.expose(), first.expose());
    }

    #[cfg(unix)]
    #[test]
    fn x1_the_file_is_its_owners_alone_even_if_it_was_not() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        AdminToken::load_or_create(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        AdminToken::load_or_create(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn x1_malformed_token_file_refuses_to_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for bad in ["", "\n", "short", "with space in the middle"] {
            fs::write(&path, bad).unwrap();
            let error = AdminToken::load_or_create(&path).unwrap_err();
            assert!(matches!(error, AdminTokenError::MalformedFile { .. }), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_token_does_not_show_in_debug_output() {
        let token = AdminToken::parse("0123456789abcdef").unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
