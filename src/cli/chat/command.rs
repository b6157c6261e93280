//! What somebody types: something to say to the agent, or a word to the chat itself.

/// What a line means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatCommand<'a> {
    /// To the agent.
    Message(&'a str),
    /// What can be typed.
    Help,
    /// Cancel what runs.
    Cancel,
    /// Which session this is.
    ShowSession,
    /// The next message begins another session.
    NewSession,
    /// Leave.
    Exit,
    /// A name that is none of the chat's own: a workflow's, with what follows.
    StartWorkflow { name: &'a str, rest: &'a str },
}

impl<'a> ChatCommand<'a> {
    /// Reads a line. `//` begins a message with a stroke.
    pub(super) fn parse(line: &'a str) -> Self {
        let line = line.trim();
        let Some(word) = line.strip_prefix('/') else { return Self::Message(line) };
        if word.starts_with('/') {
            return Self::Message(word);
        }
        let (name, rest) = word.split_once(char::is_whitespace).unwrap_or((word, ""));
        match name {
            "help" | "?" => Self::Help,
            "cancel" => Self::Cancel,
            "session" => Self::ShowSession,
            "new" => Self::NewSession,
            "quit" | "exit" => Self::Exit,
            name => Self::StartWorkflow { name, rest: rest.trim() },
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
            (" hello there ", ChatCommand::Message("hello there")),
            ("//etc/passwd", ChatCommand::Message("/etc/passwd")),
            ("/help", ChatCommand::Help),
            ("/quit now", ChatCommand::Exit),
            (
                "/restock goods=ore  n=5 ",
                ChatCommand::StartWorkflow { name: "restock", rest: "goods=ore  n=5" },
            ),
            ("/", ChatCommand::StartWorkflow { name: "", rest: "" }),
        ] {
            assert_eq!(ChatCommand::parse(line), word, "{line}");
        }
    }
}
