//! `greenroom doctor`: checks everything that the server needs.

use super::{ConfigArgs, client::ApiClient, terminal};
use crate::{
    configuration::Configuration,
    model::HttpModelClient,
    rehearsal::Script,
    skill::SkillLibrary,
    startup::{self, SystemClock},
    store::{Store, StoreError},
    tool,
    workflow::WorkflowLibrary,
};
use greenroom_actors::{ports::Clock, status_board::StatusBoard, tool_servers::ServerState};
use std::{io, net::TcpListener, sync::Arc, time::Duration};

/// Maximum time for the response of a running server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Check configuration, database, models and tools
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs the command. Fails if a check fails.
pub async fn run(args: DoctorArgs) -> anyhow::Result<()> {
    let mut report = DoctorReport::default();
    let configuration = match args.config.load() {
        Ok(configuration) => configuration,
        Err(error) => {
            report.fail("configuration", format!("{error:#}"));
            return report.finish();
        }
    };
    let file = configuration.file.as_ref();
    let source = file.map_or("no file; defaults".to_owned(), |file| file.display().to_string());
    report.pass("configuration", source);
    check_token(&configuration, &mut report);
    check_address(&configuration, &mut report).await;
    check_database(&configuration, &mut report).await;
    check_models(&configuration, &mut report).await;
    check_skills(&configuration, &mut report);
    check_tools(configuration, &mut report).await;
    report.finish()
}

/// Checks a token from the environment. A generated token is validated where it is generated and
/// loaded.
fn check_token(configuration: &Configuration, report: &mut DoctorReport) {
    if configuration.admin_token.is_none() {
        return;
    }
    match startup::load_admin_token(configuration) {
        Ok(_) => report.pass("token", "set by GREENROOM_TOKEN".to_owned()),
        Err(error) => report.fail("token", format!("{error:#}")),
    }
}

