//! Keeps guests in their classes while they start, grow and end, and measures
//! how long their threads wait.

mod drift;
mod standstills;

use super::agent::{Agent, AgentError};
use super::apply::Restored;
use super::budget::{DesiredStates, desired};
use super::config::AgentConfig;
use super::desired::Desired;
use super::entries::{Claims, settle};
use super::gauge::Gauge;
use super::granted::granted;
use super::guest::{Guest, Role};
use super::meters::{AgentSnapshot, Meter, MeterKey, Shared};
use super::offer::Offerer;
use super::path::{DAEMON, PathStep};
use super::rule::rule_for;
use super::scan::Scanner;
use super::standstill::Standstills;
use super::step::ThreadStep;
use drift::Drift;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tailbound_sys::thread::ThreadId;
use tailbound_units::Nanos;

/// Maximum number of remembered notes; each is logged once.
const MAX_NOTED: usize = 1000;

/// Keeps the desired state: scans, plans and applies again and again.
#[derive(Debug)]
pub struct Watcher {
    config: AgentConfig,
    agent: Agent,
    scanner: Scanner,
    guests: Vec<Guest>,
    drift: Drift,
    /// Steps of the host's own path that the kernel refused.
    path_refused: Vec<PathStep>,
    /// The errors of the last round, by guest, so that each is logged once.
    last_errors: BTreeSet<(String, String)>,
    /// The errors of this round.
    errors: BTreeSet<(String, String)>,
    /// The notes of plans that were logged.
    noted: BTreeSet<String>,
    offering: Offerer,
    /// The zero of moments.
    began: Instant,
    /// The moment of this round.
    now: Nanos,
    standstills: Standstills,
    claims: Claims,
    gauge: Gauge,
    shared: Shared,
}

impl Watcher {
    /// Opens a watcher, which takes over what a former agent with the same state has
    /// changed.
    ///
    /// # Errors
    /// The state cannot be used, or the machine cannot be looked at.
    pub fn open(config: AgentConfig) -> Result<Self, AgentError> {
        let gauge = Gauge::open(config.bpf, config.late);
        Ok(Self {
            agent: Agent::open(&config.state)?,
            scanner: Scanner::new().map_err(AgentError::Observe)?,
            config,
            guests: Vec::new(),
            drift: Drift::default(),
            path_refused: Vec::new(),
            last_errors: BTreeSet::new(),
            errors: BTreeSet::new(),
            noted: BTreeSet::new(),
            offering: Offerer::default(),
            began: Instant::now(),
            now: Nanos::ZERO,
            standstills: Standstills::default(),
            claims: Claims::default(),
            gauge,
            shared: Shared::default(),
        })
    }

    /// Returns its measurements, for a server of metrics.
    pub fn shared(&self) -> Shared {
        Arc::clone(&self.shared)
    }

    /// Returns its configuration.
    pub fn config(&self) -> &AgentConfig {
        &self.config
    }

    /// Changes the configuration; the next round applies the difference. The place of the state
    /// stays unchanged.
    pub fn reconfigure(&mut self, config: AgentConfig) {
        let state = std::mem::take(&mut self.config.state);
        if config.state != state {
            tracing::warn!(
                state = %state.display(),
                "the vCPU agent's state stays where it is until a restart"
            );
        }
        if (self.config.bpf, self.config.late) != (config.bpf, config.late) {
            self.gauge = Gauge::open(config.bpf, config.late);
        }
        self.config = AgentConfig { state, ..config };
        self.drift.clear();
        self.path_refused.clear();
        self.standstills = Standstills::default();
        self.last_errors.clear();
    }

    /// Does one round: finds guests, applies the desired states of their threads, and
    /// restores threads that no rule is for any more.
    pub fn round(&mut self) {
        self.round_at(Nanos::from(self.began.elapsed()));
    }

    /// Does a round at `now`, which is no earlier than that of the round before; see
    /// [`Self::round`].
    pub fn round_at(&mut self, now: Nanos) {
        self.now = now;
        self.drift.age(now);
        if let Err(error) = self.try_round() {
            self.failed("", &AgentError::Observe(error).to_string());
        }
        self.last_errors = std::mem::take(&mut self.errors);
    }

