//! The rehearsal: a scripted model served over real HTTP, in both providers' wire formats.
//!
//! Owns starting and stopping it. It is what runs when no key is configured, what
//! `greenroom rehearse` serves, and what tests talk to; nothing in it knows Greenroom's sessions:
//! it stands on the other side of the model port, like any provider. `docs/rehearsal.md`
//! describes the script format.

mod anthropic;
mod decoded_request;
mod faults;
mod openai;
mod reply;
mod script;
mod script_file;
mod server;
mod template;
mod wire;

use std::io;
use std::net::{SocketAddr, TcpListener};

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer, web};

pub use decoded_request::ProviderProtocol;
pub use script::{Script, ScriptError};
pub use server::{INVALID_KEY, REQUEST_BYTES_MAX, REQUESTS_MAX, RecordedRequest};

use server::RehearsalState;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// A running rehearsal. Dropping it stops it too, without waiting.
pub struct RehearsalServer {
    address: SocketAddr,
    handle: ServerHandle,
    stage: web::Data<RehearsalState>,
}

impl RehearsalServer {
    /// Starts serving a script; port 0 picks a free one. Needs a running tokio runtime.
    pub fn start(script: Script, listen: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        let stage = web::Data::new(RehearsalState::new(script));
        let shared = stage.clone();
        let server =
            HttpServer::new(move || App::new().app_data(shared.clone()).configure(server::routes))
                .workers(1)
                .backlog(BACKLOG)
                .tcp_nodelay(true)
                .disable_signals()
                .listen(listener)?
                .run();
        let handle = server.handle();
        tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the rehearsal server ended");
            }
        });
        Ok(Self { address, handle, stage })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its base URL, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was received so far, oldest first; at most [`REQUESTS_MAX`].
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.stage.requests()
    }

    /// Stops at once; open streams are cut.
    pub async fn stop(self) {
        self.handle.stop(false).await;
    }
}

impl Drop for RehearsalServer {
    fn drop(&mut self) {
        // The command is sent when `stop` is called; only its completion is not waited for.
        drop(self.handle.stop(false));
    }
}
