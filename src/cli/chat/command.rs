//! Input lines of the chat: a message to the agent, or a command of the chat.

/// A parsed input line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatCommand<'a> {
    /// A message to the agent.
    Message(&'a str),
    /// Show the help.
    Help,
    /// Cancel the current run.
    Cancel,
    /// Show the session id.
    ShowSession,
    /// Start a new session with the next message.
    NewSession,
    /// Quit.
    Exit,
    /// Start a workflow: any name that is not a command of the chat, and the text after the name.
    StartWorkflow { name: &'a str, rest: &'a str },
}

impl<'a> ChatCommand<'a> {
    /// Parses a line. `//` starts a message whose first character is `/`.
    pub(super) fn parse(line: &'a str) -> Self {
        let line = line.trim();
        let Some(command) = line.strip_prefix('/') else { return Self::Message(line) };
        if command.starts_with('/') {
            return Self::Message(command);
        }
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
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

/// The keys and commands listed by `/help`, each with its effect.
pub(super) const HELP: [(&str, &str); 9] = [
    ("Enter", "sends the message; messages sent during a run are queued"),
    ("Alt-Enter", "starts a new line"),
    ("Ctrl-C", "cancels the run; twice quits"),
    ("Ctrl-D", "quits; the run continues"),
    ("/cancel", "cancels the run"),
    ("/session", "shows the session's id, for --session"),
    ("/new", "starts a new session with the next message"),
    ("/NAME k=v", "starts the workflow NAME; `greenroom workflows` lists them"),
    ("//text", "sends /text"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_messages() {
        for (line, command) in [
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
            assert_eq!(ChatCommand::parse(line), command, "{line}");
        }
    }
}
