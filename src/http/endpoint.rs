//! Endpoints: one value contains the route and its OpenAPI description, so that neither exists
//! without the other.
//!
//! Each resource lists its endpoints. [`super::openapi`] builds the document from them when it is
//! first requested, and [`super::configure`] registers the routes.

use super::problem_codes;
use actix_web::{FromRequest, Handler, Responder, Route, http::Method, web};
use std::collections::BTreeSet;
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{
        Content, ContentBuilder, ObjectBuilder, Ref, RefOr, Required, Response, Schema,
        SchemaFormat, Type,
        path::{Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        security::SecurityRequirement,
    },
};

/// Content type of JSON requests and responses.
const JSON: &str = "application/json";
/// Content type of server-sent events.
pub(super) const EVENT_STREAM: &str = "text/event-stream";
/// Content type of JSON lines.
pub(super) const JSON_LINES: &str = "application/jsonl";
/// The header with the cursor from which a browser resumes a stream.
pub(super) const LAST_EVENT_ID: &str = "Last-Event-ID";
/// The header that replaces `message_id`.
pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// The W3C header with the trace context of a request.
pub(super) const TRACEPARENT: &str = "traceparent";
/// Named schemas that other schemas refer to.
pub(super) type Schemas = Vec<(String, RefOr<Schema>)>;

/// A step that adds to the description of an endpoint.
type DescribeFn = Box<dyn FnOnce(&mut EndpointDescription)>;

/// A method of a path: its route and its description.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    pub(super) method: Method,
    pub(super) route: Route,
    /// Builds the description. Runs only for `/openapi.json`: every worker thread creates the
    /// routes at start, and schemas are large.
    description_steps: Vec<DescribeFn>,
}

/// The OpenAPI description of an endpoint.
pub(super) struct EndpointDescription {
    operation: Operation,
    /// The schemas that the operation refers to.
    pub(super) schemas: Schemas,
    problems: BTreeSet<&'static str>,
    /// True if the endpoint needs no credential.
    is_open: bool,
}

impl Endpoint {
    /// Creates an endpoint. The description contains the parameters of the path.
    pub(super) fn new<F, Args>(method: Method, path: &'static str, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        let route = web::method(method.clone()).to(handler);
        Self { path, method, route, description_steps: Vec::new() }
    }

    pub(super) fn get<F, Args>(path: &'static str, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        Self::new(Method::GET, path, handler)
    }

    pub(super) fn post<F, Args>(path: &'static str, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        Self::new(Method::POST, path, handler)
    }

    fn describe_with(mut self, step: impl FnOnce(&mut EndpointDescription) + 'static) -> Self {
        self.description_steps.push(Box::new(step));
        self
    }

    /// Sets the operation id, which names the operation in generated clients, and the summary.
    pub(super) fn operation(self, name: &'static str, summary: &'static str) -> Self {
        self.describe_with(move |endpoint| {
            endpoint.operation.operation_id = Some(name.to_owned());
            endpoint.operation.summary = Some(summary.to_owned());
        })
    }

    /// Sets the description.
    pub(super) fn description(self, description: &'static str) -> Self {
        self.describe_with(move |endpoint| {
            endpoint.operation.description = Some(description.to_owned());
        })
    }

    /// Adds the query parameters of `Q`.
    pub(super) fn query<Q: IntoParams>(self) -> Self {
        self.describe_with(|endpoint| {
            for parameter in Q::into_params(|| Some(ParameterIn::Query)) {
                endpoint.parameter(parameter);
            }
        })
        .problems(&["invalid_query"])
    }

