//! The chat at a terminal: keys in, a screen out, and everything at once.

use super::{
    ChatSetup, EXIT_APPROVAL_PENDING, ResumedRequest, create_session, external_editor,
    gateway_connection::{ConnectionEvent, GatewayConnection},
    gateway_message::{GatewayMessage, RunOutcome},
    line_editor::{KeyOutcome, LineEditor},
    machine::{ChatEffect, ChatMachine, PostPurpose, RequestFailure},
    render,
    screen::Screen,
    styled_line::StyledLine,
};
use crate::{
    cli::{
        client::{ApiClient, ApiError},
        terminal::{ColorMode, Style, print},
    },
    startup::SystemClock,
};
use crossterm::{
    event::{DisableBracketedPaste, EnableBracketedPaste, Event, EventStream},
    execute, terminal,
};
use futures::StreamExt as _;
use greenroom_actors::ports::Clock as _;
use greenroom_core::ids::AgentName;
use serde_json::Value;
use std::{io, process::ExitCode, time::Duration};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};
use uuid::Uuid;

/// How often a countdown is drawn anew.
const TICK: Duration = Duration::from_millis(500);
/// Answers of the server that wait to be looked at.
const ANSWERS_MAX: usize = 64;

/// The terminal as a program wants it; as it was again in the end, however that comes.
struct RawMode;

impl RawMode {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // There is nobody to tell.
        execute!(io::stdout(), DisableBracketedPaste).unwrap_or_default();
        terminal::disable_raw_mode().unwrap_or_default();
    }
}

/// What was posted, and what became of it.
type PostResult = (PostPurpose, Result<(), RequestFailure>);

struct InteractiveChat {
    client: ApiClient,
    link: GatewayConnection,
    conversation: ChatMachine,
    agent: Option<AgentName>,
    screen: Screen,
    editor: LineEditor,
    /// What was being typed when a question came.
    draft: Option<String>,
    posts: mpsc::Sender<PostResult>,
    raw: Option<RawMode>,
    keys: Option<EventStream>,
    /// To leave once everything is answered.
    exit_when_done: bool,
    no_wait: bool,
    exit_code: Option<u8>,
}

