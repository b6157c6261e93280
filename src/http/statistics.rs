//! `GET /agent/statistics`: how agents, workflows and tools are doing (C5), counted from the logs of the newest
//! sessions when it is asked for. A bounded scan and not a table of its own: the log is the truth, so
//! nothing can drift from it, what was recorded before this version counts, and a question nobody
//! asks costs nothing. What it looked at is said with it.

use super::{AppState, Problem, State, guard::Caller, read};
use crate::auth::Role;
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::{limits::LOG_PAGE_EVENTS, ports::SessionQuery};
use greenroom_core::{
    Timestamp,
    approval::Question,
    call::FailReason,
    feedback::{Feedback, Verdict},
    ids::{CallId, MessageId, RunId, Seq, UserId},
    session::{EventRecord, SessionEvent, SessionRow},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use tokio::sync::Semaphore;

/// Sessions that are looked at where the client says nothing, and at most.
const SESSIONS: (usize, usize) = (100, 500);
/// Events that are looked at; then it is enough.
const EVENTS_MAX: usize = 50_000;
/// Different names that are counted; further ones are counted together.
const NAMES_MAX: usize = 1_000;
/// Requests that scan at once; others wait for their turn.
static SCANNING: Semaphore = Semaphore::const_new(2);

#[derive(Deserialize)]
struct StatisticsQuery {
    /// How many of the newest sessions.
    sessions: Option<usize>,
    /// Only this user's; for administrators.
    user: Option<String>,
}

/// `GET /agent/statistics`
pub(super) async fn read(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let query: StatisticsQuery = read::query(&request)?;
    let limit = read::page_size(query.sessions, SESSIONS.0, SESSIONS.1)?;
    let asked = query.user.as_deref().map(UserId::parse).transpose()?;
    let own = Some(caller.0.user.clone());
    let owner = match asked {
        Some(_) if caller.0.role < Role::Admin && asked != own => {
            return Err(Problem::forbidden("the statistics of others are for administrators"));
        }
        Some(asked) => Some(asked),
        None if caller.0.role == Role::Admin => None,
        None => own,
    };
    let _turn = SCANNING.acquire().await;
    let (counted, looked_at) = scan(&state, owner, limit).await?;
    let agents: BTreeMap<_, _> =
        counted.agents.iter().map(|(name, agent)| (name, agent.view())).collect();
    let workflows: BTreeMap<_, _> =
        counted.workflows.iter().map(|(name, runs)| (name, runs.view())).collect();
    let tools: BTreeMap<_, _> =
        counted.tools.iter().map(|(name, tool)| (name, tool.view())).collect();
    Ok(HttpResponse::Ok().json(json!({
        "agents": agents, "workflows": workflows, "tools": tools, "looked_at": looked_at,
    })))
}

/// What was looked at.
#[derive(Serialize)]
struct LookedAt {
    sessions: usize,
    events: usize,
    /// Whether these were all that there are.
    complete: bool,
    /// When the oldest of the sessions was created.
    since: Option<Timestamp>,
}

async fn scan(
    state: &AppState,
    owner: Option<UserId>,
    limit: usize,
) -> Result<(Counted, LookedAt), Problem> {
    let journal = &state.runtime.journal;
    let query = SessionQuery { owner, before: None, limit: limit + 1 };
    let mut rows = journal.sessions(query).await?;
    let mut looked_at =
        LookedAt { sessions: 0, events: 0, complete: rows.len() <= limit, since: None };
    rows.truncate(limit);
    let mut counted = Counted::default();
    for row in rows {
        let mut session = Session::of(&row);
        let mut after = Seq(0);
        loop {
            let page = journal.read(row.session_id, after, LOG_PAGE_EVENTS).await?;
            for record in &page {
                session.take(record, &mut counted);
                after = record.seq;
            }
            looked_at.events += page.len();
            if page.len() < LOG_PAGE_EVENTS || looked_at.events >= EVENTS_MAX {
                break;
            }
        }
        session.end(&mut counted);
        looked_at.sessions += 1;
        looked_at.since = Some(row.created_at);
        if looked_at.events >= EVENTS_MAX {
            looked_at.complete = false;
            break;
        }
    }
    Ok((counted, looked_at))
}

#[derive(Default)]
struct Counted {
    agents: BTreeMap<String, Runs>,
    workflows: BTreeMap<String, Runs>,
    tools: BTreeMap<String, Tool>,
}

impl Counted {
    /// Counts for the agent, and for the workflow if there is one.
    fn runs(&mut self, agent: &str, workflow: Option<&str>, count: impl Fn(&mut Runs)) {
        count(self.agents.entry(agent.to_owned()).or_default());
        if let Some(workflow) = workflow {
            let is_room = self.workflows.len() < NAMES_MAX || self.workflows.contains_key(workflow);
            let name = if is_room { workflow } else { "(others)" };
            count(self.workflows.entry(name.to_owned()).or_default());
        }
    }

    /// Names come from models, too: those of tools that there never were count as one.
    fn tool(&mut self, name: &str) -> &mut Tool {
        let is_room = self.tools.len() < NAMES_MAX || self.tools.contains_key(name);
        let name = if is_room { name } else { "(others)" };
        self.tools.entry(name.to_owned()).or_default()
    }
}

/// What became of runs.
#[derive(Default)]
struct Runs {
    completed: u64,
    failed: u64,
    cancelled: u64,
    steps: u64,
    step_retries: u64,
    run_ms: Times,
    ratings: u64,
    stars: u64,
}

#[derive(Default)]
struct Tool {
    completed: u64,
    failed: u64,
    denied: u64,
    asked: u64,
    approved: u64,
    rejected: u64,
    expired: u64,
    retries: u64,
    call_ms: Times,
    good: u64,
    unnecessary: u64,
    wrong: u64,
}

/// How long things took.
#[derive(Clone, Copy, Default)]
struct Times {
    count: u64,
    sum: u64,
    longest: u64,
}

impl Times {
    fn add(&mut self, from: Timestamp, to: Timestamp) {
        let took = u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0);
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
        self.longest = self.longest.max(took);
    }

    fn view(self) -> serde_json::Value {
        let average = rate(self.sum, self.count).map(f64::round);
        json!({"count": self.count, "average": average, "longest": self.longest})
    }
}

