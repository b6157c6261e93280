//! `greenroom serve`: the server, until it is told to stop.

use super::{ConfigArgs, terminal};
use crate::{
    configuration::{Configuration, REHEARSAL},
    startup::Server,
    telemetry::Metrics,
};
use tokio::signal::unix::{SignalKind, signal};

/// Serve sessions, the dashboard and the administration.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs the command.
pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let configuration = args.config.load()?;
    let welcome = StartupBanner::new(&configuration);
    let server = Server::start(configuration, Metrics::start()?).await?;
    welcome.print(&server);
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut told = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    told().await;
    tracing::info!("stopping; told once more, what is at work is cut off");
    server.shut_down(told()).await;
    Ok(())
}

/// What a person who starts the server wants to know.
struct StartupBanner {
    configuration: String,
    database: String,
    rehearses: bool,
}

impl StartupBanner {
    fn new(configuration: &Configuration) -> Self {
        let mut models = configuration.agents.values().flat_map(|agent| &agent.models);
        Self {
            configuration: configuration
                .file
                .as_ref()
                .map_or("defaults".to_owned(), |file| file.display().to_string()),
            database: configuration.database.to_string(),
            rehearses: models.any(|model| model == REHEARSAL),
        }
    }

    fn print(&self, server: &Server) {
        let (address, token) = (server.address(), server.admin_token().expose());
        let mut lines = vec![
            "Greenroom is ready.".to_owned(),
            String::new(),
            format!("  Open       http://{address}/?token={token}"),
            format!("  API        http://{address}"),
            format!("  Config     {}", self.configuration),
            format!("  Database   {}", self.database),
        ];
        if self.rehearses && server.rehearsal_url().is_some() {
            let why = "a scripted model answers, since no API key is configured";
            lines.push(format!("  Model      rehearsal: {why}"));
        }
        for tool_server in server.tools().statuses() {
            let what = match tool_server.reason {
                Some(reason) => {
                    format!("unavailable: {}", server.state().redactor.redact_text(&reason))
                }
                None => terminal::pluralize(tool_server.tools, "tool"),
            };
            lines.push(format!("  Tools      {}: {what}", tool_server.name));
        }
        // Nobody can read where it is, but it serves.
        if let Err(error) = terminal::print(&format!("{}\n\n", lines.join("\n"))) {
            tracing::warn!(%error, "the greeting can't be printed");
        }
    }
}
