//! What stands at a path: one value has both the route and what `/openapi.json` says of it, so that
//! neither is without the other. Each resource lists its own; [`super::openapi`] makes the document
//! of them, and [`super::configure`] the routes.

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

/// A method at a path.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    pub(super) method: Method,
    pub(super) route: Route,
    /// What its description refers to.
    pub(super) schemas: Schemas,
    operation: Operation,
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
        let mut operation = OperationBuilder::new();
        let mut problems: BTreeSet<_> = problem_codes::OF_EVERYTHING.into();
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')) {
            let name = name.trim_end_matches('}');
            operation = operation.parameter(path_parameter(name));
            if name.ends_with("_id") {
                problems.insert("invalid_id");
            }
        }
        let route = web::method(method.clone()).to(handler);
        let (operation, schemas) = (operation.build(), Vec::new());
        Self { path, method, route, schemas, operation, problems, is_open: false }
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

    /// Its name in generated clients, and what it does in one line.
    pub(super) fn named(mut self, name: &str, summary: &str) -> Self {
        self.operation.operation_id = Some(name.to_owned());
        self.operation.summary = Some(summary.to_owned());
        self
    }

    /// What there is to know beyond that.
    pub(super) fn explained(mut self, description: &str) -> Self {
        self.operation.description = Some(description.to_owned());
        self
    }

    /// Its query.
    pub(super) fn query<Q: IntoParams>(mut self) -> Self {
        for parameter in Q::into_params(|| Some(ParameterIn::Query)) {
            self = self.parameter(parameter);
        }
        self.problems(&["invalid_query"])
    }

    /// How much the parameter of that name may be: what it is where nothing is said, and at most.
    pub(super) fn at_most(mut self, name: &str, (default, max): (usize, usize)) -> Self {
        let schema = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(max))
            .default(Some(default.into()))
            .build();
        for parameter in self.operation.parameters.iter_mut().flatten() {
            if let RefOr::T(parameter) = parameter
                && parameter.name == name
            {
                parameter.schema = Some(schema.clone().into());
            }
        }
        self
    }

    /// A header that it looks at.
    pub(super) fn header(self, name: &str, description: &str) -> Self {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some(description))
            .schema(Some(text));
        self.parameter(parameter.build())
    }

    fn parameter(mut self, parameter: Parameter) -> Self {
        self.operation.parameters.get_or_insert_default().push(parameter.into());
        self
    }

    /// Its JSON body. Where nothing of it is required it may be left out.
    pub(super) fn body<B: ToSchema>(mut self) -> Self {
        let required = match B::schema() {
            RefOr::T(Schema::Object(object)) if object.required.is_empty() => Required::False,
            RefOr::T(_) | RefOr::Ref(_) => Required::True,
        };
        let content = ContentBuilder::new().schema(Some(self.reference::<B>())).build();
        let body = RequestBodyBuilder::new().content(JSON, content).required(Some(required));
        self.operation.request_body = Some(body.build().into());
        self.problems(problem_codes::OF_BODIES)
    }

    /// 200 with that JSON.
    pub(super) fn answers<A: ToSchema>(self, description: &str) -> Self {
        self.answers_with::<A>(200, description)
    }

    /// That status with that JSON.
    pub(super) fn answers_with<A: ToSchema>(mut self, status: u16, description: &str) -> Self {
        let content = ContentBuilder::new().schema(Some(self.reference::<A>())).build();
        self.answer(status, description, Some((JSON, content)))
    }

    /// 200 with that text.
    pub(super) fn answers_text(self, content_type: &str, description: &str) -> Self {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let content = ContentBuilder::new().schema(Some(text)).build();
        self.answer(200, description, Some((content_type, content)))
    }

    /// 200 with a file.
    pub(super) fn answers_bytes(self, description: &str) -> Self {
        self.answer(200, description, Some(("*/*", Content::default())))
    }

    /// 200 with a text whose parts are JSON of that kind: lines, or events.
    pub(super) fn streams<A: ToSchema>(mut self, content_type: &str, description: &str) -> Self {
        let part = self.reference::<A>();
        // What OpenAPI 3.2 calls `itemSchema`.
        let extension = utoipa::openapi::extensions::ExtensionsBuilder::new();
        let extension = extension.add("x-item-schema", serde_json::json!(part)).build();
        let text = ObjectBuilder::new().schema_type(Type::String).description(Some(description));
        let content = ContentBuilder::new().schema(Some(text)).extensions(Some(extension)).build();
        self.answer(200, description, Some((content_type, content)))
    }

    /// A status without a body.
    pub(super) fn answers_nothing(self, status: u16, description: &str) -> Self {
        self.answer(status, description, None)
    }

    /// A status by which the connection becomes a WebSocket.
    pub(super) fn upgrades(self, description: &str) -> Self {
        self.answer(101, description, None).problems(&["websocket_required"])
    }

    fn answer(mut self, status: u16, description: &str, body: Option<(&str, Content)>) -> Self {
        let responses = &mut self.operation.responses.responses;
        let answer = responses.entry(status.to_string());
        let answer = answer.or_insert_with(|| Response::new(description).into());
        if let (RefOr::T(answer), Some((content_type, content))) = (answer, body) {
            answer.content.insert(content_type.to_owned(), content.into());
        }
        self
    }

    /// What may go wrong, beyond what may with everything of its kind.
    pub(super) fn problems(mut self, codes: &[&'static str]) -> Self {
        self.problems.extend(codes);
        self
    }

    /// It needs no credential.
    pub(super) fn open(mut self) -> Self {
        self.is_open = true;
        self
    }

    /// The path without what only the router understands.
    pub(super) fn documented_path(&self) -> String {
        self.path.replace(":.+}", "}")
    }

    /// What the document says of it.
    pub(super) fn operation(&self, tag: &str) -> Operation {
        let mut operation = self.operation.clone();
        operation.tags = Some(vec![tag.to_owned()]);
        let mut problems = self.problems.clone();
        if self.is_open {
            operation.security = Some(Vec::<SecurityRequirement>::new());
        } else {
            problems.extend(problem_codes::OF_THE_DOOR);
        }
        for (status, response) in problem_codes::responses(&problems) {
            operation.responses.responses.entry(status).or_insert(response.into());
        }
        operation
    }

    /// A reference to the schema, which is put among the others.
    fn reference<T: ToSchema>(&mut self) -> RefOr<Schema> {
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
pub(super) fn extended<T: PartialSchema>(more: ObjectBuilder) -> RefOr<Schema> {
    let mut schema = T::schema();
    let more = more.build();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.properties.extend(more.properties);
        object.required.extend(more.required);
    }
    schema
}
