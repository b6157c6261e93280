//! The chat at a terminal: keys in, a screen out, and everything at once.

use super::{
    EXIT_ASKED, Request, Setup,
    conversation::{Act, Conversation, Failure, Post},
    create, editing,
    editor::{Editor, Typed},
    heard::{Heard, Outcome},
    line::Line,
    link::{Link, Said},
    screen::Screen,
    show,
};
use crate::{
    cli::{
        client::{Client, Refusal},
        terminal::{Paint, Style, print},
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
struct Raw;

impl Raw {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(Self)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // There is nobody to tell.
        execute!(io::stdout(), DisableBracketedPaste).unwrap_or_default();
        terminal::disable_raw_mode().unwrap_or_default();
    }
}

/// What was posted, and what became of it.
type Posted = (Post, Result<(), Failure>);

struct Chat {
    client: Client,
    link: Link,
    conversation: Conversation,
    agent: Option<AgentName>,
    screen: Screen,
    editor: Editor,
    /// What was being typed when a question came.
    draft: Option<String>,
    posts: mpsc::Sender<Posted>,
    raw: Option<Raw>,
    keys: Option<EventStream>,
    /// To leave once everything is answered.
    once: bool,
    no_wait: bool,
    code: Option<u8>,
}

/// Runs it. `once` is all there is to say; `going` are requests that are answered already.
pub(super) async fn run(
    setup: Setup,
    once: Option<String>,
    going: Vec<Request>,
) -> anyhow::Result<ExitCode> {
    let Setup { client, link, conversation, agent, no_wait } = setup;
    let (posts, mut posted) = mpsc::channel(ANSWERS_MAX);
    let (columns, rows) = terminal::size()?;
    let mut chat = Chat {
        client,
        link,
        conversation,
        agent,
        screen: Screen::new(Paint::of_stdout(), columns, rows),
        editor: Editor::default(),
        draft: None,
        posts,
        raw: Some(Raw::enter()?),
        keys: Some(EventStream::new()),
        once: once.is_some(),
        no_wait,
        code: None,
    };
    chat.greet();
    let mut acts = Vec::new();
    for (id, content) in going {
        acts.push(Act::Show(Line::at(0).styled(Style::Bold, "› ").text(&content)));
        chat.conversation.say(id, &content, &mut acts);
    }
    if let Some(message) = once {
        acts.push(Act::Show(Line::at(0).styled(Style::Bold, "› ").text(&message)));
        chat.conversation.say(Uuid::new_v4().to_string(), &message, &mut acts);
    }
    let mut stops = [signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    let mut tick = tokio::time::interval(TICK);
    loop {
        chat.carry_out(&mut acts).await;
        if let Some(code) = chat.code {
            chat.leave()?;
            return Ok(ExitCode::from(code));
        }
        chat.draw()?;
        chat.wait(&mut posted, &mut stops, &mut tick, &mut acts).await?;
    }
}

impl Chat {
    fn greet(&mut self) {
        if self.once {
            return;
        }
        let session = match self.conversation.session() {
            Some(session) => format!("session {session}"),
            None => "a new session".to_owned(),
        };
        let agent = self.agent.as_ref().map(|agent| format!(" of {agent}")).unwrap_or_default();
        let told = format!("{session}{agent} at {}", self.client.base());
        self.screen.show(&show::note(&told));
        self.screen.show(&show::note("/help shows what can be typed; Ctrl-D leaves"));
    }

    /// Waits for the next thing to happen, and takes it in.
    async fn wait(
        &mut self,
        posted: &mut mpsc::Receiver<Posted>,
        stops: &mut [Signal; 2],
        tick: &mut tokio::time::Interval,
        acts: &mut Vec<Act>,
    ) -> anyhow::Result<()> {
        let counting = self.conversation.is_counting();
        let [terminated, hung_up] = stops;
        let keys = self.keys.get_or_insert_with(EventStream::new);
        tokio::select! {
            said = self.link.next() => {
                self.take(said, acts);
                // What came together is drawn together.
                while let Some(said) = self.link.ready() {
                    self.take(Some(said), acts);
                }
            }
            event = keys.next() => match event {
                Some(Ok(event)) => self.press(event, acts)?,
                // The terminal is gone.
                Some(Err(_)) | None => self.code = Some(0),
            },
            Some((to, result)) = posted.recv() => self.conversation.posted(&to, result, acts),
            _ = tick.tick(), if counting => {}
            _ = terminated.recv() => self.code = Some(0),
            _ = hung_up.recv() => self.code = Some(0),
        }
        Ok(())
    }

    fn take(&mut self, said: Option<Said>, acts: &mut Vec<Act>) {
        match said {
            Some(Said::Frame(frame)) => self.conversation.heard(Heard::read(frame), acts),
            Some(Said::Lost { why, again_in }) => {
                self.conversation.lost(&why, again_in, SystemClock.now(), acts);
            }
            Some(Said::Back) => self.conversation.back(acts),
            Some(Said::Refused(why)) => {
                let told = format!("the server refuses: {why}");
                acts.extend([Act::Show(show::problem(&told)), Act::Leave(super::EXIT_FAILED)]);
            }
            None => acts.push(Act::Leave(super::EXIT_FAILED)),
        }
    }

    fn press(&mut self, event: Event, acts: &mut Vec<Act>) -> anyhow::Result<()> {
        let typed = match event {
            Event::Key(key) => self.editor.key(key),
            Event::Paste(text) => {
                self.editor.insert(&text);
                Typed::Nothing
            }
            Event::Resize(columns, rows) => {
                self.screen.resize(columns, rows);
                Typed::Nothing
            }
            Event::FocusGained | Event::FocusLost | Event::Mouse(_) => Typed::Nothing,
        };
        match typed {
            Typed::Nothing | Typed::Redraw => {}
            Typed::Entered(line) => {
                self.conversation.entered(&line, Uuid::new_v4().to_string(), acts);
            }
            Typed::Interrupt if !self.editor.text().is_empty() => {
                self.editor.replace("");
                self.conversation.interrupt_typing(acts);
            }
            Typed::Interrupt => self.conversation.interrupt(acts),
            Typed::End => self.code = Some(0),
            Typed::Suspend => self.suspend()?,
        }
        Ok(())
    }

    async fn carry_out(&mut self, acts: &mut Vec<Act>) {
        // Carrying one out may lead to others.
        while !acts.is_empty() {
            for act in std::mem::take(acts) {
                self.act(act, acts).await;
            }
        }
        self.mind_the_draft();
        if self.once && self.code.is_none() && self.conversation.is_idle() {
            let completed = self.conversation.outcome == Some(Outcome::Completed);
            self.code = Some(if completed { 0 } else { super::EXIT_FAILED });
        }
    }

    async fn act(&mut self, act: Act, acts: &mut Vec<Act>) {
        match act {
            Act::Text(text) => self.screen.text(&text),
            Act::Break | Act::Void => self.screen.end_text(),
            Act::Show(line) => self.screen.show(&line),
            Act::Chat { id, content } => {
                if let (None, Some(agent)) = (self.conversation.session(), &self.agent) {
                    match create(&self.client, agent).await {
                        Ok(session) => self.conversation.set_session(session),
                        Err(error) => {
                            acts.push(Act::Show(show::problem(&error.to_string())));
                            return self.conversation.not_sent(&id);
                        }
                    }
                }
                self.link.send(self.conversation.chat(&id, &content)).await;
            }
            Act::Send(frame) => self.link.send(frame).await,
            Act::Post { to, path, body } => self.post(to, path, body),
            Act::Edit(value) => self.edit(&value, acts),
            Act::Prefill(text) => {
                self.editor.replace(&text);
            }
            Act::Asked if self.no_wait => self.code = Some(EXIT_ASKED),
            Act::Asked => {}
            Act::Leave(code) => self.code = Some(code),
        }
    }

    fn post(&self, to: Post, path: String, body: Value) {
        let (client, posts) = (self.client.clone(), self.posts.clone());
        tokio::spawn(async move {
            let result = post(&client, &path, &body).await;
            // Nobody is there any more.
            posts.send((to, result)).await.unwrap_or_default();
        });
    }

    /// Lets the person edit that in their editor, or in place.
    fn edit(&mut self, value: &Value, acts: &mut Vec<Act>) {
        let Some(editor) = editing::editor() else {
            self.conversation.edit_in_place();
            self.editor.replace(&value.to_string());
            return;
        };
        // The editor has the terminal to itself.
        self.keys = None;
        let left = self.screen.leave();
        print(&left).unwrap_or_default();
        self.raw = None;
        let edited = editing::edit(&editor, &format!("{value:#}\n"));
        self.raw = Raw::enter().ok();
        let edited = edited.as_deref().map_err(|error| format!("{error:#}"));
        self.conversation.edited(edited, acts);
    }

    fn suspend(&mut self) -> anyhow::Result<()> {
        self.keys = None;
        print(&self.screen.leave())?;
        self.raw = None;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP)?;
        self.raw = Some(Raw::enter()?);
        let (columns, rows) = terminal::size()?;
        self.screen.resize(columns, rows);
        Ok(())
    }

    /// What is being typed when a question comes is no answer to it: it waits until then.
    fn mind_the_draft(&mut self) {
        match (self.conversation.is_asking(), &self.draft) {
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
        let live = self.conversation.live(SystemClock.now());
        print(&self.screen.draw(&live, &self.editor))
    }

    fn leave(&mut self) -> io::Result<()> {
        if !self.once
            && let Some(session) = self.conversation.session()
        {
            let told = format!("greenroom chat --session {session} goes on");
            self.screen.show(&show::note(&told));
        }
        print(&self.screen.leave())
    }
}

/// Posts, and tells what did not work in the server's words.
pub(super) async fn post(client: &Client, path: &str, body: &Value) -> Result<(), Failure> {
    match client.post(path, body).await {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.downcast_ref::<Refusal>() {
            Some(refusal) => {
                Failure { code: refusal.code().to_owned(), detail: refusal.detail().to_owned() }
            }
            None => Failure { code: String::new(), detail: format!("{error:#}") },
        }),
    }
}
