//! The database file: its folder, its mode, and the lock that keeps a second process out.
//! Must not know what is in it, beyond that it is SQLite's.

use crate::store::StoreError;
use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// What every SQLite database begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// SQLite's pages are a multiple of so many bytes.
const PAGE_BYTES_MIN: u64 = 512;
/// What the lock file's name adds to the database's.
const LOCK_SUFFIX: &str = ".lock";
/// Mode of the database and the files beside it: its owner's alone (E7).
#[cfg(unix)]
const FILE_MODE: u32 = 0o600;
/// Mode of folders that are made for it.
#[cfg(unix)]
const FOLDER_MODE: u32 = 0o700;

/// A database file that is ours to open, as long as this lives.
#[derive(Debug)]
pub(in crate::store) struct DatabaseFile {
    /// Absolute, without symbolic links: two names of one database have one lock.
    pub(super) path: PathBuf,
    /// Released by the operating system when the process ends, however it ends.
    _lock: File,
}

impl DatabaseFile {
    /// Creates what is missing, looks whether it can be a database, and locks it.
    pub(super) fn open_locked(path: &Path) -> Result<Self, StoreError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::File { action, path, source }
        };
        let path = std::path::absolute(path).map_err(failed("resolve", path))?;
        if let Some(folder) = path.parent() {
            create_folder(folder).map_err(failed("create the folder", folder))?;
        }
        let mut file = open_private(&path).map_err(failed("open", &path))?;
        let path = path.canonicalize().map_err(failed("resolve", &path))?;

        if !looks_like_sqlite(&mut file).map_err(failed("read", &path))? {
            return Err(StoreError::NotADatabase { path });
        }
        let is_empty = |path: &Path| fs::metadata(path).map_or(true, |found| found.len() == 0);
        // SQLite would take it for a new database, and throw away what has not been moved there.
        if is_empty(&path) && !is_empty(&with_suffix(&path, "-wal")) {
            let what = "it is empty, and there is a write-ahead log beside it".to_owned();
            return Err(StoreError::Corrupted {
                database: path.display().to_string(),
                detail: what,
            });
        }
        // Where there is a write-ahead log, that has the page which somebody was killed over.
        let length = fs::metadata(&path).map_err(failed("read", &path))?.len();
        if length % PAGE_BYTES_MIN != 0 && is_empty(&with_suffix(&path, "-wal")) {
            let what = "it was cut off in the middle of a page".to_owned();
            return Err(StoreError::Corrupted {
                database: path.display().to_string(),
                detail: what,
            });
        }

        let lock_path = with_suffix(&path, LOCK_SUFFIX);
        let lock = open_private(&lock_path).map_err(failed("open the lock file", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse {
                    database: path.display().to_string(),
                    lock: lock_path.display().to_string(),
                });
            }
            Err(TryLockError::Error(source)) => {
                return Err(failed("lock", &lock_path)(source));
            }
        }
        Ok(Self { path, _lock: lock })
    }

    /// Makes the files their owner's alone, whatever they were before. SQLite makes those beside
    /// the database with the database's mode.
    pub(super) fn restrict_permissions(&self) -> Result<(), StoreError> {
        for suffix in ["", "-wal", "-shm", LOCK_SUFFIX] {
            let path = with_suffix(&self.path, suffix);
            let action = "restrict the mode of";
            make_private(&path).map_err(|source| StoreError::File { action, path, source })?;
        }
        Ok(())
    }
}

/// The absolute path of a database that is there; nothing is created or locked.
pub(super) fn resolve_existing(path: &Path) -> Result<PathBuf, StoreError> {
    let failed = |action| move |source| StoreError::File { action, path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed("open"))?;
    let absolute = path.canonicalize().map_err(failed("resolve"))?;
    if looks_like_sqlite(&mut file).map_err(failed("read"))? {
        Ok(absolute)
    } else {
        Err(StoreError::NotADatabase { path: absolute })
    }
}

/// The path with something appended to the file's name.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// An empty file is a database without tables.
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

/// Opens for reading and writing, and creates with a private mode before SQLite could create it
/// with another.
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