async fn check_address(configuration: &Configuration, report: &mut DoctorReport) {
    // Opened read-only and on its own, so that a running server is not disturbed. Database errors
    // are reported by the database check.
    let keys = match Store::open_read_only(&configuration.database).await {
        Ok(journal) => journal.list_keys().await.unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let has_keys = keys.iter().any(|key| key.revoked_at.is_none());
    if let Err(error) = configuration.validate_exposure(has_keys) {
        return report.fail("address", error.to_string());
    }
    let listen = configuration.listen;
    match TcpListener::bind(listen) {
        Ok(_) => report.pass("address", listen.to_string()),
        Err(error)
            if error.kind() == io::ErrorKind::AddrInUse && is_own_server(configuration).await =>
        {
            report.pass("address", format!("{listen}, in use by a running greenroom"));
        }
        Err(error) => report.fail("address", format!("can't listen on {listen}: {error}")),
    }
}

/// True if the program listening there is a server of this configuration: it accepts the token.
async fn is_own_server(configuration: &Configuration) -> bool {
    let Ok(client) = ApiClient::from_configuration(configuration) else { return false };
    let response = tokio::time::timeout(RESPONSE_TIMEOUT, client.get("/agent/settings")).await;
    matches!(response, Ok(Ok(_)))
}

async fn check_database(configuration: &Configuration, report: &mut DoctorReport) {
    let path = &configuration.database;
    if path.is_missing() {
        return report.pass("database", format!("{path} will be created"));
    }
    match startup::open_journal(configuration).await {
        Ok(journal) => match journal.check_health().await {
            Ok(()) => report.pass("database", path.to_string()),
            Err(error) => report.fail("database", format!("{path}: {error}")),
        },
        Err(error) => match error.downcast_ref::<StoreError>() {
            // The usual case: the command runs while the server is running.
            Some(StoreError::InUse { .. }) => check_database_in_use(configuration, report).await,
            _ => report.fail("database", format!("{error:#}")),
        },
    }
}

async fn check_database_in_use(configuration: &Configuration, report: &mut DoctorReport) {
    let path = &configuration.database;
    match Store::open_read_only(&configuration.database).await {
        Ok(_) => report.pass("database", format!("{path}, in use by a running greenroom")),
        Err(error) => report.fail("database", format!("{error}")),
    }
}

async fn check_models(configuration: &Configuration, report: &mut DoctorReport) {
    let models = configuration.models.values().cloned();
    let models = match HttpModelClient::new(models, Arc::new(SystemClock)) {
        Ok(models) => models,
        Err(error) => return report.fail("models", format!("{error:#}")),
    };
    let summaries = models.summarize(&startup::agents_models(configuration)).await;
    for agent in configuration.agents.values() {
        let name = format!("agent {}", agent.name);
        let Some(model) = agent.models.first() else {
            report.fail(&name, "has no model".to_owned());
            continue;
        };
        let summary = summaries.iter().find(|summary| summary.name == *model);
        match summary.map(|summary| (&summary.model, terminal::escape_unsafe(&summary.to_string())))
        {
            Some((Ok(_), text)) => report.pass(&name, format!("model {text}")),
            Some((Err(_), text)) => report.fail(&name, format!("model {text}")),
            // The only model without a configured endpoint.
            None => check_rehearsal(configuration, &name, report),
        }
    }
}

fn check_rehearsal(configuration: &Configuration, name: &str, report: &mut DoctorReport) {
    let script = match &configuration.rehearsal {
        Some(path) => Script::load(path),
        None => Script::tour(),
    };
    match script {
        Ok(script) => {
            report.pass(name, format!("rehearsal script with {} rules", script.rules.len()));
        }
        Err(error) => report.fail(name, error.to_string()),
    }
}

fn check_skills(configuration: &Configuration, report: &mut DoctorReport) {
    let workflows = WorkflowLibrary::open(configuration.workflows.clone());
    if !configuration.workflows.is_empty() {
        report.pass("workflows", format!("{} available", workflows.list().len()));
    }
    for broken in workflows.invalid_files() {
        report.fail(&format!("workflow {}", broken.path.display()), broken.problem);
    }
    if configuration.skills.is_empty() {
        return;
    }
    let library = SkillLibrary::open(configuration.skills.clone());
    report.pass("skills", format!("{} available", library.skills().len()));
    for broken in library.invalid_files() {
        report.fail(&format!("skill {}", broken.path.display()), broken.problem);
    }
}

async fn check_tools(configuration: Configuration, report: &mut DoctorReport) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let board = StatusBoard::new(clock.clone());
    let servers = configuration.mcp_servers.into_values().map(Into::into);
    let tools = tool::start(servers, configuration.catalog, &board, &clock);
    tools.wait_until_started().await;
    for server in tools.statuses() {
        let name = format!("tools {}", server.name);
        match server.state {
            ServerState::Ready => report.pass(&name, terminal::pluralize(server.tools, "tool")),
            ServerState::Starting | ServerState::BackingOff | ServerState::Stopped => {
                let reason = server.reason.unwrap_or_else(|| "not ready".to_owned());
                report.fail(&name, reason);
            }
        }
    }
    tools.shut_down().await;
}

#[derive(Default)]
struct DoctorReport {
    failures: usize,
    /// First error in printing the report.
    print_error: Option<io::Error>,
}

impl DoctorReport {
    fn pass(&mut self, check: &str, detail: String) {
        self.print(&format!("ok    {check}: {detail}\n"));
    }

    fn fail(&mut self, check: &str, detail: String) {
        self.failures += 1;
        self.print(&format!("FAIL  {check}: {detail}\n"));
    }

    fn print(&mut self, line: &str) {
        if let Err(error) = terminal::print(line) {
            self.print_error.get_or_insert(error);
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        if let Some(error) = self.print_error {
            return Err(error.into());
        }
        match self.failures {
            0 => Ok(()),
            1 => anyhow::bail!("1 check failed"),
            failures => anyhow::bail!("{failures} checks failed"),
        }
    }
}
