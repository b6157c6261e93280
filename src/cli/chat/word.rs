//! What somebody types: something to say to the agent, or a word to the chat itself.

/// What a line means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// To the agent.
    Say(&'a str),
    /// What can be typed.
    Help,
    /// Cancel what runs.
    Cancel,
    /// Which session this is.
    Session,
    /// The next message begins another session.
    New,
    /// Leave.
    Leave,
    /// A name that is none of the chat's own: a workflow's, with what follows.
    Named { name: &'a str, rest: &'a str },
}

impl<'a> Word<'a> {
    /// Reads a line. `//` begins a message with a stroke.
    pub(super) fn of(line: &'a str) -> Self {
        let line = line.trim();
        let Some(word) = line.strip_prefix('/') else { return Self::Say(line) };
        if word.starts_with('/') {
            return Self::Say(word);
        }
        let (name, rest) = word.split_once(char::is_whitespace).unwrap_or((word, ""));
        match name {
            "help" | "?" => Self::Help,
            "cancel" => Self::Cancel,
            "session" => Self::Session,
            "new" => Self::New,
            "quit" | "exit" => Self::Leave,
            name => Self::Named { name, rest: rest.trim() },
        }
    }
}

/// What `/help` says: a word, and what it does.
pub(super) const HELP: [(&str, &str); 9] = [
    ("Enter", "sends; while an answer comes, what you send waits for its turn"),
    ("Alt-Enter", "begins a new line"),
    ("Ctrl-C", "cancels what runs; twice leaves"),
    ("Ctrl-D", "leaves; what runs goes on"),
    ("/cancel", "cancels what runs"),
    ("/session", "shows the session's id, for --session"),
    ("/new", "begins another session with the next message"),
    ("/NAME k=v", "starts the workflow NAME; `greenroom workflows` lists them"),
    ("//text", "says /text"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_messages() {
        for (line, word) in [
            (" hello there ", Word::Say("hello there")),
            ("//etc/passwd", Word::Say("/etc/passwd")),
            ("/help", Word::Help),
            ("/quit now", Word::Leave),
            ("/restock goods=ore  n=5 ", Word::Named { name: "restock", rest: "goods=ore  n=5" }),
            ("/", Word::Named { name: "", rest: "" }),
        ] {
            assert_eq!(Word::of(line), word, "{line}");
        }
    }
}
