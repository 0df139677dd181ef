//! Independent jobs on several threads, their results in order.

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};
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
    let job = |item: &T| {
        let result = job(item).map_err(|error| ExperimentError::run(&name(item), error));
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.0 += 1;
        let done = format!("{} of {all}", heard.0);
        (heard.1)(&done);
        result
    };
    let pool = ThreadPoolBuilder::new().num_threads(run.options.0.max(1));
    let pool = pool.build().expect("the system has threads to give");
    let jobs = || items.par_iter().with_max_len(1).map(job).collect();
    let results: Vec<Result<R, ExperimentError>> = pool.install(jobs);
    results.into_iter().collect()
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
    fn results_stand_in_order_whatever_the_number_of_threads() {
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
    fn of_several_errors_that_of_the_first_item_is_told() {
        let items: Vec<u64> = (0..50).collect();
        let job = |item: &u64| if item % 20 == 7 { Err(*item) } else { Ok(()) };
        let error = with(3, &mut |_| {}, &items, job).unwrap_err();
        assert_eq!(error.to_string(), "variant item 7: 7");
    }
}
