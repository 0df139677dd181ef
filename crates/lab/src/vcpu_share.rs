//! Part of the vCPU in the bound of a message whose receiver has a reservation, and the count of
//! messages beyond the total bound.
//!
//! The reservation is part of a pool of all CPUs as the vCPU agent would offer it for that one
//! thread: with the kernel's delay in stopping threads, and the CPU time of interrupts during the
//! messages, both as the agent measures them. No bound includes the time that the hypervisor took:
//! messages during it are counted separately.

use crate::experiment::{LabExperiment, Message, Variant, VcpuMode};
use crate::measurement::Measurement;
use crate::noise::SampleClass;
use std::collections::BTreeMap;
use std::io;
use tailbound_agent::losses::{LargestLosses, LongRun};
use tailbound_agent::observer::Observer;
use tailbound_agent::{Bandwidth, OfferConfig, Pool};
use tailbound_experiment::COMPUTED;
use tailbound_hypervisor::reservation::Deadline;
use tailbound_report::Bound;
use tailbound_units::Nanos;

/// Limit of a busy period's length, above which there is no bound.
const MAX_BUSY_PERIOD: Nanos = Nanos::from_secs(10);

/// The bounds of each series.
pub(crate) type Bounds = BTreeMap<String, Vec<Bound>>;

/// Adds the vCPUs' part to the bounds of a variant's messages; removes bounds that are not proved.
///
/// # Errors
/// The kernel does not report its limits of reservations.
pub(crate) fn add(
    experiment: &LabExperiment,
    variant: &Variant,
    repeats: &[Measurement],
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

/// Returns the reservation of all receivers of a load.
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

/// Returns the pool that the agent offers for one such reservation.
fn pool(reservation: Deadline, losses: LargestLosses) -> io::Result<Option<Pool>> {
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
    Ok(offer.pool(domain, &machine.limits, losses).ok())
}

/// Returns the largest interrupt time in any of `measured`, without stolen time.
pub(crate) fn interrupts<'a>(measured: impl IntoIterator<Item = &'a Measurement>) -> LargestLosses {
    let mut most = LargestLosses::default();
    for LargestLosses {
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

/// Returns the longest time of a message, with the earlier messages that its receiver may still
/// have to process: all messages sent within the same time before it. `None` without a bound.
fn whole(
    reservation: Deadline,
    pool: &Pool,
    network: Nanos,
    cpu: Nanos,
    every: Nanos,
) -> Option<Nanos> {
    let service = pool.service(reservation).ok()?;
    let mut whole = network;
    while whole < MAX_BUSY_PERIOD {
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

/// Counts messages that took longer than their bound.
pub(crate) fn count(
    experiment: &LabExperiment,
    variant: &Variant,
    bounds: &Bounds,
    repeats: &mut [Measurement],
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
    fn a_bound_includes_the_messages_queued_before() {
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
