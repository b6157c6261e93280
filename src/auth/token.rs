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
pub struct Token(Box<str>);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Too short, too long, or not plain text.
    #[error("a token must have {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} printable ASCII characters")]
    Unfit,
    /// The file with the token holds something else.
    #[error("{path} does not hold a token")]
    UnfitFile {
        /// The file.
        path: PathBuf,
    },
    /// The file can't be read or written.
    #[error("the token file {path} can't be used")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Token {
    /// Takes a token that somebody chose.
    pub fn from_text(text: &str) -> Result<Self, TokenError> {
        let fits = (TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&text.len());
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits && plain { Ok(Self(text.into())) } else { Err(TokenError::Unfit) }
    }

    /// The token in the file at `path`; makes a fresh one there first, readable for its owner
    /// alone, if there is none.
    pub fn load_or_create(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::File { path: path.to_owned(), source };
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
        Self::from_text(text.trim()).map_err(|_| TokenError::UnfitFile { path: path.to_owned() })
    }

    /// Whether `text` is this token. Takes as long whatever they have in common.
    pub fn matches(&self, text: &str) -> bool {
        if text.len() > TOKEN_CHARS_MAX {
            return false;
        }
        same_secret(&self.0, text)
    }

    /// The token itself, to print the first link.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Compares in constant time; digests hide even the lengths.
pub(super) fn same_secret(one: &str, other: &str) -> bool {
    let digest = |text: &str| Digest::of_bytes(text.as_bytes()).to_string();
    bool::from(digest(one).as_bytes().ct_eq(digest(other).as_bytes()))
}

/// 256 unpredictable bits.
pub(super) fn random_bytes() -> [u8; 32] {
    // Each random UUID brings 122 bits from the operating system; three are more than enough.
    let bits: Vec<u8> = (0..3).flat_map(|_| Uuid::new_v4().into_bytes()).collect();
    *Digest::of_bytes(&bits).as_bytes()
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
        let first = Token::load_or_create(&path).unwrap();
        assert_eq!(first.reveal().len(), 64);
        let again = Token::load_or_create(&path).unwrap();
        assert_eq!(again.reveal(), first.reveal());
        let other = Token::load_or_create(&folder.path().join("other")).unwrap();
        assert_ne!(other.reveal(), first.reveal());
    }

    #[cfg(unix)]
    #[test]
    fn x1_the_file_is_its_owners_alone_even_if_it_was_not() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        Token::load_or_create(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        Token::load_or_create(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn x1_a_file_without_a_token_stops_the_start_rather_than_open_the_door() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for bad in ["", "\n", "short", "with space in the middle"] {
            fs::write(&path, bad).unwrap();
            let error = Token::load_or_create(&path).unwrap_err();
            assert!(matches!(error, TokenError::UnfitFile { .. }), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_token_does_not_show_in_debug_output() {
        let token = Token::from_text("0123456789abcdef").unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
