//! Outside schedulers: placements that they choose, candidates, reservations, batches, adoption.

use super::App;
use super::extract::{Author, Body, By, Params, ReservationPath, TenantHost, Write};
use super::problem::{self, Absent, ApiError, Guarded, Outdated, Refused, Settled, Stored};
use super::tenants::{Limit, TenantWithTag, complete, own};
use super::trail;
use crate::ledger::{Call, Command, Ledger, Reply, adopt, candidates, reservations};
use crate::service::ServiceError;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailbound_api::{
    Adoption, AdoptionReport, Batch, BatchResult, CandidateAnswers, CandidateQuestions, Code,
    HostMachines, MAX_OPERATIONS, NewReservation, NewTenant, Operation, Page, Reservation,
    ReservationId, ReservationState, Tenant,
};
use tailbound_units::Nanos;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The interval of the search for reservations whose time to live has passed.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(put_host))
        .routes(routes!(ask))
        .routes(routes!(reserve, list))
        .routes(routes!(get, cancel))
        .routes(routes!(confirm))
        .routes(routes!(batch))
        .routes(routes!(adopt_running))
}

/// Cancels reservations at the end of their time to live, and keeps the audit's entries of refused
/// calls, as long as this task runs.
pub(super) async fn expire(app: Arc<App>) {
    loop {
        tokio::time::sleep(EXPIRY_INTERVAL).await;
        if let Err(error) = app.service.expire_reservations().await {
            tracing::warn!(%error, "reservations could not be cancelled; it is tried again");
        }
        if app.service.keep_refusals().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Sets the number of a tenant's machines on a host.
///
/// Machines of open reservations are not counted. A tenant without any other machine is deleted.
#[utoipa::path(
    put, path = "/v1/tenants/{id}/hosts/{host}", tag = "scheduling", operation_id = "put_machines",
    params(
        ("id" = u64, Path, description = "The tenant's number", maximum = 9_007_199_254_740_991_u64),
        ("host" = String, Path, description = "The host's name", example = "a-1"),
    ),
    request_body = HostMachines,
    responses(
        (status = 200, description = "The updated tenant", body = Tenant,
            headers(("ETag" = String, description = "The number of this change"))),
        (status = 204, description = "The tenant had no other machine, and is deleted"),
        Guarded, Absent, Outdated, problem::Body, Stored, Refused,
    )
)]
async fn put_host(
    State(app): State<Arc<App>>,
    TenantHost(id, host): TenantHost,
    Write { body, author }: Write<HostMachines>,
) -> Result<Response, ApiError> {
    let command = Command::PutHost {
        id,
        host,
        machines: body,
    };
    match app.decide(author, command).await? {
        Reply::Tenant(tenant) => Ok(TenantWithTag(app.with_standing(&tenant)).into_response()),
        Reply::Deleted => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(problem::unexpected(&other)),
    }
}

/// Returns a verdict, the refusing rule and the headroom of each host for more machines.
///
/// Nothing is changed. For a tenant, the verdict is that of a reservation. For a request without a
/// tenant the other machines' hosts are not known: only the host and its own link are checked.
#[utoipa::path(
    post, path = "/v1/candidates", tag = "scheduling", operation_id = "candidates",
    request_body = CandidateQuestions,
    responses(
        (status = 200, description = "The verdicts, all of one revision", body = CandidateAnswers),
        Guarded, Absent, problem::Body,
    )
)]
async fn ask(
    State(app): State<Arc<App>>,
    By(by): By,
    Body(questions): Body<CandidateQuestions>,
) -> Result<Json<CandidateAnswers>, ApiError> {
    let owner = by.owner().map(str::to_owned);
    let answer = app
        .ask(&by, move |service| {
            service.question(|ledger| candidates(ledger, owner.as_deref(), &questions))
        })
        .await?;
    Ok(Json(answer?))
}

/// Reserves machines on hosts for a time to live.
///
/// Reserved machines count in every guarantee and under the quota, and survive a change of the
/// leader. A tenant that does not exist is created with them. Each leader counts the time to live
/// anew, so a reservation lives at least its time to live.
#[utoipa::path(
    post, path = "/v1/reservations", tag = "scheduling", operation_id = "reserve",
    request_body = NewReservation,
    responses(
        (status = 201, description = "The reservation; it is durable", body = Reservation,
            headers(("Location" = String, description = "Its path"))),
        Guarded, Absent, problem::Body, Stored, Refused,
    )
)]
async fn reserve(
    State(app): State<Arc<App>>,
    Write { body, author }: Write<NewReservation>,
) -> Result<Response, ApiError> {
    let mut new = body;
    own(&author, &mut new.owner)?;
    let reply = app.decide(author, Command::Reserve(Box::new(new))).await?;
    let reservation = reservation(&app, reply)?;
    let path = format!("/v1/reservations/{}", reservation.id);
    Ok((StatusCode::CREATED, [(LOCATION, path)], Json(reservation)).into_response())
}