    fn try_round(&mut self) -> std::io::Result<()> {
        self.scanner.ask_runtime(self.config.cri.clone());
        self.guests = self.scanner.scan_at(self.now, &self.config.rules)?;
        for refusal in self.scanner.refusals().to_vec() {
            self.failed("", &refusal);
        }
        self.settle();
        self.follow();
        // First: it decides which CPUs the guests have.
        if let Err(error) = self.keep_path() {
            self.failed(DAEMON, &error.to_string());
        }
        let held_threads = &self.agent.changes().threads;
        let cpus = self.scanner.cpus()?;
        let DesiredStates {
            mut desired,
            beyond,
        } = desired(&self.config.rules, &self.guests, cpus, |thread| {
            held_threads.contains_key(&thread)
        });
        for beyond in beyond {
            self.failed(&beyond.guest, &beyond.to_string());
        }
        self.note_guests();
        self.release(&desired);
        let plain = self.release_standstills(&mut desired);
        // All at once where nothing is in the way; otherwise each guest by itself, so
        // that one does not keep the others from their classes.
        let mut in_force = match self.apply(&desired) {
            Ok(threads) => threads,
            Err(_) => self.apply_to_each(&desired),
        };
        in_force.retain(|thread| !plain.contains(thread));
        self.note_classes(&desired, &in_force);
        self.note_quotas();
        self.note_offer()
    }

    /// Updates the CPU time that the placement service may reserve on this host.
    fn note_offer(&mut self) -> std::io::Result<()> {
        let config = self.config.offer.as_ref();
        let offer = self.offering.round(config, self.agent.observer())?;
        match offer {
            Ok(offer) => self.lock().offer = offer,
            Err(why) => {
                self.lock().offer = None;
                self.failed("", &why.to_string());
            }
        }
        Ok(())
    }

    /// Distinguishes threads that run vCPUs from threads that only claim it, if the kernel can be
    /// queried.
    fn settle(&mut self) {
        let entries = self
            .gauge
            .entries(&self.guests, |guest| guest.rule.is_some());
        let held_threads = &self.agent.changes().threads;
        settle(&mut self.guests, &entries, |thread| {
            held_threads.contains_key(&thread)
        });
        for note in self.claims.look(&self.guests) {
            tracing::warn!("{note}");
        }
    }

    /// Measures the threads of the guests with a rule.
    fn follow(&mut self) {
        let followed = self
            .gauge
            .follow(&self.guests, |guest| guest.rule.is_some());
        if let Err(message) = followed {
            self.failed("", &message);
        }
        let mut shared = self.lock();
        shared.source = self.gauge.source();
        shared.detail = self.config.detail;
    }

    /// Logs notes about guests once, for example the reason why no rule selects one.
    fn note_guests(&mut self) {
        if let Some(missing) = self.scanner.missing_names().map(str::to_owned)
            && self.noted.len() < MAX_NOTED
            && self.noted.insert(missing.clone())
        {
            tracing::warn!("{missing}");
        }
        for guest in &self.guests {
            for note in &guest.notes {
                let note = format!("{} (process {}): {note}", guest.name, guest.pid);
                // Whoever starts processes without end must not fill the memory.
                if self.noted.len() < MAX_NOTED && self.noted.insert(note.clone()) {
                    tracing::warn!("{note}");
                }
            }
        }
    }

    /// Applies the desired states guest by guest; returns the threads that have
    /// theirs.
    fn apply_to_each(&mut self, desired: &[Desired]) -> BTreeSet<ThreadId> {
        let mut in_force = BTreeSet::new();
        let guests: Vec<_> = self.guests.iter().map(|guest| guest.name.clone()).collect();
        for guest in guests {
            match self.apply(&self.desired_of(&guest, desired)) {
                Ok(threads) => in_force.extend(threads),
                Err(error) => self.failed(&guest, &error.to_string()),
            }
        }
        in_force
    }

    fn desired_of(&self, guest: &str, desired: &[Desired]) -> Vec<Desired> {
        let of_guest = self.guests.iter().filter(|g| g.name == guest);
        let threads: BTreeSet<_> = of_guest
            .flat_map(|g| g.threads.iter().map(|t| t.id))
            .collect();
        let wanted = desired
            .iter()
            .filter(|wanted| threads.contains(&wanted.thread));
        wanted.cloned().collect()
    }

    /// Restores threads that no rule is for any more, and groups that weigh none of them,
    /// and forgets those that have exited.
    fn release(&mut self, desired: &[Desired]) {
        let wanted: BTreeSet<_> = desired.iter().map(|wanted| wanted.thread).collect();
        let groups: BTreeSet<_> = desired.iter().filter_map(|w| w.weighed.group()).collect();
        let changes = self.agent.changes();
        if !changes.groups.keys().all(|group| groups.contains(group)) {
            let restored = self.agent.regroup(desired);
            self.note_restored(restored);
        }
        let changes = self.agent.changes();
        if !changes.threads.keys().all(|thread| wanted.contains(thread)) {
            let is_unwanted = |step: &ThreadStep| !wanted.contains(&step.thread);
            let restored = self.agent.restore_some(is_unwanted);
            self.note_restored(restored);
        }
    }

