//! The chat without a terminal to draw on: a message is piped in or given, the answer goes to standard
//! output and everything else to standard error; or lines are typed on a terminal that can't be drawn
//! on, one after the other.

use super::{
    EXIT_ASKED, EXIT_FAILED, Request, Setup,
    conversation::{Act, Conversation, Failure, Post},
    create,
    heard::{Heard, Outcome},
    interactive::post,
    line::safe_text,
    link::{Link, Said},
    show,
};
use crate::{
    cli::{
        client::Client,
        terminal::{COLUMNS, Paint, print},
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

type Posted = (Post, Result<(), Failure>);

struct Plain {
    client: Client,
    link: Link,
    conversation: Conversation,
    agent: Option<AgentName>,
    posts: mpsc::Sender<Posted>,
    paper: Paper,
    /// To leave once everything is answered.
    once: bool,
    no_wait: bool,
    /// Something was written since a line was last asked for.
    asks_again: bool,
    code: Option<u8>,
}

/// What is written on.
struct Paper {
    /// The text goes out as it comes; else once it is sure that it counts.
    streams: bool,
    /// Text that did not go out.
    text: String,
    /// Whether the last thing that went out was text without an end of line.
    in_text: bool,
}

/// Lines of standard input, until its end.
pub(super) fn lines() -> mpsc::Receiver<String> {
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
    setup: Setup,
    once: Option<String>,
    going: Vec<Request>,
) -> anyhow::Result<ExitCode> {
    let Setup { client, link, conversation, agent, no_wait } = setup;
    let (posts, mut posted) = mpsc::channel(LINES_MAX);
    let paper = Paper { streams: io::stdout().is_terminal(), text: String::new(), in_text: false };
    let mut plain = Plain {
        client,
        link,
        conversation,
        agent,
        posts,
        paper,
        once: once.is_some(),
        no_wait,
        asks_again: true,
        code: None,
    };
    let mut acts = Vec::new();
    for (id, content) in going {
        plain.conversation.say(id, &content, &mut acts);
    }
    let mut lines = match once {
        Some(message) => {
            plain.conversation.say(Uuid::new_v4().to_string(), &message, &mut acts);
            None
        }
        None => Some(lines()),
    };
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    loop {
        plain.carry_out(&mut acts).await?;
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
            said = plain.link.next() => plain.take(said, &mut acts),
            line = typed => match line {
                Some(line) => {
                    let id = Uuid::new_v4().to_string();
                    plain.conversation.entered(&line, id, &mut acts);
                    (plain.paper.in_text, plain.asks_again) = (false, true);
                }
                None => {
                    lines = None;
                    plain.once = true;
                }
            },
            Some((to, result)) = posted.recv() => {
                plain.conversation.posted(&to, result, &mut acts);
            }
            _ = interrupted.recv() => plain.conversation.interrupt(&mut acts),
            _ = terminated.recv() => plain.code = Some(EXIT_FAILED),
        }
    }
}

impl Plain {
    fn take(&mut self, said: Option<Said>, acts: &mut Vec<Act>) {
        match said {
            Some(Said::Frame(frame)) => self.conversation.heard(Heard::read(frame), acts),
            Some(Said::Lost { why, again_in }) => {
                self.conversation.lost(&why, again_in, SystemClock.now(), acts);
            }
            Some(Said::Back) => self.conversation.back(acts),
            Some(Said::Refused(why)) => {
                let told = format!("the server refuses: {why}");
                acts.extend([Act::Show(show::problem(&told)), Act::Leave(EXIT_FAILED)]);
            }
            None => acts.push(Act::Leave(EXIT_FAILED)),
        }
    }

    async fn carry_out(&mut self, acts: &mut Vec<Act>) -> io::Result<()> {
        while !acts.is_empty() {
            for act in std::mem::take(acts) {
                self.act(act, acts).await?;
            }
        }
        if self.once && self.code.is_none() && self.conversation.is_idle() {
            let completed = self.conversation.outcome.is_none_or(|it| it == Outcome::Completed);
            self.code = Some(if completed { 0 } else { EXIT_FAILED });
        }
        Ok(())
    }

    async fn act(&mut self, act: Act, acts: &mut Vec<Act>) -> io::Result<()> {
        match act {
            Act::Text(text) => self.paper.text(&text)?,
            Act::Break => self.paper.end_text()?,
            Act::Void => self.paper.drop_text()?,
            Act::Show(line) => {
                self.asks_again = true;
                self.paper.end_text()?;
                self.paper.note(&line.rows(COLUMNS, Paint::PLAIN).join("\n"))?;
            }
            Act::Chat { id, content } => {
                if let (None, Some(agent)) = (self.conversation.session(), &self.agent) {
                    match create(&self.client, agent).await {
                        Ok(session) => self.conversation.set_session(session),
                        Err(error) => {
                            acts.push(Act::Show(show::problem(&error.to_string())));
                            self.conversation.not_sent(&id);
                            return Ok(());
                        }
                    }
                }
                self.link.send(self.conversation.chat(&id, &content)).await;
            }
            Act::Send(frame) => self.link.send(frame).await,
            Act::Post { to, path, body } => self.post(to, path, body),
            Act::Edit(value) => {
                self.conversation.edit_in_place();
                self.paper.note(&format!("{value}\ntype it anew, in one line"))?;
            }
            Act::Prefill(text) => self.paper.note(&format!("{text}\ntype it anew"))?,
            Act::Asked => {
                if self.once || self.no_wait {
                    self.paper.note("a person is asked; `greenroom approvals` can answer")?;
                }
                if self.no_wait {
                    self.code = Some(EXIT_ASKED);
                }
            }
            Act::Leave(code) => self.code = Some(code),
        }
        Ok(())
    }

    fn post(&self, to: Post, path: String, body: Value) {
        let (client, posts) = (self.client.clone(), self.posts.clone());
        tokio::spawn(async move {
            let result = post(&client, &path, &body).await;
            // Nobody is there any more.
            posts.send((to, result)).await.unwrap_or_default();
        });
    }

    /// Asks for a line, where one is expected.
    fn prompt(&mut self) -> io::Result<()> {
        let is_expected = self.conversation.is_idle() || self.conversation.is_asking();
        if is_expected && std::mem::take(&mut self.asks_again) {
            let prompt = self.conversation.live(SystemClock.now()).prompt;
            let mut stderr = io::stderr().lock();
            stderr.write_all(prompt.as_bytes())?;
            stderr.flush()?;
        }
        Ok(())
    }
}

impl Paper {
    fn text(&mut self, text: &str) -> io::Result<()> {
        if !self.streams {
            self.text.push_str(text);
            return Ok(());
        }
        self.in_text = !text.ends_with('\n');
        print(&safe_text(text))
    }

    /// The text is whole.
    fn end_text(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            // What reads it may be a program, but what writes it may be anything.
            let end = if text.ends_with('\n') { "" } else { "\n" };
            print(&format!("{}{end}", safe_text(&text)))?;
        }
        if std::mem::take(&mut self.in_text) { print("\n") } else { Ok(()) }
    }

    /// The text does not count.
    fn drop_text(&mut self) -> io::Result<()> {
        self.text.clear();
        self.end_text()
    }

    fn note(&self, text: &str) -> io::Result<()> {
        let mut stderr = io::stderr().lock();
        writeln!(stderr, "{text}")
    }
}