/// Makes the machines of a reservation part of the tenant. A repetition has the same answer.
#[utoipa::path(
    post, path = "/v1/reservations/{id}/confirm", tag = "scheduling",
    operation_id = "confirm_reservation",
    params(("id" = String, Path, description = "The reservation's number", pattern = "^[0-9]{1,19}$")),
    responses(
        (status = 200, description = "The confirmed reservation", body = Reservation),
        Guarded, Absent, Stored,
    )
)]
async fn confirm(
    State(app): State<Arc<App>>,
    ReservationPath(id): ReservationPath,
    Write { author, .. }: Write<()>,
) -> Result<Json<Reservation>, ApiError> {
    let reply = app.decide(author, Command::Confirm(id)).await?;
    Ok(Json(reservation(&app, reply)?))
}

/// Cancels a reservation. One that has ended already is no error.
#[utoipa::path(
    delete, path = "/v1/reservations/{id}", tag = "scheduling", operation_id = "cancel_reservation",
    params(("id" = String, Path, description = "The reservation's number", pattern = "^[0-9]{1,19}$")),
    responses(
        (status = 204, description = "The reservation is cancelled"),
        Guarded, Absent, Settled, Stored,
    )
)]
async fn cancel(
    State(app): State<Arc<App>>,
    ReservationPath(id): ReservationPath,
    Write { author, .. }: Write<()>,
) -> Result<StatusCode, ApiError> {
    match app.decide(author, Command::Cancel(id)).await? {
        Reply::Deleted => Ok(StatusCode::NO_CONTENT),
        other => Err(problem::unexpected(&other)),
    }
}

/// Selects the reservations of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReservationsQuery {
    /// The maximum number of reservations on the page.
    #[serde(default)]
    #[param(value_type = u32, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// The position of the page: the `next` of the previous page.
    #[param(value_type = String, required = false, pattern = "^[0-9]{1,19}$")]
    after: Option<u64>,
}

/// Lists open reservations in ascending order of their numbers.
#[utoipa::path(
    get, path = "/v1/reservations", tag = "scheduling", operation_id = "list_reservations",
    params(ReservationsQuery),
    responses(
        (status = 200, description = "A page of open reservations", body = Page<Reservation>),
        Guarded,
    )
)]
async fn list(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(query): Params<ReservationsQuery>,
) -> Result<Json<Page<Reservation>>, ApiError> {
    let after = ReservationId(query.after.unwrap_or(0));
    let owner = by.owner().map(str::to_owned);
    // An owner's are looked for among all.
    let page = app
        .ask(&by, move |service| {
            service.question(|ledger| {
                reservations::list(ledger, owner.as_deref(), after, query.limit.0)
            })
        })
        .await?;
    let items = page.items.into_iter();
    Ok(Json(Page {
        items: items
            .map(|reservation| with_time(&app, reservation))
            .collect(),
        next: page.next,
    }))
}

/// Returns a reservation, also a confirmed one whose machines the tenant still has.
#[utoipa::path(
    get, path = "/v1/reservations/{id}", tag = "scheduling", operation_id = "get_reservation",
    params(("id" = String, Path, description = "The reservation's number", pattern = "^[0-9]{1,19}$")),
    responses((status = 200, description = "The reservation", body = Reservation), Guarded, Absent)
)]
async fn get(
    State(app): State<Arc<App>>,
    By(by): By,
    ReservationPath(id): ReservationPath,
) -> Result<Json<Reservation>, ApiError> {
    let reservation = app.service.read(|ledger| {
        let revision = ledger.revision();
        Some((reservations::get(ledger, by.owner(), id)?, revision))
    });
    let missing = || ApiError::not_found(format!("there is no reservation {id}"));
    let (reservation, revision) = reservation.ok_or_else(missing)?;
    Ok(Json(Reservation {
        revision: Some(revision),
        ..with_time(&app, reservation)
    }))
}

