//! The violations of a run, and the moves before each.

use crate::support::Daemon;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tailbound_host::socket::Request;

/// Moves that are printed with a violation.
const LAST_MOVES: usize = 40;

/// Violations of one run that are kept.
const MAX_VIOLATIONS: usize = 5;

/// Within this a daemon answers.
const ANSWER: Duration = Duration::from_secs(2);

/// The shared state of a run's threads.
#[derive(Default)]
pub(crate) struct Watch {
    moves: Mutex<VecDeque<String>>,
    violations: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Watch {
    /// Records a move that begins.
    pub(crate) fn moved(&self, number: u64, name: &str) {
        let mut moves = self.moves.lock().expect("no panic");
        if moves.len() == LAST_MOVES {
            moves.pop_front();
        }
        moves.push_back(format!("{number} {name}"));
    }

    /// Records a violation with the moves before it, and ends the run.
    pub(crate) fn violated(&self, how: &str) {
        let mut violations = self.violations.lock().expect("no panic");
        if violations.len() < MAX_VIOLATIONS {
            let moves = self.moves.lock().expect("no panic");
            let moves: Vec<_> = moves.iter().map(String::as_str).collect();
            violations.push(format!("{how}, after the moves: {}", moves.join(", ")));
        }
        self.is_over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// The violations as text; `None` if there were none.
    pub(crate) fn text(&self) -> Option<String> {
        let violations = self.violations.lock().expect("no panic");
        let mut text = String::new();
        for violation in violations.iter() {
            let _ = writeln!(text, "- {violation}");
        }
        (!text.is_empty()).then_some(text)
    }

    /// Queries the daemon's metrics and its control socket.
    pub(crate) fn ask(&self, daemon: &Daemon) {
        let begin = Instant::now();
        if daemon.metrics().is_none() || begin.elapsed() > ANSWER {
            self.violated(&format!("no metrics within {ANSWER:?}"));
        }
        let begin = Instant::now();
        let answer = daemon.client().and_then(|mut it| it.ask(&Request::Show {}));
        if answer.is_err() || begin.elapsed() > ANSWER {
            self.violated(&format!("no answer to `show` within {ANSWER:?}"));
        }
    }
}
