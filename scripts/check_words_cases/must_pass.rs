//! Approvals that wait, by deadline. How they are stored is the store's subject.

/// The owner of a delegated call.
pub struct ChildOwner<'a> {
    /// The name, as the client wrote it: `"whose told wish"`.
    pub name: &'a str,
}

/// Whatsapp is no clause, and neither is `What`.
pub enum SeedFeed {
    /// Finished: an event is named in the past tense.
    Finished,
}

impl ChildOwner<'_> {
    /// Takes the next request out of the queue.
    pub fn take_next(&mut self) -> Option<char> {
        // What an inline comment explains is not a doc comment.
        let quote = '"';
        let text = r#"fn take() { told } /// What"#;
        let nested = /* fn hear() /* struct Wanted; */ */ "/* fn said()";
        let escaped = "\" fn of() \\";
        text.chars().chain(nested.chars()).chain(escaped.chars()).find(|found| *found == quote)
    }
}

/// Formats the answer of an approver. A comment is no text.
pub fn format_personal_answer(questionable: bool) -> String {
    let impersonal = "A salesperson's personal page";
    format!("{impersonal}: {questionable}")
}

#[cfg(test)]
#[allow(dead_code)]
mod tests {
    const BRACES: [char; 2] = ['}', '{'];

    fn answer() -> &'static str {
        "the answer of a person { and of nobody"
    }
}
