//! The middleware that checks origin, credential and request rate (X1, X3, X4).
//!
//! It wraps the whole HTTP API: a new resource requires authentication unless it is listed in
//! [`is_public`].

use super::{
    Problem, State, origin,
    request_limiter::{RequestLimiter, RequestLimiterKey},
};
use crate::auth::{AuthMethod, Credential, Principal};
use actix_web::{
    Error, HttpMessage, HttpRequest,
    body::{BodySize, BoxBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    http::{Method, StatusCode, header},
    middleware::Next,
    web,
};
use greenroom_core::approval::Surface;
use std::{
    future::Ready,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

/// The request header in which a bearer client names its surface, `cli` or `rest`.
pub(super) const SURFACE_HEADER: &str = "x-greenroom-surface";

/// Name of the browser's session cookie.
pub(super) const COOKIE: &str = "greenroom_session";

/// Extractor of the authenticated principal.
pub(super) struct Caller(pub(super) Principal);

impl actix_web::FromRequest for Caller {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let principal = request.extensions().get::<Principal>().cloned();
        std::future::ready(principal.map(Self).ok_or_else(missing_credential))
    }
}

impl Caller {
    /// Returns an error unless the caller is an administrator.
    pub(super) fn require_admin(&self) -> Result<(), Problem> {
        let forbidden = || Problem::forbidden("requires the role `admin`");
        self.0.is_admin().then_some(()).ok_or_else(forbidden)
    }
}

/// Returns the surface of an answer to an approval (G11). The header is ignored for cookies, so a
/// browser cannot name another surface.
pub(super) fn resolve_surface(
    request: &HttpRequest,
    principal: &Principal,
) -> Result<Surface, Problem> {
    let Some(value) = request
        .headers()
        .get(SURFACE_HEADER)
        .filter(|_| principal.auth_method == AuthMethod::Bearer)
    else {
        return Ok(principal.surface());
    };
    match value.as_bytes() {
        b"cli" => Ok(Surface::Cli),
        b"rest" => Ok(Surface::Rest),
        _ => {
            let detail = format!("`{SURFACE_HEADER}` must be `cli` or `rest`");
            Err(Problem::bad_request("surface_invalid", detail))
        }
    }
}

/// The middleware: authorizes the request and stores its principal in the request's extensions.
pub(super) async fn enforce_access(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match authorize_request(&request).await {
        Ok(None) => Ok(next.call(request).await?.map_into_boxed_body()),
        Ok(Some(principal)) => {
            let revocation = RevocationCheck::for_request(&request, &principal);
            request.extensions_mut().insert(principal);
            let response = next.call(request).await?.map_into_boxed_body();
            Ok(response.map_body(|_, body| match revocation {
                Some(revocation) => BoxBody::new(RevocableBody { body, revocation }),
                None => body,
            }))
        }
        Err(problem) => Ok(request.error_response(problem)),
    }
}

/// The path at which a page exchanges a token or key for its cookie.
pub(super) const SIGN_IN: &str = "/sign-in";

/// True if the resource needs no credential: health checks, API documentation and the dashboard's
/// files.
fn is_public(method: &Method, path: &str) -> bool {
    let page = path == "/" || path.starts_with("/assets/");
    let document = matches!(path, "/openapi.json" | "/docs") || path.starts_with("/docs/");
    *method == Method::GET && (page || document || path == "/healthz" || path == "/readyz")
}

async fn authorize_request(request: &ServiceRequest) -> Result<Option<Principal>, Problem> {
    let state = request.app_data::<State>().ok_or_else(|| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server has no state")
    })?;
    let origin = check_origin(request, state)?;
    if is_public(request.method(), request.path()) {
        return Ok(None);
    }
    if request.method() == Method::POST && request.path() == SIGN_IN {
        // Another site must not sign this browser in as another user.
        if origin == OriginCheck::Absent {
            return Err(origin_forbidden("sign-in requires the header `Origin`"));
        }
        let address = request.peer_addr().map(|peer| peer.ip());
        check_rate_limit_of(&state.request_limiter, &RequestLimiterKey::Anonymous(address))?;
        return Ok(None);
    }
    let principal = authenticate(request, state).await?;
    let upgrade = request.headers().contains_key(header::UPGRADE);
    let acts = !request.method().is_safe() || upgrade;
    if principal.auth_method == AuthMethod::Cookie && acts && origin == OriginCheck::Absent {
        return Err(origin_forbidden("a request with a cookie requires the header `Origin`"));
    }
    check_rate_limit(&state.request_limiter, &principal)?;
    Ok(Some(principal))
}

