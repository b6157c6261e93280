//! Skills (C2): what a `SKILL.md` says, and the index of them that the model is shown.
//!
//! The format is the one that others publish: a front matter in YAML with `name` and `description`,
//! and Markdown after it. Files are read elsewhere.

use super::front_matter;
use crate::{
    limits::{SKILL_DESCRIPTION_CHARS_MAX, SKILL_NAME_CHARS_MAX, SKILLS_INDEX_BYTES_MAX},
    text::glob_matches,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The built-in tool that reads a skill's text.
pub const READ_SKILL_TOOL: &str = "read_skill";

/// A skill, as the index shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Skill {
    /// Its name; unique.
    pub name: String,
    /// When it is of use.
    pub description: String,
}

/// A `SKILL.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFile {
    /// What the index shows.
    pub skill: Skill,
    /// What the model reads.
    pub body: String,
}

/// What a front matter may say; all else in it is for other hosts.
#[derive(Deserialize)]
struct SkillFrontMatter {
    name: String,
    description: String,
}

impl SkillFile {
    /// Reads a `SKILL.md`. The error says for people what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (head, body) = front_matter::split(text)?;
        let head: SkillFrontMatter = match front_matter::parse(head) {
            Ok(head) => head,
            // Many a description has a colon in it, which is no YAML and meant none.
            Err(error) => parse_plain_fields(head).ok_or(error)?,
        };
        let name = head.name.trim().to_owned();
        let description = head.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_legal = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        if name.is_empty() || !name.chars().all(is_legal) {
            return Err("its name must be letters, digits, `-`, `_`, `.` or `:`".to_owned());
        }
        if name.chars().count() > SKILL_NAME_CHARS_MAX {
            return Err(format!("its name may have at most {SKILL_NAME_CHARS_MAX} characters"));
        }
        if description.is_empty() {
            return Err("its description is empty".to_owned());
        }
        if description.chars().count() > SKILL_DESCRIPTION_CHARS_MAX {
            let most = SKILL_DESCRIPTION_CHARS_MAX;
            return Err(format!("its description may have at most {most} characters"));
        }
        Ok(Self { skill: Skill { name, description }, body: body.trim().to_owned() })
    }
}

/// `name:` and `description:` on lines of their own.
fn parse_plain_fields(head: &str) -> Option<SkillFrontMatter> {
    let value = |key: &str| {
        let mut values = head.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        values.next().map(|value| value.trim().trim_matches(['"', '\'']).to_owned())
    };
    let (name, description) = (value("name")?, value("description")?);
    // A block that goes on below is YAML, and broken.
    (!description.starts_with(['|', '>'])).then_some(SkillFrontMatter { name, description })
}

/// Every skill there is, by name. Replaced as a whole when files change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillRegistry(BTreeMap<String, Skill>);

impl SkillRegistry {
    /// A book of these skills; of two with one name the first stands.
    pub fn new(skills: impl IntoIterator<Item = Skill>) -> Self {
        let mut book = BTreeMap::new();
        for skill in skills {
            book.entry(skill.name.clone()).or_insert(skill);
        }
        Self(book)
    }

    /// All skills, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Skill> {
        self.0.values()
    }

    /// Those that one of these globs names.
    pub fn matching<'a>(&'a self, globs: &'a [String]) -> impl Iterator<Item = &'a Skill> {
        self.iter().filter(|skill| globs.iter().any(|glob| glob_matches(glob, &skill.name)))
    }
}

/// The index as the model reads it, and the names of those in it; the rest have no room.
#[derive(Debug, Default)]
pub(super) struct SkillIndex {
    pub(super) text: String,
    pub(super) names: Vec<String>,
    pub(super) left_out: usize,
}

impl SkillIndex {
    pub(super) fn from_skills<'a>(skills: impl Iterator<Item = &'a Skill>) -> Self {
        let mut index = Self::default();
        for skill in skills {
            let line = format!("\n- {}: {}", skill.name, skill.description);
            if index.text.len() + line.len() > SKILLS_INDEX_BYTES_MAX {
                index.left_out += 1;
                continue;
            }
            if index.text.is_empty() {
                index.text.push_str(INTRODUCTION);
            }
            index.text.push_str(&line);
            index.names.push(skill.name.clone());
        }
        index
    }
}

