//! The measurements of each guest in the window.

use super::MIN_WAIT;
use crate::Counts;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use tailbound_agent::inventory::Guest;
use tailbound_agent::scan::GroupQuota;
use tailbound_look::Verdict;
use tailbound_look::evidence::{CpuUse, CpuWait, InterfaceLimit, Interruption, Limits};
use tailbound_sys::cgroup::QuotaThrottling;
use tailbound_sys::interfaces::{Limit, LimitKind};
use tailbound_sys::procfs;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Tasks, ThreadId};
use tailbound_units::Nanos;

/// Largest number of one guest's stored late waits.
const MAX_WAITS: usize = 10_000;

/// The counters of a guest at one look.
#[derive(Debug, Clone, Default)]
struct Counters {
    at: Nanos,
    /// Over all groups with a quota.
    throttled: QuotaThrottling,
    /// Frames that each limit held back, by interface and kind.
    held: BTreeMap<(u32, LimitKind), u64>,
}

/// The record of one guest.
#[derive(Debug, Default)]
pub(super) struct Record {
    waits: VecDeque<CpuWait>,
    /// Waits that were lost, and when that was seen.
    lost: VecDeque<(Nanos, u64)>,
    interruptions: VecDeque<Interruption>,
    counters: VecDeque<Counters>,
    cpu_use: VecDeque<CpuUse>,
    /// The CPU time of each thread at the last look.
    ran: HashMap<ThreadId, Nanos>,
    /// The time that interrupts had taken of each CPU at the last look.
    interrupts: HashMap<u32, Nanos>,
    counts: Counts,
}

impl Record {
    pub(super) fn add(&mut self, wait: CpuWait) {
        if self.waits.len() == MAX_WAITS {
            let oldest = self.waits.pop_front();
            // A shorter one is no slow period by itself.
            if oldest.is_some_and(|it| it.until.since(it.from) >= MIN_WAIT) {
                self.lose(wait.until, 1);
            }
        }
        self.counts.wait(wait.until.saturating_sub(wait.from));
        self.waits.push_back(wait);
    }

    /// Keeps a run of which others took a part.
    pub(super) fn interrupt(&mut self, interruption: Interruption) {
        if self.interruptions.len() == MAX_WAITS {
            self.interruptions.pop_front();
        }
        self.interruptions.push_back(interruption);
    }

    /// Counts the verdict on an interval.
    pub(super) fn count(&mut self, verdict: &Verdict) {
        self.counts.add(verdict);
    }

    /// The counts since the begin.
    pub(super) const fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(super) fn lose(&mut self, at: Nanos, count: u64) {
        if count > 0 {
            self.lost.push_back((at, count));
        }
    }

    /// Takes the counters of a guest at a look; its CPU time costs a file for each thread.
    pub(super) fn look(&mut self, at: Nanos, guest: &Guest, with_cpu_use: bool) {
        let mut throttled = QuotaThrottling::default();
        for quota in &guest.quotas {
            throttled.periods += quota.throttled.periods;
            throttled.time = throttled.time.saturating_add(quota.throttled.time);
        }
        let held = |limit: &Limit| ((limit.index, limit.kind), limit.drops + limit.overlimits);
        self.counters.push_back(Counters {
            at,
            throttled,
            held: guest.limits.iter().map(held).collect(),
        });
        if with_cpu_use {
            self.take_cpu_use(at, guest);
        }
    }

    fn take_cpu_use(&mut self, at: Nanos, guest: &Guest) {
        let mut tasks: HashMap<u32, Option<Tasks>> = HashMap::new();
        let mut sum = Nanos::ZERO;
        let mut ran = HashMap::new();
        let mut places: HashMap<u32, Nanos> = HashMap::new();
        for thread in &guest.threads {
            let ThreadId { pid, tid, .. } = thread.id;
            let opened = tasks
                .entry(pid)
                .or_insert_with(|| Tasks::open(&Root::default(), pid).ok());
            let Some(tasks) = opened else {
                continue;
            };
            let Ok(Some(seen)) = tasks.schedstat(tid) else {
                continue;
            };
            let before = self.ran.get(&thread.id).copied();
            let time = before.map_or(Nanos::ZERO, |before| seen.run.saturating_sub(before));
            ran.insert(thread.id, seen.run);
            if time > Nanos::ZERO {
                sum = sum.saturating_add(time);
                if let Some(cpu) = processor(tasks, tid) {
                    let its = places.entry(cpu).or_default();
                    *its = its.saturating_add(time);
                }
            }
        }
        let interrupts = interrupts();
        let before = self.counters.iter().rev().nth(1);
        if let Some(before) = before {
            self.cpu_use.push_back(CpuUse {
                from: before.at,
                until: at,
                ran: sum,
                interrupts: mean_interrupts(&places, &self.interrupts, &interrupts)
                    .min(at.saturating_sub(before.at)),
            });
        }
        self.ran = ran;
        self.interrupts = interrupts;
    }

    /// The waits that ended since `from`.
    pub(super) fn waits(&self, from: Nanos) -> Vec<CpuWait> {
        let recent = self.waits.iter().filter(|wait| wait.until > from);
        recent.cloned().collect()
    }

