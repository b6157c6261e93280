//! `GET /openapi.json`: what can be asked of this server, made of the [`Endpoint`]s that its routes
//! are made of; and `GET /docs`, a page to read it and to try it. Both need no credential: they say
//! nothing that this source does not. What is tried on the page needs one.

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

/// What stands before all operations.
const DESCRIPTION: &str = "Sessions of people with language-model agents: every change of a session \
    is an event in a durable log, tools run under a policy, and questions wait for people. \
    Errors are `application/problem+json` with a stable `code`. Ids are UUIDs; times are RFC 3339 with \
    milliseconds. Streams (`text/event-stream`) have one JSON object in each `data:` line, and are \
    resumed by `Last-Event-ID`. `docs/protocol.md` in the repository describes the frames of \
    streams and WebSockets, and the dialects.";

/// What the tags mean, in the order of the page.
const TAGS: [(&str, &str); 8] = [
    ("sessions", "Conversations of a user with an agent."),
    ("chat", "Messages, and the runs that answer them."),
    ("approvals", "Questions to people, and their answers."),
    ("agents", "What there is to choose from, the policy, and a user's settings."),
    ("quality", "Feedback, statistics and export."),
    ("websockets", "Any number of sessions on one connection."),
    ("administration", "Live actors, everybody's events, keys and the audit log."),
    ("operations", "Whether the server lives, what it counts, and this document."),
];

/// The page: a few lines around the vendored files of Swagger UI.
const DOCS_PAGE: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
    <title>Greenroom: HTTP API</title><meta name=\"viewport\" content=\"width=device-width\">\
    <link rel=\"icon\" href=\"docs/favicon-32x32.png\">\
    <link rel=\"stylesheet\" href=\"docs/swagger-ui.css\"></head><body><div id=\"api\"></div>\
    <script src=\"docs/swagger-ui-bundle.js\"></script><script src=\"docs/start.js\"></script>\
    </body></html>\n";
/// What starts it. Nobody else's validator hears of the document.
const DOCS_SCRIPT: &str = "SwaggerUIBundle({url: 'openapi.json', dom_id: '#api', deepLinking: true, \
    validatorUrl: null, docExpansion: 'list', defaultModelsExpandDepth: 0});\n";
/// Only our own files run or load.
const DOCS_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The files of Swagger UI that the page needs.
const FILES: [&str; 3] = ["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"];
/// For files that change with the binary.
const CACHE_ONE_DAY: &str = "public, max-age=86400";

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/openapi.json", read)
            .operation("openapi", "This document.")
            .returns::<OpenApiDocument>("An OpenAPI 3.1 document")
            .public(),
        Endpoint::get("/docs", page)
            .operation("docs", "A page to read this document, and to try it.")
            .returns_text("text/html", "The page")
            .public(),
        Endpoint::get("/docs/{file}", file)
            .operation("docs_file", "A file of that page.")
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
    let missing = || Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no such file");
    let known = FILES.contains(&name).then(|| Arc::new(utoipa_swagger_ui::Config::from("")));
    let found = utoipa_swagger_ui::serve(name, known.ok_or_else(missing)?);
    let found = found.ok().flatten().ok_or_else(missing)?;
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::CONTENT_TYPE, found.content_type));
    Ok(dashboard::with_security_headers(&mut answer, DOCS_CSP, CACHE_ONE_DAY)
        .body(found.bytes.into_owned()))
}

fn static_response(kind: &'static str, caching: &'static str, text: &'static str) -> HttpResponse {
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::CONTENT_TYPE, kind));
    dashboard::with_security_headers(&mut answer, DOCS_CSP, caching).body(text)
}

/// The document of all that [`super::endpoints`] lists.
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
        "DELETE" => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}
