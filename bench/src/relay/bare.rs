//! The bare relay: asks the provider twice and passes its bytes on. It parses nothing and stores
//! nothing. `/follow` hands the bytes of the runs that are going to any number of others.

use actix_web::{App, HttpResponse, HttpServer, web};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use std::net::SocketAddr;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

/// Pieces that wait for one who follows.
const BACKLOG: usize = 4_096;

struct BareRelay {
    http: reqwest::Client,
    url: String,
    followers: broadcast::Sender<Bytes>,
}

/// Serves until it is killed.
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
    // What tells the provider that the tool has answered. Nobody parses it.
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
                    // Nobody follows any more, or they are behind: they notice.
                    drop(relay.followers.send(bytes.clone()));
                }
            })
            .right_stream(),
    }
}

async fn follow(relay: web::Data<BareRelay>) -> HttpResponse {
    let pieces = BroadcastStream::new(relay.followers.subscribe());
    HttpResponse::Ok().content_type("text/event-stream").streaming(pieces)
}
