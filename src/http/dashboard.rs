//! The dashboard at `/`: the files that `scripts/web.sh` built, embedded in the binary. The
//! dashboard uses only the public HTTP API. A browser signs in by the link that is printed at
//! start, or by `POST /sign-in` (X3).
//!
//! A debug build reads the files from `web/dist` at run time, so that a change of the dashboard
//! needs no Rust build; a release build embeds them.

use super::{
    Problem, State,
    access_control::{COOKIE, SIGN_IN},
    endpoint::Endpoint,
    extract::{self, Json},
};
use crate::auth::browser_cookie::COOKIE_LIFETIME;
use actix_web::{
    HttpRequest, HttpResponse,
    cookie::{Cookie, SameSite, time::Duration},
    http::{StatusCode, header},
};
use rust_embed::{EmbeddedFile, RustEmbed};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

#[derive(RustEmbed)]
#[folder = "web/dist"]
#[allow_missing = true]
struct DashboardAssets;

/// The page at `/` of a binary without dashboard.
const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
    <title>Greenroom</title><h1>Greenroom is running</h1>\
    <p>This binary was built without its dashboard. Run <code>scripts/web.sh</code>, which needs \
    npm, then build it again. Everything else works.</p></html>\n";

/// Content security policy: only the server's own files run or load, markup is created only by the
/// sanitizer, and no other site can frame the page.
const DASHBOARD_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; \
                      connect-src 'self'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types dompurify";

/// Cache control for files with a content hash in their name: one year, without revalidation.
const CACHE_IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/", index)
            .operation("dashboard", "Returns the dashboard, or signs in by the link's token.")
            .description(
                "A client that accepts `text/html` gets the page, with status 401, if the token \
                 is unknown.",
            )
            .query::<IndexQuery>()
            .returns_text("text/html", "The page")
            .returns_empty(303, "Signed in: sets the cookie and redirects to `/`")
            .problems(&["unauthorized", "corrupt", "unavailable"])
            .public(),
        Endpoint::post(SIGN_IN, sign_in)
            .operation("sign_in", "Exchanges a token or an API key for the browser's cookie.")
            .description("For pages only: the header `Origin` is required.")
            .body::<SignIn>()
            .returns_empty(204, "Signed in: sets the cookie")
            .problems(&["unauthorized", "origin_forbidden", "rate_limited"])
            .problems(&["corrupt", "unavailable"])
            .public(),
        Endpoint::get("/assets/{file}", asset)
            .operation("dashboard_asset", "Returns a file of the dashboard.")
            .returns_bytes("The file, in its own content type")
            .problems(&["not_found"])
            .public(),
    ]
}

#[derive(Deserialize, IntoParams)]
struct IndexQuery {
    /// The token of the link that was printed at start.
    token: Option<String>,
}

