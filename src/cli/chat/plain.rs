//! The chat without a terminal to draw on: a message is piped in or given, the answer goes to standard
//! output and everything else to standard error; or lines are typed on a terminal that can't be drawn
//! on, one after the other.

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

/// Lines that wait to be looked at.
const LINES_MAX: usize = 64;

type PostResult = (PostPurpose, Result<(), RequestFailure>);

struct PlainChat {
    client: ApiClient,
    link: GatewayConnection,
    conversation: ChatMachine,
    agent: Option<AgentName>,
    posts: mpsc::Sender<PostResult>,
    paper: PlainOutput,
    /// To leave once everything is answered.
    once: bool,
    no_wait: bool,
    /// Something was written since a line was last asked for.
    needs_prompt: bool,
    code: Option<u8>,
}

/// What is written on.
struct PlainOutput {
    /// The text goes out as it comes; else once it is sure that it counts.
    streams: bool,
    /// Text that did not go out.
    text: String,
    /// Whether the last thing that went out was text without an end of line.
    in_text: bool,
}

/// Lines of standard input, until its end.
pub(super) fn stdin_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    // A thread of its own: reading can't be given up, and must not keep the program from ending.
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

/// Runs it. `once` is all there is to say; `going` are requests that are answered already.
pub(super) async fn run(
    setup: ChatSetup,
    once: Option<String>,
    going: Vec<ResumedRequest>,
) -> anyhow::Result<ExitCode> {
    let ChatSetup { client, link, conversation, agent, no_wait } = setup;
    let (posts, mut posted) = mpsc::channel(LINES_MAX);
    let paper =
        PlainOutput { streams: io::stdout().is_terminal(), text: String::new(), in_text: false };
    let mut plain = PlainChat {
        client,
        link,
        conversation,
        agent,
        posts,
        paper,
        once: once.is_some(),
        no_wait,
        needs_prompt: true,
        code: None,
    };
    let mut acts = Vec::new();
    for (id, content) in going {
        plain.conversation.submit(id, &content, &mut acts);
    }
    let mut lines = match once {
        Some(message) => {
            plain.conversation.submit(Uuid::new_v4().to_string(), &message, &mut acts);
            None
        }
        None => Some(stdin_lines()),
    };
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    loop {
        plain.apply_effects(&mut acts).await?;
        if let Some(code) = plain.code {
            plain.paper.end_text()?;
            return Ok(ExitCode::from(code));
        }
        if lines.is_some() {
            plain.prompt()?;
        }
        let typed = async {
            match &mut lines {
                Some(lines) => lines.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            said = plain.link.next() => plain.handle_connection_event(said, &mut acts),
            line = typed => match line {
                Some(line) => {
                    let id = Uuid::new_v4().to_string();
                    plain.conversation.handle_line(&line, id, &mut acts);
                    (plain.paper.in_text, plain.needs_prompt) = (false, true);
                }
                None => {
                    lines = None;
                    plain.once = true;
                }
            },
            Some((to, result)) = posted.recv() => {
                plain.conversation.handle_post_result(&to, result, &mut acts);
            }
            _ = interrupted.recv() => plain.conversation.handle_interrupt(&mut acts),
            _ = terminated.recv() => plain.code = Some(EXIT_FAILED),
        }
    }
}

impl PlainChat {
    fn handle_connection_event(
        &mut self,
        said: Option<ConnectionEvent>,
        acts: &mut Vec<ChatEffect>,
    ) {
        match said {
            Some(ConnectionEvent::Frame(frame)) => {
                self.conversation.handle_message(GatewayMessage::from_json(frame), acts)
            }
            Some(ConnectionEvent::Lost { why, again_in }) => {
                self.conversation.handle_disconnect(&why, again_in, SystemClock.now(), acts);
            }
            Some(ConnectionEvent::Reconnected) => self.conversation.handle_reconnect(acts),
            Some(ConnectionEvent::Refused(why)) => {
                let told = format!("the server refuses: {why}");
                acts.extend([
                    ChatEffect::Show(render::error_line(&told)),
                    ChatEffect::Exit(EXIT_FAILED),
                ]);
            }
            None => acts.push(ChatEffect::Exit(EXIT_FAILED)),
        }
    }

    async fn apply_effects(&mut self, acts: &mut Vec<ChatEffect>) -> io::Result<()> {
        while !acts.is_empty() {
            for act in std::mem::take(acts) {
                self.apply_effect(act, acts).await?;
            }
        }
        if self.once && self.code.is_none() && self.conversation.is_idle() {
            let completed = self.conversation.outcome.is_none_or(|it| it == RunOutcome::Completed);
            self.code = Some(if completed { 0 } else { EXIT_FAILED });
        }
        Ok(())
    }

    async fn apply_effect(
        &mut self,
        act: ChatEffect,
        acts: &mut Vec<ChatEffect>,
    ) -> io::Result<()> {
        match act {
            ChatEffect::Text(text) => self.paper.write_text(&text)?,
            ChatEffect::EndText => self.paper.end_text()?,
            ChatEffect::DiscardText => self.paper.discard_text()?,
            ChatEffect::Show(line) => {
                self.needs_prompt = true;
                self.paper.end_text()?;
                self.paper.write_status(&line.wrap_rows(COLUMNS, ColorMode::PLAIN).join("\n"))?;
            }
            ChatEffect::SendMessage { id, content } => {
                if let (None, Some(agent)) = (self.conversation.session(), &self.agent) {
                    match create_session(&self.client, agent).await {
                        Ok(session) => self.conversation.set_session(session),
                        Err(error) => {
                            acts.push(ChatEffect::Show(render::error_line(&error.to_string())));
                            self.conversation.handle_send_failure(&id);
                            return Ok(());
                        }
                    }
                }
                self.link.send(self.conversation.message_frame(&id, &content)).await;
            }
            ChatEffect::Send(frame) => self.link.send(frame).await,
            ChatEffect::Post { to, path, body } => self.spawn_post(to, path, body),
            ChatEffect::Edit(value) => {
                self.conversation.edit_in_place();
                self.paper.write_status(&format!("{value}\ntype it anew, in one line"))?;
            }
            ChatEffect::Prefill(text) => {
                self.paper.write_status(&format!("{text}\ntype it anew"))?
            }
            ChatEffect::ApprovalPending => {
                if self.once || self.no_wait {
                    self.paper
                        .write_status("a person is asked; `greenroom approvals` can answer")?;
                }
                if self.no_wait {
                    self.code = Some(EXIT_APPROVAL_PENDING);
                }
            }
            ChatEffect::Exit(code) => self.code = Some(code),
        }
        Ok(())
    }

    fn spawn_post(&self, to: PostPurpose, path: String, body: Value) {
        let (client, posts) = (self.client.clone(), self.posts.clone());
        tokio::spawn(async move {
            let result = post_json(&client, &path, &body).await;
            // Nobody is there any more.
            posts.send((to, result)).await.unwrap_or_default();
        });
    }

    /// Asks for a line, where one is expected.
    fn prompt(&mut self) -> io::Result<()> {
        let is_expected = self.conversation.is_idle() || self.conversation.has_prompt();
        if is_expected && std::mem::take(&mut self.needs_prompt) {
            let prompt = self.conversation.live_area(SystemClock.now()).prompt;
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

    /// The text is whole.
    fn end_text(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            // What reads it may be a program, but what writes it may be anything.
            let end = if text.ends_with('\n') { "" } else { "\n" };
            print(&format!("{}{end}", escape_unsafe_lines(&text)))?;
        }
        if std::mem::take(&mut self.in_text) { print("\n") } else { Ok(()) }
    }

    /// The text does not count.
    fn discard_text(&mut self) -> io::Result<()> {
        self.text.clear();
        self.end_text()
    }

    fn write_status(&self, text: &str) -> io::Result<()> {
        let mut stderr = io::stderr().lock();
        writeln!(stderr, "{text}")
    }
}
