//! The door: who is calling, from where, and how often (X1, X3, X4). Wrapped around everything,
//! so that a new resource is closed until it is listed as open.

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

/// Where a client says that it is the command line.
pub(super) const SURFACE_HEADER: &str = "x-greenroom-surface";

/// The browser's cookie.
pub(super) const COOKIE: &str = "greenroom_session";

/// Whoever got through the door; what handlers ask for.
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
    /// Errs unless they are an administrator.
    pub(super) fn require_admin(&self) -> Result<(), Problem> {
        let refused = || Problem::forbidden("this needs the role `admin`");
        self.0.is_admin().then_some(()).ok_or_else(refused)
    }
}

/// What an answer to an approval comes through (G11). A browser can't say that it is something
/// else.
pub(super) fn resolve_surface(
    request: &HttpRequest,
    principal: &Principal,
) -> Result<Surface, Problem> {
    let Some(said) = request
        .headers()
        .get(SURFACE_HEADER)
        .filter(|_| principal.auth_method == AuthMethod::Bearer)
    else {
        return Ok(principal.surface());
    };
    match said.as_bytes() {
        b"cli" => Ok(Surface::Cli),
        b"rest" => Ok(Surface::Rest),
        _ => {
            let detail = format!("{SURFACE_HEADER} must be `cli` or `rest`");
            Err(Problem::bad_request("surface_invalid", detail))
        }
    }
}

/// The middleware.
pub(super) async fn enforce_access(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match authorize_request(&request).await {
        Ok(None) => Ok(next.call(request).await?.map_into_boxed_body()),
        Ok(Some(principal)) => {
            let leash = RevocationCheck::for_request(&request, &principal);
            request.extensions_mut().insert(principal);
            let answer = next.call(request).await?.map_into_boxed_body();
            Ok(answer.map_body(|_, body| match leash {
                Some(leash) => BoxBody::new(RevocableBody { body, revocation: leash }),
                None => body,
            }))
        }
        Err(problem) => Ok(request.error_response(problem)),
    }
}

/// Where a page trades a token or a key for its cookie.
pub(super) const SIGN_IN: &str = "/sign-in";

/// What anybody may see: whether the server lives, how it is called, and the page that then signs in.
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
        // Another site must not sign this browser in as somebody else.
        if origin == OriginCheck::Absent {
            return Err(origin_forbidden("signing in must say its Origin"));
        }
        let address = request.peer_addr().map(|peer| peer.ip());
        check_rate_limit_of(&state.request_limiter, &RequestLimiterKey::Anonymous(address))?;
        return Ok(None);
    }
    let principal = authenticate(request, state).await?;
    let upgrade = request.headers().contains_key(header::UPGRADE);
    let acts = !request.method().is_safe() || upgrade;
    if principal.auth_method == AuthMethod::Cookie && acts && origin == OriginCheck::Absent {
        return Err(origin_forbidden("a request with a cookie must say its Origin"));
    }
    check_rate_limit(&state.request_limiter, &principal)?;
    Ok(Some(principal))
}

/// Counts one request of that principal (X4).
pub(super) fn check_rate_limit(
    throttle: &RequestLimiter,
    principal: &Principal,
) -> Result<(), Problem> {
    check_rate_limit_of(throttle, &RequestLimiterKey::Principal(principal.user.clone()))
}

fn check_rate_limit_of(
    throttle: &RequestLimiter,
    whose: &RequestLimiterKey,
) -> Result<(), Problem> {
    if throttle.try_acquire(whose, Instant::now()) {
        return Ok(());
    }
    let limit = throttle.per_second();
    let detail = format!("at most {limit} requests per second");
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
    // Not `connection_info`, which believes forwarding headers that any client can send.
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let origin = origin.to_str().unwrap_or_default();
    if origin::is_allowed_origin(origin, host, &state.allowed_origins) {
        return Ok(OriginCheck::Allowed);
    }
    Err(origin_forbidden("pages of this origin may not call"))
}

fn origin_forbidden(detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "origin_forbidden", detail)
}

async fn authenticate(request: &ServiceRequest, state: &State) -> Result<Principal, Problem> {
    let now = state.runtime.clock.now();
    if let Some(value) = request.headers().get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(parse_bearer).ok_or_else(missing_credential)?;
        let principal = state.auth.authenticate(Credential::Bearer(token), now).await?;
        return principal.ok_or_else(|| Problem::unauthorized("the token is not known here"));
    }
    let cookie = request.cookie(COOKIE).ok_or_else(missing_credential)?;
    let principal = state.auth.authenticate(Credential::Cookie(cookie.value()), now).await?;
    principal.ok_or_else(|| {
        Problem::unauthorized("this browser is not signed in any more; open the link again")
    })
}

/// Who holds a stream by an API key, which may be revoked.
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

/// A body that ends when the key does by which it was asked for: a stream would outlive it.
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

fn parse_bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn missing_credential() -> Problem {
    Problem::unauthorized("send `Authorization: Bearer` with a token")
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;
    use greenroom_core::ids::UserId;

    #[test]
    fn g11_bearer_callers_may_name_their_surface() {
        let by = |via, said: Option<&str>| {
            let user = UserId::parse("ann").unwrap();
            let principal =
                Principal { user, role: crate::auth::Role::Admin, auth_method: via, key_id: None };
            let request = TestRequest::default();
            let request = match said {
                Some(said) => request.insert_header((SURFACE_HEADER, said)),
                None => request,
            };
            resolve_surface(&request.to_http_request(), &principal).map_err(|problem| problem.code)
        };
        assert_eq!(by(AuthMethod::Bearer, None), Ok(Surface::Rest));
        assert_eq!(by(AuthMethod::Bearer, Some("rest")), Ok(Surface::Rest));
        assert_eq!(by(AuthMethod::Bearer, Some("cli")), Ok(Surface::Cli));
        assert_eq!(by(AuthMethod::Bearer, Some("dashboard")), Err("surface_invalid"));
        assert_eq!(by(AuthMethod::Cookie, Some("cli")), Ok(Surface::Dashboard));
    }
}