    fn note_restored(&mut self, restored: Result<Restored, AgentError>) {
        match restored {
            Ok(restored) => {
                for drift in &restored.drifted {
                    tracing::warn!("drifted, stays as it is: {drift}");
                }
                for why in &restored.failed {
                    self.failed("", why);
                }
            }
            Err(error) => self.failed("", &error.to_string()),
        }
    }

    /// Applies the desired states; returns the threads that have theirs.
    fn apply(&mut self, desired: &[Desired]) -> Result<BTreeSet<ThreadId>, AgentError> {
        let mut plan = self.agent.plan(desired)?;
        for note in &plan.notes {
            if self.noted.len() < MAX_NOTED && self.noted.insert(note.clone()) {
                tracing::warn!("{note}");
            }
        }
        let mut drifted = self.take_drifted(&mut plan);
        let groups = self.take_drifted_groups(&mut plan);
        let weighed = desired.iter().filter(|wanted| {
            let group = wanted.weighed.group();
            group.is_some_and(|group| groups.contains(group))
        });
        drifted.extend(weighed.map(|wanted| wanted.thread));
        let applied = self.agent.apply(&plan)?;
        for step in &plan.threads {
            tracing::info!("{step}");
        }
        for step in &plan.groups {
            tracing::info!("{step}");
        }
        for name in &applied.exited {
            tracing::debug!("{name} exited meanwhile");
        }
        let all = desired.iter().map(|wanted| wanted.thread);
        Ok(all.filter(|thread| !drifted.contains(thread)).collect())
    }

    fn failed(&mut self, guest: &str, message: &str) {
        *self.lock().errors.entry(guest.to_owned()).or_default() += 1;
        let error = (guest.to_owned(), message.to_owned());
        if !self.last_errors.contains(&error) && !self.errors.contains(&error) {
            for line in message.lines() {
                tracing::error!("{line}");
            }
        }
        self.errors.insert(error);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, AgentSnapshot> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_quotas(&self) {
        let mut throttled = BTreeMap::new();
        for guest in self.guests.iter().filter(|guest| guest.rule.is_some()) {
            for quota in self.scanner.quotas(guest) {
                throttled.insert((guest.name.clone(), quota.group), quota.throttled);
            }
        }
        self.lock().throttled = throttled;
    }

    fn note_classes(&self, desired: &[Desired], in_force: &BTreeSet<ThreadId>) {
        let mut shared = self.lock();
        let wanted: BTreeSet<_> = desired.iter().map(|wanted| wanted.thread).collect();
        for meter in shared.meters.values_mut() {
            meter.in_force = true;
        }
        for guest in &self.guests {
            let Some(rule) = rule_for(&self.config.rules, guest) else {
                continue;
            };
            let threads = guest.threads.iter();
            for thread in threads.filter(|thread| !matches!(thread.role, Role::Claim(_))) {
                let meter = shared
                    .meters
                    .entry(MeterKey::of(guest, thread))
                    .or_insert_with(|| Meter {
                        in_force: true,
                        ..Meter::default()
                    });
                meter.class = rule.class_of(thread).name();
                // All the threads that share a meter must have it.
                let missing = wanted.contains(&thread.id) && !in_force.contains(&thread.id);
                meter.in_force &= !missing;
            }
        }
        // A guest that ended is shown no more; if it returns it starts anew.
        let ruled = self.guests.iter().filter(|guest| guest.rule.is_some());
        let guests: BTreeSet<_> = ruled.map(|guest| &guest.name).collect();
        shared.meters.retain(|key, _| guests.contains(&key.guest));
        shared.late.retain(|guest, _| guests.contains(guest));
        shared.reservations = granted(&self.config.rules, &self.guests, in_force);
    }

    /// Reads the new measurements of threads of guests with a rule. Guests without a rule cost no
    /// reading and no metric.
    pub fn sample(&mut self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.gauge.sample(&mut shared);
    }

    /// Restores everything.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn restore(&mut self) -> Result<Restored, AgentError> {
        self.agent.restore()
    }

    /// Returns the guests of the last round.
    pub fn guests(&self) -> &[Guest] {
        &self.guests
    }
}
