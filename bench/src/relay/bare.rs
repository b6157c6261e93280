//! The bare relay: sends the provider's bytes of two requests to the client, without parsing or
//! storing. `/follow` sends the bytes of all current runs to any number of subscribers.

use actix_web::{App, HttpResponse, HttpServer, web};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use std::net::SocketAddr;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

/// Maximum number of chunks queued for a subscriber.
const BACKLOG: usize = 4_096;

struct BareRelay {
    http: reqwest::Client,
    url: String,
    followers: broadcast::Sender<Bytes>,
}

/// Serves until the process is killed.
pub(crate) async fn serve(address: SocketAddr, provider: &str) -> anyhow::Result<()> {
    let url = format!("{provider}/chat/completions");
    let (followers, _) = broadcast::channel(BACKLOG);
    let relay = web::Data::new(BareRelay { http: super::client()?, url, followers });
    let app = move || {
        App::new()
            .app_data(relay.clone())
            .route("/chat", web::post().to(chat))
            .route("/follow", web::get().to(follow))
    };
    Ok(HttpServer::new(app).on_connect(super::on_connect).bind(address)?.run().await?)
}

async fn chat(relay: web::Data<BareRelay>, body: Bytes) -> HttpResponse {
    // The provider takes the last `role` as the sign of a tool result; the body need not be valid JSON.
    let second = Bytes::from([&body[..], br#","role":"tool""#].concat());
    let steps = stream::iter([body, second]).then(move |body| step(relay.clone(), body)).flatten();
    HttpResponse::Ok().content_type("text/event-stream").streaming(steps)
}

async fn step(
    relay: web::Data<BareRelay>,
    body: Bytes,
) -> impl Stream<Item = Result<Bytes, reqwest::Error>> {
    let sent = relay.http.post(&relay.url).body(body).send().await;
    match sent {
        Err(error) => stream::once(async { Err(error) }).left_stream(),
        Ok(response) => response
            .bytes_stream()
            .inspect(move |bytes| {
                if let Ok(bytes) = bytes
                    && relay.followers.receiver_count() > 0
                {
                    // The send fails without subscribers. A subscriber that is behind gets an error.
                    drop(relay.followers.send(bytes.clone()));
                }
            })
            .right_stream(),
    }
}

async fn follow(relay: web::Data<BareRelay>) -> HttpResponse {
    let chunks = BroadcastStream::new(relay.followers.subscribe());
    HttpResponse::Ok().content_type("text/event-stream").streaming(chunks)
}