    /// The runs that ended since `from`, of which others took a part.
    pub(super) fn interruptions(&self, from: Nanos) -> Vec<Interruption> {
        let recent = self.interruptions.iter().filter(|one| one.until > from);
        recent.copied().collect()
    }

    pub(super) fn lost(&self, from: Nanos) -> u64 {
        let recent = self.lost.iter().filter(|(at, _)| *at > from);
        recent.map(|(_, count)| count).sum()
    }

    pub(super) fn cpu_use(&self, from: Nanos) -> Vec<CpuUse> {
        let recent = self.cpu_use.iter().filter(|one| one.until > from);
        recent.copied().collect()
    }

    /// The limits of a guest, and whether they held it up since `from`.
    pub(super) fn limits(&self, from: Nanos, guest: &Guest) -> Limits {
        // The last ones before, so that consecutive windows have all of it.
        let before = self.counters.iter().rev().find(|one| one.at <= from);
        let first = before.or(self.counters.front());
        let first = first.cloned().unwrap_or_default();
        let last = self.counters.back().cloned().unwrap_or_default();
        let interfaces = guest.limits.iter().map(|limit| {
            let key = (limit.index, limit.kind);
            let held = |counters: &Counters| counters.held.get(&key).copied();
            InterfaceLimit {
                text: limit_text(limit, guest).into(),
                // A qdisc of the host's interface holds what goes to the guest.
                is_outward: limit.kind == LimitKind::Policer,
                was_reached: held(&last) > held(&first),
            }
        });
        let time = last.throttled.time.saturating_sub(first.throttled.time);
        let periods = last.throttled.periods;
        Limits {
            quota: tightest(&guest.quotas).map(|quota| quota_text(quota).into()),
            throttled_periods: periods.saturating_sub(first.throttled.periods),
            throttled: time,
            interfaces: interfaces.collect(),
        }
    }

    fn forget(&mut self, from: Nanos) {
        self.waits.retain(|wait| wait.until > from);
        self.lost.retain(|(at, _)| *at > from);
        self.interruptions.retain(|one| one.until > from);
        self.counters.retain(|one| one.at > from);
        self.cpu_use.retain(|one| one.until > from);
    }
}

/// The CPU on which a thread ran last.
fn processor(tasks: &Tasks, tid: u32) -> Option<u32> {
    let mut buffer = [0; 1024];
    let text = tasks.text(tid, "stat", &mut buffer).ok()??;
    procfs::parse_processor(&text)
}

/// The time that interrupts have taken of each CPU.
fn interrupts() -> HashMap<u32, Nanos> {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let taken = procfs::parse_taken(&stat).into_iter();
    taken.map(|it| (it.cpu, it.interrupts)).collect()
}

/// The time that interrupts took between two looks: the mean over the CPUs on which threads ran for these times.
fn mean_interrupts(
    places: &HashMap<u32, Nanos>,
    before: &HashMap<u32, Nanos>,
    now: &HashMap<u32, Nanos>,
) -> Nanos {
    let (mut sum, mut whole) = (0, 0);
    for (cpu, ran) in places {
        let (Some(before), Some(now)) = (before.get(cpu), now.get(cpu)) else {
            continue;
        };
        sum += u128::from(now.saturating_sub(*before).0) * u128::from(ran.0);
        whole += u128::from(ran.0);
    }
    Nanos(u64::try_from(sum / whole.max(1)).unwrap_or(u64::MAX))
}

/// The quota that leaves least of the CPUs.
pub(super) fn tightest(quotas: &[GroupQuota]) -> Option<&GroupQuota> {
    quotas.iter().min_by(|a, b| {
        let share = |one: &GroupQuota, other: &GroupQuota| {
            u128::from(one.quota.runtime.0) * u128::from(other.quota.period.0)
        };
        share(a, b).cmp(&share(b, a))
    })
}

fn quota_text(quota: &GroupQuota) -> String {
    format!("{} in {}", quota.quota.runtime, quota.quota.period)
}

fn limit_text(limit: &Limit, guest: &Guest) -> String {
    let interface = guest.interfaces.iter().find(|it| it.index == limit.index);
    let interface = interface.map_or("?", |it| it.name.as_str());
    let kind = match limit.kind {
        LimitKind::TokenBucket => "tbf",
        LimitKind::Class => "htb",
        LimitKind::Policer => "policer",
    };
    format!("{kind} {} on {interface}", limit.rate)
}

/// The records of all guests, by key.
#[derive(Debug, Default)]
pub(super) struct Records(HashMap<Arc<str>, Record>);

impl Records {
    pub(super) fn of(&mut self, key: &Arc<str>) -> &mut Record {
        self.0.entry(Arc::clone(key)).or_default()
    }

    pub(super) fn get(&self, key: &Arc<str>) -> Option<&Record> {
        self.0.get(key)
    }

    pub(super) fn forget(&mut self, from: Nanos) {
        self.0.values_mut().for_each(|record| record.forget(from));
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Arc<str>) -> bool) {
        self.0.retain(|key, _| keep(key));
    }
}
