//! Keeps guests in their classes while they start, grow and end, and measures
//! how long their threads wait.

mod standing;

use super::agent::{Agent, AgentError};
use super::apply::Restored;
use super::budget::{Wanted, desired};
use super::config::{AgentConfig, OnDrift};
use super::desired::Desired;
use super::entries::{Claims, settle};
use super::gauge::Gauge;
use super::granted::granted;
use super::guest::{Guest, Role};
use super::meters::{AgentSnapshot, Meter, MeterKey, Shared};
use super::offer::Offering;
use super::path::{DAEMON, PathStep, path_of};
use super::place::keeper;
use super::plan::Plan;
use super::rule::rule_for;
use super::scan::Scanner;
use super::standstill::Standstills;
use super::step::ThreadStep;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tailbound_sys::thread::ThreadId;

/// How often a thread that drifted is changed back.
const MAX_REAPPLIED: u32 = 3;

/// How many notes are remembered, so that each is logged once.
const MAX_NOTED: usize = 1000;

/// Keeps the desired state: scans, plans and applies again and again.
#[derive(Debug)]
pub struct Watcher {
    config: AgentConfig,
    agent: Agent,
    scanner: Scanner,
    guests: Vec<Guest>,
    /// How often each thread was changed back.
    reapplied: HashMap<ThreadId, u32>,
    /// How often the weight of each group was.
    reweighed: HashMap<PathBuf, u32>,
    /// How often the CPUs and interrupts of the host's own path were.
    path_reapplied: u32,
    /// What the kernel refused of that.
    path_refused: Vec<PathStep>,
    /// The errors of the last round, by guest, so that each is logged once.
    last_errors: BTreeSet<(String, String)>,
    /// The errors of this round.
    errors: BTreeSet<(String, String)>,
    /// The notes of plans that were logged.
    noted: BTreeSet<String>,
    offering: Offering,
    /// Where moments are counted from.
    began: Instant,
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
            reapplied: HashMap::new(),
            reweighed: HashMap::new(),
            path_reapplied: 0,
            path_refused: Vec::new(),
            last_errors: BTreeSet::new(),
            errors: BTreeSet::new(),
            noted: BTreeSet::new(),
            offering: Offering::default(),
            began: Instant::now(),
            standstills: Standstills::default(),
            claims: Claims::default(),
            gauge,
            shared: Shared::default(),
        })
    }

    /// Returns what it measures, for whoever serves metrics.
    pub fn shared(&self) -> Shared {
        Arc::clone(&self.shared)
    }

    /// Returns its configuration.
    pub fn config(&self) -> &AgentConfig {
        &self.config
    }

    /// Takes another configuration; the next round applies the difference. The
    /// place of the state stays as it was.
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
        self.reapplied.clear();
        self.reweighed.clear();
        self.path_reapplied = 0;
        self.path_refused.clear();
        self.standstills = Standstills::default();
        self.last_errors.clear();
    }

    /// Does one round: finds guests, applies the desired states of their threads, and
    /// restores threads that no rule is for any more.
    pub fn round(&mut self) {
        if let Err(error) = self.try_round() {
            self.failed("", &AgentError::Observe(error).to_string());
        }
        self.last_errors = std::mem::take(&mut self.errors);
    }

    fn try_round(&mut self) -> std::io::Result<()> {
        self.scanner.ask_runtime(self.config.cri.clone());
        self.guests = self.scanner.scan(&self.config.rules)?;
        for refusal in self.scanner.refusals().to_vec() {
            self.failed("", &refusal);
        }
        self.settle();
        self.follow();
        // First: it decides which CPUs the guests have.
        if let Err(error) = self.keep_path() {
            self.failed(DAEMON, &error.to_string());
        }
        let held = &self.agent.changes().threads;
        let cpus = self.scanner.cpus()?;
        let Wanted {
            mut desired,
            beyond,
        } = desired(&self.config.rules, &self.guests, cpus, |thread| {
            held.contains_key(&thread)
        });
        for beyond in beyond {
            self.failed(&beyond.guest, &beyond.to_string());
        }
        self.note_guests();
        self.release(&desired);
        let plain = self.release_standing(&mut desired);
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

    /// Keeps CPUs and interrupts for the host's own path, as the configuration says.
    fn keep_path(&mut self) -> Result<(), AgentError> {
        let config = self.config.path.clone().unwrap_or_default();
        let done = &self.agent.changes().path;
        if done
            .iter()
            .filter_map(PathStep::takes)
            .any(|taken| Some(taken) != config.cpus)
        {
            let restored = self.agent.restore_path();
            self.note_restored(restored);
        }
        let daemon = path_of(&self.config.rules, &self.guests);
        let again = self.config.drift == OnDrift::Reapply && self.path_reapplied < MAX_REAPPLIED;
        let drifted = self.agent.attend_path(&daemon, |_| again)?;
        if !drifted.is_empty() && self.path_reapplied <= MAX_REAPPLIED {
            self.path_reapplied += 1;
            for step in &drifted {
                tracing::warn!("{step}: somebody else changed that; {}", outcome(again));
            }
            *self.lock().drift.entry(DAEMON.to_owned()).or_default() += drifted.len() as u64;
        }
        for step in self.agent.plan_path(&config, &daemon)? {
            if self.path_refused.contains(&step) {
                continue;
            }
            match self.agent.apply_path(std::slice::from_ref(&step)) {
                Ok(()) => tracing::info!("{step}"),
                Err(error) => {
                    // Not in each round: cpusets are made and taken back for nothing.
                    self.path_refused.push(step);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Says what the placement service may reserve of this host's CPU, if anything.
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

    /// Tells threads that run vCPUs from those that only say so, where the kernel can be asked.
    fn settle(&mut self) {
        let entries = self
            .gauge
            .entries(&self.guests, |guest| guest.rule.is_some());
        let held = &self.agent.changes().threads;
        settle(&mut self.guests, &entries, |thread| {
            held.contains_key(&thread)
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

    /// Logs once what is to be noted of guests, such as why no rule counts for one.
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
            let gone = |step: &ThreadStep| !wanted.contains(&step.thread);
            let restored = self.agent.restore_some(gone);
            self.note_restored(restored);
        }
    }

    fn note_restored(&mut self, restored: Result<Restored, AgentError>) {
        match restored {
            Ok(restored) => {
                for what in &restored.drifted {
                    tracing::warn!("drifted, stays as it is: {what}");
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

    /// Counts the steps that change drifted threads back, and takes out of the plan
    /// those that stay as they are; returns their threads.
    fn take_drifted(&mut self, plan: &mut Plan) -> BTreeSet<ThreadId> {
        let changes = self.agent.changes();
        let mut drifted = BTreeSet::new();
        let mut seen = Vec::new();
        plan.threads.retain(|step| {
            let known = changes.threads.get(&step.thread);
            if known.is_none_or(|known| known.after != step.after) {
                return true;
            }
            let times = self.reapplied.entry(step.thread).or_default();
            *times += 1;
            let again = self.config.drift == OnDrift::Reapply && *times <= MAX_REAPPLIED;
            if !again {
                drifted.insert(step.thread);
            }
            // What stays as it is would be the same in every round: counted once.
            if again || *times == 1 || *times == MAX_REAPPLIED + 1 {
                seen.push((step.thread, step.name.clone(), step.before, again));
            }
            again
        });
        for (thread, name, before, again) in seen {
            let what = outcome(again);
            tracing::warn!(
                "{name}: somebody else made it {} on CPUs {}; {what}",
                before.scheduling,
                before.cpus
            );
            let guest = self.guest_of(thread);
            *self.lock().drift.entry(guest).or_default() += 1;
        }
        drifted
    }

    /// Does the same for control groups: managers of groups set weights anew, each for its
    /// reasons. Returns the groups that stay as they are.
    fn take_drifted_groups(&mut self, plan: &mut Plan) -> BTreeSet<PathBuf> {
        let changes = self.agent.changes();
        let mut drifted = BTreeSet::new();
        let mut seen = Vec::new();
        plan.groups.retain(|step| {
            let known = changes.groups.get(&step.directory);
            if known.is_none_or(|known| known.after != step.after) {
                return true;
            }
            let times = self.reweighed.entry(step.directory.clone()).or_default();
            *times += 1;
            let again = self.config.drift == OnDrift::Reapply && *times <= MAX_REAPPLIED;
            if !again {
                drifted.insert(step.directory.clone());
            }
            if again || *times == 1 || *times == MAX_REAPPLIED + 1 {
                seen.push((step.clone(), again));
            }
            again
        });
        for (step, again) in seen {
            let group = step.directory.display();
            tracing::warn!(
                "group {group}: {} made its {} {}; {}",
                keeper(&group.to_string()),
                step.kind.file(),
                step.before,
                outcome(again)
            );
            let of = |guest: &&Guest| guest.weighed.group() == Some(&step.directory);
            let guest = self.guests.iter().find(of).map(|guest| guest.name.clone());
            let mut shared = self.lock();
            *shared.drift.entry(guest.unwrap_or_default()).or_default() += 1;
        }
        drifted
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

    /// Takes what was measured of the threads of the guests with a rule since the last time.
    /// Whoever starts guests that no rule is for costs no reading and no metric.
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

/// What becomes of something that drifted.
fn outcome(again: bool) -> &'static str {
    if again { "changed back" } else { "it stays so" }
}
