//! The rehearsal: a scripted model that is served over HTTP in the wire formats of both providers.
//!
//! Owns starting and stopping the server. It replaces a model if no key is configured, and
//! `greenroom rehearse` and tests use it. Like a provider, it is on the other side of the model port
//! and does not know Greenroom's sessions. `docs/rehearsal.md` describes the script format.

mod anthropic;
mod decoded_request;
#[cfg(test)]
mod decoder_fuzz;
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

/// Maximum number of connections waiting to be accepted.
const BACKLOG: u32 = 1024;

/// A running rehearsal server. Dropping it stops the server without waiting.
pub struct RehearsalServer {
    address: SocketAddr,
    handle: ServerHandle,
    state: web::Data<RehearsalState>,
}

impl RehearsalServer {
    /// Starts serving `script`; port 0 selects a free port. Requires a running tokio runtime.
    pub fn start(script: Script, listen: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        let state = web::Data::new(RehearsalState::new(script));
        let handler_state = state.clone();
        let server = HttpServer::new(move || {
            App::new().app_data(handler_state.clone()).configure(server::routes)
        })
        .workers(1)
        .backlog(BACKLOG)
        .tcp_nodelay(true)
        .disable_signals()
        .listen(listener)?
        .run();
        let handle = server.handle();
        tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the rehearsal server failed");
            }
        });
        Ok(Self { address, handle, state })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the received requests, oldest first; at most [`REQUESTS_MAX`].
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.requests()
    }

    /// Stops the server immediately; open streams are cut.
    pub async fn stop(self) {
        self.handle.stop(false).await;
    }
}

impl Drop for RehearsalServer {
    fn drop(&mut self) {
        // `stop` sends the command when it is called; the returned future only waits for completion.
        drop(self.handle.stop(false));
    }
}
