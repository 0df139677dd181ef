//! State of tenants' guarantees: words and tables, and `tailbound place events`.

use super::service::Service;
use crate::command::output::{self, paint};
use crate::exit::{Exit, Failure};
use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailbound_api::client::{Client, ClientError};
use tailbound_api::{
    Code, Event, Following, Host, HostEnforcement, HostWord, Tenant, TenantEnforcement,
    TenantEvent, TenantState, UnpromisedGuest, WorstMeasurements, WorstTail,
};
use tailbound_placement::{Lateness, Thousandths};
use tailbound_report::{NOTHING, Paint, Table};
use tailbound_units::rounded_up::time;

/// Longest silence of the service, which sends a line every ten seconds.
const SILENCE: Duration = Duration::from_secs(30);
/// Pause before the next stream after the end of a stream.
const STREAM_PAUSE: Duration = Duration::from_millis(200);
/// Time for hosts that follow to confirm a change, before the result is printed without it.
const CONFIRM: Duration = Duration::from_secs(3);
/// Interval of the check for confirmations.
const CONFIRM_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the state of a tenant, in capitals.
pub(super) fn state_word(state: TenantState, paint: Paint) -> String {
    let word = state.word().to_uppercase();
    match state {
        TenantState::Admitted => paint.good(&word),
        TenantState::Pending => paint.doubtful(&word),
        TenantState::Degraded => paint.bad(&word),
    }
}

/// Returns the state of a tenant in the service's answer.
pub(super) fn state_of(tenant: &Tenant) -> TenantState {
    let enforcement = tenant.standing.as_ref();
    enforcement.map_or(TenantState::Pending, |enforcement| enforcement.state)
}

/// Returns a tenant again once its hosts have confirmed a change; waits only for hosts that follow.
pub(super) fn confirmed(client: &Client, tenant: Tenant) -> Tenant {
    let begin = Instant::now();
    let mut tenant = tenant;
    while begin.elapsed() < CONFIRM && waits_for_followers(tenant.standing.as_ref()) {
        std::thread::sleep(CONFIRM_INTERVAL);
        match client.tenant(tenant.id) {
            Ok(newer) => tenant = newer,
            // The guarantee is admitted; its state can be queried again.
            Err(_) => break,
        }
    }
    tenant
}

fn waits_for_followers(enforcement: Option<&TenantEnforcement>) -> bool {
    let Some(enforcement) =
        enforcement.filter(|enforcement| enforcement.state == TenantState::Pending)
    else {
        return false;
    };
    let pending = |host: &&HostEnforcement| host.state == TenantState::Pending;
    let mut pending = enforcement.hosts.iter().filter(pending);
    pending.all(|host| host.revision.is_some())
}

/// Returns the hosts of a tenant that do not enforce its guarantee, with reasons; all of them if
/// `on_all`.
pub(super) fn hosts(hosts: &[HostEnforcement], on_all: bool, paint: Paint) -> String {
    let shown = |host: &&HostEnforcement| on_all || host.state != TenantState::Admitted;
    let mut table = Table::new(
        &["host", "keeps it", "follows revision", "silent for", "why"],
        &[4],
    );
    for host in hosts.iter().filter(shown) {
        table.row([
            host.host.clone(),
            match host.state {
                TenantState::Admitted => paint.good("yes"),
                TenantState::Pending => paint.doubtful("not yet"),
                TenantState::Degraded => paint.bad("no"),
            },
            or_nothing(host.revision),
            or_nothing(host.silent_since.map(since)),
            host.why.clone().unwrap_or_else(|| NOTHING.to_owned()),
        ]);
    }
    table.render(paint)
}

/// Returns the worst measurements of a tenant's hosts, a line each.
pub(super) fn measured(measurements: Option<&WorstMeasurements>) -> String {
    let line = |worst: &WorstTail, says: &str| {
        let (host, packets) = (&worst.host, worst.tail.packets);
        let window = time(worst.window_ns);
        match worst.tail.furthest() {
            Some((percent, long)) => format!(
                "measured at {host}: {percent} % of {packets} packets in {window} {says} at most \
                 {}\n",
                time(long)
            ),
            None => format!(
                "measured at {host}: {packets} packets in {window}, too few to \
                judge\n"
            ),
        }
    };
    let lines = measurements.into_iter().flat_map(|measurements| {
        let sending = measurements.sending.as_ref();
        let receiving = measurements.receiving.as_ref();
        let sending = sending.map(|worst| line(worst, "left late by"));
        let receiving = receiving.map(|worst| line(worst, "waited for their machine"));
        sending.into_iter().chain(receiving)
    });
    lines.collect()
}

fn or_nothing(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

/// Returns the time since a second after 1970, in its two largest units.
fn since(second: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let passed = now.unwrap_or_default().as_secs().saturating_sub(second);
    match (
        passed / 86_400,
        passed / 3_600 % 24,
        passed / 60 % 60,
        passed % 60,
    ) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}min {s}s"),
        (0, h, m, _) => format!("{h}h {m}min"),
        (d, h, _, _) => format!("{d}d {h}h"),
    }
}

/// Returns the word for a host's state of following its guarantees.
pub(super) fn following(following: Following, paint: Paint) -> String {
    match following {
        Following::Follows => paint.good(following.word()),
        Following::Unheard => paint.doubtful(following.word()),
        Following::Refuses | Following::Silent => paint.bad(following.word()),
    }
}

