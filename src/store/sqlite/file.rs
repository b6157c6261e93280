//! The database file: its directory, its mode, and the lock that excludes other processes. Knows
//! nothing of its content, except that it is an SQLite database.

use crate::store::StoreError;
use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// The first bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The smallest page size of SQLite in bytes. Every page size is a multiple of it.
const PAGE_BYTES_MIN: u64 = 512;
/// The suffix of the lock file's name.
const LOCK_SUFFIX: &str = ".lock";
/// The mode of the database and of the files next to it: only the owner has access (E7).
#[cfg(unix)]
const FILE_MODE: u32 = 0o600;
/// The mode of created directories.
#[cfg(unix)]
const FOLDER_MODE: u32 = 0o700;

/// A locked database file. The lock is released when this is dropped.
#[derive(Debug)]
pub(in crate::store) struct DatabaseFile {
    /// The absolute path without symbolic links, so that all names of a database share one lock.
    pub(super) path: PathBuf,
    /// The lock. The operating system releases it when the process ends, even after a crash.
    _lock: File,
}

impl DatabaseFile {
    /// Creates the file if it is missing, checks that it can be a database, and locks it.
    pub(super) fn open_locked(path: &Path) -> Result<Self, StoreError> {
        let to_store_error = |action, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::File { action, path, source }
        };
        let path = std::path::absolute(path).map_err(to_store_error("resolve", path))?;
        if let Some(folder) = path.parent() {
            create_folder(folder).map_err(to_store_error("create the folder", folder))?;
        }
        let mut file = open_private(&path).map_err(to_store_error("open", &path))?;
        let path = path.canonicalize().map_err(to_store_error("resolve", &path))?;

        if !looks_like_sqlite(&mut file).map_err(to_store_error("read", &path))? {
            return Err(StoreError::NotADatabase { path });
        }
        let is_empty =
            |path: &Path| fs::metadata(path).map_or(true, |metadata| metadata.len() == 0);
        // SQLite would treat the file as a new database and discard the write-ahead log.
        if is_empty(&path) && !is_empty(&with_suffix(&path, "-wal")) {
            let detail = "the file is empty, but its write-ahead log is not".to_owned();
            return Err(StoreError::Corrupted { database: path.display().to_string(), detail });
        }
        // If there is a write-ahead log, it contains the page whose write was interrupted.
        let length = fs::metadata(&path).map_err(to_store_error("read", &path))?.len();
        if length % PAGE_BYTES_MIN != 0 && is_empty(&with_suffix(&path, "-wal")) {
            let detail = "the file ends in the middle of a page".to_owned();
            return Err(StoreError::Corrupted { database: path.display().to_string(), detail });
        }

        let lock_path = with_suffix(&path, LOCK_SUFFIX);
        let lock =
            open_private(&lock_path).map_err(to_store_error("open the lock file", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse {
                    database: path.display().to_string(),
                    lock: lock_path.display().to_string(),
                });
            }
            Err(TryLockError::Error(source)) => {
                return Err(to_store_error("lock", &lock_path)(source));
            }
        }
        Ok(Self { path, _lock: lock })
    }

    /// Restricts the mode of existing files to the owner. SQLite creates the files next to the
    /// database with the database's mode.
    pub(super) fn restrict_permissions(&self) -> Result<(), StoreError> {
        for suffix in ["", "-wal", "-shm", LOCK_SUFFIX] {
            let path = with_suffix(&self.path, suffix);
            let action = "restrict the mode of";
            make_private(&path).map_err(|source| StoreError::File { action, path, source })?;
        }
        Ok(())
    }
}

/// Returns the absolute path of an existing database. Creates and locks nothing.
pub(super) fn resolve_existing(path: &Path) -> Result<PathBuf, StoreError> {
    let to_store_error =
        |action| move |source| StoreError::File { action, path: path.to_owned(), source };
    let mut file = File::open(path).map_err(to_store_error("open"))?;
    let absolute = path.canonicalize().map_err(to_store_error("resolve"))?;
    if looks_like_sqlite(&mut file).map_err(to_store_error("read"))? {
        Ok(absolute)
    } else {
        Err(StoreError::NotADatabase { path: absolute })
    }
}

/// Appends a suffix to the file name of a path.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// True if the file starts like an SQLite database. An empty file is a database without tables.
fn looks_like_sqlite(file: &mut File) -> io::Result<bool> {
    let mut start = Vec::with_capacity(MAGIC.len());
    file.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start.is_empty() || start == MAGIC)
}

fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, FOLDER_MODE);
    builder.create(folder)
}

/// Opens a file for reading and writing. Creates it with a private mode, before SQLite could create
/// it with another one.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, FILE_MODE);
    options.open(path)
}

#[cfg(unix)]
fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode() & 0o777,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & !FILE_MODE == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(FILE_MODE))
}

#[cfg(not(unix))]
fn make_private(_path: &Path) -> io::Result<()> {
    Ok(())
}
