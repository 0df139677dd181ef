//! Waiting times of guaranteed packets in the last minute: from the monotonic counters to the
//! report that the placement service shows beside its promises.

use crate::control::{AskMeasured, ReportMeasurements};
use crate::guarantees::MachineSnapshot;
use crate::metrics::{Asker, HostCounts, Vcpus};
use crate::reserved::ReservationDifferences;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};
use tailbound_api::{HostMeasured, Tail, TenantId, TenantTail};
use tailbound_metrics::Histogram;

/// The period of the report, once the daemon has run for as long.
const WINDOW: Duration = Duration::from_mins(1);

/// Number of packets for each bucket of waiting times.
type Counts = [u64; Histogram::BUCKETS + 1];

const NONE: Counts = [0; Histogram::BUCKETS + 1];

/// The counters at a point in time.
struct CounterSample {
    at: Instant,
    /// The lateness of the packet loop for frames that were due on the uplink.
    late: Counts,
    /// By guest: the tenant of its VM, and the waiting times of its packets.
    waited: HashMap<String, (TenantId, Counts)>,
}

/// The counters of the last minute.
#[derive(Default)]
struct Window(VecDeque<CounterSample>);

/// Returns a function for the measurements of the last minute, and for the guests that have less or
/// more CPU than promised. The function returns None if the packet loop does not answer.
pub(super) fn ask_measured(counts: Asker, vcpus: Vcpus) -> AskMeasured {
    let mut window = Window::default();
    Box::new(move || {
        let counts = counts.ask()?.host?;
        let machines = counts.guarantees.snapshot().machines;
        Some(ReportMeasurements {
            reserved: ReservationDifferences::new(&machines, &vcpus.reservations()).report(),
            measured: window.push(CounterSample::of(Instant::now(), &counts, machines)),
        })
    })
}

impl CounterSample {
    fn of(at: Instant, counts: &HostCounts, machines: Vec<MachineSnapshot>) -> Self {
        let snapshot = &counts.snapshot;
        let promised = machines.into_iter().filter_map(|machine| {
            let known = machine.known.filter(|known| known.guarantee.is_some())?;
            Some((machine.guest, known.tenant))
        });
        let promised: HashMap<_, _> = promised.collect();
        let waited = snapshot.guests.iter().filter_map(|guest| {
            let tenant = *promised.get(&guest.port.name)?;
            let conforms = guest.sojourns.iter();
            let mut conforms = conforms
                .filter(|waits| waits.direction == "received" && waits.class == "guaranteed");
            let counts = *conforms.next()?.histogram.counts();
            Some((guest.port.name.clone(), (tenant, counts)))
        });
        let pacing = snapshot
            .uplink
            .as_ref()
            .and_then(|uplink| uplink.pacing.as_ref());
        Self {
            at,
            late: pacing.map_or(NONE, |pacing| *pacing.lateness.counts()),
            waited: waited.collect(),
        }
    }
}

impl Window {
    /// Adds new counters. Returns the measurements since a minute before, or since the first call;
    /// None at the first call.
    fn push(&mut self, newest: CounterSample) -> Option<HostMeasured> {
        // The one that is a minute old or older is compared with, those before it are not.
        let is_past = |counted: &CounterSample| newest.at.duration_since(counted.at) >= WINDOW;
        while self.0.get(1).is_some_and(is_past) {
            self.0.pop_front();
        }
        let measured = self.0.front().map(|oldest| between(oldest, &newest));
        self.0.push_back(newest);
        measured
    }
}

fn between(old: &CounterSample, new: &CounterSample) -> HostMeasured {
    let mut by_tenant: BTreeMap<TenantId, Counts> = BTreeMap::new();
    for (guest, (tenant, counts)) in &new.waited {
        let before = old.waited.get(guest).filter(|(then, _)| then == tenant);
        let since = since(before.map_or(&NONE, |(_, counts)| counts), counts);
        let sum = by_tenant.entry(*tenant).or_insert(NONE);
        for (sum, count) in sum.iter_mut().zip(since) {
            *sum += count;
        }
    }
    let waited = by_tenant.into_iter().filter_map(|(tenant, counts)| {
        Some(TenantTail {
            tenant,
            tail: tail(&counts)?,
        })
    });
    HostMeasured {
        window_ns: u64::try_from((new.at - old.at).as_nanos()).unwrap_or(u64::MAX),
        late: tail(&since(&old.late, &new.late)),
        waited: waited.collect(),
    }
}