/// Counts one request of `principal`; returns an error above the rate limit (X4).
pub(super) fn check_rate_limit(
    limiter: &RequestLimiter,
    principal: &Principal,
) -> Result<(), Problem> {
    check_rate_limit_of(limiter, &RequestLimiterKey::Principal(principal.user.clone()))
}

fn check_rate_limit_of(limiter: &RequestLimiter, key: &RequestLimiterKey) -> Result<(), Problem> {
    if limiter.try_acquire(key, Instant::now()) {
        return Ok(());
    }
    let limit = limiter.per_second();
    let detail = format!("rate limit exceeded; the limit is {limit} requests per second");
    Err(Problem::too_many("rate_limited", detail, limit).retry_after(1))
}

#[derive(PartialEq)]
enum OriginCheck {
    Absent,
    Allowed,
}

fn check_origin(
    request: &ServiceRequest,
    state: &web::Data<super::AppState>,
) -> Result<OriginCheck, Problem> {
    let Some(origin) = request.headers().get(header::ORIGIN) else {
        return Ok(OriginCheck::Absent);
    };
    // `connection_info` is not used: it trusts forwarding headers, which any client can send.
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let origin = origin.to_str().unwrap_or_default();
    if origin::is_allowed_origin(origin, host, &state.allowed_origins) {
        return Ok(OriginCheck::Allowed);
    }
    Err(origin_forbidden("requests from this origin are not allowed"))
}

fn origin_forbidden(detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "origin_forbidden", detail)
}

async fn authenticate(request: &ServiceRequest, state: &State) -> Result<Principal, Problem> {
    let now = state.runtime.clock.now();
    if let Some(value) = request.headers().get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(parse_bearer).ok_or_else(missing_credential)?;
        let principal = state.auth.authenticate(Credential::Bearer(token), now).await?;
        return principal.ok_or_else(|| Problem::unauthorized("unknown token"));
    }
    let cookie = request.cookie(COOKIE).ok_or_else(missing_credential)?;
    let principal = state.auth.authenticate(Credential::Cookie(cookie.value()), now).await?;
    principal.ok_or_else(|| {
        Problem::unauthorized("the browser session has ended; open the sign-in link again")
    })
}

/// Checks the API key of a request while its response is streamed, since a key can be revoked.
struct RevocationCheck {
    state: State,
    principal: Principal,
}

impl RevocationCheck {
    fn for_request(request: &ServiceRequest, principal: &Principal) -> Option<Self> {
        let state = request.app_data::<State>().filter(|_| principal.key_id.is_some())?;
        Some(Self { state: state.clone(), principal: principal.clone() })
    }
}

/// A response body that ends when the API key of its request is revoked.
struct RevocableBody {
    body: BoxBody,
    revocation: RevocationCheck,
}

impl MessageBody for RevocableBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<web::Bytes, Self::Error>>> {
        let is_stream = self.body.size() == BodySize::Stream;
        if is_stream && !self.revocation.state.auth.is_still_valid(&self.revocation.principal) {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_next(cx)
    }
}

pub(super) fn parse_bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn missing_credential() -> Problem {
    Problem::unauthorized("missing credential; send `Authorization: Bearer <token>`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;
    use greenroom_core::ids::UserId;

    #[test]
    fn g11_bearer_caller_names_its_surface() {
        let surface_of = |auth_method, value: Option<&str>| {
            let user = UserId::parse("ann").unwrap();
            let principal =
                Principal { user, role: crate::auth::Role::Admin, auth_method, key_id: None };
            let request = TestRequest::default();
            let request = match value {
                Some(value) => request.insert_header((SURFACE_HEADER, value)),
                None => request,
            };
            resolve_surface(&request.to_http_request(), &principal).map_err(|problem| problem.code)
        };
        assert_eq!(surface_of(AuthMethod::Bearer, None), Ok(Surface::Rest));
        assert_eq!(surface_of(AuthMethod::Bearer, Some("rest")), Ok(Surface::Rest));
        assert_eq!(surface_of(AuthMethod::Bearer, Some("cli")), Ok(Surface::Cli));
        assert_eq!(surface_of(AuthMethod::Bearer, Some("dashboard")), Err("surface_invalid"));
        assert_eq!(surface_of(AuthMethod::Cookie, Some("cli")), Ok(Surface::Dashboard));
    }
}
