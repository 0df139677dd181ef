//! Starts requests and their servers, bulk streams, and guests that compute or sleep.

use super::crew::{Crew, Role};
use super::load::{Load, samples};
use crate::LabError;
use crate::arrivals::seed_for;
use crate::cpus::l2_size;
use crate::experiment::{Bulk, Etc, Hog, Ping, Query, Shuffle, Wakeup};
use crate::guest::{Outcome, Queries, Requests, Work};
use crate::tools;
use crate::topology::Guest;
use crate::vm::GuestCommand;
use std::net::SocketAddrV4;
use tailbound_units::Bytes;

/// TCP's initial window: ten segments (RFC 6928).
const INITIAL_WINDOW: Bytes = Bytes(10 * 1448);
/// Maximum of the passages of a request with an answer of at most that size through a thread: the
/// opening of a connection, if no connection is free, and the request itself, each in both
/// directions.
const PASSAGES: usize = 4;

pub(super) fn query<'a>(crew: &mut Crew<'a>, query: &'a Query) -> Result<Load<'a>, LabError> {
    let mut on_path = crew.daemons_of(std::iter::once(&query.client).chain(&query.servers));
    let first = crew.supervisor.len();
    let mut servers = Vec::new();
    for name in &query.servers {
        let (guest, port) = (crew.guest(name)?, crew.port());
        let work = Work::Server { port };
        let (child, outcome) = crew.start_task(guest, "server", work, Role::Serves)?;
        crew.served.entry(&guest.name).or_default().push(outcome);
        on_path.extend(crew.unless_tested(guest, child));
        servers.push(SocketAddrV4::new(guest.ip, port));
    }
    crew.supervisor.wait_ready(first)?;
    let guest = crew.guest(&query.client)?;
    let work = Work::Query(Queries {
        servers,
        answer: query.answer,
        mean_gap: query.gap(crew.experiment().link_rate),
        connections: query.connections,
        seed: seed_for(crew.context.seed, query.name.get_ref()),
    });
    let purpose = format!("client of {}", query.name.get_ref());
    let (child, outcome) = crew.start_task(guest, &purpose, work, Role::Measures)?;
    on_path.extend(crew.unless_tested(guest, child));
    let passages = (query.answer <= INITIAL_WINDOW).then_some(PASSAGES);
    Ok(Load::series(&query.series, vec![outcome]).through(on_path, passages))
}

pub(super) fn etc<'a>(crew: &mut Crew<'a>, etc: &'a Etc) -> Result<Load<'a>, LabError> {
    let mut on_path = crew.daemons_of(std::iter::once(&etc.server).chain(&etc.clients));
    let (guest, port) = (crew.guest(&etc.server)?, crew.port());
    let command = GuestCommand::Program(tools::memcached(port));
    let child = crew.start(guest, "memcached", command, Role::Foreign { ends: false })?;
    on_path.extend(crew.unless_tested(guest, child));
    let server = SocketAddrV4::new(guest.ip, port);
    let mut outcomes = Vec::new();
    for (number, name) in etc.clients.iter().enumerate() {
        let guest = crew.guest(name)?;
        let load = format!("{} {number}", etc.name.get_ref());
        let work = Work::Etc(Requests {
            server,
            workers: etc.workers,
            mean_gap: etc.mean_gap,
            largest: etc.largest,
            seed: seed_for(crew.context.seed, &load),
        });
        let purpose = format!("client of {}", etc.name.get_ref());
        let (child, outcome) = crew.start_task(guest, &purpose, work, Role::Measures)?;
        on_path.extend(crew.unless_tested(guest, child));
        outcomes.push(outcome);
    }
    let passages = (etc.largest <= INITIAL_WINDOW).then_some(PASSAGES);
    let load = Load::new(outcomes, move |reading, outcomes, measured| {
        let answered = outcomes.iter().map(Outcome::rate).sum();
        measured.value(&etc.value, "op/s", answered);
        let series = reading.judged(samples(outcomes));
        measured.series.insert(etc.series.clone(), series);
        Ok(())
    });
    Ok(load.through(on_path, passages))
}

