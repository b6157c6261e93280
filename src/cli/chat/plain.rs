//! The front end without a full terminal. The answer goes to standard output, everything else to
//! standard error. Messages are given as an argument, piped in, or typed line by line on a terminal
//! without cursor control.

use super::{
    ChatSetup, EXIT_APPROVAL_PENDING, EXIT_FAILED, ResumedRequest, create_session,
    gateway_connection::{ConnectionEvent, GatewayConnection},
    gateway_message::{GatewayMessage, RunOutcome},
    interactive::post_json,
    machine::{ChatEffect, ChatMachine, PostPurpose, RequestFailure},
    render,
    styled_line::escape_unsafe_lines,
};
use crate::{
    cli::{
        client::ApiClient,
        terminal::{COLUMNS, ColorMode, print},
    },
    startup::SystemClock,
};
use greenroom_actors::ports::Clock as _;
use greenroom_core::ids::AgentName;
use serde_json::Value;
use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    process::ExitCode,
    thread,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use uuid::Uuid;

/// Maximum number of queued lines and of queued results of POST requests.
const LINES_MAX: usize = 64;

type PostResult = (PostPurpose, Result<(), RequestFailure>);

struct PlainChat {
    client: ApiClient,
    connection: GatewayConnection,
    machine: ChatMachine,
    agent: Option<AgentName>,
    posts: mpsc::Sender<PostResult>,
    output: PlainOutput,
    /// True to exit when no request is open.
    exit_when_done: bool,
    no_wait: bool,
    /// True if output was written since the last prompt.
    needs_prompt: bool,
    exit_code: Option<u8>,
}

/// Writes the agent's text and status lines.
struct PlainOutput {
    /// True to print text as it arrives; false to print it once the message is complete.
    streams: bool,
    /// Text that is not printed yet.
    text: String,
    /// True if the output ends with text without a line end.
    in_text: bool,
}

/// Reads lines of standard input in a thread until its end.
pub(super) fn stdin_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    // A thread, since a blocking read can't be cancelled and must not keep the program from exiting.
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Runs the front end. `single_message` is the only message; `resumed` are requests sent earlier.
pub(super) async fn run(
    setup: ChatSetup,
    single_message: Option<String>,
    resumed: Vec<ResumedRequest>,
) -> anyhow::Result<ExitCode> {
    let ChatSetup { client, connection, machine, agent, no_wait } = setup;
    let (posts, mut post_results) = mpsc::channel(LINES_MAX);
    let output =
        PlainOutput { streams: io::stdout().is_terminal(), text: String::new(), in_text: false };
    let mut plain = PlainChat {
        client,
        connection,
        machine,
        agent,
        posts,
        output,
        exit_when_done: single_message.is_some(),
        no_wait,
        needs_prompt: true,
        exit_code: None,
    };
    let mut effects = Vec::new();
    for (id, content) in resumed {
        plain.machine.submit(id, &content, &mut effects);
    }
    let mut lines = match single_message {
        Some(message) => {
            plain.machine.submit(Uuid::new_v4().to_string(), &message, &mut effects);
            None
        }
        None => Some(stdin_lines()),
    };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        plain.apply_effects(&mut effects).await?;
        if let Some(code) = plain.exit_code {
            plain.output.end_text()?;
            return Ok(ExitCode::from(code));
        }
        if lines.is_some() {
            plain.prompt()?;
        }
        let next_line = async {
            match &mut lines {
                Some(lines) => lines.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = plain.connection.next() => plain.handle_connection_event(event, &mut effects),
            line = next_line => match line {
                Some(line) => {
                    let id = Uuid::new_v4().to_string();
                    plain.machine.handle_line(&line, id, &mut effects);
                    (plain.output.in_text, plain.needs_prompt) = (false, true);
                }
                None => {
                    lines = None;
                    plain.exit_when_done = true;
                }
            },
            Some((purpose, result)) = post_results.recv() => {
                plain.machine.handle_post_result(&purpose, result, &mut effects);
            }
            _ = interrupt.recv() => plain.machine.handle_interrupt(&mut effects),
            _ = terminate.recv() => plain.exit_code = Some(EXIT_FAILED),
        }
    }
}

impl PlainChat {
    fn handle_connection_event(
        &mut self,
        event: Option<ConnectionEvent>,
        effects: &mut Vec<ChatEffect>,
    ) {
        match event {
            Some(ConnectionEvent::Frame(frame)) => {
                self.machine.handle_message(GatewayMessage::from_json(frame), effects)
            }
            Some(ConnectionEvent::Lost { reason, retry_in }) => {
                self.machine.handle_disconnect(&reason, retry_in, SystemClock.now(), effects);
            }
            Some(ConnectionEvent::Reconnected) => self.machine.handle_reconnect(effects),
            Some(ConnectionEvent::Refused(reason)) => {
                let text = format!("the server refused the connection: {reason}");
                effects.extend([
                    ChatEffect::Show(render::error_line(&text)),
                    ChatEffect::Exit(EXIT_FAILED),
                ]);
            }
            None => effects.push(ChatEffect::Exit(EXIT_FAILED)),
        }
    }