const INTRODUCTION: &str = "Skills are instructions for certain kinds of work. When the task is of a \
    kind that one describes, read it with the tool read_skill before you begin.";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(String, String, String), String> {
        let SkillFile { skill, body } = SkillFile::parse(text)?;
        Ok((skill.name, skill.description, body))
    }

    #[test]
    fn c2_skills_as_others_publish_them_are_read() {
        let cases = [
            // Plain.
            "---\nname: pdf\ndescription: Work with PDF files.\n---\n\n# PDF\n\nDo it.\n",
            // With keys for other hosts, and Windows' line ends.
            "---\r\nname: pdf\r\ndescription: Work with PDF files.\r\nlicense: MIT\r\n\
             allowed-tools: Read, Bash(git:*)\r\nmetadata:\r\n  version: \"1.0\"\r\n---\r\n# PDF\n\nDo it.",
            // Quoted, folded, and a mark at the start of the file.
            "\u{feff}---\nname: \"pdf\"\ndescription: >-\n  Work with\n  PDF files.\n---\n# PDF\n\nDo it.",
            "---\ndescription: |\n  Work with\n  PDF files.\nname: pdf\n---\n# PDF\n\nDo it.",
        ];
        for text in cases {
            let (name, description, body) = parsed(text).unwrap();
            assert_eq!(
                (name.as_str(), description.as_str(), body.as_str()),
                ("pdf", "Work with PDF files.", "# PDF\n\nDo it."),
                "{text}"
            );
        }
        let colon =
            "---\nname: pdf\ndescription: Use when: the user asks for \"PDF\": always\n---\nx";
        assert_eq!(parsed(colon).unwrap().1, "Use when: the user asks for \"PDF\": always");
        let rule = "---\nname: a\ndescription: b\n---\nbody\n---\nmore";
        assert_eq!(parsed(rule).unwrap().2, "body\n---\nmore");
    }

    #[test]
    fn c2_what_is_wrong_with_one_is_said() {
        let long = "x".repeat(1025);
        let bomb = "---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n\
            c: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\n\
            name: *d\n---\n";
        for (text, problem) in [
            ("# PDF", "it does not begin with a front matter"),
            ("---\nname: a", "its front matter has no end"),
            ("---\nname: a\n---\n", "missing field `description`"),
            ("---\nname: [a]\ndescription: b\n---\n", "name"),
            ("---\nname: ../a\ndescription: b\n---\n", "its name must be"),
            ("---\nname: a b\ndescription: b\n---\n", "its name must be"),
            ("---\nname: a\ndescription: ''\n---\n", "its description is empty"),
            (&format!("---\nname: a\ndescription: {long}\n---\n"), "at most 1024 characters"),
            (&format!("---\nname: {}\ndescription: b\n---\n", &long[..65]), "at most 64"),
            (bomb, ""),
        ] {
            let found = parsed(text).unwrap_err();
            assert!(found.contains(problem), "{text}: {found}");
        }
    }

    #[test]
    fn c2_the_index_is_deduplicated_and_bounded() {
        let skill = |name: &str, description: &str| Skill {
            name: name.to_owned(),
            description: description.to_owned(),
        };
        let book = SkillRegistry::new([
            skill("b", "second"),
            skill("a", "first"),
            skill("a", "a later one of the same name"),
        ]);
        let index = SkillIndex::from_skills(book.matching(&["*".to_owned()]));
        assert!(index.text.ends_with("begin.\n- a: first\n- b: second"), "{}", index.text);
        assert_eq!(SkillIndex::from_skills(book.matching(&["b*".to_owned()])).names, ["b"]);
        assert_eq!(SkillIndex::from_skills(book.matching(&[])).text, "");

        let many = (0..100).map(|n| skill(&format!("s{n:03}"), &"x".repeat(1000)));
        let index = SkillIndex::from_skills(SkillRegistry::new(many).iter());
        assert!(index.text.len() <= SKILLS_INDEX_BYTES_MAX);
        assert_eq!(index.names.len() + index.left_out, 100);
        assert!(index.names.len() > 10);
    }
}
