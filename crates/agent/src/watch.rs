//! Keeps guests in their classes while they start, grow and end, and measures
//! how long their threads wait.

use super::class::Class;
use super::config::{OnDrift, VcpuConfig};
use super::guest::{Guest, GuestThread, Role};
use super::plan::{Plan, Wish};
use super::rule::{rule_for, wishes};
use super::scan::Scanner;
use super::{Agent, Restored, VcpuError};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use tailbound_metrics::Histogram;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Schedstat, Tasks, ThreadId};
use tailbound_units::Nanos;

/// How often what somebody else changes is changed back, for each thread.
const PATIENCE: u32 = 3;

/// The waits of threads that do the same for one guest.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    /// How long a thread that could run waited for a CPU. The kernel counts waits
    /// and sums them up; each wait between two readings is entered with their
    /// mean.
    pub waits: Histogram,
    /// How long they ran.
    pub cpu: Nanos,
    /// Their class, as wanted.
    pub class: &'static str,
    /// Whether all of them have it.
    pub in_force: bool,
}

/// What a scrape shows of the agent.
#[derive(Debug, Clone, Default)]
pub struct VcpuSnapshot {
    /// By guest and by what the threads do ("vcpu 0", "emulator").
    pub meters: BTreeMap<(String, String), Meter>,
    /// By guest: how often a thread was found changed by somebody else.
    pub drift: BTreeMap<String, u64>,
    /// By guest: how often its class could not be given; the empty name is the
    /// agent's own trouble.
    pub errors: BTreeMap<String, u64>,
}

/// Shared with whoever serves metrics.
pub type Shared = Arc<Mutex<VcpuSnapshot>>;

/// Looks again and again.
#[derive(Debug)]
pub struct Watcher {
    config: VcpuConfig,
    agent: Agent,
    scanner: Scanner,
    guests: Vec<Guest>,
    /// How often each thread was changed back.
    changed_back: HashMap<ThreadId, u32>,
    /// By guest: what was said last, so that it is said once.
    said: BTreeMap<String, String>,
    /// Notes of plans, likewise.
    noted: BTreeSet<String>,
    last: HashMap<ThreadId, Schedstat>,
    tasks: HashMap<u32, Tasks>,
    shared: Shared,
}

impl Watcher {
    /// Takes over what a former agent with the same state has changed.
    ///
    /// # Errors
    /// The state cannot be used, or the machine cannot be looked at.
    pub fn open(config: VcpuConfig) -> Result<Self, VcpuError> {
        Ok(Self {
            agent: Agent::open(&config.state)?,
            scanner: Scanner::new().map_err(VcpuError::Observe)?,
            config,
            guests: Vec::new(),
            changed_back: HashMap::new(),
            said: BTreeMap::new(),
            noted: BTreeSet::new(),
            last: HashMap::new(),
            tasks: HashMap::new(),
            shared: Shared::default(),
        })
    }

    /// What it has measured.
    pub fn shared(&self) -> Shared {
        Arc::clone(&self.shared)
    }

    /// Its configuration.
    pub fn config(&self) -> &VcpuConfig {
        &self.config
    }

    /// Takes another configuration; the next round applies the difference. The
    /// place of the state stays as it was.
    pub fn reconfigure(&mut self, config: VcpuConfig) {
        let state = std::mem::take(&mut self.config.state);
        if config.state != state {
            tracing::warn!(
                state = %state.display(),
                "the vCPU agent's state stays where it is until a restart"
            );
        }
        self.config = VcpuConfig { state, ..config };
        self.changed_back.clear();
        self.said.clear();
    }

