//! The admin token: created at the first start, stored in a file that only its owner can read, and
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

/// Minimum characters of a configured token.
pub const TOKEN_CHARS_MIN: usize = 16;
/// Maximum characters of a token or cookie; longer credentials are rejected without comparison.
pub const TOKEN_CHARS_MAX: usize = 512;

/// A secret that authenticates as administrator.
#[derive(Clone)]
pub struct AdminToken(Box<str>);

/// The reason why a token could not be parsed or loaded.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    /// Too short, too long, or not printable ASCII.
    #[error("a token must have {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} printable ASCII characters")]
    Malformed,
    /// The token file does not contain a valid token.
    #[error("{path} does not contain a valid token")]
    MalformedFile {
        /// The file.
        path: PathBuf,
    },
    /// The token file cannot be read or written.
    #[error("the token file {path} can't be read or written")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl AdminToken {
    /// Parses a configured token.
    pub fn parse(text: &str) -> Result<Self, AdminTokenError> {
        let has_valid_length = (TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&text.len());
        let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if has_valid_length && is_printable {
            Ok(Self(text.into()))
        } else {
            Err(AdminTokenError::Malformed)
        }
    }

    /// Loads the token from the file at `path`. If the file does not exist, creates it with a new
    /// token, readable only by its owner.
    pub fn load_or_create(path: &Path) -> Result<Self, AdminTokenError> {
        let io_error = |source| AdminTokenError::Io { path: path.to_owned(), source };
        let token = random_hex();
        match create_private(path) {
            Ok(mut file) => {
                file.write_all(format!("{token}\n").as_bytes()).map_err(io_error)?;
                file.sync_all().map_err(io_error)?;
                return Ok(Self(token.into()));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io_error(error)),
        }
        make_private(path).map_err(io_error)?;
        let text = fs::read_to_string(path).map_err(io_error)?;
        Self::parse(text.trim())
            .map_err(|_| AdminTokenError::MalformedFile { path: path.to_owned() })
    }

    /// Returns true if `text` is this token. Compares in constant time.
    pub fn matches(&self, text: &str) -> bool {
        if text.len() > TOKEN_CHARS_MAX {
            return false;
        }
        constant_time_eq(&self.0, text)
    }

    /// Returns the token itself, for the sign-in link and for deriving keys.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

/// Compares two texts in constant time. The comparison of digests also hides their lengths.
pub(super) fn constant_time_eq(left: &str, right: &str) -> bool {
    let digest = |text: &str| Digest::hash_bytes(text.as_bytes()).to_string();
    bool::from(digest(left).as_bytes().ct_eq(digest(right).as_bytes()))
}

/// Returns 256 unpredictable bits.
pub(super) fn random_bytes() -> [u8; 32] {
    // A random UUID has 122 bits from the operating system, so three suffice.
    let bits: Vec<u8> = (0..3).flat_map(|_| Uuid::new_v4().into_bytes()).collect();
    *Digest::hash_bytes(&bits).as_bytes()
}

/// Returns 256 unpredictable bits as hexadecimal digits.
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

/// Removes the permissions of other users from an existing file.
fn make_private(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            tracing::warn!(
                path = %path.display(),
                "the token file was accessible to other users; set its mode to 0600"
            );
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x1_token_is_created_at_first_start_and_loaded_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let first = AdminToken::load_or_create(&path).unwrap();
        assert_eq!(first.expose().len(), 64);
        let reloaded = AdminToken::load_or_create(&path).unwrap();
        assert_eq!(reloaded.expose(), first.expose());
        let other = AdminToken::load_or_create(&folder.path().join("other")).unwrap();
        assert_ne!(other.expose(), first.expose());
    }

    #[cfg(unix)]
    #[test]
    fn x1_token_file_is_readable_only_by_its_owner() {
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
    fn token_is_not_in_debug_output() {
        let token = AdminToken::parse("0123456789abcdef").unwrap();
        assert_eq!(format!("{token:?}"), "AdminToken(…)");
    }
}
