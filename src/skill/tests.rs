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
fn c2_skills_are_found_however_deep_and_broken_ones_are_reported() {
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
    let broken = library.invalid_files();
    let told = |path: &str| {
        let of = |it: &&InvalidFile| it.path.ends_with(path);
        &broken.iter().find(of).unwrap_or_else(|| panic!("{path}: {broken:?}")).problem
    };
    assert!(told("broken/SKILL.md").contains("no front matter"));
    assert!(told("twin/SKILL.md").contains("has a skill of the same name, `pdf`"));
    assert!(told("big/SKILL.md").contains("more than 262144 bytes"));
    assert_eq!(broken.len(), 3);
    // A folder may be a skill itself; one that is not there is reported.
    let missing = folder.path().join("missing");
    let library = SkillLibrary::open(vec![folder.path().join("pdf"), missing.clone()]);
    assert_eq!(names(&library), ["pdf"]);
    assert_eq!(library.invalid_files()[0].path, missing);
}

#[test]
fn c2_changes_on_disk_are_picked_up() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(&folder);
    let book = library.registry();
    assert!(!library.refresh());
    write_file(&folder, "pdf/SKILL.md", &skill("pdf", "Read it."));
    assert!(library.refresh());
    assert_eq!(book.get().iter().count(), 1);
    assert_eq!(library.cached_text("pdf"), None);
    assert_eq!(library.read("pdf", None).unwrap(), "Read it.");
    // The text is read when it is asked for, and kept until the files are looked at; the index
    // follows once the file is another one.
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
fn c2_files_beside_a_skill_are_read_and_no_path_leads_out() {
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
        ("scripts", "it is no file"),
        ("pipe", "it is no file"),
        ("huge.txt", "more than 1048576 bytes"),
        ("picture.png", "it is no text"),
        ("a\0b", "has no file"),
    ] {
        let found = library.read("pdf", Some(file)).unwrap_err();
        assert!(found.contains(problem), "{file}: {found}");
    }
    assert_eq!(library.read("nothing", None).unwrap_err(), "there is no skill `nothing`");
}

/// A pipe that nobody writes to: reading it would wait for ever.
fn nix_fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn what_is_kept_of_skills_is_bounded() {
    let mut kept = SkillTextCache::default();
    let text = "x".repeat(CACHED_TEXT_BYTES_MAX / 4);
    for n in 0..10 {
        kept.insert(&format!("skill-{n}"), &text);
        assert!(kept.texts.len() <= 4);
    }
    assert!(kept.texts.contains_key("skill-9"));
}