    /// One round: finds guests, gives their threads the class that is wanted,
    /// and puts threads back that no rule is for any more.
    pub fn round(&mut self) {
        match self.scanner.scan(&self.config.rules) {
            Ok(guests) => self.guests = guests,
            Err(error) => return self.failed("", &VcpuError::Observe(error).to_string()),
        }
        // What is kept is of this round's threads alone.
        self.tasks.clear();
        let wishes = wishes(&self.config.rules, &self.guests);
        self.release(&wishes);
        let mut in_force = BTreeSet::new();
        // All at once where nothing is in the way; otherwise each guest by itself,
        // so that one does not stand in the way of the others.
        match self.give(&wishes) {
            Ok(threads) => {
                self.said.clear();
                in_force = threads;
            }
            Err(_) => {
                for guest in self
                    .guests
                    .iter()
                    .map(|g| g.name.clone())
                    .collect::<Vec<_>>()
                {
                    let of_guest: Vec<_> = self.wishes_of(&guest, &wishes);
                    match self.give(&of_guest) {
                        Ok(threads) => {
                            self.said.remove(&guest);
                            in_force.extend(threads);
                        }
                        Err(error) => self.failed(&guest, &error.to_string()),
                    }
                }
            }
        }
        self.note_classes(&wishes, &in_force);
    }

    fn wishes_of(&self, guest: &str, wishes: &[Wish]) -> Vec<Wish> {
        let of_guest = self.guests.iter().filter(|g| g.name == guest);
        let threads: BTreeSet<_> = of_guest
            .flat_map(|g| g.threads.iter().map(|t| t.id))
            .collect();
        let wanted = wishes.iter().filter(|wish| threads.contains(&wish.thread));
        wanted.cloned().collect()
    }

    /// Restores threads that no rule is for any more, and forgets those that
    /// have ended.
    fn release(&mut self, wishes: &[Wish]) {
        let wanted: BTreeSet<_> = wishes.iter().map(|wish| wish.thread).collect();
        let changes = self.agent.changes();
        if changes.threads.keys().all(|thread| wanted.contains(thread)) {
            return;
        }
        match self
            .agent
            .restore_some(|step| !wanted.contains(&step.thread))
        {
            Ok(restored) => {
                for what in &restored.left {
                    tracing::warn!("left to whoever changed it: {what}");
                }
                for why in &restored.failed {
                    self.failed("", why);
                }
            }
            Err(error) => self.failed("", &error.to_string()),
        }
    }

    /// Gives threads their class; returns those that have it.
    fn give(&mut self, wishes: &[Wish]) -> Result<BTreeSet<ThreadId>, VcpuError> {
        let mut plan = self.agent.plan(wishes)?;
        for note in &plan.notes {
            if self.noted.insert(note.clone()) {
                tracing::warn!("{note}");
            }
        }
        let left = self.drift(&mut plan);
        let applied = self.agent.apply(&plan)?;
        for step in &plan.threads {
            tracing::info!("{step}");
        }
        for step in &plan.groups {
            tracing::info!("{step}");
        }
        for name in &applied.gone {
            tracing::debug!("{name} ended meanwhile");
        }
        let all = wishes.iter().map(|wish| wish.thread);
        Ok(all.filter(|thread| !left.contains(thread)).collect())
    }

    /// Counts steps that undo what somebody else did, and takes out those that
    /// are left to them; returns their threads.
    fn drift(&mut self, plan: &mut Plan) -> BTreeSet<ThreadId> {
        let changes = self.agent.changes();
        let mut left = BTreeSet::new();
        let mut seen = Vec::new();
        plan.threads.retain(|step| {
            let known = changes.threads.get(&step.thread);
            if known.is_none_or(|known| known.after != step.after) {
                return true;
            }
            let times = self.changed_back.entry(step.thread).or_default();
            *times += 1;
            let again = self.config.drift == OnDrift::Reapply && *times <= PATIENCE;
            if !again {
                left.insert(step.thread);
            }
            // What is left alone is the same in every round: said and counted once.
            if again || *times == 1 || *times == PATIENCE + 1 {
                seen.push((step.thread, step.name.clone(), step.before, again));
            }
            again
        });
        for (thread, name, before, again) in seen {
            let what = if again { "changed back" } else { "left so" };
            tracing::warn!(
                "{name}: somebody else made it {} on CPUs {}; {what}",
                before.scheduling,
                before.cpus
            );
            let has = |guest: &&Guest| guest.threads.iter().any(|own| own.id == thread);
            let guest = self.guests.iter().find(has).map(|guest| guest.name.clone());
            *self
                .lock()
                .drift
                .entry(guest.unwrap_or_default())
                .or_default() += 1;
        }
        left
    }

