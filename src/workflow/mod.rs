//! Workflows on disk (C3): Markdown files in the configured folders, reloaded when they change. The
//! core interprets and renders a file.
//!
//! An invalid workflow is reported and ignored.

use crate::skill::{InvalidFile, read_bounded};
use greenroom_core::{context::Workflow, limits::WORKFLOW_BYTES_MAX};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

/// Maximum number of workflows in all folders; further ones are ignored.
pub const WORKFLOWS_MAX: usize = 1_000;

type FileFingerprint = (PathBuf, Option<SystemTime>, u64);

/// The workflows in the configured folders.
#[derive(Default)]
pub struct WorkflowLibrary {
    folders: Vec<PathBuf>,
    scan: Mutex<Arc<WorkflowScan>>,
}

#[derive(Default)]
struct WorkflowScan {
    workflows: BTreeMap<String, Arc<Workflow>>,
    invalid: Vec<InvalidFile>,
    fingerprints: Vec<FileFingerprint>,
}

impl WorkflowLibrary {
    /// Scans `folders` and returns their workflows.
    pub fn open(folders: Vec<PathBuf>) -> Self {
        let workflows = Self { folders, ..Self::default() };
        workflows.refresh();
        workflows
    }

    /// Returns the workflow `name`.
    pub fn get(&self, name: &str) -> Option<Arc<Workflow>> {
        self.current_scan().workflows.get(name).cloned()
    }

    /// Returns all valid workflows, by name.
    pub fn list(&self) -> Vec<Arc<Workflow>> {
        self.current_scan().workflows.values().cloned().collect()
    }

    /// Returns the invalid files and their problems.
    pub fn invalid_files(&self) -> Vec<InvalidFile> {
        self.current_scan().invalid.clone()
    }

    /// Scans the folders again if files have changed. True if they have. Blocks on the disk.
    pub fn refresh(&self) -> bool {
        let before = self.current_scan();
        let fingerprints = self.collect_fingerprints();
        if fingerprints == before.fingerprints {
            return false;
        }
        let scanned = scan(fingerprints);
        for invalid in scanned.invalid.iter().filter(|file| !before.invalid.contains(file)) {
            let (path, problem) = (invalid.path.display(), &invalid.problem);
            tracing::warn!(%path, %problem, "invalid workflow ignored");
        }
        *self.scan.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(scanned);
        true
    }

    /// Returns the fingerprints of all files, in a fixed order. A folder that cannot be read has a
    /// fingerprint of its own.
    fn collect_fingerprints(&self) -> Vec<FileFingerprint> {
        let mut fingerprints = Vec::new();
        for folder in &self.folders {
            let Ok(entries) = std::fs::read_dir(folder) else {
                fingerprints.push((folder.clone(), None, 0));
                continue;
            };
            let is_markdown =
                |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
            let files = entries.flatten().map(|entry| entry.path()).filter(is_markdown);
            let mut files: Vec<_> = files.take(WORKFLOWS_MAX).collect();
            files.sort();
            fingerprints.extend(files.into_iter().map(|path| {
                let metadata = std::fs::metadata(&path).ok();
                let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
                (path, modified, metadata.map_or(0, |metadata| metadata.len()))
            }));
        }
        fingerprints.truncate(WORKFLOWS_MAX);
        fingerprints
    }

    fn current_scan(&self) -> Arc<WorkflowScan> {
        self.scan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn scan(fingerprints: Vec<FileFingerprint>) -> WorkflowScan {
    let mut scanned = WorkflowScan { fingerprints, ..WorkflowScan::default() };
    for (path, modified, _) in &scanned.fingerprints {
        let workflow = match modified {
            None if path.extension().is_none() => Err("the folder does not exist".to_owned()),
            Some(_) | None => read_bounded(path, WORKFLOW_BYTES_MAX as u64)
                .and_then(|text| Workflow::parse(&text)),
        };
        let invalid = |problem| InvalidFile { path: path.clone(), problem };
        match workflow {
            Err(problem) => scanned.invalid.push(invalid(problem)),
            Ok(workflow) if scanned.workflows.contains_key(&workflow.name) => {
                let problem = format!("another file has a workflow named `{}`", workflow.name);
                scanned.invalid.push(invalid(problem));
            }
            Ok(workflow) => {
                scanned.workflows.insert(workflow.name.clone(), Arc::new(workflow));
            }
        }
    }
    scanned
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn c3_files_are_found_reloaded_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let file = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nDo it.");
        write("a.md", &file("restock"));
        write("b.md", &file("restock"));
        write("c.md", "nothing");
        write("notes.txt", "no workflow");
        let missing = folder.path().join("missing");
        let workflows = WorkflowLibrary::open(vec![folder.path().to_owned(), missing.clone()]);
        let names = || -> Vec<_> {
            workflows.list().iter().map(|workflow| workflow.name.clone()).collect()
        };
        assert_eq!(names(), ["restock"]);
        let invalid: Vec<_> = workflows.invalid_files().into_iter().map(|file| file.path).collect();
        assert_eq!(invalid, [folder.path().join("b.md"), folder.path().join("c.md"), missing]);
        assert!(!workflows.refresh());
        write("c.md", &file("report"));
        assert!(workflows.refresh());
        assert_eq!(names(), ["report", "restock"]);
    }

    #[test]
    fn c3_example_workflows_are_valid() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/workflows");
        let workflows = WorkflowLibrary::open(vec![folder]);
        assert_eq!(workflows.invalid_files(), []);
        assert!(workflows.list().len() >= 4);
        for workflow in workflows.list() {
            // Uses an example value for each input without a default.
            let inputs = workflow.inputs.iter().filter(|(_, spec)| spec.is_required());
            let inputs = inputs.map(|(name, spec)| {
                let example = if name == "region_id" { 10_000_002.into() } else { 34.into() };
                (name.clone(), spec.choices.first().cloned().unwrap_or(example))
            });
            let run = workflow.start(&inputs.collect()).unwrap();
            assert!(run.text.len() > 100, "{}", run.text);
        }
    }
}
