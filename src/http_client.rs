//! Builds the clients of outgoing HTTP requests.
//!
//! A client loads the system's CA certificates when it is built, and reqwest fails to build one on a
//! system without any, such as a minimal container image. Plain HTTP needs none, so clients of
//! `http:` URLs are then built without certificates. Knows nothing of the requests.

use reqwest::{Client, ClientBuilder, Url};

/// The reason why a client can't be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpClientError {
    /// The system has no CA certificates, and the server's certificate could not be verified.
    #[error(
        "no CA certificates to verify https://{host} were found; install the system's package `ca-certificates`, or set SSL_CERT_FILE to a PEM file of certificates"
    )]
    NoCaCertificates {
        /// The host of the URL.
        host: String,
    },
    /// The options are invalid, or TLS can't be initialized.
    #[error("can't create an HTTP client")]
    Build(#[source] reqwest::Error),
}

/// Builds a client of `url` with the options that `configure` sets.
pub(crate) fn build_client(
    url: &Url,
    configure: impl Fn(ClientBuilder) -> ClientBuilder,
) -> Result<Client, HttpClientError> {
    let error = match configure(Client::builder()).build() {
        Ok(client) => return Ok(client),
        Err(error) => error,
    };
    // If the client can be built without certificates, their absence was the reason.
    let Ok(client) = configure(Client::builder()).tls_certs_only([]).build() else {
        return Err(HttpClientError::Build(error));
    };
    if url.scheme() == "http" {
        return Ok(client);
    }
    let host = url.host_str().unwrap_or_default().to_owned();
    Err(HttpClientError::NoCaCertificates { host })
}
