//! Editing a text in the person's own editor.

use anyhow::Context as _;
use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};
use uuid::Uuid;

/// Bytes that are read back.
const TEXT_BYTES_MAX: u64 = 1024 * 1024;

/// The person's editor, if they have named one.
pub(super) fn editor() -> Option<String> {
    let named = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty()));
    named.filter(|editor| editor.split_whitespace().next().is_some())
}

/// Lets the person edit `text` with `editor`, and waits for it; the text as it was saved.
///
/// The file can be read by its owner alone, and is gone afterwards. The editor is started as it is
/// named, with words for arguments, and through no shell.
pub(super) fn edit(editor: &str, text: &str) -> anyhow::Result<String> {
    let file = TempFile::new(text)?;
    let mut words = editor.split_whitespace();
    let program = words.next().context("no editor is named")?;
    let status = Command::new(program).args(words).arg(&file.0).status();
    let status = status.with_context(|| format!("can't start {program}"))?;
    anyhow::ensure!(status.success(), "{program} ended with {status}");
    let size = fs::metadata(&file.0).context("the edited file is gone")?.len();
    anyhow::ensure!(
        size <= TEXT_BYTES_MAX,
        "the edited file is larger than {TEXT_BYTES_MAX} bytes"
    );
    fs::read_to_string(&file.0).context("the edited file can't be read")
}

/// A file that is taken away in the end.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("greenroom-{}.json", Uuid::new_v4()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = file.with_context(|| with_path("can't make", &path))?;
        let file = file.write_all(text.as_bytes()).map(|()| Self(path.clone()));
        file.with_context(|| with_path("can't write", &path))
    }
}

fn with_path(what: &str, path: &Path) -> String {
    format!("{what} {}", path.display())
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // It was private, and is in a folder for what nobody misses.
        fs::remove_file(&self.0).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_comes_back_and_the_file_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("editor");
        let seen = folder.path().join("seen");
        let text = format!(
            "#!/bin/sh\nstat -c %a \"$2\" > {0}\necho \"$2\" >> {0}\nprintf ' and more' >> \"$2\"\n",
            seen.display()
        );
        fs::write(&script, text).unwrap();
        let run = Command::new("chmod").arg("+x").arg(&script).status().unwrap();
        assert!(run.success());
        let edited = edit(&format!("{} --wait", script.display()), "this").unwrap();
        assert_eq!(edited, "this and more");
        let seen = fs::read_to_string(seen).unwrap();
        let (mode, path) = seen.trim().split_once('\n').unwrap();
        assert_eq!(mode, "600");
        assert!(!Path::new(path).exists());
    }

    #[test]
    fn an_editor_that_fails_changes_nothing() {
        assert!(edit("false", "text").unwrap_err().to_string().contains("ended with"));
        assert!(edit("/no/such/editor", "text").is_err());
    }
}
