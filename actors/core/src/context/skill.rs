//! Skills (C2): parses `SKILL.md` files and builds the skill index that the model reads.
//!
//! The file format is the published one: a YAML front matter with `name` and `description`, followed
//! by Markdown. Files are read elsewhere.

use super::front_matter;
use crate::{
    limits::{SKILL_DESCRIPTION_CHARS_MAX, SKILL_NAME_CHARS_MAX, SKILLS_INDEX_BYTES_MAX},
    text::glob_matches,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Name of the built-in tool that returns a skill's text.
pub const READ_SKILL_TOOL: &str = "read_skill";

/// A skill's entry in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Skill {
    /// Unique name.
    pub name: String,
    /// Describes when to use the skill.
    pub description: String,
}

/// A parsed `SKILL.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFile {
    /// The index entry.
    pub skill: Skill,
    /// The text that `read_skill` returns.
    pub body: String,
}

/// The front matter keys that Greenroom uses; other keys are ignored.
#[derive(Deserialize)]
struct SkillFrontMatter {
    name: String,
    description: String,
}

impl SkillFile {
    /// Parses a `SKILL.md`. The error is a message for the operator.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (head, body) = front_matter::split(text)?;
        let head: SkillFrontMatter = match front_matter::parse(head) {
            Ok(head) => head,
            // Many published descriptions contain an unquoted colon, which is not valid YAML.
            Err(error) => parse_plain_fields(head).ok_or(error)?,
        };
        let name = head.name.trim().to_owned();
        let description = head.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_legal = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        if name.is_empty() || !name.chars().all(is_legal) {
            return Err("`name`: must consist of letters, digits, `-`, `_`, `.` or `:`".to_owned());
        }
        let (name_chars, name_chars_max) = (name.chars().count(), SKILL_NAME_CHARS_MAX);
        if name_chars > name_chars_max {
            return Err(format!("`name`: {name_chars} characters; the limit is {name_chars_max}"));
        }
        if description.is_empty() {
            return Err("`description`: must not be empty".to_owned());
        }
        let (chars, chars_max) = (description.chars().count(), SKILL_DESCRIPTION_CHARS_MAX);
        if chars > chars_max {
            return Err(format!("`description`: {chars} characters; the limit is {chars_max}"));
        }
        Ok(Self { skill: Skill { name, description }, body: body.trim().to_owned() })
    }
}

/// Reads `name:` and `description:` from single lines, without a YAML parser.
fn parse_plain_fields(head: &str) -> Option<SkillFrontMatter> {
    let value = |key: &str| {
        let mut values = head.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        values.next().map(|value| value.trim().trim_matches(['"', '\'']).to_owned())
    };
    let (name, description) = (value("name")?, value("description")?);
    // A YAML block scalar continues on the next lines; here it failed to parse.
    (!description.starts_with(['|', '>'])).then_some(SkillFrontMatter { name, description })
}

/// All loaded skills, by name. Replaced as a whole when files change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillRegistry(BTreeMap<String, Skill>);

impl SkillRegistry {
    /// Creates a registry. Of several skills with the same name, the first is kept.
    pub fn new(skills: impl IntoIterator<Item = Skill>) -> Self {
        let mut by_name = BTreeMap::new();
        for skill in skills {
            by_name.entry(skill.name.clone()).or_insert(skill);
        }
        Self(by_name)
    }

    /// Iterates over all skills, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Skill> {
        self.0.values()
    }

    /// Iterates over the skills whose name matches at least one of `globs`.
    pub fn matching<'a>(&'a self, globs: &'a [String]) -> impl Iterator<Item = &'a Skill> {
        self.iter().filter(|skill| globs.iter().any(|glob| glob_matches(glob, &skill.name)))
    }
}

/// The index as the model reads it, the names of its entries, and the number of skills that were
/// omitted because the index is full.
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
    kind that one describes, read it with the tool read_skill before you start.";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(String, String, String), String> {
        let SkillFile { skill, body } = SkillFile::parse(text)?;
        Ok((skill.name, skill.description, body))
    }

    #[test]
    fn c2_published_skill_files_are_parsed() {
        let cases = [
            // Plain.
            "---\nname: pdf\ndescription: Work with PDF files.\n---\n\n# PDF\n\nDo it.\n",
            // With keys for other hosts and with CRLF line ends.
            "---\r\nname: pdf\r\ndescription: Work with PDF files.\r\nlicense: MIT\r\n\
             allowed-tools: Read, Bash(git:*)\r\nmetadata:\r\n  version: \"1.0\"\r\n---\r\n# PDF\n\nDo it.",
            // Quoted, folded, and with a byte order mark.
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
    fn c2_invalid_skill_file_is_rejected_with_reason() {
        let long = "x".repeat(1025);
        let bomb = "---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n\
            c: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\n\
            name: *d\n---\n";
        for (text, problem) in [
            ("# PDF", "no front matter"),
            ("---\nname: a", "the closing line of `---` is missing"),
            ("---\nname: a\n---\n", "missing field `description`"),
            ("---\nname: [a]\ndescription: b\n---\n", "name"),
            ("---\nname: ../a\ndescription: b\n---\n", "`name`: must consist of"),
            ("---\nname: a b\ndescription: b\n---\n", "`name`: must consist of"),
            ("---\nname: a\ndescription: ''\n---\n", "`description`: must not be empty"),
            (
                &format!("---\nname: a\ndescription: {long}\n---\n"),
                "`description`: 1025 characters; the limit is 1024",
            ),
            (
                &format!("---\nname: {}\ndescription: b\n---\n", &long[..65]),
                "`name`: 65 characters; the limit is 64",
            ),
            (bomb, ""),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn c2_index_is_deduplicated_and_bounded() {
        let skill = |name: &str, description: &str| Skill {
            name: name.to_owned(),
            description: description.to_owned(),
        };
        let registry = SkillRegistry::new([
            skill("b", "second"),
            skill("a", "first"),
            skill("a", "a later one of the same name"),
        ]);
        let index = SkillIndex::from_skills(registry.matching(&["*".to_owned()]));
        assert!(index.text.ends_with("start.\n- a: first\n- b: second"), "{}", index.text);
        assert_eq!(SkillIndex::from_skills(registry.matching(&["b*".to_owned()])).names, ["b"]);
        assert_eq!(SkillIndex::from_skills(registry.matching(&[])).text, "");

        let many = (0..100).map(|n| skill(&format!("s{n:03}"), &"x".repeat(1000)));
        let index = SkillIndex::from_skills(SkillRegistry::new(many).iter());
        assert!(index.text.len() <= SKILLS_INDEX_BYTES_MAX);
        assert_eq!(index.names.len() + index.left_out, 100);
        assert!(index.names.len() > 10);
    }
}
