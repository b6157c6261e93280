use super::*;
use std::fs;
use tempfile::TempDir;

fn skill(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: For {name}.\n---\n{body}\n")
}

fn write_file(folder: &TempDir, path: &str, text: &str) {
    let path = folder.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn library(folder: &TempDir) -> SkillLibrary {
    SkillLibrary::open(vec![folder.path().to_owned()])
}

fn names(library: &SkillLibrary) -> Vec<String> {
    library.skills().into_iter().map(|skill| skill.name).collect()
}

#[test]
fn c2_nested_skills_are_found_and_invalid_ones_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    write_file(&folder, "pdf/SKILL.md", &skill("pdf", "Read it."));
    write_file(&folder, "office/tables/SKILL.md", &skill("tables", "Count."));
    write_file(&folder, "office/tables/inner/SKILL.md", &skill("hidden", "It belongs to tables."));
    write_file(&folder, ".git/SKILL.md", &skill("git", "No."));
    write_file(&folder, "a/b/c/d/e/f/SKILL.md", &skill("deep", "Too deep."));
    write_file(&folder, "broken/SKILL.md", "# No front matter");
    write_file(&folder, "twin/SKILL.md", &skill("pdf", "Another."));
    write_file(&folder, "big/SKILL.md", &"x".repeat(300 * 1024));
    let library = library(&folder);
    assert_eq!(names(&library), ["pdf", "tables"]);
    let invalid = library.invalid_files();
    let problem = |path: &str| {
        let has_path = |file: &&InvalidFile| file.path.ends_with(path);
        &invalid.iter().find(has_path).unwrap_or_else(|| panic!("{path}: {invalid:?}")).problem
    };
    assert!(problem("broken/SKILL.md").contains("no front matter"));
    assert!(problem("twin/SKILL.md").contains("has a skill of the same name, `pdf`"));
    assert!(problem("big/SKILL.md").contains("exceeds the limit of 262144 bytes"));
    assert_eq!(invalid.len(), 3);
    // A configured folder may be a skill itself; a missing folder is reported.
    let missing = folder.path().join("missing");
    let library = SkillLibrary::open(vec![folder.path().join("pdf"), missing.clone()]);
    assert_eq!(names(&library), ["pdf"]);
    assert_eq!(library.invalid_files()[0].path, missing);
}

#[test]
fn c2_changes_on_disk_are_detected() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(&folder);
    let registry = library.registry();
    assert!(!library.refresh());
    write_file(&folder, "pdf/SKILL.md", &skill("pdf", "Read it."));
    assert!(library.refresh());
    assert_eq!(registry.get().iter().count(), 1);
    assert_eq!(library.cached_text("pdf"), None);
    assert_eq!(library.read("pdf", None).unwrap(), "Read it.");
    // The text is read on request and cached until the next scan; the index is updated when the file
    // has changed.
    write_file(&folder, "pdf/SKILL.md", &skill("pdf", "Read it well."));
    assert_eq!(library.read("pdf", None).unwrap(), "Read it well.");
    assert_eq!(library.cached_text("pdf").as_deref(), Some("Read it well."));
    library.refresh();
    assert_eq!(library.cached_text("pdf"), None);
    write_file(&folder, "pdf/SKILL.md", &skill("pdf-files", "Read it well."));
    assert!(library.refresh());
    assert_eq!(names(&library), ["pdf-files"]);
    write_file(&folder, "pdf/SKILL.md", "broken while it is edited");
    assert!(library.refresh());
    assert_eq!((names(&library).len(), library.invalid_files().len()), (0, 1));
    fs::remove_dir_all(folder.path().join("pdf")).unwrap();
    assert!(library.refresh());
    assert_eq!(library.invalid_files(), []);
}

#[test]
fn c2_files_of_a_skill_are_read_and_paths_out_of_its_folder_are_rejected() {
    let outside = tempfile::tempdir().unwrap();
    write_file(&outside, "secret.txt", "secret");
    let folder = tempfile::tempdir().unwrap();
    write_file(&folder, "pdf/SKILL.md", &skill("pdf", "See forms.md."));
    write_file(&folder, "pdf/forms.md", "Fill them.");
    write_file(&folder, "pdf/scripts/fill.py", "print()");
    write_file(&folder, "pdf/.hidden", "no");
    write_file(&folder, "pdf/huge.txt", &"x".repeat(1024 * 1024 + 1));
    write_file(&folder, "other/SKILL.md", &skill("other", "x"));
    fs::write(folder.path().join("pdf/picture.png"), [0x89, 0xff]).unwrap();
    let link = |to: &Path, name: &str| {
        std::os::unix::fs::symlink(to, folder.path().join("pdf").join(name)).unwrap();
    };
    link(&outside.path().join("secret.txt"), "link.txt");
    link(outside.path(), "linked");
    link(Path::new("forms.md"), "inside.md");
    let fifo = folder.path().join("pdf/pipe");
    nix_fifo(&fifo);

    let library = library(&folder);
    assert_eq!(
        library.read("pdf", None).unwrap(),
        "See forms.md.\n\nFiles of this skill, to be read with `file`:\n- forms.md\n- huge.txt\n\
         - picture.png\n- scripts/fill.py"
    );
    assert_eq!(library.read("pdf", Some("forms.md")).unwrap(), "Fill them.");
    assert_eq!(library.read("pdf", Some("./scripts/fill.py")).unwrap(), "print()");
    assert_eq!(library.read("pdf", Some("inside.md")).unwrap(), "Fill them.");
    let absolute = outside.path().join("secret.txt").display().to_string();
    for (file, problem) in [
        ("../other/SKILL.md", "without `..`"),
        ("scripts/../../other/SKILL.md", "without `..`"),
        (absolute.as_str(), "without `..`"),
        ("", "must be a path"),
        ("link.txt", "leads out of the skill's folder"),
        ("linked/secret.txt", "leads out of the skill's folder"),
        ("missing.md", "has no file"),
        ("scripts", "not a regular file"),
        ("pipe", "not a regular file"),
        ("huge.txt", "exceeds the limit of 1048576 bytes"),
        ("picture.png", "the file is not UTF-8 text"),
        ("a\0b", "has no file"),
    ] {
        let error = library.read("pdf", Some(file)).unwrap_err();
        assert!(error.contains(problem), "{file}: {error}");
    }
    assert_eq!(library.read("nothing", None).unwrap_err(), "there is no skill `nothing`");
}

/// Creates a pipe without a writer. Reading it would block forever.
fn nix_fifo(path: &Path) {
    let status = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(status.success());
}

#[test]
fn text_cache_is_bounded() {
    let mut cache = SkillTextCache::default();
    let text = "x".repeat(CACHED_TEXT_BYTES_MAX / 4);
    for n in 0..10 {
        cache.insert(&format!("skill-{n}"), &text);
        assert!(cache.texts.len() <= 4);
    }
    assert!(cache.texts.contains_key("skill-9"));
}
