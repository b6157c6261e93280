//! Workflows on disk (C3): Markdown files in the configured folders, followed as they change. What a
//! file means, and how it is rendered, is the core's.
//!
//! A workflow that can't be used is reported and left out; it stops nothing.

use crate::skill::{InvalidFile, read_bounded};
use greenroom_core::{context::Workflow, limits::WORKFLOW_BYTES_MAX};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

/// Workflows in all folders together; further ones are left out.
pub const WORKFLOWS_MAX: usize = 1_000;

type FileFingerprint = (PathBuf, Option<SystemTime>, u64);

/// The workflows of the configured folders.
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
    /// The workflows that these folders hold now.
    pub fn open(folders: Vec<PathBuf>) -> Self {
        let workflows = Self { folders, ..Self::default() };
        workflows.refresh();
        workflows
    }

    /// The workflow of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Workflow>> {
        self.current_scan().workflows.get(name).cloned()
    }

    /// All that can be used, by name.
    pub fn list(&self) -> Vec<Arc<Workflow>> {
        self.current_scan().workflows.values().cloned().collect()
    }

    /// What can't, and why.
    pub fn invalid_files(&self) -> Vec<InvalidFile> {
        self.current_scan().invalid.clone()
    }

    /// Looks at the files again; true if something has changed. Blocks on the disk.
    pub fn refresh(&self) -> bool {
        let before = self.current_scan();
        let prints = self.collect_fingerprints();
        if prints == before.fingerprints {
            return false;
        }
        let scanned = scan(prints);
        for broken in scanned.invalid.iter().filter(|it| !before.invalid.contains(it)) {
            let (path, problem) = (broken.path.display(), &broken.problem);
            tracing::warn!(%path, %problem, "a workflow can't be used");
        }
        *self.scan.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(scanned);
        true
    }

    /// The files there are, in a fixed order. A folder that can't be read stands there itself.
    fn collect_fingerprints(&self) -> Vec<FileFingerprint> {
        let mut prints = Vec::new();
        for folder in &self.folders {
            let Ok(entries) = std::fs::read_dir(folder) else {
                prints.push((folder.clone(), None, 0));
                continue;
            };
            let is_text = |path: &PathBuf| path.extension().is_some_and(|it| it == "md");
            let files = entries.flatten().map(|entry| entry.path()).filter(is_text);
            let mut files: Vec<_> = files.take(WORKFLOWS_MAX).collect();
            files.sort();
            prints.extend(files.into_iter().map(|path| {
                let facts = std::fs::metadata(&path).ok();
                let modified = facts.as_ref().and_then(|facts| facts.modified().ok());
                (path, modified, facts.map_or(0, |facts| facts.len()))
            }));
        }
        prints.truncate(WORKFLOWS_MAX);
        prints
    }

    fn current_scan(&self) -> Arc<WorkflowScan> {
        self.scan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn scan(prints: Vec<FileFingerprint>) -> WorkflowScan {
    let mut scanned = WorkflowScan { fingerprints: prints, ..WorkflowScan::default() };
    for (path, modified, _) in &scanned.fingerprints {
        let read = match modified {
            None if path.extension().is_none() => Err("there is no such folder".to_owned()),
            Some(_) | None => read_bounded(path, WORKFLOW_BYTES_MAX as u64)
                .and_then(|text| Workflow::parse(&text)),
        };
        let broken = |problem| InvalidFile { path: path.clone(), problem };
        match read {
            Err(problem) => scanned.invalid.push(broken(problem)),
            Ok(workflow) if scanned.workflows.contains_key(&workflow.name) => {
                let problem = format!("another file has a workflow named `{}`", workflow.name);
                scanned.invalid.push(broken(problem));
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
    fn c3_files_are_found_followed_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let file = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nDo it.");
        put("a.md", &file("restock"));
        put("b.md", &file("restock"));
        put("c.md", "nothing");
        put("notes.txt", "no workflow");
        let missing = folder.path().join("missing");
        let workflows = WorkflowLibrary::open(vec![folder.path().to_owned(), missing.clone()]);
        let names = || -> Vec<_> { workflows.list().iter().map(|it| it.name.clone()).collect() };
        assert_eq!(names(), ["restock"]);
        let broken: Vec<_> =
            workflows.invalid_files().into_iter().map(|broken| broken.path).collect();
        assert_eq!(broken, [folder.path().join("b.md"), folder.path().join("c.md"), missing]);
        assert!(!workflows.refresh());
        put("c.md", &file("report"));
        assert!(workflows.refresh());
        assert_eq!(names(), ["report", "restock"]);
    }

    #[test]
    fn c3_the_examples_can_be_used() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/workflows");
        let workflows = WorkflowLibrary::open(vec![folder]);
        assert_eq!(workflows.invalid_files(), []);
        assert!(workflows.list().len() >= 4);
        for workflow in workflows.list() {
            // With an example for each input that has no default.
            let inputs = workflow.inputs.iter().filter(|(_, spec)| spec.is_required());
            let inputs = inputs.map(|(name, spec)| {
                let one = if name == "region_id" { 10_000_002.into() } else { 34.into() };
                (name.clone(), spec.choices.first().cloned().unwrap_or(one))
            });
            let started = workflow.start(&inputs.collect()).unwrap();
            assert!(started.text.len() > 100, "{}", started.text);
        }
    }
}
