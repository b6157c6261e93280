//! Editing a text in the user's editor.

use anyhow::Context as _;
use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    process::Command,
};
use uuid::Uuid;

/// Maximum bytes of the edited file.
const TEXT_BYTES_MAX: u64 = 1024 * 1024;

/// Returns the editor named by `VISUAL` or `EDITOR`, if any.
pub(super) fn editor() -> Option<String> {
    let editor = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty()));
    editor.filter(|editor| editor.split_whitespace().next().is_some())
}

/// Opens `text` in `editor`, waits for the editor to exit, and returns the saved text.
///
/// Only the owner can read the file, and the file is removed afterwards. The editor's command line
/// is split at white space and started without a shell.
pub(super) fn edit(editor: &str, text: &str) -> anyhow::Result<String> {
    let file = TempFile::new(text)?;
    let mut words = editor.split_whitespace();
    let program = words.next().context("no editor is configured")?;
    let status = Command::new(program).args(words).arg(&file.0).status();
    let status = status.with_context(|| format!("can't start {program}"))?;
    anyhow::ensure!(status.success(), "{program} ended with {status}");
    let size = fs::metadata(&file.0).context("can't find the edited file")?.len();
    anyhow::ensure!(
        size <= TEXT_BYTES_MAX,
        "the edited file has {size} bytes; the limit is {TEXT_BYTES_MAX}"
    );
    fs::read_to_string(&file.0).context("can't read the edited file")
}

/// A file that is removed when dropped.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("greenroom-{}.json", Uuid::new_v4()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = file.with_context(|| format!("can't create {}", path.display()))?;
        let file = file.write_all(text.as_bytes()).map(|()| Self(path.clone()));
        file.with_context(|| format!("can't write {}", path.display()))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A failure is harmless: only the owner can read the file, in the folder for temporary files.
        fs::remove_file(&self.0).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn edited_text_is_returned_and_the_file_removed() {
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
    fn failing_editor_is_an_error() {
        assert!(edit("false", "text").unwrap_err().to_string().contains("ended with"));
        assert!(edit("/no/such/editor", "text").is_err());
    }
}