/// `part` of `whole`; `None` where there is nothing of it.
fn rate(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Runs {
    fn view(&self) -> serde_json::Value {
        let runs = self.completed + self.failed + self.cancelled;
        json!({
            "runs": runs, "completed": self.completed, "failed": self.failed,
            "cancelled": self.cancelled, "failure_rate": rate(self.failed, runs),
            "steps": self.steps, "step_retries": self.step_retries,
            "run_ms": self.run_ms.view(),
            "rating": {"count": self.ratings, "average": rate(self.stars, self.ratings)},
        })
    }
}

impl Tool {
    fn view(&self) -> serde_json::Value {
        let calls = self.completed + self.failed + self.denied;
        json!({
            "calls": calls, "completed": self.completed, "failed": self.failed,
            "failure_rate": rate(self.failed, calls),
            "denied": self.denied, "denial_rate": rate(self.denied, calls),
            "asked": self.asked, "approved": self.approved, "rejected": self.rejected,
            "expired": self.expired,
            "approval_rate": rate(self.approved, self.approved + self.rejected + self.expired),
            "retries": self.retries, "call_ms": self.call_ms.view(),
            "verdicts": {
                "good": self.good, "unnecessary": self.unnecessary, "wrong": self.wrong,
            },
        })
    }
}

/// One session while its log is read.
struct Session {
    agent: String,
    runs: HashMap<RunId, Run>,
    calls: HashMap<CallId, Call>,
    /// Who says something anew takes back what they said before.
    ratings: HashMap<(UserId, MessageId), (u8, Option<RunId>)>,
    verdicts: HashMap<(UserId, CallId), Verdict>,
}

struct Run {
    began: Timestamp,
    workflow: Option<String>,
}

struct Call {
    tool: String,
    began: Option<Timestamp>,
}

impl Session {
    fn of(row: &SessionRow) -> Self {
        Self {
            agent: row.agent.to_string(),
            runs: HashMap::new(),
            calls: HashMap::new(),
            ratings: HashMap::new(),
            verdicts: HashMap::new(),
        }
    }

    fn take(&mut self, record: &EventRecord, counted: &mut Counted) {
        use SessionEvent as E;
        if let (E::RunStarted { workflow, .. }, Some(run_id)) = (&record.event, record.run_id) {
            let workflow = workflow.as_ref().map(|workflow| workflow.name.clone());
            self.runs.insert(run_id, Run { began: record.at, workflow });
            return;
        }
        let run = record.run_id.and_then(|run_id| self.runs.get(&run_id));
        let workflow = run.and_then(|run| run.workflow.as_deref());
        if let E::StepStarted { .. } = &record.event {
            counted.runs(&self.agent, workflow, |runs| runs.steps += 1);
        } else if let E::StepRetrying { .. } = &record.event {
            counted.runs(&self.agent, workflow, |runs| runs.step_retries += 1);
        } else if let E::RunCompleted { .. } | E::RunFailed { .. } | E::RunCancelled { .. } =
            &record.event
        {
            counted.runs(&self.agent, workflow, |runs| {
                let ended = if matches!(record.event, E::RunCompleted { .. }) {
                    &mut runs.completed
                } else if matches!(record.event, E::RunFailed { .. }) {
                    &mut runs.failed
                } else {
                    &mut runs.cancelled
                };
                *ended += 1;
                if let Some(run) = run {
                    runs.run_ms.add(run.began, record.at);
                }
            });
        } else if let E::FeedbackGiven { feedback, by } = &record.event {
            match feedback {
                Feedback::Message { message_id, rating, .. } => {
                    let rated = (u8::from(*rating), record.run_id);
                    self.ratings.insert((by.clone(), message_id.clone()), rated);
                }
                Feedback::Call { call_id, verdict, .. } => {
                    self.verdicts.insert((by.clone(), *call_id), *verdict);
                }
            }
        } else {
            self.take_call(record, counted);
        }
    }

    fn take_call(&mut self, record: &EventRecord, counted: &mut Counted) {
        use SessionEvent as E;
        if let E::ToolCallStarted { call_id, tool, .. } = &record.event {
            self.calls.insert(*call_id, Call { tool: tool.clone(), began: None });
        } else if let E::ToolCallAttemptStarted { call_id, .. } = &record.event {
            if let Some(call) = self.calls.get_mut(call_id) {
                call.began.get_or_insert(record.at);
            }
        } else if let E::ToolCallRetrying { tool, .. } = &record.event {
            counted.tool(tool).retries += 1;
        } else if let E::ToolCallCompleted { call_id, tool, .. } = &record.event {
            counted.tool(tool).completed += 1;
            self.took(*call_id, record.at, counted);
        } else if let E::ToolCallFailed { call_id, tool, reason, .. } = &record.event {
            let name = if *reason == FailReason::UnknownTool { "(unknown)" } else { tool };
            let tool = counted.tool(name);
            tool.failed += 1;
            tool.expired += u64::from(*reason == FailReason::Expired);
            self.took(*call_id, record.at, counted);
        } else if let E::AuthorizationDenied { tool, .. } = &record.event {
            counted.tool(tool).denied += 1;
        } else if let E::ApprovalRequested { approval } = &record.event {
            if let Question::Plan { steps } = &approval.question {
                steps.iter().for_each(|step| counted.tool(&step.tool).asked += 1);
            }
        } else if let E::ApprovalDecided { steps, .. } = &record.event {
            for step in steps {
                let Some(call) = self.calls.get(&step.call_id) else { continue };
                let tool = counted.tool(&call.tool);
                let said = if step.approved { &mut tool.approved } else { &mut tool.rejected };
                *said += 1;
            }
        }
    }

    fn took(&mut self, call_id: CallId, ended: Timestamp, counted: &mut Counted) {
        if let Some(Call { tool, began: Some(began) }) = self.calls.get(&call_id) {
            counted.tool(tool).call_ms.add(*began, ended);
        }
    }

    fn end(self, counted: &mut Counted) {
        for (stars, run_id) in self.ratings.values() {
            let run = run_id.and_then(|run_id| self.runs.get(&run_id));
            counted.runs(&self.agent, run.and_then(|run| run.workflow.as_deref()), |runs| {
                runs.ratings += 1;
                runs.stars += u64::from(*stars);
            });
        }
        for ((_, call_id), verdict) in self.verdicts {
            let Some(call) = self.calls.get(&call_id) else { continue };
            let tool = counted.tool(&call.tool);
            match verdict {
                Verdict::Good => tool.good += 1,
                Verdict::Unnecessary => tool.unnecessary += 1,
                Verdict::Wrong => tool.wrong += 1,
            }
        }
    }
}
