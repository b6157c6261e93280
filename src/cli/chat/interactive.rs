//! The front end for a terminal: reads keys, draws the screen, and runs the chat's effects.

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

/// Interval of redrawing a countdown.
const TICK: Duration = Duration::from_millis(500);
/// Maximum number of queued results of POST requests.
const POST_RESULTS_MAX: usize = 64;

/// Raw mode of the terminal. Dropping the value restores the normal mode.
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
        // A failure can't be reported while dropping.
        execute!(io::stdout(), DisableBracketedPaste).unwrap_or_default();
        terminal::disable_raw_mode().unwrap_or_default();
    }
}

/// The purpose and the result of a POST request.
type PostResult = (PostPurpose, Result<(), RequestFailure>);

struct InteractiveChat {
    client: ApiClient,
    connection: GatewayConnection,
    machine: ChatMachine,
    agent: Option<AgentName>,
    screen: Screen,
    editor: LineEditor,
    /// The text that was being typed when an approval was presented.
    draft: Option<String>,
    posts: mpsc::Sender<PostResult>,
    raw: Option<RawMode>,
    keys: Option<EventStream>,
    /// True to exit when no request is open.
    exit_when_done: bool,
    no_wait: bool,
    exit_code: Option<u8>,
}

/// Runs the front end. `single_message` is the only message; `resumed` are requests sent earlier.
pub(super) async fn run(
    setup: ChatSetup,
    single_message: Option<String>,
    resumed: Vec<ResumedRequest>,
) -> anyhow::Result<ExitCode> {
    let ChatSetup { client, connection, machine, agent, no_wait } = setup;
    let (posts, mut post_results) = mpsc::channel(POST_RESULTS_MAX);
    let (columns, rows) = terminal::size()?;
    let mut chat = InteractiveChat {
        client,
        connection,
        machine,
        agent,
        screen: Screen::new(ColorMode::for_stdout(), columns, rows),
        editor: LineEditor::default(),
        draft: None,
        posts,
        raw: Some(RawMode::enter()?),
        keys: Some(EventStream::new()),
        exit_when_done: single_message.is_some(),
        no_wait,
        exit_code: None,
    };
    chat.show_greeting();
    let mut effects = Vec::new();
    for (id, content) in resumed {
        effects.push(ChatEffect::Show(
            StyledLine::with_indent(0).styled(Style::Bold, "› ").text(&content),
        ));
        chat.machine.submit(id, &content, &mut effects);
    }
    if let Some(message) = single_message {
        effects.push(ChatEffect::Show(
            StyledLine::with_indent(0).styled(Style::Bold, "› ").text(&message),
        ));
        chat.machine.submit(Uuid::new_v4().to_string(), &message, &mut effects);
    }
    let mut stop_signals = [signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    let mut tick = tokio::time::interval(TICK);
    loop {
        chat.apply_effects(&mut effects).await;
        if let Some(code) = chat.exit_code {
            chat.close()?;
            return Ok(ExitCode::from(code));
        }
        chat.draw()?;
        chat.wait(&mut post_results, &mut stop_signals, &mut tick, &mut effects).await?;
    }
}

impl InteractiveChat {
    fn show_greeting(&mut self) {
        if self.exit_when_done {
            return;
        }
        let session = match self.machine.session() {
            Some(session) => format!("session {session}"),
            None => "new session".to_owned(),
        };
        let agent = self.agent.as_ref().map(|agent| format!(" with {agent}")).unwrap_or_default();
        let text = format!("{session}{agent} at {}", self.client.base_url());
        self.screen.push_line(&render::note_line(&text));
        let help = "/help lists keys and commands; Ctrl-D quits";
        self.screen.push_line(&render::note_line(help));
    }

    /// Waits for the next event and handles it.
    async fn wait(
        &mut self,
        post_results: &mut mpsc::Receiver<PostResult>,
        stop_signals: &mut [Signal; 2],
        tick: &mut tokio::time::Interval,
        effects: &mut Vec<ChatEffect>,
    ) -> anyhow::Result<()> {
        let has_countdown = self.machine.has_countdown();
        let [terminate, hangup] = stop_signals;
        let keys = self.keys.get_or_insert_with(EventStream::new);
        tokio::select! {
            event = self.connection.next() => {
                self.handle_connection_event(event, effects);
                // Events that are already here are drawn together.
                while let Some(event) = self.connection.try_next() {
                    self.handle_connection_event(Some(event), effects);
                }
            }
            event = keys.next() => match event {
                Some(Ok(event)) => self.handle_terminal_event(event, effects)?,
                // The terminal was closed.
                Some(Err(_)) | None => self.exit_code = Some(0),
            },
            Some((purpose, result)) = post_results.recv() => self.machine.handle_post_result(&purpose, result, effects),
            _ = tick.tick(), if has_countdown => {}
            _ = terminate.recv() => self.exit_code = Some(0),
            _ = hangup.recv() => self.exit_code = Some(0),
        }
        Ok(())
    }

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
                    ChatEffect::Exit(super::EXIT_FAILED),
                ]);
            }
            None => effects.push(ChatEffect::Exit(super::EXIT_FAILED)),
        }
    }

    fn handle_terminal_event(
        &mut self,
        event: Event,
        effects: &mut Vec<ChatEffect>,
    ) -> anyhow::Result<()> {
        let outcome = match event {
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
        match outcome {
            KeyOutcome::Nothing | KeyOutcome::Redraw => {}
            KeyOutcome::Entered(line) => {
                self.machine.handle_line(&line, Uuid::new_v4().to_string(), effects);
            }
            KeyOutcome::Interrupt if !self.editor.text().is_empty() => {
                self.editor.replace("");
                self.machine.handle_interrupt_while_typing(effects);
            }
            KeyOutcome::Interrupt => self.machine.handle_interrupt(effects),
            KeyOutcome::End => self.exit_code = Some(0),
            KeyOutcome::Suspend => self.suspend()?,
        }
        Ok(())
    }

    async fn apply_effects(&mut self, effects: &mut Vec<ChatEffect>) {
        // An effect may add others.
        while !effects.is_empty() {
            for effect in std::mem::take(effects) {
                self.apply_effect(effect, effects).await;
            }
        }
        self.stash_draft();
        if self.exit_when_done && self.exit_code.is_none() && self.machine.is_idle() {
            let completed = self.machine.outcome == Some(RunOutcome::Completed);
            self.exit_code = Some(if completed { 0 } else { super::EXIT_FAILED });
        }
    }

    async fn apply_effect(&mut self, effect: ChatEffect, effects: &mut Vec<ChatEffect>) {
        match effect {
            ChatEffect::Text(text) => self.screen.push_text(&text),
            ChatEffect::EndText | ChatEffect::DiscardText => self.screen.end_text(),
            ChatEffect::Show(line) => self.screen.push_line(&line),
            ChatEffect::SendMessage { id, content } => {
                if let (None, Some(agent)) = (self.machine.session(), &self.agent) {
                    match create_session(&self.client, agent).await {
                        Ok(session) => self.machine.set_session(session),
                        Err(error) => {
                            effects.push(ChatEffect::Show(render::error_line(&error.to_string())));
                            return self.machine.handle_send_failure(&id);
                        }
                    }
                }
                self.connection.send(self.machine.message_frame(&id, &content)).await;
            }
            ChatEffect::Send(frame) => self.connection.send(frame).await,
            ChatEffect::Post { purpose, path, body } => self.spawn_post(purpose, path, body),
            ChatEffect::Edit(value) => self.edit_value(&value, effects),
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

    fn spawn_post(&self, purpose: PostPurpose, path: String, body: Value) {
        let (client, posts) = (self.client.clone(), self.posts.clone());
        tokio::spawn(async move {
            let result = post_json(&client, &path, &body).await;
            // The send fails only if the chat has exited.
            posts.send((purpose, result)).await.unwrap_or_default();
        });
    }

    /// Opens the value in the user's editor, or in the input line if none is configured.
    fn edit_value(&mut self, value: &Value, effects: &mut Vec<ChatEffect>) {
        let Some(editor) = external_editor::editor() else {
            self.machine.edit_in_place();
            self.editor.replace(&value.to_string());
            return;
        };
        // The editor needs the terminal for itself.
        self.keys = None;
        let clear = self.screen.clear();
        print(&clear).unwrap_or_default();
        self.raw = None;
        let edited = external_editor::edit(&editor, &format!("{value:#}\n"));
        self.raw = RawMode::enter().ok();
        let edited = edited.as_deref().map_err(|error| format!("{error:#}"));
        self.machine.handle_edit(edited, effects);
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

    /// Sets the draft aside while an approval is presented, so that it is not sent as the answer.
    fn stash_draft(&mut self) {
        match (self.machine.has_prompt(), &self.draft) {
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
        let live = self.machine.live_area(SystemClock.now());
        print(&self.screen.draw(&live, &self.editor))
    }

    fn close(&mut self) -> io::Result<()> {
        if !self.exit_when_done
            && let Some(session) = self.machine.session()
        {
            let text = format!("continue with: greenroom chat --session {session}");
            self.screen.push_line(&render::note_line(&text));
        }
        print(&self.screen.clear())
    }
}

/// Sends a POST request. The failure has the server's code and detail.
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