/// Starts a process for each guest of a shuffle. They connect to each other when the load starts,
/// so all of them listen before.
pub(super) fn shuffle<'a>(crew: &mut Crew<'a>, shuffle: &'a Shuffle) -> Result<Load<'a>, LabError> {
    let port = crew.port();
    let guests = shuffle.guests.iter().map(|name| crew.guest(name));
    let guests: Vec<&Guest> = guests.collect::<Result<_, _>>()?;
    let mut outcomes = Vec::new();
    for guest in &guests {
        let elsewhere = guests.iter().filter(|peer| peer.host != guest.host);
        let peers = elsewhere
            .map(|peer| SocketAddrV4::new(peer.ip, port))
            .collect();
        let work = Work::Shuffle { port, peers };
        outcomes.push(crew.start_task(guest, "shuffle", work, Role::Serves)?.1);
    }
    let rate = |it: &Outcome| it.rate() * 8.0;
    Ok(Load::sum(&shuffle.value, "bit/s", outcomes, rate))
}

pub(super) fn bulk<'a>(crew: &mut Crew<'a>, bulk: &'a Bulk) -> Result<Load<'a>, LabError> {
    let (from, to) = (crew.guest(&bulk.from)?, crew.guest(&bulk.to)?);
    let (first, port) = (crew.supervisor.len(), crew.port());
    let work = Work::BulkReceiver { port };
    let (_, outcome) = crew.start_task(to, "bulk receiver", work, Role::Serves)?;
    crew.supervisor.wait_ready(first)?;
    let work = Work::BulkSender {
        to: SocketAddrV4::new(to.ip, port),
    };
    crew.start_task(from, "bulk sender", work, Role::Serves)?;
    Ok(Load::new(
        vec![outcome],
        move |reading, outcomes, measured| {
            let rate = outcomes.iter().map(Outcome::rate).sum::<f64>();
            measured.value(&bulk.value, "bit/s", rate * 8.0);
            if let Some(value) = &bulk.cpu_value {
                let share = reading.daemon_cpu.get(from.host.as_str());
                measured.value(value, "%", share.copied().unwrap_or(f64::NAN));
            }
            Ok(())
        },
    ))
}

pub(super) fn ping<'a>(crew: &mut Crew<'a>, ping: &'a Ping) -> Result<Load<'a>, LabError> {
    let (from, to) = (crew.guest(&ping.from)?, crew.guest(&ping.to)?);
    let mut on_path = crew.daemons_of([&ping.from, &ping.to]);
    let work = Work::Echo {
        to: to.ip,
        every: ping.every,
    };
    let (child, outcome) = crew.start_task(from, "echo client", work, Role::Measures)?;
    on_path.extend(crew.unless_tested(from, child));
    Ok(Load::series(&ping.series, vec![outcome]).through(on_path, Some(PASSAGES)))
}

pub(super) fn hog<'a>(crew: &mut Crew<'a>, hog: &'a Hog) -> Result<Load<'a>, LabError> {
    let l2 = || Bytes(l2_size(crew.context.session.cpus.shared_core));
    let block = hog.block.unwrap_or_else(l2);
    let mut outcomes = Vec::new();
    let count = crew.variant.count().unwrap_or(hog.guests.len());
    for name in hog.guests.iter().take(count) {
        let guest = crew.guest(name)?;
        let work = Work::Hog {
            scans: hog.scans,
            sleep: hog.sleep,
            block,
        };
        let role = Role::Computes { nice: hog.nice };
        outcomes.push(crew.start_task(guest, "hog", work, role)?.1);
    }
    Ok(Load::new(outcomes, move |_, outcomes, measured| {
        if let Some(value) = &hog.cpu_value {
            let share = outcomes.iter().map(Outcome::cpu_percent).sum();
            measured.value(value, "%", share);
        }
        let scans = outcomes.iter().map(Outcome::rate).sum();
        measured.value(&hog.value, "op/s", scans);
        Ok(())
    }))
}

pub(super) fn wakeup<'a>(crew: &mut Crew<'a>, wakeup: &'a Wakeup) -> Result<Load<'a>, LabError> {
    let guest = crew.guest(&wakeup.guest)?;
    let work = Work::Wakeup {
        mean_gap: wakeup.mean_gap,
        seed: seed_for(crew.context.seed, wakeup.name.get_ref()),
    };
    let (child, outcome) = crew.start_task(guest, "sleeper", work, Role::Measures)?;
    let served = crew.served.entry(&guest.name).or_default();
    served.push(outcome.clone());
    let on_path = crew.unless_tested(guest, child).into_iter().collect();
    Ok(Load::series(&wakeup.series, vec![outcome]).through(on_path, None))
}