/// Makes all of some changes, or none.
#[utoipa::path(
    post, path = "/v1/batch", tag = "scheduling", operation_id = "batch",
    request_body = Batch,
    responses(
        (status = 200, description = "All changes were made in one transaction", body = BatchResult),
        Guarded, Absent, problem::Body, Stored, Refused,
    )
)]
async fn batch(
    State(app): State<Arc<App>>,
    Write { body, author }: Write<Batch>,
) -> Result<Json<BatchResult>, ApiError> {
    let mut operations = body.operations;
    if !(1..=MAX_OPERATIONS).contains(&operations.len()) {
        let message = format!(
            "{} operations are not between 1 and {MAX_OPERATIONS}",
            operations.len()
        );
        return Err(ApiError::new(Code::Absurd, message));
    }
    for operation in &mut operations {
        if let Operation::Create(new) = operation {
            complete(&author, new)?;
        }
    }
    let tenants = match app.decide(author, Command::Batch(operations)).await? {
        Reply::Batch(tenants) => tenants,
        other => return Err(problem::unexpected(&other)),
    };
    let shown = tenants.iter();
    let shown = shown.map(|tenant| Some(app.with_standing(tenant.as_ref()?)));
    Ok(Json(BatchResult {
        tenants: shown.collect(),
        revision: app.service.read(Ledger::revision),
    }))
}

/// Records tenants whose machines run already, each where it runs.
///
/// Nothing that runs is refused. Tenants whose promises do not hold there are named, and the ports
/// and hosts with too much get no further machines. A repetition records nothing twice. The tenants
/// are recorded in transactions of 100: after an error, repeat the whole call.
#[utoipa::path(
    post, path = "/v1/adopt", tag = "scheduling", operation_id = "adopt",
    request_body = Adoption,
    responses(
        (status = 200, description = "The adopted tenants and the misfits", body = AdoptionReport),
        Guarded, problem::Body, Stored,
    )
)]
async fn adopt_running(
    State(app): State<Arc<App>>,
    Write { body, author }: Write<Adoption>,
) -> Result<Json<AdoptionReport>, ApiError> {
    let mut tenants = body.tenants;
    for new in &mut tenants {
        complete(&author, new)?;
        adopt::check_new(new)?;
    }
    let begin = Instant::now();
    let done = adopted(&app, &author, &tenants).await;
    let error = done.as_ref().err().map(ServiceError::code);
    app.metrics.decided("adopt", error, begin.elapsed());
    match done? {
        Reply::Adopted(report) => Ok(Json(Arc::unwrap_or_clone(report))),
        other => Err(problem::unexpected(&other)),
    }
}

/// Adopts tenants in several transactions.
async fn adopted(app: &App, author: &Author, tenants: &[NewTenant]) -> Result<Reply, ServiceError> {
    let mut sum = AdoptionReport::default();
    for some in tenants.chunks(MAX_OPERATIONS) {
        let call = Call {
            caller: author.caller(),
            ..Call::of_service(Command::Adopt(some.to_vec()))
        };
        let answer = app.service.audited(call).await;
        trail::log("adopt", &author.caller(), &answer);
        match answer.reply? {
            Reply::Adopted(report) => {
                sum.adopted += report.adopted;
                sum.present += report.present;
                sum.misfits.extend(report.misfits.iter().cloned());
            }
            other => unreachable!("a call without a key has no other's reply: {other:?}"),
        }
    }
    Ok(Reply::Adopted(Arc::new(sum)))
}

/// Returns the reservation of a reply, with the rest of its time to live.
fn reservation(app: &App, reply: Reply) -> Result<Reservation, ApiError> {
    match reply {
        Reply::Reservation(reservation) => Ok(Reservation {
            revision: Some(app.service.read(Ledger::revision)),
            ..with_time(app, Arc::unwrap_or_clone(reservation))
        }),
        other => Err(problem::unexpected(&other)),
    }
}

/// Returns a reservation with the rest of its time to live, if this replica counts it. One that the
/// leader has just made has all of it.
fn with_time(app: &App, reservation: Reservation) -> Reservation {
    let left = app.service.time_left(reservation.id);
    let left = left.map(|left| Nanos(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)));
    let is_new = app.service.role() == tailbound_api::Role::Leader;
    let left = left.or(is_new.then_some(reservation.ttl));
    Reservation {
        expires_in: left.filter(|_| reservation.state == ReservationState::Open),
        ..reservation
    }
}
