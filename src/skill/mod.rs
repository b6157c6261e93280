//! Skills on disk (C2): scans the configured folders for `SKILL.md` files, and provides the built-in
//! tool that reads them. The core interprets a `SKILL.md`.
//!
//! A [`SkillLibrary`] is scanned at start and rescanned when files have changed; decisions and request
//! assembly use the newest registry. An invalid skill is reported and ignored.

mod scan;
mod tool;

pub use scan::{FOLDER_DEPTH_MAX, InvalidFile, SKILL_BYTES_MAX, SKILLS_MAX};
pub use tool::ReadSkillTool;

use greenroom_actors::governance::ArcCell;
use greenroom_core::context::{Skill, SkillFile, SkillRegistry};
use scan::SkillScan;
use std::{
    collections::HashMap,
    io::Read as _,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Interval at which files are checked for changes.
pub const SCAN_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum bytes of a skill's additional file.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum bytes of skill texts that are cached until the next scan.
const CACHED_TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of additional files that are listed for a skill.
const FILES_LISTED_MAX: usize = 100;

/// The skills in the configured folders.
#[derive(Default)]
pub struct SkillLibrary {
    folders: Vec<PathBuf>,
    scan: Mutex<Arc<SkillScan>>,
    registry: ArcCell<SkillRegistry>,
    /// The texts that were read since the last scan.
    texts: Mutex<SkillTextCache>,
}

/// Texts of skills, by name.
#[derive(Default)]
struct SkillTextCache {
    texts: HashMap<String, Arc<str>>,
    bytes: usize,
}

impl SkillLibrary {
    /// Scans `folders` and returns their skills.
    pub fn open(folders: Vec<PathBuf>) -> Self {
        let library = Self { folders, ..Self::default() };
        library.refresh();
        library
    }

    /// Returns the registry of valid skills, which is updated by each scan.
    pub fn registry(&self) -> ArcCell<SkillRegistry> {
        self.registry.clone()
    }

    /// True if any folder is configured.
    pub fn is_configured(&self) -> bool {
        !self.folders.is_empty()
    }

    /// Returns the valid skills, by name.
    pub fn skills(&self) -> Vec<Skill> {
        self.registry.get().iter().cloned().collect()
    }

    /// Returns the invalid files and their problems.
    pub fn invalid_files(&self) -> Vec<InvalidFile> {
        self.current_scan().invalid.clone()
    }

    /// Scans the folders again if files have changed. True if they have. Blocks on the disk.
    pub fn refresh(&self) -> bool {
        *lock(&self.texts) = SkillTextCache::default();
        let before = self.current_scan();
        let fingerprints = scan::collect_fingerprints(&self.folders);
        if fingerprints == before.fingerprints {
            return false;
        }
        let scanned = scan::scan(&self.folders, fingerprints);
        for invalid in scanned.invalid.iter().filter(|file| !before.invalid.contains(file)) {
            let (path, problem) = (invalid.path.display(), &invalid.problem);
            tracing::warn!(%path, %problem, "invalid skill ignored");
        }
        let names: Vec<_> = scanned.skills.keys().map(String::as_str).collect();
        tracing::info!(skills = names.join(" "), "skills loaded");
        self.registry
            .set(SkillRegistry::new(scanned.skills.values().map(|entry| entry.skill.clone())));
        *lock(&self.scan) = Arc::new(scanned);
        true
    }

    /// Returns the text that [`read`](Self::read) returned for a skill, if it was read since the
    /// last scan.
    pub fn cached_text(&self, name: &str) -> Option<Arc<str>> {
        lock(&self.texts).texts.get(name).cloned()
    }

    /// Reads the current text of a skill with a list of its additional files, or the text of one of
    /// these files. The error is a message for the model. Blocks on the disk.
    pub fn read(&self, name: &str, file: Option<&str>) -> Result<String, String> {
        let scanned = self.current_scan();
        let entry = scanned.skills.get(name);
        let folder = &entry.ok_or_else(|| format!("there is no skill `{name}`"))?.folder;
        let folder =
            folder.canonicalize().map_err(|_| format!("the skill `{name}` no longer exists"))?;
        match file {
            Some(file) => read_skill_file(&folder, file),
            None => {
                let text = scan::read_text(&folder.join(scan::SKILL_FILE_NAME), SKILL_BYTES_MAX)?;
                let body = SkillFile::parse(&text)?.body;
                let files = scan::list_skill_files(&folder, FILES_LISTED_MAX);
                let list: String = files.iter().map(|file| format!("\n- {file}")).collect();
                let text = match list.as_str() {
                    "" => body,
                    list => format!("{body}\n\nFiles of this skill, to be read with `file`:{list}"),
                };
                lock(&self.texts).insert(name, &text);
                Ok(text)
            }
        }
    }

    fn current_scan(&self) -> Arc<SkillScan> {
        lock(&self.scan).clone()
    }
}

impl SkillTextCache {
    fn insert(&mut self, name: &str, text: &str) {
        if self.bytes + text.len() > CACHED_TEXT_BYTES_MAX {
            *self = Self::default();
        }
        // Counts a replaced text twice, which only clears the cache earlier.
        self.bytes += text.len();
        self.texts.insert(name.to_owned(), text.into());
    }
}

/// Locks `mutex`, ignoring poisoning: no update leaves an inconsistent state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a file in the skill's folder. Rejects paths and links that lead out of the folder.
fn read_skill_file(folder: &Path, file: &str) -> Result<String, String> {
    let path = Path::new(file);
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if file.is_empty() || !path.components().all(is_plain) {
        return Err("`file` must be a path below the skill's folder, without `..`".to_owned());
    }
    let missing = || format!("the skill has no file `{file}`");
    let real = folder.join(path).canonicalize().map_err(|_| missing())?;
    if !real.starts_with(folder) {
        return Err(format!("`{file}` leads out of the skill's folder"));
    }
    scan::read_text(&real, FILE_BYTES_MAX).map_err(|problem| format!("`{file}`: {problem}"))
}

/// Reads a regular file as text, at most `max` bytes.
pub(crate) fn read_bounded(path: &Path, max: u64) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("can't read the file: {error}");
    // Checked before the file is opened, because opening a pipe blocks.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > max {
        return Err(format!("the file exceeds the limit of {max} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "the file is not UTF-8 text".to_owned())
}

#[cfg(test)]
mod tests;
