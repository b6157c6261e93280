//! `GET /openapi.json`: the OpenAPI document, built from the same [`Endpoint`]s as the routes; and
//! `GET /docs`: Swagger UI. Neither needs a credential, since they contain only what the source code
//! contains. Requests sent from the page need one.

use super::{
    Problem,
    access_control::COOKIE,
    dashboard,
    endpoint::{Endpoint, Schemas},
    error::ProblemDocument,
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web::Bytes,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ComponentsBuilder, InfoBuilder, License, OpenApi, OpenApiBuilder, RefOr, Schema,
        path::{HttpMethod, PathItem, PathsBuilder},
        security::{
            ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
        },
        tag::TagBuilder,
    },
};

/// The description of the API.
const DESCRIPTION: &str = "The HTTP API of Greenroom, a runtime for LLM agents. A session is a \
    durable conversation of a user with an agent: every change is an event in a durable log, tools \
    run under a policy, and approvals are stored requests for a human decision. Errors are \
    `application/problem+json` with a stable `code`. Ids are UUIDs; times are RFC 3339 with \
    milliseconds. Streams (`text/event-stream`) contain one JSON object per `data:` line and are \
    resumed by `Last-Event-ID`. `docs/protocol.md` in the repository describes the frames of \
    streams and WebSockets, and the dialects.";

/// The tags and their descriptions, in display order.
const TAGS: [(&str, &str); 8] = [
    ("sessions", "Durable conversations of a user with an agent."),
    ("chat", "Messages and their runs."),
    ("approvals", "Requests for human decisions, and their answers."),
    ("agents", "Agents, tools, workflows, the policy, and user settings."),
    ("quality", "Feedback, statistics and export."),
    ("websockets", "Streams of any number of sessions on one connection."),
    ("administration", "Live actors, events of all sessions, API keys and the audit log."),
    ("operations", "Health checks, metrics, the dashboard and this document."),
];

/// The HTML page that loads the vendored files of Swagger UI.
const DOCS_PAGE: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
    <title>Greenroom: HTTP API</title><meta name=\"viewport\" content=\"width=device-width\">\
    <link rel=\"icon\" href=\"docs/favicon-32x32.png\">\
    <link rel=\"stylesheet\" href=\"docs/swagger-ui.css\"></head><body><div id=\"api\"></div>\
    <script src=\"docs/swagger-ui-bundle.js\"></script><script src=\"docs/start.js\"></script>\
    </body></html>\n";
/// The script that starts Swagger UI. It sends the document to no external validator.
const DOCS_SCRIPT: &str = "SwaggerUIBundle({url: 'openapi.json', dom_id: '#api', deepLinking: true, \
    validatorUrl: null, docExpansion: 'list', defaultModelsExpandDepth: 0});\n";
/// Content security policy: only the server's own files run or load.
const DOCS_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The files of Swagger UI that the page loads.
const FILES: [&str; 3] = ["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"];
/// Cache control for files that change only with the binary: one day.
const CACHE_ONE_DAY: &str = "public, max-age=86400";

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/openapi.json", read)
            .operation("openapi", "Returns this OpenAPI document.")
            .returns::<OpenApiDocument>("An OpenAPI 3.1 document")
            .public(),
        Endpoint::get("/docs", page)
            .operation("docs", "Returns the page that shows this document.")
            .returns_text("text/html", "The page, which can also send requests")
            .public(),
        Endpoint::get("/docs/{file}", file)
            .operation("docs_file", "Returns a file of the documentation page.")
            .returns_bytes("The file, in its own content type")
            .problems(&["not_found"])
            .public(),
    ]
}

/// An OpenAPI document.
#[derive(ToSchema)]
#[schema(value_type = Object)]
struct OpenApiDocument(());

static DOCUMENT: LazyLock<Bytes> =
    LazyLock::new(|| Bytes::from(serde_json::to_vec(&document()).unwrap_or_default()));

/// `GET /openapi.json`
async fn read() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/json"))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .body(DOCUMENT.clone())
}

/// `GET /docs`
async fn page() -> HttpResponse {
    static_response("text/html; charset=utf-8", "no-cache", DOCS_PAGE)
}

/// `GET /docs/{file}`
async fn file(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let name = request.match_info().query("file");
    if name == "start.js" {
        return Ok(static_response("text/javascript; charset=utf-8", CACHE_ONE_DAY, DOCS_SCRIPT));
    }
    let missing = || Problem::new(StatusCode::NOT_FOUND, "not_found", "file not found");
    let known = FILES.contains(&name).then(|| Arc::new(utoipa_swagger_ui::Config::from("")));
    let served = utoipa_swagger_ui::serve(name, known.ok_or_else(missing)?);
    let asset = served.ok().flatten().ok_or_else(missing)?;
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CONTENT_TYPE, asset.content_type));
    Ok(dashboard::with_security_headers(&mut response, DOCS_CSP, CACHE_ONE_DAY)
        .body(asset.bytes.into_owned()))
}

fn static_response(
    kind: &'static str,
    cache_control: &'static str,
    text: &'static str,
) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CONTENT_TYPE, kind));
    dashboard::with_security_headers(&mut response, DOCS_CSP, cache_control).body(text)
}

/// Builds the document of all endpoints that [`super::endpoints`] lists.
pub(super) fn document() -> OpenApi {
    let mut paths = PathsBuilder::new();
    let mut schemas: Schemas =
        vec![(ProblemDocument::name().into_owned(), ProblemDocument::schema())];
    for (tag, endpoint) in super::endpoints() {
        let (method, path) = (method(&endpoint), endpoint.documented_path());
        let mut description = endpoint.describe();
        schemas.append(&mut description.schemas);
        paths = paths.path(path, PathItem::new(method, description.into_operation(tag)));
    }
    let cookie = SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new(COOKIE)));
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let schemas: BTreeMap<String, RefOr<Schema>> = schemas.into_iter().collect();
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme("bearer", SecurityScheme::Http(bearer))
        .security_scheme("cookie", cookie);
    let info = InfoBuilder::new()
        .title("Greenroom")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(License::new(env!("CARGO_PKG_LICENSE"))));
    let tags = TAGS.map(|(name, description)| {
        TagBuilder::new().name(name).description(Some(description)).build()
    });
    let none: [&str; 0] = [];
    OpenApiBuilder::new()
        .info(info.build())
        .paths(paths.build())
        .components(Some(components.build()))
        .tags(Some(tags))
        .security(Some(["bearer", "cookie"].map(|name| SecurityRequirement::new(name, none))))
        .build()
}

fn method(endpoint: &Endpoint) -> HttpMethod {
    match endpoint.method.as_str() {
        "POST" => HttpMethod::Post,
        "PATCH" => HttpMethod::Patch,
        "PUT" => HttpMethod::Put,
        "DELETE" => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}
