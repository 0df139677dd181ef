//! What the vCPU adds to the bound of a message whose receiver has a reservation, and how many
//! messages took longer than the whole.
//!
//! The reservation is kept in a pool of all CPUs as the vCPU agent would offer it for that one
//! thread: with how late this kernel stops threads, and what interrupts took while the messages
//! came, both as the agent measures them. What the hypervisor below took is in no bound here: a
//! message that met that is counted apart.

use crate::experiment::{LabExperiment, Message, Variant, VcpuMode};
use crate::noise::SampleClass;
use crate::variant::Measured;
use std::collections::BTreeMap;
use std::io;
use tailbound_agent::observer::Observer;
use tailbound_agent::taken::{LongRun, Measured as Taken};
use tailbound_agent::{Bandwidth, OfferConfig, Pool};
use tailbound_experiment::COMPUTED;
use tailbound_hypervisor::reservation::Deadline;
use tailbound_report::Bound;
use tailbound_units::Nanos;

/// Bounds that do not end within so long are none.
const LONGEST: Nanos = Nanos::from_secs(10);

/// The bounds of each series.
pub(crate) type Bounds = BTreeMap<String, Vec<Bound>>;

/// Adds what vCPUs add to the bounds of a variant's messages; drops those of which nothing is
/// proved.
///
/// # Errors
/// The kernel does not say what it allows to reservations.
pub(crate) fn add(
    experiment: &LabExperiment,
    variant: &Variant,
    repeats: &[Measured],
    bounds: &mut Bounds,
) -> io::Result<()> {
    for message in variant.running(&experiment.message) {
        let (Some(cpu), Some(every)) = (message.cpu, message.every) else {
            continue;
        };
        let Some(named) = bounds.get_mut(&message.series) else {
            continue;
        };
        let reservation = reservation_of(experiment, variant, message);
        let pool = match reservation {
            Some(reservation) => pool(reservation, interrupts(repeats))?,
            None => None,
        };
        named.retain_mut(|bound| {
            let network = Nanos(bound.value);
            let whole = reservation
                .zip(pool.as_ref())
                .and_then(|(reservation, pool)| whole(reservation, pool, network, cpu, every));
            bound.value = whole.map_or(0, Nanos::as_nanos);
            bound.name == COMPUTED && whole.is_some()
        });
    }
    bounds.retain(|_, named| !named.is_empty());
    Ok(())
}

/// What all receivers of a load have reserved.
fn reservation_of(
    experiment: &LabExperiment,
    variant: &Variant,
    message: &Message,
) -> Option<Deadline> {
    let shared = experiment.shared_core.as_ref()?;
    let periodic = &shared.periodic;
    let has_it = |guest: &str| periodic.guests.iter().any(|other| other.get_ref() == guest);
    let all = message.to.iter().all(|guest| has_it(guest.get_ref()));
    (all && variant.vcpu == VcpuMode::Periodic).then(|| Deadline {
        runtime: periodic.runtime,
        deadline: variant.deadline.unwrap_or(periodic.deadline),
        period: periodic.period,
    })
}

/// The pool that the agent offers for one such reservation.
fn pool(reservation: Deadline, taken: Taken) -> io::Result<Option<Pool>> {
    let machine = Observer::new()?.machine()?;
    let domains = machine.domains.iter();
    let Some(domain) = domains.max_by_key(|domain| domain.cpus.count()) else {
        return Ok(None);
    };
    let density = reservation.density() as f64 / 1000.0;
    let density = Bandwidth::try_from(density).map_err(io::Error::other)?;
    let offer = OfferConfig {
        cpus: Some(density),
        largest: density,
        threads: Some(1),
        ..OfferConfig::default()
    };
    Ok(offer.pool(domain, &machine.limits, taken).ok())
}

/// The most that interrupts took in any of `measured`, without what was stolen.
pub(crate) fn interrupts<'a>(measured: impl IntoIterator<Item = &'a Measured>) -> Taken {
    let mut most = Taken::default();
    for Taken {
        interrupts,
        long_run,
        ..
    } in measured.into_iter().map(|measured| measured.taken)
    {
        most.interrupts = most.interrupts.max(interrupts);
        if long_run.interrupts > most.long_run.interrupts {
            most.long_run = LongRun {
                steal: Bandwidth(0),
                ..long_run
            };
        }
    }
    most
}

/// How long a message takes at most, with those before it that its receiver may still have to
/// take: all that were sent since as long before. `None` where nothing bounds that.
fn whole(
    reservation: Deadline,
    pool: &Pool,
    network: Nanos,
    cpu: Nanos,
    every: Nanos,
) -> Option<Nanos> {
    let service = pool.service(reservation).ok()?;
    let mut whole = network;
    while whole < LONGEST {
        let messages = whole.as_nanos() / every.as_nanos().max(1) + 1;
        let demand = Nanos(cpu.as_nanos().saturating_mul(messages));
        let next = network.saturating_add(service.latency(demand).total());
        if next == whole {
            return Some(whole);
        }
        whole = next;
    }
    None
}

/// Counts of messages that took longer than their bound.
pub(crate) fn count(
    experiment: &LabExperiment,
    variant: &Variant,
    bounds: &Bounds,
    repeats: &mut [Measured],
) {
    for message in variant.running(&experiment.message) {
        let named = bounds.get(&message.series).into_iter().flatten();
        let mut computed = named.filter(|bound| bound.name == COMPUTED);
        let Some(bound) = computed.next().filter(|_| message.cpu.is_some()) else {
            continue;
        };
        for measured in &mut *repeats {
            let Some(series) = measured.series.get(&message.series) else {
                continue;
            };
            let samples = series.samples.iter().zip(&series.classes);
            let over = samples.filter(|(sample, _)| sample.latency().as_nanos() > bound.value);
            let (hit, own): (Vec<_>, Vec<_>) =
                over.partition(|(_, class)| SampleClass::is_hit(**class));
            let (hit, own) = (hit.len() as f64, own.len() as f64);
            measured.value("over_bound", "", own);
            measured.value("over_bound_by_machine", "", hit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_hypervisor::reservation::Disturbance;

    #[test]
    fn a_bound_has_in_it_what_waits_before_the_message() {
        let [milli, micro] = [Nanos::from_millis, Nanos::from_micros];
        let reservation = Deadline {
            runtime: milli(1),
            deadline: milli(4),
            period: milli(4),
        };
        let pool = Pool {
            cpus: 1,
            threads: 1,
            largest: 250,
            reservable: 250,
            disturbance: Disturbance::default(),
        };
        let whole = |cpu| whole(reservation, &pool, milli(5), cpu, milli(2));
        // P + D - 2Q is 6 ms; six messages of 20 us may be there by then.
        assert_eq!(whole(micro(20)), Some(milli(11) + micro(120)));
        // Each takes 0.6 ms, of 0.25 ms in a millisecond and one message in two: it never ends.
        assert_eq!(whole(micro(600)), None);
    }
}
