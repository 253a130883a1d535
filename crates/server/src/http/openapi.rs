//! The description of all this, `/openapi.json`: made of the types, and finished here with what all operations share.

use abide::model::{CommandStatus, Key, Liveness, Name, Status, Target, WaitKind};
use std::collections::BTreeSet;

use axum::routing::get;
use axum::{Json, Router};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, Content, ContentBuilder, Info, License, OpenApi, Ref, RefOr, Required, Response,
    ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use super::Problem;
use super::dto::IdempotencyKeyText;
use super::waits::AwaitedKind;

/// The name of the only security scheme.
const TOKEN: &str = "token";
const PROBLEM_JSON: &str = "application/problem+json";

/// The responses that operations share: the status, the operations it applies to, and its meaning.
const SHARED: [(&str, Applies, &str); 13] = [
    ("400", Applies::All, "The request is malformed."),
    ("401", Applies::Guarded, "The token is missing or unknown."),
    (
        "403",
        Applies::Guarded,
        "The role of the token does not allow this.",
    ),
    (
        "404",
        Applies::Resources,
        "No instance, graph or other resource has that id, key or name.",
    ),
    ("408", Applies::Bodies, "The body did not arrive in time."),
    (
        "409",
        Applies::Writes,
        "Refused in the current state: `outcome` and `reason` say why.",
    ),
    (
        "413",
        Applies::Bodies,
        "The body, or something in it, is over its `limit`.",
    ),
    (
        "415",
        Applies::Bodies,
        "The content type of the body is not JSON.",
    ),
    (
        "421",
        Applies::Guarded,
        "The server requires no token and answers only to the names of its own machine, and the request names another host.",
    ),
    (
        "422",
        Applies::Inputs,
        "The request is valid JSON, but a field or a combination of fields is invalid.",
    ),
    ("500", Applies::All, "The server, or its store, is broken."),
    (
        "503",
        Applies::All,
        "The server is full, stops, or cannot reach its store. When the `type` is `/problems/unavailable` nothing was written: \
         try again later.",
    ),
    (
        "504",
        Applies::Writes,
        "It is unknown whether the request was carried out: retry it if it has an idempotency key, otherwise check first.",
    ),
];

/// The operations that a response applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Applies {
    All,
    /// Operations that may require a token.
    Guarded,
    /// Operations whose path or query names a resource.
    Resources,
    /// Operations that take a body.
    Bodies,
    /// Operations that write.
    Writes,
    /// Operations that take any input.
    Inputs,
}

/// Completes the description: the title, the licence, the security scheme, and the responses that all operations share.
pub fn finished(mut api: OpenApi) -> OpenApi {
    let mut info = Info::new("abide", env!("CARGO_PKG_VERSION"));
    info.description = Some(
        "Durable execution over HTTP. Every write is durable when its answer comes. Errors are `application/problem+json`. \
         Unknown fields are refused. Times are RFC 3339."
            .to_owned(),
    );
    info.license = Some(License::new("MIT OR Apache-2.0"));
    api.info = info;
    api.security = Some(vec![
        SecurityRequirement::new(TOKEN, Vec::<String>::new()),
        // A server on loopback may want none.
        SecurityRequirement::default(),
    ]);
    let components = api.components.get_or_insert_with(Components::default);
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components
        .security_schemes
        .insert(TOKEN.to_owned(), RefOr::T(bearer));
    components
        .schemas
        .insert(Problem::name().into_owned(), Problem::schema());
    // Schemas that only parameters refer to are not found automatically.
    insert::<Name>(components);
    insert::<Key>(components);
    insert::<IdempotencyKeyText>(components);
    insert::<Target>(components);
    insert::<Status>(components);
    insert::<WaitKind>(components);
    insert::<CommandStatus>(components);
    insert::<Liveness>(components);
    insert::<AwaitedKind>(components);
    let bare = bare(components);
    for (path, item) in &mut api.paths.paths {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
        ];
        for operation in operations.into_iter().flatten() {
            share(path, operation);
            if is_write(path, operation) {
                let parameters = operation.parameters.get_or_insert_with(Vec::new);
                parameters.push(RefOr::T(idempotency_key()));
            }
            if let Some(RefOr::T(body)) = &mut operation.request_body
                && body.content.values().all(|content| is_of(content, &bare))
            {
                // An empty body reads as `{}`.
                body.required = Some(Required::False);
            }
        }
    }
    api
}

fn insert<T: ToSchema>(components: &mut Components) {
    components
        .schemas
        .insert(T::name().into_owned(), T::schema());
}

/// The schemas that want no field.
fn bare(components: &Components) -> BTreeSet<String> {
    let wants_none = |schema: &RefOr<Schema>| matches!(schema, RefOr::T(Schema::Object(object)) if object.required.is_empty());
    let schemas = components
        .schemas
        .iter()
        .filter(|(_, schema)| wants_none(schema));
    schemas
        .map(|(name, _)| format!("#/components/schemas/{name}"))
        .collect()
}

/// `true` if a body has one of these schemas.
fn is_of(content: &RefOr<Content>, schemas: &BTreeSet<String>) -> bool {
    let RefOr::T(content) = content else {
        return false;
    };
    matches!(&content.schema, Some(RefOr::Ref(of)) if schemas.contains(&of.ref_location))
}

/// `true` if an operation is carried out once under a key. Requests of workers are recognised by their claim.
fn is_write(path: &str, operation: &Operation) -> bool {
    let kept = ["/v1/workers/", "/v1/hooks/"].iter();
    operation.request_body.is_some() && !kept.into_iter().any(|kept| path.starts_with(kept))
}

fn idempotency_key() -> Parameter {
    ParameterBuilder::new()
        .name(super::once::KEY.as_str())
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "A key of the caller's own, 1 to 255 characters. The same request under the same key is carried out once within 24 \
             hours, and answered alike, with `idempotent-replayed: true`; another request under it is refused with 409. The field \
             `request_id` of the body does the same, but for updates, where it has a meaning of its own.",
        ))
        .schema(Some(Ref::from_schema_name(IdempotencyKeyText::name())))
        .build()
}

/// Adds the parts that an operation does not declare itself.
fn share(path: &str, operation: &mut Operation) {
    let open = operation
        .security
        .as_ref()
        .is_some_and(|needs| needs.iter().all(is_nothing));
    let takes_body = operation.request_body.is_some();
    let takes = takes_body
        || operation
            .parameters
            .as_ref()
            .is_some_and(|parameters| !parameters.is_empty());
    for (status, applies, description) in SHARED {
        let fits = match applies {
            Applies::All => !open,
            Applies::Guarded => !open,
            Applies::Resources => path.contains('{') || takes,
            Applies::Bodies | Applies::Writes => takes_body,
            Applies::Inputs => takes,
        };
        if fits && !operation.responses.responses.contains_key(status) {
            operation
                .responses
                .responses
                .insert(status.to_owned(), RefOr::T(problem(description)));
        }
    }
}

fn is_nothing(requirement: &SecurityRequirement) -> bool {
    *requirement == SecurityRequirement::default()
}

fn problem(description: &str) -> Response {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(Problem::name())))
        .build();
    ResponseBuilder::new()
        .description(description)
        .content(PROBLEM_JSON, content)
        .build()
}

/// Serves the description.
pub fn serve<S: Clone + Send + Sync + 'static>(api: OpenApi) -> Router<S> {
    let api = std::sync::Arc::new(api);
    Router::new().route(
        "/openapi.json",
        get(async move || Json(api.as_ref().clone())),
    )
}