    /// Sets default and maximum of the integer parameter `name`.
    pub(super) fn limit_param(self, name: &'static str, (default, max): (usize, usize)) -> Self {
        self.describe_with(move |endpoint| {
            let schema = ObjectBuilder::new()
                .schema_type(Type::Integer)
                .minimum(Some(1))
                .maximum(Some(max))
                .default(Some(default.into()))
                .build();
            for parameter in endpoint.operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter
                    && parameter.name == name
                {
                    parameter.schema = Some(schema.clone().into());
                }
            }
        })
    }

    /// Adds an optional request header.
    pub(super) fn header(self, name: &'static str, description: &'static str) -> Self {
        self.describe_with(move |endpoint| {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let parameter = ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Header)
                .required(Required::False)
                .description(Some(description))
                .schema(Some(text));
            endpoint.parameter(parameter.build());
        })
    }

    /// Adds a JSON body. The body is optional if none of its fields is required.
    pub(super) fn body<B: ToSchema>(self) -> Self {
        self.describe_with(|endpoint| {
            let required = match B::schema() {
                RefOr::T(Schema::Object(object)) if object.required.is_empty() => Required::False,
                RefOr::T(_) | RefOr::Ref(_) => Required::True,
            };
            let schema = endpoint.schema_ref::<B>();
            let content = ContentBuilder::new().schema(Some(schema)).build();
            let body = RequestBodyBuilder::new().content(JSON, content).required(Some(required));
            endpoint.operation.request_body = Some(body.build().into());
        })
        .problems(problem_codes::BODY_PROBLEMS)
    }

    /// Adds the response 200 with a JSON body.
    pub(super) fn returns<A: ToSchema>(self, description: &'static str) -> Self {
        self.returns_with_status::<A>(200, description)
    }

    /// Adds the response `status` with a JSON body.
    pub(super) fn returns_with_status<A: ToSchema>(
        self,
        status: u16,
        description: &'static str,
    ) -> Self {
        self.describe_with(move |endpoint| {
            let schema = endpoint.schema_ref::<A>();
            let content = ContentBuilder::new().schema(Some(schema)).build();
            endpoint.add_response(status, description, Some((JSON, content)));
        })
    }

    /// Adds the response 200 with a text body.
    pub(super) fn returns_text(
        self,
        content_type: &'static str,
        description: &'static str,
    ) -> Self {
        self.describe_with(move |endpoint| {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let content = ContentBuilder::new().schema(Some(text)).build();
            endpoint.add_response(200, description, Some((content_type, content)));
        })
    }

    /// Adds the response 200 with a file of any content type.
    pub(super) fn returns_bytes(self, description: &'static str) -> Self {
        self.describe_with(move |endpoint| {
            endpoint.add_response(200, description, Some(("*/*", Content::default())))
        })
    }

    /// Adds the response 200 with a stream of JSON items of type `A`, as lines or events.
    pub(super) fn returns_stream<A: ToSchema>(
        self,
        content_type: &'static str,
        description: &'static str,
    ) -> Self {
        self.describe_with(move |endpoint| {
            let part = endpoint.schema_ref::<A>();
            // Corresponds to `itemSchema` of OpenAPI 3.2.
            let extension = utoipa::openapi::extensions::ExtensionsBuilder::new();
            let extension = extension.add("x-item-schema", serde_json::json!(part)).build();
            let text = ObjectBuilder::new().schema_type(Type::String);
            let text = text.description(Some(description));
            let content = ContentBuilder::new().schema(Some(text)).extensions(Some(extension));
            endpoint.add_response(200, description, Some((content_type, content.build())));
        })
    }

    /// Adds the response `status` without a body.
    pub(super) fn returns_empty(self, status: u16, description: &'static str) -> Self {
        self.describe_with(move |endpoint| endpoint.add_response(status, description, None))
    }

    /// Adds the response 101, which upgrades the connection to a WebSocket.
    pub(super) fn upgrades_to_websocket(self, description: &'static str) -> Self {
        self.returns_empty(101, description).problems(&["websocket_required"])
    }

    /// Adds codes of problems to those that every endpoint of its kind has.
    pub(super) fn problems(self, codes: &'static [&'static str]) -> Self {
        self.describe_with(move |endpoint| endpoint.problems.extend(codes))
    }

    /// Marks the endpoint as needing no credential.
    pub(super) fn public(self) -> Self {
        self.describe_with(|endpoint| endpoint.is_open = true)
    }

    /// Returns the path without the patterns of actix's router.
    pub(super) fn documented_path(&self) -> String {
        self.path.replace(":.+}", "}")
    }

    /// Returns the OpenAPI description.
    pub(super) fn describe(self) -> EndpointDescription {
        let mut operation = OperationBuilder::new();
        let mut problems: BTreeSet<_> = problem_codes::COMMON_PROBLEMS.into();
        for name in self.path.split('/').filter_map(|part| part.strip_prefix('{')) {
            let name = name.trim_end_matches('}');
            operation = operation.parameter(path_parameter(name));
            if name.ends_with("_id") {
                problems.insert("invalid_id");
            }
        }
        let (operation, schemas) = (operation.build(), Vec::new());
        let mut description = EndpointDescription { operation, schemas, problems, is_open: false };
        self.description_steps.into_iter().for_each(|step| step(&mut description));
        description
    }
}

impl EndpointDescription {
    /// Returns the OpenAPI operation with `tag` and the responses for its problems.
    pub(super) fn into_operation(self, tag: &str) -> Operation {
        let Self { mut operation, mut problems, is_open, .. } = self;
        operation.tags = Some(vec![tag.to_owned()]);
        if is_open {
            operation.security = Some(Vec::<SecurityRequirement>::new());
        } else {
            problems.extend(problem_codes::ACCESS_PROBLEMS);
        }
        for (status, response) in problem_codes::responses(&problems) {
            operation.responses.responses.entry(status).or_insert(response.into());
        }
        operation
    }

    fn parameter(&mut self, parameter: Parameter) {
        self.operation.parameters.get_or_insert_default().push(parameter.into());
    }

    fn add_response(&mut self, status: u16, description: &str, body: Option<(&str, Content)>) {
        let responses = &mut self.operation.responses.responses;
        let response = responses.entry(status.to_string());
        let response = response.or_insert_with(|| Response::new(description).into());
        if let (RefOr::T(response), Some((content_type, content))) = (response, body) {
            response.content.insert(content_type.to_owned(), content.into());
        }
    }

    /// Adds the schema of `T` and returns a reference to it.
    fn schema_ref<T: ToSchema>(&mut self) -> RefOr<Schema> {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(&mut self.schemas);
        Ref::from_schema_name(T::name()).into()
    }
}

fn path_parameter(name: &str) -> Parameter {
    let (name, schema) = match name.strip_suffix(":.+") {
        Some(name) => (name, ObjectBuilder::new().schema_type(Type::String)),
        None if name.ends_with("_id") => {
            let uuid = SchemaFormat::Custom("uuid".to_owned());
            (name, ObjectBuilder::new().schema_type(Type::String).format(Some(uuid)))
        }
        None => (name, ObjectBuilder::new().schema_type(Type::String)),
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(schema))
        .build()
}

/// Returns the schema of an object with the properties of `T` and of `additional`.
pub(super) fn extend_schema<T: PartialSchema>(additional: ObjectBuilder) -> RefOr<Schema> {
    let mut schema = T::schema();
    let additional = additional.build();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.properties.extend(additional.properties);
        object.required.extend(additional.required);
    }
    schema
}