    async fn apply_effects(&mut self, effects: &mut Vec<ChatEffect>) -> io::Result<()> {
        while !effects.is_empty() {
            for effect in std::mem::take(effects) {
                self.apply_effect(effect, effects).await?;
            }
        }
        if self.exit_when_done && self.exit_code.is_none() && self.machine.is_idle() {
            let outcome = self.machine.outcome;
            let completed = outcome.is_none_or(|outcome| outcome == RunOutcome::Completed);
            self.exit_code = Some(if completed { 0 } else { EXIT_FAILED });
        }
        Ok(())
    }

    async fn apply_effect(
        &mut self,
        effect: ChatEffect,
        effects: &mut Vec<ChatEffect>,
    ) -> io::Result<()> {
        match effect {
            ChatEffect::Text(text) => self.output.write_text(&text)?,
            ChatEffect::EndText => self.output.end_text()?,
            ChatEffect::DiscardText => self.output.discard_text()?,
            ChatEffect::Show(line) => {
                self.needs_prompt = true;
                self.output.end_text()?;
                self.output.write_status(&line.wrap_rows(COLUMNS, ColorMode::PLAIN).join("\n"))?;
            }
            ChatEffect::SendMessage { id, content } => {
                if let (None, Some(agent)) = (self.machine.session(), &self.agent) {
                    match create_session(&self.client, agent).await {
                        Ok(session) => self.machine.set_session(session),
                        Err(error) => {
                            effects.push(ChatEffect::Show(render::error_line(&error.to_string())));
                            self.machine.handle_send_failure(&id);
                            return Ok(());
                        }
                    }
                }
                self.connection.send(self.machine.message_frame(&id, &content)).await;
            }
            ChatEffect::Send(frame) => self.connection.send(frame).await,
            ChatEffect::Post { purpose, path, body } => self.spawn_post(purpose, path, body),
            ChatEffect::Edit(value) => {
                self.machine.edit_in_place();
                self.output.write_status(&format!("{value}\nenter the new value in one line"))?;
            }
            ChatEffect::Prefill(text) => {
                self.output.write_status(&format!("{text}\nenter the new text"))?
            }
            ChatEffect::ApprovalPending => {
                if self.exit_when_done || self.no_wait {
                    self.output
                        .write_status("waiting for approval; answer with `greenroom approvals`")?;
                }
                if self.no_wait {
                    self.exit_code = Some(EXIT_APPROVAL_PENDING);
                }
            }
            ChatEffect::Exit(code) => self.exit_code = Some(code),
        }
        Ok(())
    }

    fn spawn_post(&self, purpose: PostPurpose, path: String, body: Value) {
        let (client, posts) = (self.client.clone(), self.posts.clone());
        tokio::spawn(async move {
            let result = post_json(&client, &path, &body).await;
            // The send fails only if the chat has exited.
            posts.send((purpose, result)).await.unwrap_or_default();
        });
    }

    /// Prints the prompt if a line is expected and output was written since the last prompt.
    fn prompt(&mut self) -> io::Result<()> {
        let is_expected = self.machine.is_idle() || self.machine.has_prompt();
        if is_expected && std::mem::take(&mut self.needs_prompt) {
            let prompt = self.machine.live_area(SystemClock.now()).prompt;
            let mut stderr = io::stderr().lock();
            stderr.write_all(prompt.as_bytes())?;
            stderr.flush()?;
        }
        Ok(())
    }
}

impl PlainOutput {
    fn write_text(&mut self, text: &str) -> io::Result<()> {
        if !self.streams {
            self.text.push_str(text);
            return Ok(());
        }
        self.in_text = !text.ends_with('\n');
        print(&escape_unsafe_lines(text))
    }

    /// Ends the text and prints what is not printed yet.
    fn end_text(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            // Escaped even if a program reads it: the model may have written control characters.
            let end = if text.ends_with('\n') { "" } else { "\n" };
            print(&format!("{}{end}", escape_unsafe_lines(&text)))?;
        }
        if std::mem::take(&mut self.in_text) { print("\n") } else { Ok(()) }
    }

    /// Drops the unprinted text.
    fn discard_text(&mut self) -> io::Result<()> {
        self.text.clear();
        self.end_text()
    }

    fn write_status(&self, text: &str) -> io::Result<()> {
        let mut stderr = io::stderr().lock();
        writeln!(stderr, "{text}")
    }
}
