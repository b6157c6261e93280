//! Skills on disk (C2): folders with a `SKILL.md`, found in the configured folders, and the built-in
//! tool that reads them. What a `SKILL.md` means is the core's.
//!
//! A [`Library`] is read once at the start and again whenever files have changed; who decides and
//! who assembles a request sees the newest book. A skill that can't be used is reported and left
//! out; it stops nothing.

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

/// How often files are looked at.
pub const SCAN_INTERVAL: Duration = Duration::from_secs(2);
/// Bytes of a file beside a `SKILL.md` that is read.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of skills' texts that are kept until the files are looked at again.
const CACHED_TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Names of files beside a `SKILL.md` that are told.
const FILES_LISTED_MAX: usize = 100;

/// The skills of the configured folders.
#[derive(Default)]
pub struct SkillLibrary {
    folders: Vec<PathBuf>,
    scan: Mutex<Arc<SkillScan>>,
    registry: ArcCell<SkillRegistry>,
    /// What was read since the files were last looked at.
    texts: Mutex<SkillTextCache>,
}

/// Texts of skills, by their names.
#[derive(Default)]
struct SkillTextCache {
    texts: HashMap<String, Arc<str>>,
    bytes: usize,
}

impl SkillLibrary {
    /// The skills that these folders hold now.
    pub fn open(folders: Vec<PathBuf>) -> Self {
        let library = Self { folders, ..Self::default() };
        library.refresh();
        library
    }

    /// The book of what can be used, which follows the files.
    pub fn registry(&self) -> ArcCell<SkillRegistry> {
        self.registry.clone()
    }

    /// Whether there may be any.
    pub fn is_configured(&self) -> bool {
        !self.folders.is_empty()
    }

    /// What can be used, by name.
    pub fn skills(&self) -> Vec<Skill> {
        self.registry.get().iter().cloned().collect()
    }

    /// What can't, and why.
    pub fn invalid_files(&self) -> Vec<InvalidFile> {
        self.current_scan().invalid.clone()
    }

    /// Looks at the files again; true if something has changed. Blocks on the disk.
    pub fn refresh(&self) -> bool {
        *lock(&self.texts) = SkillTextCache::default();
        let before = self.current_scan();
        let prints = scan::collect_fingerprints(&self.folders);
        if prints == before.fingerprints {
            return false;
        }
        let scanned = scan::scan(&self.folders, prints);
        for broken in scanned.invalid.iter().filter(|it| !before.invalid.contains(it)) {
            let (path, problem) = (broken.path.display(), &broken.problem);
            tracing::warn!(%path, %problem, "a skill can't be used");
        }
        let names: Vec<_> = scanned.skills.keys().map(String::as_str).collect();
        tracing::info!(skills = names.join(" "), "the skills were read");
        self.registry
            .set(SkillRegistry::new(scanned.skills.values().map(|found| found.skill.clone())));
        *lock(&self.scan) = Arc::new(scanned);
        true
    }

    /// What [`read`](Self::read) found of a skill, where somebody has read it since the files were
    /// last looked at.
    pub fn cached_text(&self, name: &str) -> Option<Arc<str>> {
        lock(&self.texts).texts.get(name).cloned()
    }

    /// The text of a skill as it is now, and what lies beside it; or the text of a file beside it.
    /// The error is for the model. Blocks on the disk.
    pub fn read(&self, name: &str, file: Option<&str>) -> Result<String, String> {
        let scanned = self.current_scan();
        let found = scanned.skills.get(name);
        let folder = &found.ok_or_else(|| format!("there is no skill `{name}`"))?.folder;
        let folder = folder.canonicalize().map_err(|_| format!("the skill `{name}` is gone"))?;
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
        // One that was there already counts twice, which only forgets sooner.
        self.bytes += text.len();
        self.texts.insert(name.to_owned(), text.into());
    }
}

/// A panic while a lock was held leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file within the skill's folder, wherever links lead.
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

/// At most `max` bytes of a regular file, as text.
pub(crate) fn read_bounded(path: &Path, max: u64) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("it can't be read: {error}");
    // Before it is opened: opening a pipe waits for who writes.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("it is no file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > max {
        return Err(format!("it has more than {max} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())
}

#[cfg(test)]
mod tests;
