//! The limits: what a relay costs that does less than any useful server, on the same libraries as
//! Greenroom's, [`actix_web`] and [`reqwest`], and the same SQLite.

pub(crate) mod bare;
pub(crate) mod minimal;
mod store;

use actix_web::{dev::Extensions, rt::net::TcpStream};
use reqwest::Client;
use std::any::Any;

/// The client that asks the provider.
fn client() -> anyhow::Result<Client> {
    // The first wins, and there is only this one.
    drop(rustls::crypto::ring::default_provider().install_default());
    Ok(Client::builder().tcp_nodelay(true).build()?)
}

/// Lets small pieces leave at once, as the measured server does.
fn on_connect(connection: &dyn Any, _: &mut Extensions) {
    if let Some(stream) = connection.downcast_ref::<TcpStream>()
        && let Err(error) = stream.set_nodelay(true)
    {
        eprintln!("pieces may be held back: {error}");
    }
}
