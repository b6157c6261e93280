//! Scans folders for skills.

use super::read_bounded;
use greenroom_core::context::{Skill, SkillFile};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};
use utoipa::ToSchema;

/// The name of the file that makes a folder a skill.
pub(super) const SKILL_FILE_NAME: &str = "SKILL.md";
/// Maximum bytes of a `SKILL.md`.
pub const SKILL_BYTES_MAX: u64 = 256 * 1024;
/// Maximum number of skills in all folders; further ones are ignored.
pub const SKILLS_MAX: usize = 1_000;
/// Maximum depth of nested folders that are scanned.
pub const FOLDER_DEPTH_MAX: usize = 4;
/// Maximum number of folder entries that one scan visits.
const ENTRIES_MAX: usize = 20_000;

/// A file or folder that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct InvalidFile {
    /// The path of the file or folder.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// The description of the problem.
    pub problem: String,
}

/// The path, modification time and size of a file. A difference means that the file has changed.
pub(super) type FileFingerprint = (PathBuf, Option<SystemTime>, u64);

#[derive(Debug, Default)]
pub(super) struct SkillScan {
    pub(super) skills: BTreeMap<String, ScannedSkill>,
    pub(super) invalid: Vec<InvalidFile>,
    pub(super) fingerprints: Vec<FileFingerprint>,
}

#[derive(Debug)]
pub(super) struct ScannedSkill {
    pub(super) skill: Skill,
    pub(super) folder: PathBuf,
}

/// Returns the fingerprints of all `SKILL.md` files, in a fixed order. A folder that does not exist
/// has a fingerprint of its own.
pub(super) fn collect_fingerprints(folders: &[PathBuf]) -> Vec<FileFingerprint> {
    let mut fingerprints = Vec::new();
    let mut remaining_entries = ENTRIES_MAX;
    for folder in folders {
        if folder.is_dir() {
            collect_folder(folder, FOLDER_DEPTH_MAX, &mut remaining_entries, &mut fingerprints);
        } else {
            fingerprints.push((folder.clone(), None, 0));
        }
    }
    fingerprints
}

fn collect_folder(
    folder: &Path,
    depth: usize,
    remaining_entries: &mut usize,
    fingerprints: &mut Vec<FileFingerprint>,
) {
    let file = folder.join(SKILL_FILE_NAME);
    if let Ok(metadata) = fs::metadata(&file) {
        if fingerprints.len() < SKILLS_MAX {
            fingerprints.push((file, metadata.modified().ok(), metadata.len()));
        }
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut subfolders = Vec::new();
    for entry in entries.flatten() {
        if *remaining_entries == 0 {
            break;
        }
        *remaining_entries -= 1;
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        if depth > 0 && !is_hidden && entry.path().is_dir() {
            subfolders.push(entry.path());
        }
    }
    subfolders.sort();
    for folder in subfolders {
        collect_folder(&folder, depth - 1, remaining_entries, fingerprints);
    }
}

pub(super) fn scan(_folders: &[PathBuf], fingerprints: Vec<FileFingerprint>) -> SkillScan {
    let mut scanned = SkillScan { fingerprints, ..SkillScan::default() };
    for (path, modified, _) in &scanned.fingerprints {
        let skill_file = match modified {
            None if !path.ends_with(SKILL_FILE_NAME) => Err("the folder does not exist".to_owned()),
            Some(_) | None => {
                read_text(path, SKILL_BYTES_MAX).and_then(|text| SkillFile::parse(&text))
            }
        };
        let folder = path.parent().unwrap_or(path).to_owned();
        let invalid = |problem| InvalidFile { path: path.clone(), problem };
        match skill_file {
            Err(problem) => scanned.invalid.push(invalid(problem)),
            Ok(SkillFile { skill, .. }) => match scanned.skills.get(&skill.name) {
                Some(first) => {
                    let first = first.folder.display();
                    let problem = format!("{first} has a skill of the same name, `{}`", skill.name);
                    scanned.invalid.push(invalid(problem));
                }
                None => {
                    scanned.skills.insert(skill.name.clone(), ScannedSkill { skill, folder });
                }
            },
        }
    }
    scanned
}

pub(super) fn read_text(path: &Path, max: u64) -> Result<String, String> {
    read_bounded(path, max)
}

/// Lists the additional files of a skill by their paths in its folder; at most `max`.
pub(super) fn list_skill_files(folder: &Path, max: usize) -> Vec<String> {
    let mut files = Vec::new();
    let mut remaining_entries = ENTRIES_MAX;
    let mut pending = vec![(folder.to_owned(), FOLDER_DEPTH_MAX)];
    while let Some((subfolder, depth)) = pending.pop() {
        let Ok(entries) = fs::read_dir(&subfolder) else { continue };
        for entry in entries.flatten() {
            if remaining_entries == 0 {
                break;
            }
            remaining_entries -= 1;
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str) else {
                continue;
            };
            if entry.file_name().to_string_lossy().starts_with('.') || name == SKILL_FILE_NAME {
                continue;
            }
            if kind.is_dir() && depth > 0 {
                pending.push((path, depth - 1));
            } else if kind.is_file() {
                files.push(name.to_owned());
            }
        }
    }
    files.sort();
    files.truncate(max);
    files
}
