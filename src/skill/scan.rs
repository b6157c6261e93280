//! Finding skills in folders.

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

/// The file that makes a folder a skill.
pub(super) const SKILL_FILE_NAME: &str = "SKILL.md";
/// Bytes of a `SKILL.md`.
pub const SKILL_BYTES_MAX: u64 = 256 * 1024;
/// Skills in all folders together; further ones are left out.
pub const SKILLS_MAX: usize = 1_000;
/// Folders within each other that are looked into.
pub const FOLDER_DEPTH_MAX: usize = 4;
/// Entries of folders that are looked at in one scan.
const ENTRIES_MAX: usize = 20_000;

/// A skill that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct InvalidFile {
    /// Its `SKILL.md`, or a folder.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// What is wrong.
    pub problem: String,
}

/// By what a change of a file shows.
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

/// The `SKILL.md` files there are, in a fixed order. A folder that can't be read stands there
/// itself.
pub(super) fn collect_fingerprints(folders: &[PathBuf]) -> Vec<FileFingerprint> {
    let mut prints = Vec::new();
    let mut entries_left = ENTRIES_MAX;
    for folder in folders {
        if folder.is_dir() {
            collect_folder(folder, FOLDER_DEPTH_MAX, &mut entries_left, &mut prints);
        } else {
            prints.push((folder.clone(), None, 0));
        }
    }
    prints
}

fn collect_folder(
    folder: &Path,
    depth: usize,
    entries_left: &mut usize,
    prints: &mut Vec<FileFingerprint>,
) {
    let file = folder.join(SKILL_FILE_NAME);
    if let Ok(facts) = fs::metadata(&file) {
        if prints.len() < SKILLS_MAX {
            prints.push((file, facts.modified().ok(), facts.len()));
        }
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut below = Vec::new();
    for entry in entries.flatten() {
        if *entries_left == 0 {
            break;
        }
        *entries_left -= 1;
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        if depth > 0 && !is_hidden && entry.path().is_dir() {
            below.push(entry.path());
        }
    }
    below.sort();
    for folder in below {
        collect_folder(&folder, depth - 1, entries_left, prints);
    }
}

pub(super) fn scan(_folders: &[PathBuf], prints: Vec<FileFingerprint>) -> SkillScan {
    let mut scanned = SkillScan { fingerprints: prints, ..SkillScan::default() };
    for (path, modified, _) in &scanned.fingerprints {
        let read = match modified {
            None if !path.ends_with(SKILL_FILE_NAME) => Err("there is no such folder".to_owned()),
            Some(_) | None => {
                read_text(path, SKILL_BYTES_MAX).and_then(|text| SkillFile::parse(&text))
            }
        };
        let folder = path.parent().unwrap_or(path).to_owned();
        let broken = |problem| InvalidFile { path: path.clone(), problem };
        match read {
            Err(problem) => scanned.invalid.push(broken(problem)),
            Ok(SkillFile { skill, .. }) => match scanned.skills.get(&skill.name) {
                Some(first) => {
                    let first = first.folder.display();
                    let problem = format!("{first} has a skill of the same name, `{}`", skill.name);
                    scanned.invalid.push(broken(problem));
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

/// The files of a skill, beside its `SKILL.md`, by their paths in its folder; at most `max`.
pub(super) fn list_skill_files(folder: &Path, max: usize) -> Vec<String> {
    let mut files = Vec::new();
    let mut entries_left = ENTRIES_MAX;
    let mut waiting = vec![(folder.to_owned(), FOLDER_DEPTH_MAX)];
    while let Some((place, depth)) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&place) else { continue };
        for entry in entries.flatten() {
            if entries_left == 0 {
                break;
            }
            entries_left -= 1;
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str) else {
                continue;
            };
            if entry.file_name().to_string_lossy().starts_with('.') || name == SKILL_FILE_NAME {
                continue;
            }
            if kind.is_dir() && depth > 0 {
                waiting.push((path, depth - 1));
            } else if kind.is_file() {
                files.push(name.to_owned());
            }
        }
    }
    files.sort();
    files.truncate(max);
    files
}