/// Returns the difference. The counters of a guest that was removed and added again start from
/// zero.
fn since(old: &Counts, new: &Counts) -> Counts {
    let is_same = old.iter().zip(new).all(|(old, new)| old <= new);
    let old = if is_same { old } else { &NONE };
    std::array::from_fn(|bucket| new[bucket] - old[bucket])
}

/// Returns the percentiles; 32 s stands for all longer times.
fn tail(counts: &Counts) -> Option<Tail> {
    let longest =
        |bucket: usize| (Histogram::bound(bucket.min(Histogram::BUCKETS - 1)) * 1e9) as u64;
    let buckets = (0..).zip(counts);
    let buckets = buckets.map(|(bucket, count)| (longest(bucket), *count));
    Tail::of(&buckets.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_units::Nanos;

    /// A guest, its tenant, and its packets: (waiting time in microseconds, number).
    type Waits<'t> = (&'t str, u64, &'t [(u64, u64)]);

    /// Counters with these waiting times of guests' packets.
    fn counted(at: Instant, guests: &[Waits<'_>]) -> CounterSample {
        let waited = guests.iter().map(|(guest, tenant, waits)| {
            let mut histogram = Histogram::default();
            for (micros, packets) in *waits {
                histogram.record_many(Nanos::from_micros(*micros), *packets);
            }
            let counts = *histogram.counts();
            ((*guest).to_owned(), (TenantId(*tenant), counts))
        });
        CounterSample {
            at,
            late: NONE,
            waited: waited.collect(),
        }
    }

    fn waited(measured: &HostMeasured) -> Vec<(u64, u64, Option<u64>)> {
        let waited = measured.waited.iter();
        let waited = waited.map(|of| (of.tenant.0, of.tail.packets, of.tail.p99_9_ns));
        waited.collect()
    }

    #[test]
    fn a_report_of_waits_covers_the_last_minute() {
        let (start, mut window) = (Instant::now(), Window::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        let slow = (5_000, 500);
        assert!(window.push(counted(start, &[("g", 1, &[slow])])).is_none());
        let mut fast = 0;
        for second in (10..=200).step_by(10) {
            fast += 10_000;
            let spoiled = if second > 100 {
                (40_000, 1_000)
            } else {
                (1, 0)
            };
            let waits = [slow, (3, fast), spoiled];
            let measured = window
                .push(counted(at(second), &[("g", 1, &waits)]))
                .unwrap();
            // The time before the first count is not in it.
            let length = second.min(60);
            assert_eq!(measured.window_ns, length * 1_000_000_000);
            let spoiled = if (101..=160).contains(&second) {
                1_000
            } else {
                0
            };
            let late = if spoiled > 0 { 44_194_173 } else { 3_814 };
            let packets = length * 1_000 + spoiled;
            let found = waited(&measured);
            assert_eq!((found[0].0, found[0].1), (1, packets), "at {second} s");
            assert_eq!(found[0].2, Some(late), "at {second} s");
        }
        assert!(window.0.len() <= 8);
    }

    #[test]
    fn waits_are_summed_per_tenant_and_reset_counters_start_at_zero() {
        let (start, mut window) = (Instant::now(), Window::default());
        let later = start + Duration::from_secs(10);
        let first = [
            ("a", 1, &[(3, 900)][..]),
            ("b", 2, &[(3, 90)]),
            ("d", 4, &[(3, 9)]),
        ];
        window.push(counted(start, &first));
        let then = [
            ("a", 1, &[(3, 50)][..]),
            ("b", 1, &[(3, 100)]),
            ("c", 1, &[(3, 7)]),
            ("d", 4, &[(3, 9)]),
        ];
        let measured = window.push(counted(later, &then)).unwrap();
        // The guest b is another tenant's machine now, and for d nothing came.
        assert_eq!(waited(&measured), [(1, 157, None)]);
    }
}
