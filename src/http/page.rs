//! The page at `/`: the event stream and the approvals that wait, from the binary alone. It is a
//! client like any other and uses only the public surface. The link printed at start signs a
//! browser in (X3).

use super::{Problem, State, guard::COOKIE, read};
use crate::auth::browser::BROWSER_SESSION_TIME;
use actix_web::{
    HttpRequest, HttpResponse,
    cookie::{Cookie, SameSite, time::Duration},
    http::{StatusCode, header},
};
use serde::Deserialize;
use std::time::Instant;

const INDEX: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/app.js");
const STYLE: &str = include_str!("page/style.css");

/// Nothing but our own files runs or loads; nobody frames the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

#[derive(Deserialize)]
struct IndexQuery {
    token: Option<String>,
}

/// `GET /`, and `GET /?token=…`, which trades the token for a cookie and leads back to `/`.
pub(super) async fn index(state: State, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let Some(token) = read::query::<IndexQuery>(&request)?.token else {
        return Ok(file("text/html; charset=utf-8", INDEX));
    };
    let cookie = state.auth.open_browser_session(&token, Instant::now()).await?;
    let wrong = || Problem::unauthorized("the link's token is not known here");
    let seconds = i64::try_from(BROWSER_SESSION_TIME.as_secs()).unwrap_or(i64::MAX);
    let cookie = Cookie::build(COOKIE, cookie.ok_or_else(wrong)?)
        .path("/")
        .http_only(true)
        .same_site(SameSite::Strict)
        .max_age(Duration::seconds(seconds))
        .finish();
    Ok(HttpResponse::build(StatusCode::SEE_OTHER)
        .cookie(cookie)
        .insert_header((header::LOCATION, "/"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .finish())
}

/// `GET /page/{file}`
pub(super) async fn asset(request: HttpRequest) -> Result<HttpResponse, Problem> {
    match request.match_info().query("file") {
        "app.js" => Ok(file("text/javascript; charset=utf-8", SCRIPT)),
        "style.css" => Ok(file("text/css; charset=utf-8", STYLE)),
        _ => Err(Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no such file")),
    }
}

fn file(kind: &'static str, body: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, kind))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .body(body)
}
