//! The dashboard at `/`: the files that `scripts/web.sh` built, out of the binary itself. They are a
//! client like any other and use only the public surface. The link printed at start signs a browser
//! in, and so does the page, by `POST /sign-in` (X3).
//!
//! A debug build reads the files from `web/dist` when they are asked for, so that changing the
//! dashboard rebuilds no Rust; a release build has them inside.

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

/// What stands at `/` where no dashboard was built.
const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
    <title>Greenroom</title><h1>Greenroom is running</h1>\
    <p>This binary was built without its dashboard. Run <code>scripts/web.sh</code>, which needs \
    npm, then build it again. Everything else works.</p></html>\n";

/// Nothing but our own files runs or loads, nothing becomes markup but through the sanitiser, and
/// nobody frames the page.
const DASHBOARD_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; \
                      connect-src 'self'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types dompurify";

/// For files whose name has their content's hash in it: a year, and no asking again.
const CACHE_IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/", index)
            .operation("dashboard", "The dashboard.")
            .description(
                "Who takes `text/html` gets the page also where the token is not known, with 401.",
            )
            .query::<IndexQuery>()
            .returns_text("text/html", "The page")
            .returns_empty(303, "The token was traded for a cookie; the page is at `/`")
            .problems(&["unauthorized", "corrupt", "unavailable"])
            .public(),
        Endpoint::post(SIGN_IN, sign_in)
            .operation("sign_in", "Trades a token or an API key for the browser's cookie.")
            .description("Pages only: the request must say its `Origin`.")
            .body::<SignIn>()
            .returns_empty(204, "The cookie is in the answer")
            .problems(&["unauthorized", "origin_forbidden", "rate_limited"])
            .problems(&["corrupt", "unavailable"])
            .public(),
        Endpoint::get("/assets/{file}", asset)
            .operation("dashboard_asset", "A file of the dashboard.")
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

/// `GET /`, and `GET /?token=…`, which trades the token for a cookie and leads back to `/`.
async fn index(state: State, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let Some(token) = extract::parse_query::<IndexQuery>(&request)?.token else {
        return Ok(page(&request));
    };
    let Some(cookie) = issue_cookie(&state, &token).await? else {
        if !accepts_html(&request) {
            return Err(Problem::unauthorized("the link's token is not known here"));
        }
        // People whose link is an old one are shown where else they can sign in.
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
        let mut answer = HttpResponse::Ok();
        answer.insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"));
        with_security_headers(&mut answer, DASHBOARD_CSP, "no-cache").body(NOT_BUILT)
    })
}

fn accepts_html(request: &HttpRequest) -> bool {
    let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

/// What somebody pasted into the page.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SignIn {
    /// The administrator's token, or an API key.
    token: String,
}

/// `POST /sign-in`
async fn sign_in(state: State, Json(said): Json<SignIn>) -> Result<HttpResponse, Problem> {
    let cookie = issue_cookie(&state, said.token.trim()).await?;
    let wrong = || Problem::unauthorized("this token or key is not known here");
    Ok(HttpResponse::NoContent()
        .cookie(cookie.ok_or_else(wrong)?)
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .finish())
}

/// What a browser sends from then on; nothing where nobody has that token.
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
    let missing = || Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no such file");
    serve_file(&request, &format!("assets/{name}"), CACHE_IMMUTABLE).ok_or_else(missing)
}

/// The file, in the smallest form that the client takes; the build has made them.
fn serve_file(request: &HttpRequest, path: &str, caching: &'static str) -> Option<HttpResponse> {
    let kind = content_type(path)?;
    let plain = DashboardAssets::get(path)?;
    let packed = encodings(request).find_map(|(encoding, ending)| {
        Some((encoding, DashboardAssets::get(&format!("{path}{ending}"))?))
    });
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::CONTENT_TYPE, kind));
    answer.insert_header((header::VARY, "accept-encoding"));
    let EmbeddedFile { data, .. } = match packed {
        Some((encoding, packed)) => {
            answer.insert_header((header::CONTENT_ENCODING, encoding));
            packed
        }
        None => plain,
    };
    Some(with_security_headers(&mut answer, DASHBOARD_CSP, caching).body(data.into_owned()))
}

/// What the client can unpack, the smallest first.
fn encodings(request: &HttpRequest) -> impl Iterator<Item = (&'static str, &'static str)> {
    let accepted = request.headers().get(header::ACCEPT_ENCODING);
    let accepted = accepted.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let takes = move |name: &str| {
        accepted.split(',').any(|one| {
            let mut parts = one.split(';').map(str::trim);
            parts.next() == Some(name) && !parts.any(|weight| matches!(weight, "q=0" | "q=0.0"))
        })
    };
    [("br", ".br"), ("gzip", ".gz")].into_iter().filter(move |(name, _)| takes(name))
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
    answer: &'a mut actix_web::HttpResponseBuilder,
    policy: &'static str,
    caching: &'static str,
) -> &'a mut actix_web::HttpResponseBuilder {
    answer
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header(("cross-origin-opener-policy", "same-origin"))
        .insert_header((header::CACHE_CONTROL, caching))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn w7_smallest_accepted_encoding_is_served() {
        for (said, expected) in [
            ("gzip, deflate, br", vec!["br", "gzip"]),
            ("gzip", vec!["gzip"]),
            ("br;q=0, gzip;q=0.5", vec!["gzip"]),
            ("brown, gzipped", vec![]),
            ("", vec![]),
        ] {
            let request = TestRequest::default().insert_header((header::ACCEPT_ENCODING, said));
            let found: Vec<_> =
                encodings(&request.to_http_request()).map(|(name, _)| name).collect();
            assert_eq!(found, expected, "{said}");
        }
    }

    #[test]
    fn w7_only_the_dashboards_own_kinds_of_files_are_served() {
        assert_eq!(content_type("assets/index-abc.js"), Some("text/javascript; charset=utf-8"));
        for other in ["assets/index-abc.js.br", "assets/secret", "assets/../../Cargo.toml"] {
            assert_eq!(content_type(other), None, "{other}");
        }
    }
}