    fn failed(&mut self, guest: &str, message: &str) {
        *self.lock().errors.entry(guest.to_owned()).or_default() += 1;
        if self.said.get(guest).is_none_or(|said| said != message) {
            self.said.insert(guest.to_owned(), message.to_owned());
            for line in message.lines() {
                tracing::error!("{line}");
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VcpuSnapshot> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_classes(&self, wishes: &[Wish], in_force: &BTreeSet<ThreadId>) {
        let mut shared = self.lock();
        let wanted: BTreeSet<_> = wishes.iter().map(|wish| wish.thread).collect();
        for meter in shared.meters.values_mut() {
            meter.in_force = true;
        }
        for guest in &self.guests {
            let rule = rule_for(&self.config.rules, guest);
            for thread in &guest.threads {
                let class = match rule {
                    Some(rule) if thread.role.is_vcpu() => rule.class(),
                    Some(rule) => rule.helpers(),
                    None => Class::Normal,
                };
                let meter = shared
                    .meters
                    .entry(key(guest, thread))
                    .or_insert_with(|| Meter {
                        in_force: true,
                        ..Meter::default()
                    });
                meter.class = class.name();
                // All the threads that share a meter must have it.
                let missing = wanted.contains(&thread.id) && !in_force.contains(&thread.id);
                meter.in_force &= !missing;
            }
        }
        // A guest that ended is shown no more; if it returns it starts anew.
        let guests: BTreeSet<_> = self.guests.iter().map(|guest| &guest.name).collect();
        shared.meters.retain(|(guest, _), _| guests.contains(guest));
    }

    /// Reads how long each thread ran and waited since the last time.
    pub fn sample(&mut self) {
        let mut last = HashMap::with_capacity(self.last.len());
        let mut measured = Vec::new();
        for guest in &self.guests {
            for thread in &guest.threads {
                let ThreadId { pid, tid, .. } = thread.id;
                if let std::collections::hash_map::Entry::Vacant(place) = self.tasks.entry(pid) {
                    let Ok(tasks) = Tasks::open(&Root::default(), pid) else {
                        continue;
                    };
                    place.insert(tasks);
                }
                let seen = self.tasks.get(&pid).map(|tasks| tasks.schedstat(tid));
                let Some(Ok(Some(now))) = seen else { continue };
                last.insert(thread.id, now);
                if let Some(before) = self.last.get(&thread.id) {
                    measured.push((key(guest, thread), since(before, &now)));
                }
            }
        }
        self.last = last;
        let mut shared = self.lock();
        for (key, delta) in measured {
            let meter = shared.meters.entry(key).or_default();
            meter.cpu = meter.cpu.saturating_add(delta.run);
            if let Some(mean) = delta.wait.0.checked_div(delta.count) {
                meter.waits.record_many(Nanos(mean), delta.count);
            }
        }
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn restore(&mut self) -> Result<Restored, VcpuError> {
        self.agent.restore()
    }

    /// The guests of the last round.
    pub fn guests(&self) -> &[Guest] {
        &self.guests
    }
}

/// Which meter a thread belongs to: each vCPU has one, the others share one for
/// what they do.
fn key(guest: &Guest, thread: &GuestThread) -> (String, String) {
    let name = match thread.role {
        Role::Task => thread.name.clone(),
        role => role.to_string(),
    };
    (guest.name.clone(), name)
}

fn since(before: &Schedstat, now: &Schedstat) -> Schedstat {
    Schedstat {
        run: now.run.since(before.run),
        wait: now.wait.since(before.wait),
        count: now.count.saturating_sub(before.count),
    }
}
