//! What stands at a path: one value has both the route and what `/openapi.json` says of it, so that
//! neither is without the other. Each resource lists its own; [`super::openapi`] makes the document
//! of them when it is first asked for, and [`super::configure`] the routes.

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

/// A JSON answer or body.
const JSON: &str = "application/json";
/// Frames as they come.
pub(super) const EVENT_STREAM: &str = "text/event-stream";
/// A line of JSON for each thing.
pub(super) const JSON_LINES: &str = "application/jsonl";
/// Where a browser says how far it read.
pub(super) const LAST_EVENT_ID: &str = "Last-Event-ID";
/// What stands for `message_id`.
pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// The span of a trace that a request is sent in.
pub(super) const TRACEPARENT: &str = "traceparent";
/// Schemas that others refer to, by name.
pub(super) type Schemas = Vec<(String, RefOr<Schema>)>;

/// Says something of an endpoint.
type DescribeFn = Box<dyn FnOnce(&mut EndpointDescription)>;

/// A method at a path.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    pub(super) method: Method,
    pub(super) route: Route,
    /// What there is to say of it. Said only where somebody wants to know: every thread makes routes
    /// when it starts, and schemas are large.
    description_steps: Vec<DescribeFn>,
}

/// What the document says of an endpoint.
pub(super) struct EndpointDescription {
    operation: Operation,
    /// What it refers to.
    pub(super) schemas: Schemas,
    problems: BTreeSet<&'static str>,
    /// Whether it needs no credential.
    is_open: bool,
}

impl Endpoint {
    /// A method at a path, with the path's own parameters.
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

    fn describe_with(mut self, what: impl FnOnce(&mut EndpointDescription) + 'static) -> Self {
        self.description_steps.push(Box::new(what));
        self
    }

    /// Its name in generated clients, and what it does in one line.
    pub(super) fn operation(self, name: &'static str, summary: &'static str) -> Self {
        self.describe_with(move |it| {
            it.operation.operation_id = Some(name.to_owned());
            it.operation.summary = Some(summary.to_owned());
        })
    }

    /// What there is to know beyond that.
    pub(super) fn description(self, description: &'static str) -> Self {
        self.describe_with(move |it| it.operation.description = Some(description.to_owned()))
    }

    /// Its query.
    pub(super) fn query<Q: IntoParams>(self) -> Self {
        self.describe_with(|it| {
            for parameter in Q::into_params(|| Some(ParameterIn::Query)) {
                it.parameter(parameter);
            }
        })
        .problems(&["invalid_query"])
    }

    /// How much the parameter of that name may be: what it is where nothing is said, and at most.
    pub(super) fn limit_param(self, name: &'static str, (default, max): (usize, usize)) -> Self {
        self.describe_with(move |it| {
            let schema = ObjectBuilder::new()
                .schema_type(Type::Integer)
                .minimum(Some(1))
                .maximum(Some(max))
                .default(Some(default.into()))
                .build();
            for parameter in it.operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter
                    && parameter.name == name
                {
                    parameter.schema = Some(schema.clone().into());
                }
            }
        })
    }

    /// A header that it looks at.
    pub(super) fn header(self, name: &'static str, description: &'static str) -> Self {
        self.describe_with(move |it| {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let parameter = ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Header)
                .required(Required::False)
                .description(Some(description))
                .schema(Some(text));
            it.parameter(parameter.build());
        })
    }

    /// Its JSON body. Where nothing of it is required it may be left out.
    pub(super) fn body<B: ToSchema>(self) -> Self {
        self.describe_with(|it| {
            let required = match B::schema() {
                RefOr::T(Schema::Object(object)) if object.required.is_empty() => Required::False,
                RefOr::T(_) | RefOr::Ref(_) => Required::True,
            };
            let content = ContentBuilder::new().schema(Some(it.schema_ref::<B>())).build();
            let body = RequestBodyBuilder::new().content(JSON, content).required(Some(required));
            it.operation.request_body = Some(body.build().into());
        })
        .problems(problem_codes::BODY_PROBLEMS)
    }

    /// 200 with that JSON.
    pub(super) fn returns<A: ToSchema>(self, description: &'static str) -> Self {
        self.returns_with_status::<A>(200, description)
    }

    /// That status with that JSON.
    pub(super) fn returns_with_status<A: ToSchema>(
        self,
        status: u16,
        description: &'static str,
    ) -> Self {
        self.describe_with(move |it| {
            let content = ContentBuilder::new().schema(Some(it.schema_ref::<A>())).build();
            it.add_response(status, description, Some((JSON, content)));
        })
    }

    /// 200 with that text.
    pub(super) fn returns_text(
        self,
        content_type: &'static str,
        description: &'static str,
    ) -> Self {
        self.describe_with(move |it| {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let content = ContentBuilder::new().schema(Some(text)).build();
            it.add_response(200, description, Some((content_type, content)));
        })
    }

    /// 200 with a file.
    pub(super) fn returns_bytes(self, description: &'static str) -> Self {
        self.describe_with(move |it| {
            it.add_response(200, description, Some(("*/*", Content::default())))
        })
    }

    /// 200 with a text whose parts are JSON of that kind: lines, or events.
    pub(super) fn returns_stream<A: ToSchema>(
        self,
        content_type: &'static str,
        description: &'static str,
    ) -> Self {
        self.describe_with(move |it| {
            let part = it.schema_ref::<A>();
            // What OpenAPI 3.2 calls `itemSchema`.
            let extension = utoipa::openapi::extensions::ExtensionsBuilder::new();
            let extension = extension.add("x-item-schema", serde_json::json!(part)).build();
            let text = ObjectBuilder::new().schema_type(Type::String);
            let text = text.description(Some(description));
            let content = ContentBuilder::new().schema(Some(text)).extensions(Some(extension));
            it.add_response(200, description, Some((content_type, content.build())));
        })
    }

    /// A status without a body.
    pub(super) fn returns_empty(self, status: u16, description: &'static str) -> Self {
        self.describe_with(move |it| it.add_response(status, description, None))
    }

    /// A status by which the connection becomes a WebSocket.
    pub(super) fn upgrades_to_websocket(self, description: &'static str) -> Self {
        self.returns_empty(101, description).problems(&["websocket_required"])
    }

    /// What may go wrong, beyond what may with everything of its kind.
    pub(super) fn problems(self, codes: &'static [&'static str]) -> Self {
        self.describe_with(move |it| it.problems.extend(codes))
    }

    /// It needs no credential.
    pub(super) fn public(self) -> Self {
        self.describe_with(|it| it.is_open = true)
    }

    /// The path without what only the router understands.
    pub(super) fn documented_path(&self) -> String {
        self.path.replace(":.+}", "}")
    }

    /// What the document says of it.
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
        self.description_steps.into_iter().for_each(|say| say(&mut description));
        description
    }
}

impl EndpointDescription {
    /// What it says of the operation itself.
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
        let answer = responses.entry(status.to_string());
        let answer = answer.or_insert_with(|| Response::new(description).into());
        if let (RefOr::T(answer), Some((content_type, content))) = (answer, body) {
            answer.content.insert(content_type.to_owned(), content.into());
        }
    }

    /// A reference to the schema, which is put among the others.
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

/// The schema of an object with the properties of `T` and these.
pub(super) fn extend_schema<T: PartialSchema>(more: ObjectBuilder) -> RefOr<Schema> {
    let mut schema = T::schema();
    let more = more.build();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.properties.extend(more.properties);
        object.required.extend(more.required);
    }
    schema
}
