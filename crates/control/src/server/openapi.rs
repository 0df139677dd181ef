//! The `OpenAPI` 3.1 document, generated from the handlers and types.

use super::access::{Access, Kind, RULES, Rule};
use super::extract::IDEMPOTENCY_KEY;
use super::problem::problem;
use super::revisions::NEWEST;
use super::{
    App, ask, audit, events, faults, guarantees, hose_keys, hosts, machines, map, metrics, page,
    quota, report_times, scheduling, status, tenants, token_requests, topology,
};
use axum::Json;
use std::sync::Arc;
use tailbound_api::Problem;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, RefOr, Required};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The security scheme's name.
const BEARER: &str = "token";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "tailbound placement service",
        description = "Admits tenants into a data centre such that every guarantee of bandwidth \
            and delay holds in the worst case, and sends the guarantees to hosts. Quantities are \
            texts with a unit. Every error is a Problem (RFC 9457). A write with an \
            Idempotency-Key can be repeated: within 24 hours it is executed once and gets the \
            first answer again.",
    ),
    components(schemas(Problem)),
    tags(
        (name = "tenants", description = "Tenants and their guarantees"),
        (name = "scheduling", description = "Placements that an outside scheduler chooses"),
        (name = "questions", description = "Requests that would fit, and reasons for refusals"),
        (name = "hosts", description = "Hosts and their machines"),
        (name = "topology", description = "The tree of switches and hosts"),
        (name = "service", description = "The service itself"),
    ),
)]
struct Head;

/// Every route with its handler.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Head::openapi())
        .routes(routes!(tenants::create, tenants::list))
        .routes(routes!(tenants::get, tenants::change, tenants::delete))
        .routes(routes!(tenants::relocate))
        .routes(routes!(tenants::move_vm))
        .routes(routes!(tenants::limit))
        .routes(routes!(tenants::bound))
        .merge(scheduling::router())
        .merge(machines::router())
        .routes(routes!(ask::fit))
        .routes(routes!(ask::explain))
        .routes(routes!(hosts::list))
        .routes(routes!(hosts::get))
        .routes(routes!(hosts::drain))
        .routes(routes!(hosts::fail))
        .routes(routes!(hosts::restore))
        .routes(routes!(guarantees::get))
        .routes(routes!(guarantees::stream))
        .routes(routes!(hose_keys::get))
        .routes(routes!(report_times::report))
        .routes(routes!(events::stream))
        .routes(routes!(events::tenants))
        .routes(routes!(events::hosts))
        .routes(routes!(audit::stream))
        .routes(routes!(audit::list))
        .routes(routes!(quota::get))
        .routes(routes!(faults::list))
        .merge(token_requests::router())
        .routes(routes!(topology::get, topology::put))
        .routes(routes!(topology::diff))
        .routes(routes!(status::status))
        .routes(routes!(status::backup))
        .routes(routes!(status::healthz))
        .routes(routes!(status::readyz))
        .routes(routes!(metrics::metrics))
        .routes(routes!(openapi))
        .merge(map::router())
        .merge(page::router())
}

/// The document, in JSON.
pub fn document() -> utoipa::openapi::OpenApi {
    let (_, mut document) = routes().split_for_parts();
    env!("CARGO_PKG_VERSION").clone_into(&mut document.info.version);
    document
        .components
        .get_or_insert_with(Components::new)
        .add_security_scheme(
            BEARER,
            SecurityScheme::Http(
                HttpBuilder::new()
                    .scheme(HttpAuthScheme::Bearer)
                    .description(Some(
                        "A token of the tokens file, or an issued one. Not required with --insecure-loopback.",
                    ))
                    .build(),
            ),
        );
    for rule in RULES {
        let Some(item) = document.paths.paths.get_mut(rule.path) else {
            continue;
        };
        let operation = match rule.method {
            "GET" => item.get.as_mut(),
            "POST" => item.post.as_mut(),
            "PUT" => item.put.as_mut(),
            "PATCH" => item.patch.as_mut(),
            _ => item.delete.as_mut(),
        };
        if let Some(operation) = operation {
            amend(operation, rule);
        }
    }
    document
}

/// Adds roles and headers from the table to an operation.
fn amend(operation: &mut Operation, rule: &Rule) {
    let access_text = match rule.access {
        Access::Open => return,
        Access::Operator => "Operators only.",
        Access::Maintenance => "Operators and maintenance.",
        Access::Viewer => "Operators, maintenance and viewers.",
        Access::Metrics => "Operators, maintenance, viewers, and collectors of metrics.",
        Access::Tenant if rule.kind == Kind::Read => {
            "Operators, maintenance and viewers; tenants for their own objects."
        }
        Access::Tenant => "Operators; tenants for their own objects.",
        Access::Machine => "Operators; tenants for their own machines; a host for those on it.",
        Access::Host => "Operators; a host for itself.",
    };
    operation.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>(
        BEARER,
        [],
    )]);
    let text = operation.description.take().unwrap_or_default();
    operation.description = Some(format!("{text}\n\n{access_text}").trim().to_owned());
    let headers = operation.parameters.get_or_insert_default();
    if matches!(rule.kind, Kind::Write) {
        headers.push(header(
            IDEMPOTENCY_KEY.as_str(),
            "Repeated writes with the same key are executed once.",
            "^[!-~]([ -~]{0,126}[!-~])?$",
        ));
    }
    if rule.kind == Kind::Read && rule.has_revision() {
        headers.push(min_revision());
        for (status, text) in [
            ("409", "`future`: the service has not issued `min_revision`"),
            (
                "504",
                "`behind`: this replica did not reach `min_revision` in time",
            ),
        ] {
            let answers = &mut operation.responses.responses;
            let answer = answers.entry(status.to_owned());
            answer.or_insert_with(|| problem(text).into());
        }
    }
    if rule.method == "PUT" && rule.access != Access::Machine {
        headers.push(header(
            "if-match",
            "The ETag of what was read before; without it any revision is accepted.",
            "^([*]|[0-9]{1,19}|\"[0-9]{1,19}\")$",
        ));
    }
}

/// The parameter of queries that wait for a revision.
fn min_revision() -> RefOr<Parameter> {
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(format!("^([0-9]{{1,16}}|{NEWEST})$")));
    ParameterBuilder::new()
        .name("min_revision")
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(
            "Waits up to 5 s until the replica has this revision, which is in the header \
             Tailbound-Revision of an earlier answer. With `newest` the answer has all changes that \
             were done before the query, by any replica.",
        ))
        .schema(Some(schema))
        .build()
        .into()
}

/// A header that can be left out.
fn header(name: &str, description: &str, pattern: &str) -> RefOr<Parameter> {
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(pattern));
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .build()
        .into()
}

/// Returns this document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "service",
    responses((status = 200, description = "OpenAPI 3.1", body = Object))
)]
async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(document())
}
