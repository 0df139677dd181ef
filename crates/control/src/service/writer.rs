//! The thread that decides.

use super::{Committed, OnEnd, ServiceError, Shared};
use crate::ledger::{Call, Change, Ledger, LoadError, Reply, Touched, Undo};
use crate::store::{Store, StoreError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tailbound_units::Nanos;
use tokio::sync::{mpsc, oneshot};

/// A commit is closed once it has so many calls ...
const CALLS: usize = 64;
/// ... or so many changes: etcd takes 128 operations in a transaction.
const CHANGES: usize = 96;

/// What the writer does, in the order in which it was asked for.
pub(super) enum Job {
    Call(Box<Call>, oneshot::Sender<Answer>),
    Turn(Turn),
}

/// Another role, or another's decision.
pub(super) enum Turn {
    Lead(Box<dyn Store>, OnEnd, oneshot::Sender<()>),
    Follow(oneshot::Sender<()>),
    Replace(Box<Ledger>, oneshot::Sender<()>),
    Apply(Vec<Change>, u64, oneshot::Sender<Result<(), LoadError>>),
}

type Answer = Result<Reply, ServiceError>;

/// What there is while the service leads.
struct Lead {
    /// Ahead of what everybody reads by what is not durable yet.
    ledger: Ledger,
    store: Box<dyn Store>,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<Job>,
    observe: Box<dyn FnMut(&Committed) + Send>,
    lead: Option<Lead>,
    /// To be told that this can lead no more.
    on_end: Option<OnEnd>,
}

/// Calls that are decided but not answered.
#[derive(Default)]
struct Batch {
    answers: Vec<(oneshot::Sender<Answer>, Answer)>,
    changes: Vec<Change>,
    undos: Vec<Undo>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: mpsc::Receiver<Job>,
        observe: Box<dyn FnMut(&Committed) + Send>,
    ) -> Self {
        Self {
            shared,
            queue,
            observe,
            lead: None,
            on_end: None,
        }
    }

    /// Works until nobody has a handle any more.
    pub(super) fn run(mut self) {
        let worked = catch_unwind(AssertUnwindSafe(|| self.work()));
        self.shared.leads.store(false, Ordering::Release);
        if worked.is_err() {
            // A defect. What is in memory may be half changed; the store is not.
            self.end(StoreError::Uncertain(
                "the thread that decides failed".into(),
            ));
        }
    }

    fn work(&mut self) {
        while let Some(job) = self.queue.blocking_recv() {
            let turn = match job {
                Job::Call(call, answer) => self.batch(&call, answer),
                Job::Turn(turn) => Some(turn),
            };
            if let Some(turn) = turn {
                self.turn(turn);
            }
        }
    }

    fn end(&mut self, error: StoreError) {
        if let Some(on_end) = self.on_end.take() {
            on_end(error);
        }
    }

    /// Decides this call and those that wait behind it, keeps all in one commit
    /// and answers. A turn ends the batch, and is to be done after it.
    fn batch(&mut self, first: &Call, answer: oneshot::Sender<Answer>) -> Option<Turn> {
        let Some(mut lead) = self.lead.take() else {
            let _ = answer.send(Err(ServiceError::NotLeader));
            return None;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = Nanos(now.map_or(0, |since| since.as_nanos() as u64));
        let mut batch = Batch::default();
        batch.decide(&mut lead.ledger, first, now, answer);
        let mut turn = None;
        while batch.answers.len() < CALLS && batch.changes.len() < CHANGES {
            match self.queue.try_recv() {
                Ok(Job::Call(call, answer)) => batch.decide(&mut lead.ledger, &call, now, answer),
                Ok(Job::Turn(next)) => {
                    turn = Some(next);
                    break;
                }
                Err(_) => break,
            }
        }
        self.lead = self.commit(lead, batch);
        turn
    }

    /// Gives what leads on, if it can.
    fn commit(&mut self, mut lead: Lead, batch: Batch) -> Option<Lead> {
        let start = Instant::now();
        let outcome = lead.store.commit(&batch.changes);
        (self.observe)(&Committed {
            calls: batch.answers.len(),
            changes: batch.changes.len(),
            took: start.elapsed(),
            error: outcome.as_ref().err().cloned(),
        });
        match outcome {
            Ok(revision) => {
                self.publish(&batch.changes, revision, &lead.ledger);
                for (caller, answer) in batch.answers {
                    let _ = caller.send(answer);
                }
                Some(lead)
            }
            Err(error) => self.failed(lead, batch, error),
        }
    }

    fn failed(&mut self, mut lead: Lead, batch: Batch, error: StoreError) -> Option<Lead> {
        let certain = error.is_certain();
        if certain {
            let undone = batch.undos.into_iter().rev();
            let mut undone = undone.map(|undo| lead.ledger.undo(undo));
            if undone.any(|undone| undone.is_err()) {
                lead.ledger = self.read_ledger();
            }
        } else {
            self.shared.leads.store(false, Ordering::Release);
        }
        // A refusal may rest on what was not kept, so it does not count either.
        for (caller, _) in batch.answers {
            let _ = caller.send(Err(error.clone().into()));
        }
        if certain {
            return Some(lead);
        }
        self.end(error);
        None
    }

    /// Lets everybody read what is durable.
    fn publish(&mut self, changes: &[Change], revision: u64, decided: &Ledger) {
        // Another topology takes long to build, and the writer has it.
        let built = changes.iter().any(is_topology).then(|| decided.clone());
        let touched = {
            let mut ledger = self.write();
            let touched = match built {
                Some(built) => {
                    *ledger = built;
                    Touched::All
                }
                None => match ledger.apply(changes) {
                    Ok(touched) => touched,
                    // Both were the same before, so this is a defect; the one
                    // that decided is right.
                    Err(error) => {
                        tracing::error!(%error, "a commit does not fit what is read");
                        *ledger = decided.clone();
                        Touched::All
                    }
                },
            };
            ledger.set_revision(revision);
            touched
        };
        self.wake(&touched, revision);
    }

    fn wake(&self, touched: &Touched, revision: u64) {
        self.shared.watchers.wake(touched, revision);
        self.shared.revision.send_if_modified(|last| {
            let modified = *last != revision;
            *last = revision;
            modified
        });
    }

    /// Leads, follows, or takes what others decided.
    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Lead(store, on_end, done) => {
                self.lead = Some(Lead {
                    ledger: self.read_ledger(),
                    store,
                });
                self.on_end = Some(on_end);
                self.shared.leads.store(true, Ordering::Release);
                let _ = done.send(());
            }
            Turn::Follow(done) => {
                self.stop_leading();
                let _ = done.send(());
            }
            Turn::Replace(ledger, done) => {
                self.stop_leading();
                let revision = ledger.revision();
                *self.write() = *ledger;
                self.wake(&Touched::All, revision);
                let _ = done.send(());
            }
            Turn::Apply(changes, revision, done) => {
                let _ = done.send(self.apply(&changes, revision));
            }
        }
    }

    /// Lets everybody read what another replica decided.
    fn apply(&mut self, changes: &[Change], revision: u64) -> Result<(), LoadError> {
        let touched = if changes.iter().any(is_topology) {
            // That takes long, and nobody else changes what is read.
            let mut built = self.read_ledger();
            let touched = built.apply(changes)?;
            built.set_revision(revision);
            *self.write() = built;
            touched
        } else {
            let mut ledger = self.write();
            let touched = ledger.apply(changes)?;
            ledger.set_revision(revision);
            touched
        };
        self.wake(&touched, revision);
        Ok(())
    }

    fn stop_leading(&mut self) {
        self.lead = None;
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

fn is_topology(change: &Change) -> bool {
    matches!(change, Change::Topology(_))
}

impl Batch {
    fn decide(
        &mut self,
        ledger: &mut Ledger,
        call: &Call,
        now: Nanos,
        caller: oneshot::Sender<Answer>,
    ) {
        let answer = match ledger.decide(call, now) {
            Ok(decision) => {
                self.changes.extend(decision.changes);
                self.undos.push(decision.undo);
                Ok(decision.reply)
            }
            Err(denied) => Err(denied.into()),
        };
        self.answers.push((caller, answer));
    }
}
