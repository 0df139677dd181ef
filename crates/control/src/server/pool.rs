//! The threads that answer long queries, beside the ones that serve connections.
//!
//! Each caller has a share of their time ([`FairQueue`]), and they run at a lower priority than the
//! threads that serve connections, decide and report health, and with a longer time slice: the kernel
//! lets a thread with a shorter one run as soon as it wakes.

use super::problem::ApiError;
use super::tokens::{Caller, Identity};
use crate::fair::{FairQueue, Payer};
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use tailbound_api::Code;
use tailbound_sys::sched::{Policy, set_policy};
use tailbound_units::Nanos;
use tokio::sync::oneshot;

/// Limit on the questions of one owner that wait.
const MOST_OF_ONE: usize = 64;
/// Limit on the waiting questions of all hosts, and of all operators: after a start all hosts may request
/// their keys.
const MOST_OF_MANY: usize = 16_384;
/// The time for which a refusal of a question counts as a fault.
const REFUSED_LATELY: Duration = Duration::from_mins(1);
/// The threads' share of the CPUs, and their time slice, the longest that Linux takes. By its niceness
/// alone a thread that wakes waits for the end of a slice, some milliseconds.
const SHARE: Policy = Policy::Share {
    nice: 10,
    slice: Nanos::from_millis(100),
};

/// Returns the payer of a caller's questions and streams.
pub(super) fn payer(by: &Identity) -> Payer {
    match &by.caller {
        Caller::Operator | Caller::Maintenance | Caller::Viewer | Caller::Metrics => {
            Payer::Operators
        }
        Caller::Host { .. } => Payer::Hosts,
        Caller::Tenant { owner } => Payer::Owner(owner.clone()),
    }
}

type Question = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    questions: FairQueue<Payer, Question>,
    has_ended: bool,
    /// The time of the last refusal by payer, of those who had one lately.
    refused: HashMap<Payer, Instant>,
}

impl State {
    fn note_refusal(&mut self, payer: Payer, now: Instant) {
        self.refused
            .retain(|_, at| now.duration_since(*at) < REFUSED_LATELY);
        self.refused.insert(payer, now);
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads end when this is dropped, once they have answered what they answer.
pub(super) struct Pool(Arc<Shared>);

impl Pool {
    /// Starts a thread for each core.
    pub(super) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        for _ in 0..available_parallelism().map_or(1, NonZero::get) {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || work(&shared));
        }
        Self(shared)
    }

    /// Returns the payers of whom a question was refused within the last minute.
    pub(super) fn refused_lately(&self) -> Vec<Payer> {
        let now = Instant::now();
        let state = self.0.lock();
        let lately = state.refused.iter();
        let lately = lately.filter(|(_, at)| now.duration_since(**at) < REFUSED_LATELY);
        let mut payers: Vec<_> = lately.map(|(payer, _)| payer.clone()).collect();
        payers.sort_unstable();
        payers
    }

    /// Answers a question in the share of its payer.
    ///
    /// # Errors
    /// The payer has too many questions, or the question has a defect.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        payer: Payer,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (sender, answer) = oneshot::channel();
        {
            let mut state = self.0.lock();
            let most = if payer.is_owner() {
                MOST_OF_ONE
            } else {
                MOST_OF_MANY
            };
            if state.questions.of(&payer) >= most {
                state.note_refusal(payer.clone(), Instant::now());
                let detail = format!("{most} long questions of {payer} wait already");
                return Err(ApiError::new(Code::Unavailable, detail));
            }
            let question = Box::new(move || {
                // A caller that went away needs no answer.
                if !sender.is_closed() {
                    let _ = sender.send(question());
                }
            });
            state.questions.push(payer, question);
        }
        self.0.changed.notify_one();
        let failed = |_| ApiError::new(Code::Store, "the question could not be answered");
        answer.await.map_err(failed)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}

fn work(shared: &Shared) {
    // Where it is refused, questions only have the priority of everything else.
    let _ = set_policy(0, SHARE);
    let mut state = shared.lock();
    loop {
        if state.has_ended {
            return;
        }
        let Some((payer, question)) = state.questions.pop() else {
            state = shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(state);
        let begin = Instant::now();
        // A defect in one answer: its caller gets none, and the thread goes on.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(question));
        let took = begin.elapsed();
        state = shared.lock();
        state.questions.charge(&payer, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One owner's flood of slow questions delays another one's by one slow question for each thread.
    #[tokio::test]
    async fn a_flood_of_one_owner_does_not_keep_another_from_an_answer() {
        let pool = Arc::new(Pool::start());
        let slow = Duration::from_millis(20);
        let payer = |name: &str| Payer::Owner(name.to_owned());
        let flood: Vec<_> = (0..MOST_OF_ONE)
            .map(|_| {
                let pool = Arc::clone(&pool);
                let greedy = payer("greedy");
                tokio::spawn(
                    async move { pool.ask(greedy, move || std::thread::sleep(slow)).await },
                )
            })
            .collect();
        while pool.0.lock().questions.of(&payer("greedy")) < MOST_OF_ONE / 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..4 {
            pool.ask(payer("other"), || ()).await.unwrap();
        }
        let left = pool.0.lock().questions.of(&payer("greedy"));
        assert!(left >= MOST_OF_ONE / 4, "{left} wait");
        assert_eq!(pool.refused_lately(), []);
        let mut more = Vec::new();
        while pool.refused_lately().is_empty() {
            let pool = Arc::clone(&pool);
            let greedy = payer("greedy");
            more.push(tokio::spawn(async move {
                pool.ask(greedy, move || std::thread::sleep(slow)).await
            }));
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.refused_lately(), [payer("greedy")]);
        for question in flood {
            let _ = question.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_panic_in_one_answer_fails_only_its_caller() {
        let pool = Pool::start();
        for _ in 0..2 * available_parallelism().map_or(1, NonZero::get) {
            let answer = pool.ask(Payer::Operators, || panic!("a defect")).await;
            let answer: Result<(), ApiError> = answer;
            assert!(answer.is_err());
        }
        assert_eq!(pool.ask(Payer::Operators, || 7).await.unwrap(), 7);
    }
}
