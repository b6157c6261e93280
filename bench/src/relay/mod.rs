//! Relays that do less than any useful server, as lower bounds. They use the same libraries as
//! Greenroom: [`actix_web`], [`reqwest`] and SQLite.

pub(crate) mod bare;
pub(crate) mod minimal;
mod store;

use actix_web::{dev::Extensions, rt::net::TcpStream};
use reqwest::Client;
use std::any::Any;

/// Creates the HTTP client for the provider.
fn client() -> anyhow::Result<Client> {
    // A second installation would fail; this is the only one.
    drop(rustls::crypto::ring::default_provider().install_default());
    Ok(Client::builder().tcp_nodelay(true).build()?)
}

/// Disables Nagle's algorithm, as the measured server does.
fn on_connect(connection: &dyn Any, _: &mut Extensions) {
    if let Some(stream) = connection.downcast_ref::<TcpStream>()
        && let Err(error) = stream.set_nodelay(true)
    {
        eprintln!("can't disable Nagle's algorithm: {error}");
    }
}