/// Runs it. `once` is all there is to say; `going` are requests that are answered already.
pub(super) async fn run(
    setup: ChatSetup,
    once: Option<String>,
    going: Vec<ResumedRequest>,
) -> anyhow::Result<ExitCode> {
    let ChatSetup { client, link, conversation, agent, no_wait } = setup;
    let (posts, mut posted) = mpsc::channel(ANSWERS_MAX);
    let (columns, rows) = terminal::size()?;
    let mut chat = InteractiveChat {
        client,
        link,
        conversation,
        agent,
        screen: Screen::new(ColorMode::for_stdout(), columns, rows),
        editor: LineEditor::default(),
        draft: None,
        posts,
        raw: Some(RawMode::enter()?),
        keys: Some(EventStream::new()),
        exit_when_done: once.is_some(),
        no_wait,
        exit_code: None,
    };
    chat.greet();
    let mut acts = Vec::new();
    for (id, content) in going {
        acts.push(ChatEffect::Show(
            StyledLine::with_indent(0).styled(Style::Bold, "› ").text(&content),
        ));
        chat.conversation.submit(id, &content, &mut acts);
    }
    if let Some(message) = once {
        acts.push(ChatEffect::Show(
            StyledLine::with_indent(0).styled(Style::Bold, "› ").text(&message),
        ));
        chat.conversation.submit(Uuid::new_v4().to_string(), &message, &mut acts);
    }
    let mut stops = [signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    let mut tick = tokio::time::interval(TICK);
    loop {
        chat.apply_effects(&mut acts).await;
        if let Some(code) = chat.exit_code {
            chat.close()?;
            return Ok(ExitCode::from(code));
        }
        chat.draw()?;
        chat.wait(&mut posted, &mut stops, &mut tick, &mut acts).await?;
    }
}

impl InteractiveChat {
    fn greet(&mut self) {
        if self.exit_when_done {
            return;
        }
        let session = match self.conversation.session() {
            Some(session) => format!("session {session}"),
            None => "a new session".to_owned(),
        };
        let agent = self.agent.as_ref().map(|agent| format!(" of {agent}")).unwrap_or_default();
        let told = format!("{session}{agent} at {}", self.client.base_url());
        self.screen.push_line(&render::note_line(&told));
        self.screen.push_line(&render::note_line("/help shows what can be typed; Ctrl-D leaves"));
    }

    /// Waits for the next thing to happen, and takes it in.
    async fn wait(
        &mut self,
        posted: &mut mpsc::Receiver<PostResult>,
        stops: &mut [Signal; 2],
        tick: &mut tokio::time::Interval,
        acts: &mut Vec<ChatEffect>,
    ) -> anyhow::Result<()> {
        let counting = self.conversation.has_countdown();
        let [terminated, hung_up] = stops;
        let keys = self.keys.get_or_insert_with(EventStream::new);
        tokio::select! {
            said = self.link.next() => {
                self.handle_connection_event(said, acts);
                // What came together is drawn together.
                while let Some(said) = self.link.try_next() {
                    self.handle_connection_event(Some(said), acts);
                }
            }
            event = keys.next() => match event {
                Some(Ok(event)) => self.handle_terminal_event(event, acts)?,
                // The terminal is gone.
                Some(Err(_)) | None => self.exit_code = Some(0),
            },
            Some((to, result)) = posted.recv() => self.conversation.handle_post_result(&to, result, acts),
            _ = tick.tick(), if counting => {}
            _ = terminated.recv() => self.exit_code = Some(0),
            _ = hung_up.recv() => self.exit_code = Some(0),
        }
        Ok(())
    }

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
                    ChatEffect::Exit(super::EXIT_FAILED),
                ]);
            }
            None => acts.push(ChatEffect::Exit(super::EXIT_FAILED)),
        }
    }

    fn handle_terminal_event(
        &mut self,
        event: Event,
        acts: &mut Vec<ChatEffect>,
    ) -> anyhow::Result<()> {
        let typed = match event {
            Event::Key(key) => self.editor.handle_key(key),
            Event::Paste(text) => {
                self.editor.insert(&text);
                KeyOutcome::Nothing
            }
            Event::Resize(columns, rows) => {
                self.screen.resize(columns, rows);
                KeyOutcome::Nothing
            }
            Event::FocusGained | Event::FocusLost | Event::Mouse(_) => KeyOutcome::Nothing,
        };
        match typed {
            KeyOutcome::Nothing | KeyOutcome::Redraw => {}
            KeyOutcome::Entered(line) => {
                self.conversation.handle_line(&line, Uuid::new_v4().to_string(), acts);
            }
            KeyOutcome::Interrupt if !self.editor.text().is_empty() => {
                self.editor.replace("");
                self.conversation.handle_interrupt_while_typing(acts);
            }
            KeyOutcome::Interrupt => self.conversation.handle_interrupt(acts),
            KeyOutcome::End => self.exit_code = Some(0),
            KeyOutcome::Suspend => self.suspend()?,
        }
        Ok(())
    }

    async fn apply_effects(&mut self, acts: &mut Vec<ChatEffect>) {
        // Carrying one out may lead to others.
        while !acts.is_empty() {
            for act in std::mem::take(acts) {
                self.apply_effect(act, acts).await;
            }
        }
        self.stash_draft();
        if self.exit_when_done && self.exit_code.is_none() && self.conversation.is_idle() {
            let completed = self.conversation.outcome == Some(RunOutcome::Completed);
            self.exit_code = Some(if completed { 0 } else { super::EXIT_FAILED });
        }
    }

    async fn apply_effect(&mut self, act: ChatEffect, acts: &mut Vec<ChatEffect>) {
        match act {
            ChatEffect::Text(text) => self.screen.push_text(&text),
            ChatEffect::EndText | ChatEffect::DiscardText => self.screen.end_text(),
            ChatEffect::Show(line) => self.screen.push_line(&line),
            ChatEffect::SendMessage { id, content } => {
                if let (None, Some(agent)) = (self.conversation.session(), &self.agent) {
                    match create_session(&self.client, agent).await {
                        Ok(session) => self.conversation.set_session(session),
                        Err(error) => {
                            acts.push(ChatEffect::Show(render::error_line(&error.to_string())));
                            return self.conversation.handle_send_failure(&id);
                        }
                    }
                }
                self.link.send(self.conversation.message_frame(&id, &content)).await;
            }
            ChatEffect::Send(frame) => self.link.send(frame).await,
            ChatEffect::Post { to, path, body } => self.spawn_post(to, path, body),
            ChatEffect::Edit(value) => self.edit_value(&value, acts),
            ChatEffect::Prefill(text) => {
                self.editor.replace(&text);
            }
            ChatEffect::ApprovalPending if self.no_wait => {
                self.exit_code = Some(EXIT_APPROVAL_PENDING)
            }
            ChatEffect::ApprovalPending => {}
            ChatEffect::Exit(code) => self.exit_code = Some(code),
        }
    }

    fn spawn_post(&self, to: PostPurpose, path: String, body: Value) {
        let (client, posts) = (self.client.clone(), self.posts.clone());
        tokio::spawn(async move {
            let result = post_json(&client, &path, &body).await;
            // Nobody is there any more.
            posts.send((to, result)).await.unwrap_or_default();
        });
    }

    /// Lets the person edit that in their editor, or in place.
    fn edit_value(&mut self, value: &Value, acts: &mut Vec<ChatEffect>) {
        let Some(editor) = external_editor::editor() else {
            self.conversation.edit_in_place();
            self.editor.replace(&value.to_string());
            return;
        };
        // The editor has the terminal to itself.
        self.keys = None;
        let left = self.screen.clear();
        print(&left).unwrap_or_default();
        self.raw = None;
        let edited = external_editor::edit(&editor, &format!("{value:#}\n"));
        self.raw = RawMode::enter().ok();
        let edited = edited.as_deref().map_err(|error| format!("{error:#}"));
        self.conversation.handle_edit(edited, acts);
    }

    fn suspend(&mut self) -> anyhow::Result<()> {
        self.keys = None;
        print(&self.screen.clear())?;
        self.raw = None;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP)?;
        self.raw = Some(RawMode::enter()?);
        let (columns, rows) = terminal::size()?;
        self.screen.resize(columns, rows);
        Ok(())
    }

    /// What is being typed when a question comes is no answer to it: it waits until then.
    fn stash_draft(&mut self) {
        match (self.conversation.has_prompt(), &self.draft) {
            (true, None) => self.draft = Some(self.editor.replace("")),
            (false, Some(_)) => {
                let draft = self.draft.take().unwrap_or_default();
                if self.editor.text().is_empty() {
                    self.editor.replace(&draft);
                }
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let live = self.conversation.live_area(SystemClock.now());
        print(&self.screen.draw(&live, &self.editor))
    }

    fn close(&mut self) -> io::Result<()> {
        if !self.exit_when_done
            && let Some(session) = self.conversation.session()
        {
            let told = format!("greenroom chat --session {session} goes on");
            self.screen.push_line(&render::note_line(&told));
        }
        print(&self.screen.clear())
    }
}

/// Posts, and tells what did not work in the server's words.
pub(super) async fn post_json(
    client: &ApiClient,
    path: &str,
    body: &Value,
) -> Result<(), RequestFailure> {
    match client.post(path, body).await {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.downcast_ref::<ApiError>() {
            Some(refusal) => RequestFailure {
                code: refusal.code().to_owned(),
                detail: refusal.detail().to_owned(),
            },
            None => RequestFailure { code: String::new(), detail: format!("{error:#}") },
        }),
    }
}
