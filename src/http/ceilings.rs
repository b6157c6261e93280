//! The ceilings that administrators read and change (G17).

use super::{
    Problem, State,
    access_control::{self, Caller, SURFACE_HEADER},
    endpoint::Endpoint,
    extract::Json,
};
use crate::{
    audit::{AuditAction, AuditActor, AuditEntry, AuditOutcome},
    ceilings::{CeilingChangeError, StoredCeilings},
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode},
};
use greenroom_core::policy::{Ceilings, CeilingsTable};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/admin/ceilings", read)
            .operation("read_ceilings", "Returns the ceilings.")
            .returns::<CeilingsView>("The ceilings")
            .problems(&["forbidden"]),
        Endpoint::new(Method::PUT, "/admin/ceilings", replace)
            .operation("replace_ceilings", "Replaces the stored ceilings.")
            .description(
                "`version` is the version that was read; if the ceilings were changed since, the \
                 response is 409. Values wider than those of the configuration file are rejected. \
                 Every evaluation after the response reads the new ceilings.",
            )
            .header(SURFACE_HEADER, "The surface of the request: `cli` or `rest`")
            .body::<CeilingsChange>()
            .returns::<CeilingsView>("The ceilings")
            .problems(&["forbidden", "not_found", "surface_invalid"])
            .problems(&["version_conflict", "settings_widened"]),
    ]
}

/// The ceilings of the server.
#[derive(Serialize, ToSchema)]
#[schema(as = CeilingsView)]
struct CeilingsView {
    /// The version of the stored ceilings.
    version: u64,
    /// The ceilings of the configuration file, the outer bound.
    #[schema(value_type = CeilingsTable)]
    configured: Ceilings,
    /// The ceilings that administrators have set.
    #[schema(value_type = CeilingsTable)]
    stored: Ceilings,
    /// The intersection of both, which is in force.
    #[schema(value_type = CeilingsTable)]
    in_force: Ceilings,
}

/// A change of the stored ceilings.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CeilingsChange)]
pub(super) struct CeilingsChange {
    /// The version of the ceilings that the change replaces.
    version: u64,
    /// The complete new ceilings.
    #[schema(value_type = CeilingsTable)]
    ceilings: Ceilings,
}

fn view(state: &State, stored: StoredCeilings) -> CeilingsView {
    let StoredCeilings { version, ceilings: stored } = stored;
    let configured = state.ceilings.configured().clone();
    let in_force = configured.narrowed_to(&stored);
    CeilingsView { version, configured, stored, in_force }
}

/// `GET /admin/ceilings`
async fn read(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let stored = state.ceilings.stored().await;
    Ok(HttpResponse::Ok().json(view(&state, stored)))
}

/// `PUT /admin/ceilings`: stores the change together with its audit row.
async fn replace(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(change): Json<CeilingsChange>,
) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let surface = access_control::resolve_surface(&request, &caller.0)?;
    let actor = AuditActor::from_principal(&caller.0, surface);
    let now = state.runtime.clock.now();
    let entry = |before: &Ceilings, after: &Ceilings| {
        let (action, outcome) = (AuditAction::CeilingsChanged, AuditOutcome::Done);
        let details = Some(json!({"before": before, "after": after}));
        AuditEntry { details, ..AuditEntry::new(now, action, outcome, Some(actor)) }
    };
    let stored = state.ceilings.replace(change.version, change.ceilings, entry).await?;
    tracing::info!(version = stored.version, by = %caller.0.user, "ceilings changed");
    Ok(HttpResponse::Ok().json(view(&state, stored)))
}

impl From<CeilingChangeError> for Problem {
    fn from(error: CeilingChangeError) -> Self {
        let detail = error.to_string();
        match error {
            CeilingChangeError::VersionConflict { current } => {
                Self::new(StatusCode::CONFLICT, "version_conflict", detail)
                    .with_member("version", current)
            }
            CeilingChangeError::Invalid(error) => {
                Self::invalid(&format!("ceilings.{}", error.field()), detail)
            }
            CeilingChangeError::UnknownAgent(name) => {
                Self::invalid(&format!("ceilings.agents.{name}"), detail)
            }
            CeilingChangeError::TooLarge { .. } => {
                Self::invalid("ceilings", format!("`ceilings`: {detail}"))
            }
            CeilingChangeError::Exceeded(exceeded) => {
                let field = format!("ceilings.{}", exceeded.field);
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "settings_widened", detail)
                    .with_member("field", field)
                    .with_member("ceiling", json!(exceeded.scope))
            }
            CeilingChangeError::NoStore => Self::new(StatusCode::NOT_FOUND, "not_found", detail),
            CeilingChangeError::Journal(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g17_too_large_ceilings_are_rejected_with_field_and_limit() {
        let problem = Problem::from(CeilingChangeError::TooLarge { bytes: 300_000 });
        assert_eq!(problem.detail, "`ceilings`: 300000 bytes; the limit is 262144");
    }
}