/// Returns the cells of a host in a list: whether it follows, its revision, and the error.
pub(super) fn cells(host: &Host, paint: Paint) -> [String; 3] {
    let report = &host.said;
    let silence = report
        .silent_since
        .map(|second| format!("for {}", since(second)));
    let wrong = silence.or_else(|| Some(report.refused.first()?.why.clone()));
    [
        following(report.following, paint),
        or_nothing(report.revision),
        or_nothing(wrong),
    ]
}

/// Returns the sentence about a host's lateness; empty for an exact pacer.
fn lateness(lateness: Lateness) -> String {
    match lateness {
        Lateness::Exact => String::new(),
        Lateness::WarmingUp => "it is warming up: its lateness is not known yet\n".to_owned(),
        Lateness::Within(lateness) => format!("its frames leave at most {lateness} late\n"),
    }
}

/// Returns the report of a host, in sentences.
pub(super) fn sentences(report: &HostWord, paint: Paint) -> String {
    let word = following(report.following, paint);
    let mut out = match (report.revision, report.silent_since) {
        (None, _) => format!("guarantees: {word}; it has never reported\n"),
        (Some(revision), Some(second)) => {
            format!(
                "guarantees: {word} for {}, at revision {revision}\n",
                since(second)
            )
        }
        (Some(revision), None) => format!("guarantees: {word}, at revision {revision}\n"),
    };
    match (&report.limits, report.revision) {
        (Some(limits), _) => {
            // Writing to a String does not fail.
            let _ = writeln!(
                out,
                "it keeps {} in all, {} of it for its own file's guests; bursts of {} or more, \
                 bandwidths of {} or more",
                limits.link, limits.reserved, limits.frame, limits.slowest
            );
            out += &lateness(limits.lateness);
            if let Some(packet) = limits.packet {
                let _ = writeln!(out, "packets of its guests have at most {packet}");
            }
        }
        (None, Some(_)) => out += "it keeps no guarantee: nothing paces its uplink\n",
        (None, None) => {}
    }
    if let Some(cpu) = &report.cpu {
        let _ = writeln!(
            out,
            "it keeps {} of its {} CPUs for reservations, {} each at most, of {} vCPUs at most; \
             they may overrun by {}, bursts of interrupts take {}, of steal {}, both {} in the long run",
            Thousandths(cpu.reservable),
            cpu.cpus,
            Thousandths(cpu.largest),
            cpu.threads,
            cpu.overrun,
            cpu.interrupts,
            cpu.steal,
            Thousandths(cpu.share),
        );
    }
    for UnpromisedGuest { guest, what } in &report.unpromised {
        let line = format!("beyond what is promised: {guest}: {what}");
        let _ = writeln!(out, "{}", paint.bad(&line));
    }
    for refused in &report.refused {
        let whom = refused.tenant.map(|id| format!("tenant {}: ", id.0));
        let line = format!("refuses {}{}", whom.unwrap_or_default(), refused.why);
        let _ = writeln!(out, "{}", paint.bad(&line));
    }
    out
}

/// Arguments of `tailbound place events`.
#[derive(Debug, clap::Args)]
pub(super) struct Events {
    #[command(flatten)]
    service: Service,
}

impl Events {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let service = &self.service;
        let client = service.client()?;
        let mut since = None;
        while output::is_open() {
            let lines = match client.changes::<Event>(since, SILENCE) {
                // The first lines of the next stream are the present state.
                Err(error) if since.is_some() && is_gap(&error) => {
                    since = None;
                    continue;
                }
                lines => lines.map_err(|error| service.failure(error))?,
            };
            // The service ends the stream when it stops; the next stream continues.
            for line in lines {
                match line {
                    Ok(line) => {
                        if !self.shows(&line) {
                            return Ok(Exit::Holds);
                        }
                        if line.tenant.is_none() {
                            since = Some(line.revision);
                        }
                    }
                    Err(ClientError::Unreachable(_)) => {}
                    Err(error) => return Err(service.failure(error)),
                }
            }
            std::thread::sleep(STREAM_PAUSE);
        }
        Ok(Exit::Holds)
    }

    /// Prints an event, and returns whether more can be printed.
    fn shows(&self, event: &Event) -> bool {
        if self.service.for_programs() {
            self.service.print_line("place-event", event);
            return output::is_open();
        }
        if event.missed > 0 {
            let missed = event.missed;
            output::print(&format!(
                "{missed} events were missed; place list shows the current state\n"
            ));
        }
        if let Some(tenant) = &event.tenant {
            output::print(&text(event.revision, tenant, paint()));
        }
        output::is_open()
    }
}

/// Returns whether a stream cannot continue where the one before ended.
fn is_gap(error: &ClientError) -> bool {
    let code = match error {
        ClientError::Problem(problem) => problem.code,
        _ => return false,
    };
    matches!(code, Code::Expired | Code::Future)
}

fn text(revision: u64, event: &TenantEvent, paint: Paint) -> String {
    let hosts = event.hosts.iter();
    let why: Vec<_> = hosts
        .filter_map(|host| Some(format!("{}: {}", host.host, host.why.as_ref()?)))
        .collect();
    let why = why.join("; ");
    let colon = if why.is_empty() { "" } else { ": " };
    format!(
        "{}  {}/{}, id {}, revision {revision}{colon}{why}\n",
        state_word(event.state, paint),
        event.owner,
        event.name,
        event.tenant.0,
    )
}
