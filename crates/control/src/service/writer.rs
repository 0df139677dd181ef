//! The writer: the only thread that decides.

use super::entries::{self, CallAnswer, Refusals};
use super::history::{self, Item};
use super::{CommitReport, OnEnd, ServiceError, Shared};
use crate::fair::{FairQueue, Payer};
use crate::ledger::{
    AffectedHosts, Call, Change, Command, Description, Ledger, LoadError, Undo, taken_back,
    tenants_of, trail,
};
use crate::store::{Store, StoreError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailbound_api::{AuditEntry, Event, TenantState};
use tailbound_units::Nanos;
use tokio::sync::{mpsc, oneshot};

/// Limit on the calls in a commit.
pub(super) const CALLS: usize = 64;
/// A commit takes no more calls after this time of deciding, so that no reply waits for many others'
/// long decisions.
const DECIDING: Duration = if cfg!(test) {
    // Unit tests count the calls of a batch; a thread that waits for a CPU must not end it.
    Duration::MAX
} else {
    Duration::from_millis(2)
};
/// Limit on the calls that wait in the writer's own queue; further ones stay in the service's.
const WAITING: usize = 1024;
/// Limit on the changes in a commit: etcd accepts 128 operations in a transaction.
const CHANGES: usize = 96;

/// A job of the writer. Calls of one owner are decided in the order in which they were sent, and a
/// transition is done after all calls that were sent before it.
pub(super) enum Job {
    Call(Box<Call>, oneshot::Sender<CallAnswer>),
    Transition(Transition),
}

/// A change of role, or of the ledger by another replica.
pub(super) enum Transition {
    Lead(Box<dyn Store>, OnEnd, oneshot::Sender<()>),
    Follow(oneshot::Sender<()>),
    Replace(Box<Ledger>, oneshot::Sender<()>),
    Apply(Vec<Change>, u64, oneshot::Sender<Result<(), LoadError>>),
    KeepRefusals(oneshot::Sender<()>),
    CheckStore(oneshot::Sender<()>),
}

type WaitingCall = (Box<Call>, oneshot::Sender<CallAnswer>);

/// The state that exists only while the service leads.
struct LeaderState {
    /// Ledger of the writer. It is ahead of the readers' ledger by the decisions that are not
    /// durable yet.
    ledger: Ledger,
    store: Box<dyn Store>,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<Job>,
    /// Calls that wait.
    waiting: FairQueue<Payer, WaitingCall>,
    /// A call with many changes that waits for a commit of its own.
    carried: Option<(Payer, WaitingCall)>,
    /// A transition that waits for them.
    next: Option<Transition>,
    observe: Box<dyn FnMut(&CommitReport) + Send>,
    leading: Option<LeaderState>,
    /// The audit's entries of refused calls, which no commit has kept yet.
    refusals: Refusals,
    /// The audit's entries of the last commit, if its outcome is unknown.
    unsettled: Vec<Change>,
    /// Called once when the writer cannot lead any more.
    on_end: Option<OnEnd>,
}

/// Calls that are decided and not yet answered.
#[derive(Default)]
struct Batch {
    answers: Vec<(oneshot::Sender<CallAnswer>, CallAnswer)>,
    changes: Vec<Change>,
    undos: Vec<Undo>,
    /// The audit's entries of the calls that changed something, with the indices of their answers.
    entries: Vec<(usize, AuditEntry)>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: mpsc::Receiver<Job>,
        observe: Box<dyn FnMut(&CommitReport) + Send>,
    ) -> Self {
        Self {
            shared,
            queue,
            waiting: FairQueue::default(),
            carried: None,
            next: None,
            observe,
            leading: None,
            refusals: Refusals::default(),
            unsettled: Vec::new(),
            on_end: None,
        }
    }

    /// Works until every handle of the service is dropped.
    pub(super) fn run(mut self) {
        let worked = catch_unwind(AssertUnwindSafe(|| self.work()));
        self.shared.leads.store(false, Ordering::Release);
        if worked.is_err() {
            // A defect. The ledger in memory may be half changed; the store is not.
            self.end(StoreError::Uncertain(
                "the thread that decides failed".into(),
            ));
        }
    }

    fn work(&mut self) {
        loop {
            self.collect();
            if self.waiting.len() > 0 || self.carried.is_some() {
                self.batch();
            } else if let Some(transition) = self.next.take() {
                self.transition(transition);
            } else {
                match self.queue.blocking_recv() {
                    Some(job) => self.take(job),
                    None => return,
                }
            }
        }
    }

    /// Takes over the jobs that were sent, up to a transition.
    fn collect(&mut self) {
        while self.next.is_none() && self.waiting.len() < WAITING {
            match self.queue.try_recv() {
                Ok(job) => self.take(job),
                Err(_) => return,
            }
        }
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Call(call, answer) => self.waiting.push(payer(&call), (call, answer)),
            Job::Transition(transition) => self.next = Some(transition),
        }
    }

    fn next_call(&mut self) -> Option<(Payer, WaitingCall)> {
        self.carried.take().or_else(|| self.waiting.pop())
    }

    fn end(&mut self, error: StoreError) {
        if let Some(on_end) = self.on_end.take() {
            on_end(error);
        }
    }

    /// Decides calls that wait, keeps all in one commit and answers them.
    fn batch(&mut self) {
        let Some(mut leading) = self.leading.take() else {
            while let Some((_, (_, answer))) = self.next_call() {
                let _ = answer.send(CallAnswer::undecided(ServiceError::NotLeader));
            }
            return;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = Nanos(now.map_or(0, |since| since.as_nanos() as u64));
        let mut batch = Batch::default();
        let begin = Instant::now();
        let mut at = begin;
        while batch.answers.len() < CALLS && batch.changes.len() < CHANGES && at - begin < DECIDING
        {
            let Some((payer, (call, answer))) = self.next_call() else {
                break;
            };
            if batch.has_no_room_for(&call) {
                self.carried = Some((payer, (call, answer)));
                break;
            }
            batch.decide(&mut leading.ledger, &call, now, answer, &mut self.refusals);
            let end = Instant::now();
            self.waiting.charge(&payer, end - at);
            at = end;
            self.collect();
        }
        let keeps_refusals = !batch.changes.is_empty() || self.refusals.is_full();
        let refusals = keeps_refusals.then(|| self.refusals.take());
        self.leading = self.commit(leading, batch, refusals.unwrap_or_default());
    }

    /// Commits a batch with its entries and those of `refusals`, and answers its calls. Returns the
    /// leading state if the writer can go on.
    fn commit(
        &mut self,
        mut leading: LeaderState,
        mut batch: Batch,
        refusals: Vec<AuditEntry>,
    ) -> Option<LeaderState> {
        let start = Instant::now();
        let decided = batch.changes.len();
        batch.seal(&leading.ledger, refusals.clone());
        let outcome = leading.store.commit(&batch.changes);
        (self.observe)(&CommitReport {
            calls: batch.answers.len(),
            changes: decided,
            wrote: !batch.changes.is_empty(),
            is_check: false,
            took: start.elapsed(),
            error: outcome.as_ref().err().cloned(),
        });
        match outcome {
            Ok(revision) => {
                trail::add(&mut leading.ledger, &batch.changes[decided..]);
                self.publish(&batch.changes, revision, &leading.ledger);
                for (caller, answer) in batch.answers {
                    let _ = caller.send(answer);
                }
                Some(leading)
            }
            Err(error) => {
                if error.is_certain() || error == StoreError::NotLeader {
                    for refusal in refusals {
                        self.refusals.push(refusal);
                    }
                } else {
                    self.unsettled = batch.changes.split_off(decided);
                }
                self.failed(leading, batch, error)
            }
        }
    }

    /// Answers a batch whose commit failed. Returns the leading state, as before the batch, if it
    /// is certain that nothing was written.
    fn failed(
        &mut self,
        mut leading: LeaderState,
        batch: Batch,
        error: StoreError,
    ) -> Option<LeaderState> {
        let certain = error.is_certain();
        if certain {
            let undone = batch.undos.into_iter().rev();
            let mut undone = undone.map(|undo| leading.ledger.undo(undo));
            if undone.any(|undone| undone.is_err()) {
                leading.ledger = self.read_ledger();
            }
        } else {
            self.shared.leads.store(false, Ordering::Release);
        }
        // A refusal may rest on a decision that was not kept, so it does not count either.
        for (caller, answer) in batch.answers {
            let entry = answer.entry.as_ref().filter(|_| certain);
            let reversal = entry.and_then(|entry| taken_back(entry, error.to_string()));
            if let Some(entry) = reversal {
                self.refusals.push(entry);
            }
            let _ = caller.send(CallAnswer {
                reply: Err(error.clone().into()),
                ..answer
            });
        }
        if certain {
            return Some(leading);
        }
        self.end(error);
        None
    }

    /// Applies a durable commit to the ledger of the readers.
    fn publish(&mut self, changes: &[Change], revision: u64, decided: &Ledger) {
        // A new topology takes long to build, and the writer has built it already.
        let built = changes.iter().any(is_topology).then(|| decided.clone());
        let touched = {
            let mut ledger = self.write();
            let items = history::concerned(&ledger, changes);
            let touched = match built {
                Some(built) => {
                    ledger.replace_with(built);
                    AffectedHosts::All
                }
                None => match ledger.apply(changes) {
                    Ok(touched) => touched,
                    // Both ledgers were the same before, so this is a defect; the deciding one
                    // is right.
                    Err(error) => {
                        tracing::error!(%error, "a commit does not fit what is read");
                        ledger.replace_with(decided.clone());
                        AffectedHosts::All
                    }
                },
            };
            ledger.set_revision(revision);
            match touched {
                AffectedHosts::All => self.shared.questions.forget(),
                AffectedHosts::Hosts(_) => self.shared.questions.note(changes, revision),
            }
            self.tell(&mut ledger, items);
            touched
        };
        self.wake_tokens(changes);
        self.wake(&touched, revision);
    }

    /// Logs the changed states of tenants, and notes them with the other changes in the history.
    fn tell(&self, ledger: &mut Ledger, mut items: Vec<Item>) {
        let revision = ledger.revision();
        for tenant in ledger.take_moves() {
            let hosts = tenant.hosts.iter();
            let why: Vec<_> = hosts
                .filter_map(|host| Some(format!("{}: {}", host.host, host.why.as_ref()?)))
                .collect();
            let (name, state) = (
                format!("{}/{}", tenant.owner, tenant.name),
                tenant.state.word(),
            );
            match tenant.state {
                TenantState::Degraded => {
                    tracing::error!(
                        tenant = name,
                        state,
                        why = why.join("; "),
                        "a promise is not kept"
                    );
                }
                TenantState::Pending | TenantState::Admitted => {
                    tracing::info!(tenant = name, state, "a promise");
                }
            }
            items.push(Item::State(Arc::new(Event {
                revision,
                tenant: Some(tenant),
                missed: 0,
                age_ms: 0,
            })));
        }
        self.shared.history.note(revision, items);
    }

    fn wake_tokens(&self, changes: &[Change]) {
        let is_token = |it: &Change| matches!(it, Change::Token(_) | Change::TokenGone(_));
        if changes.iter().any(is_token) {
            self.shared.tokens.send_modify(|changes| *changes += 1);
        }
    }

    fn wake(&self, touched: &AffectedHosts, revision: u64) {
        self.shared.watchers.wake(touched, revision);
        self.shared.revision.send_if_modified(|last| {
            let modified = *last != revision;
            *last = revision;
            modified
        });
    }

    /// Leads, follows, or takes over the decisions of another replica.
    fn transition(&mut self, transition: Transition) {
        match transition {
            Transition::Lead(mut store, on_end, done) => {
                let ledger = self.read_ledger();
                store.begin(tenants_of(&ledger));
                self.leading = Some(LeaderState { ledger, store });
                self.on_end = Some(on_end);
                self.shared.leads.store(true, Ordering::Release);
                let _ = done.send(());
            }
            Transition::Follow(done) => {
                self.keep_refusals();
                self.stop_leading();
                let _ = done.send(());
            }
            Transition::Replace(ledger, done) => {
                self.stop_leading();
                entries::settle(&std::mem::take(&mut self.unsettled), &ledger);
                let revision = ledger.revision();
                let mut shared_ledger = self.write();
                let items = history::between(&shared_ledger, &ledger);
                shared_ledger.replace_with(*ledger);
                self.shared.questions.forget();
                self.tell(&mut shared_ledger, items);
                drop(shared_ledger);
                self.shared.tokens.send_modify(|changes| *changes += 1);
                self.wake(&AffectedHosts::All, revision);
                let _ = done.send(());
            }
            Transition::Apply(changes, revision, done) => {
                let _ = done.send(self.apply(changes, revision));
            }
            Transition::KeepRefusals(done) => {
                self.keep_refusals();
                let _ = done.send(());
            }
            Transition::CheckStore(done) => {
                self.check_store();
                let _ = done.send(());
            }
        }
    }

    /// Observes whether the store keeps the next commit. After an error that is not certain the service
    /// stops leading, as after such a commit.
    fn check_store(&mut self) {
        let Some(mut leading) = self.leading.take() else {
            return;
        };
        let start = Instant::now();
        let checked = leading.store.check_writable();
        if checked != Ok(false) {
            (self.observe)(&CommitReport {
                calls: 0,
                changes: 0,
                wrote: true,
                is_check: true,
                took: start.elapsed(),
                error: checked.as_ref().err().cloned(),
            });
        }
        self.leading = match checked {
            Err(error) if !error.is_certain() => self.failed(leading, Batch::default(), error),
            _ => Some(leading),
        };
    }

    /// Applies a commit of another replica to the ledger of the readers.
    fn apply(&mut self, mut changes: Vec<Change>, revision: u64) -> Result<(), LoadError> {
        let touched = if changes.iter().any(is_topology) {
            // This takes long, so it is done on a copy; nobody else changes the original.
            let mut built = self.read_ledger();
            let touched = built.apply(&changes)?;
            built.set_revision(revision);
            let mut ledger = self.write();
            let items = history::concerned(&ledger, &changes);
            ledger.replace_with(built);
            self.shared.questions.forget();
            self.tell(&mut ledger, items);
            touched
        } else {
            let mut ledger = self.write();
            ledger.share_names(&mut changes);
            let items = history::concerned(&ledger, &changes);
            let touched = ledger.apply(&changes)?;
            ledger.set_revision(revision);
            self.shared.questions.note(&changes, revision);
            self.tell(&mut ledger, items);
            touched
        };
        self.wake_tokens(&changes);
        self.wake(&touched, revision);
        Ok(())
    }

    /// Commits the entries of refused calls, if this service leads.
    fn keep_refusals(&mut self) {
        if !self.refusals.is_empty()
            && let Some(leading) = self.leading.take()
        {
            let refusals = self.refusals.take();
            self.leading = self.commit(leading, Batch::default(), refusals);
        }
    }

    fn stop_leading(&mut self) {
        self.leading = None;
        self.on_end = None;
        self.shared.leads.store(false, Ordering::Release);
    }

    fn read_ledger(&self) -> Ledger {
        let ledger = self.shared.ledger.read();
        ledger.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Ledger> {
        let ledger = self.shared.ledger.write();
        ledger.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the payer of a call. Calls of hosts do not delay operators.
fn payer(call: &Call) -> Payer {
    let owner = call.owner.as_deref();
    match (
        &call.command,
        owner.or_else(|| call.command.owner_of_host()),
    ) {
        (Command::Report { .. } | Command::Silence { .. }, _) => Payer::Hosts,
        (_, Some(owner)) => Payer::Owner(owner.to_owned()),
        (_, None) => Payer::Operators,
    }
}

fn is_topology(change: &Change) -> bool {
    matches!(change, Change::Topology(_))
}

impl Batch {
    /// Returns whether a call with many changes needs a commit of its own: a transaction has all
    /// changes of a call or none.
    fn has_no_room_for(&self, call: &Call) -> bool {
        let many = call.command.many_changes();
        many.is_some_and(|many| !self.changes.is_empty() && self.changes.len() + many > CHANGES)
    }

    fn decide(
        &mut self,
        ledger: &mut Ledger,
        call: &Call,
        now: Nanos,
        caller: oneshot::Sender<CallAnswer>,
        refusals: &mut Refusals,
    ) {
        let words = Description::new(ledger, call);
        let answer = match ledger.decide(call, now) {
            Ok(decision) => {
                let entry = words.done(call, &decision, now);
                self.entries
                    .extend(entry.map(|it| (self.answers.len(), it)));
                self.changes.extend(decision.changes);
                self.undos.push(decision.undo);
                CallAnswer {
                    reply: Ok(decision.reply),
                    entry: None,
                }
            }
            Err(error) => {
                let entry = words.refused(call, error.to_string(), now);
                if let Some(entry) = &entry {
                    refusals.push(entry.clone());
                }
                CallAnswer {
                    reply: Err(error.into()),
                    entry: entry.map(Arc::new),
                }
            }
        };
        self.answers.push((caller, answer));
    }

    /// Adds the entries of refused calls and of this batch to the changes, and those of the batch to
    /// its answers.
    fn seal(&mut self, ledger: &Ledger, refusals: Vec<AuditEntry>) {
        let (decided, refused) = (self.changes.len(), refusals.len());
        let (indices, made): (Vec<_>, Vec<_>) = self.entries.drain(..).unzip();
        let entries = refusals.into_iter().chain(made).collect();
        self.changes.extend(trail::of(ledger).seal(entries));
        let blocks = self.changes[decided..].iter().filter_map(|it| match it {
            Change::Audit(_, block) => Some(&block.entries),
            _ => None,
        });
        let made = blocks.flatten().skip(refused);
        for (index, entry) in indices.into_iter().zip(made) {
            self.answers[index].1.entry = Some(Arc::clone(entry));
        }
    }
}
