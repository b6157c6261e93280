//! `greenroom serve`: runs the server until a signal stops it.

use super::{ConfigArgs, terminal};
use crate::{
    configuration::{Configuration, REHEARSAL},
    startup::Server,
    telemetry::Metrics,
};
use tokio::signal::unix::{SignalKind, signal};

/// Run the server with its HTTP API and the dashboard
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs the command.
pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let configuration = args.config.load()?;
    let banner = StartupBanner::new(&configuration);
    let server = Server::start(configuration, Metrics::start()?).await?;
    banner.print(&server);
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut stop_signal = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    stop_signal().await;
    tracing::info!("shutting down; a second signal ends the drain");
    server.shut_down(stop_signal()).await;
    Ok(())
}

/// The summary printed when the server has started.
struct StartupBanner {
    configuration: String,
    database: String,
}

impl StartupBanner {
    fn new(configuration: &Configuration) -> Self {
        Self {
            configuration: configuration
                .file
                .as_ref()
                .map_or("defaults".to_owned(), |file| file.display().to_string()),
            database: configuration.database.to_string(),
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
        for model in server.models() {
            let text = match model.name.as_str() {
                REHEARSAL => "rehearsal (scripted model; no API key is configured)".to_owned(),
                _ => model.to_string(),
            };
            // Names and errors come from the model's server.
            let text = server.state().redactor.redact_text(&text).into_owned();
            lines.push(format!("  Model      {}", terminal::escape_unsafe(&text)));
        }
        for tool_server in server.tools().statuses() {
            let status = match tool_server.reason {
                Some(reason) => {
                    format!("unavailable: {}", server.state().redactor.redact_text(&reason))
                }
                None => terminal::pluralize(tool_server.tools, "tool"),
            };
            lines.push(format!("  Tools      {}: {status}", tool_server.name));
        }
        // The server keeps running without the banner.
        if let Err(error) = terminal::print(&format!("{}\n\n", lines.join("\n"))) {
            tracing::warn!(%error, "printing the startup banner failed");
        }
    }
}
