//! Independent jobs on several threads, their results in order.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use tailbound_experiment::{ExperimentError, Run};

/// Number of threads that share the work of a run. Results do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads(pub usize);

/// Runs `job` for every item. `progress` receives the number of completed items. The results are in
/// the order of the items.
///
/// A panic of a job continues in the caller.
///
/// # Errors
/// The error of the first failed item, with the item's `name`.
pub(crate) fn map<T: Sync, R: Send, E: ToString>(
    run: &mut Run<'_, Threads>,
    items: &[T],
    name: impl Fn(&T) -> String + Sync,
    job: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, ExperimentError> {
    let all = items.len();
    (run.progress)(&format!("0 of {all}"));
    let heard = Mutex::new((0, &mut run.progress));
    let results: Vec<_> = items.iter().map(|_| Mutex::new(None)).collect();
    for_each(all, run.options.0, &|index| {
        let item = &items[index];
        let result = job(item).map_err(|error| ExperimentError::run(&name(item), error));
        *locked(&results[index]) = Some(result);
        let mut heard = locked(&heard);
        heard.0 += 1;
        let done = format!("{} of {all}", heard.0);
        (heard.1)(&done);
    });
    let done = |result: &Mutex<Option<_>>| locked(result).take().expect("each item had its job");
    results.iter().map(done).collect()
}

/// A job that panics holds no lock half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `job` once with each number below `count`, on `threads` threads, of which this is one.
///
/// One function for all jobs: copies of it for each take a tenth of this crate's compilation.
fn for_each(count: usize, threads: usize, job: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            job(index);
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(count)).map(|_| scope.spawn(work)).collect();
        work();
        for other in others {
            other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_experiment::Progress;

    fn with<R: Send>(
        threads: usize,
        progress: &mut Progress<'_>,
        items: &[u64],
        job: impl Fn(&u64) -> Result<R, u64> + Sync,
    ) -> Result<Vec<R>, ExperimentError> {
        let mut run = Run {
            seed: 1,
            options: &Threads(threads),
            progress,
        };
        map(&mut run, items, |item| format!("item {item}"), job)
    }

    #[test]
    fn parallel_results_keep_item_order_for_any_thread_count() {
        let items: Vec<u64> = (0..50).collect();
        // The first items take longest.
        let job = |item: &u64| {
            let work = 0..(50 - item) * 1000;
            Ok(work.fold(*item, |sum, _| std::hint::black_box(sum)))
        };
        for threads in [0, 1, 3, 64] {
            let mut heard = Vec::new();
            let mut progress = |done: &str| heard.push(done.to_owned());
            let results = with(threads, &mut progress, &items, job);
            assert_eq!(results.unwrap(), items);
            let all: Vec<_> = (0..=50).map(|done| format!("{done} of 50")).collect();
            assert_eq!(heard, all);
        }
        assert!(with(4, &mut |_| {}, &[], job).unwrap().is_empty());
    }

    #[test]
    fn the_first_items_error_is_returned_among_several() {
        let items: Vec<u64> = (0..50).collect();
        let job = |item: &u64| if item % 20 == 7 { Err(*item) } else { Ok(()) };
        let error = with(3, &mut |_| {}, &items, job).unwrap_err();
        assert_eq!(error.to_string(), "variant item 7: 7");
    }
}