/// `GET /`, and `GET /?token=…`, which exchanges the token for a cookie and redirects to `/`.
async fn index(state: State, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let Some(token) = extract::parse_query::<IndexQuery>(&request)?.token else {
        return Ok(page(&request));
    };
    let Some(cookie) = issue_cookie(&state, &token).await? else {
        if !accepts_html(&request) {
            return Err(Problem::unauthorized("unknown token"));
        }
        // With an outdated link, a user still gets the page, which offers the other sign-in.
        let mut page = page(&request);
        *page.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(page);
    };
    Ok(HttpResponse::build(StatusCode::SEE_OTHER)
        .cookie(cookie)
        .insert_header((header::LOCATION, "/"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .finish())
}

fn page(request: &HttpRequest) -> HttpResponse {
    serve_file(request, "index.html", "no-cache").unwrap_or_else(|| {
        let mut response = HttpResponse::Ok();
        response.insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"));
        with_security_headers(&mut response, DASHBOARD_CSP, "no-cache").body(NOT_BUILT)
    })
}

fn accepts_html(request: &HttpRequest) -> bool {
    let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

/// A sign-in request of a page.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SignIn {
    /// The admin token or an API key.
    token: String,
}

/// `POST /sign-in`
async fn sign_in(state: State, Json(body): Json<SignIn>) -> Result<HttpResponse, Problem> {
    let cookie = issue_cookie(&state, body.token.trim()).await?;
    let unknown = || Problem::unauthorized("unknown token or API key");
    Ok(HttpResponse::NoContent()
        .cookie(cookie.ok_or_else(unknown)?)
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .finish())
}

/// Returns a session cookie for the token, or `None` if the token is unknown.
async fn issue_cookie(state: &State, token: &str) -> Result<Option<Cookie<'static>>, Problem> {
    let value = state.auth.issue_cookie(token, state.runtime.clock.now()).await?;
    let seconds = i64::try_from(COOKIE_LIFETIME.as_secs()).unwrap_or(i64::MAX);
    Ok(value.map(|value| {
        Cookie::build(COOKIE, value)
            .path("/")
            .http_only(true)
            .same_site(SameSite::Strict)
            .max_age(Duration::seconds(seconds))
            .finish()
    }))
}

/// `GET /assets/{file}`
async fn asset(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let name = request.match_info().query("file");
    let missing = || Problem::new(StatusCode::NOT_FOUND, "not_found", "file not found");
    serve_file(&request, &format!("assets/{name}"), CACHE_IMMUTABLE).ok_or_else(missing)
}

/// Returns the file in the smallest precompressed form that the client accepts.
fn serve_file(
    request: &HttpRequest,
    path: &str,
    cache_control: &'static str,
) -> Option<HttpResponse> {
    let kind = content_type(path)?;
    let plain = DashboardAssets::get(path)?;
    let compressed = encodings(request).find_map(|(encoding, suffix)| {
        Some((encoding, DashboardAssets::get(&format!("{path}{suffix}"))?))
    });
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CONTENT_TYPE, kind));
    response.insert_header((header::VARY, "accept-encoding"));
    let EmbeddedFile { data, .. } = match compressed {
        Some((encoding, compressed)) => {
            response.insert_header((header::CONTENT_ENCODING, encoding));
            compressed
        }
        None => plain,
    };
    Some(with_security_headers(&mut response, DASHBOARD_CSP, cache_control).body(data.into_owned()))
}

/// Returns the encodings that the client accepts, with their file suffixes, smallest first.
fn encodings(request: &HttpRequest) -> impl Iterator<Item = (&'static str, &'static str)> {
    let accepted = request.headers().get(header::ACCEPT_ENCODING);
    let accepted = accepted.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let accepts = move |name: &str| {
        accepted.split(',').any(|item| {
            let mut parts = item.split(';').map(str::trim);
            parts.next() == Some(name) && !parts.any(|weight| matches!(weight, "q=0" | "q=0.0"))
        })
    };
    [("br", ".br"), ("gzip", ".gz")].into_iter().filter(move |(name, _)| accepts(name))
}

fn content_type(path: &str) -> Option<&'static str> {
    Some(match path.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        _ => return None,
    })
}

pub(super) fn with_security_headers<'a>(
    response: &'a mut actix_web::HttpResponseBuilder,
    policy: &'static str,
    cache_control: &'static str,
) -> &'a mut actix_web::HttpResponseBuilder {
    response
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header(("cross-origin-opener-policy", "same-origin"))
        .insert_header((header::CACHE_CONTROL, cache_control))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn w7_smallest_accepted_encoding_is_served() {
        for (accepted, expected) in [
            ("gzip, deflate, br", vec!["br", "gzip"]),
            ("gzip", vec!["gzip"]),
            ("br;q=0, gzip;q=0.5", vec!["gzip"]),
            ("brown, gzipped", vec![]),
            ("", vec![]),
        ] {
            let request = TestRequest::default().insert_header((header::ACCEPT_ENCODING, accepted));
            let actual: Vec<_> =
                encodings(&request.to_http_request()).map(|(name, _)| name).collect();
            assert_eq!(actual, expected, "{accepted}");
        }
    }

    #[test]
    fn w7_only_known_file_types_are_served() {
        assert_eq!(content_type("assets/index-abc.js"), Some("text/javascript; charset=utf-8"));
        for other in ["assets/index-abc.js.br", "assets/secret", "assets/../../Cargo.toml"] {
            assert_eq!(content_type(other), None, "{other}");
        }
    }
}
