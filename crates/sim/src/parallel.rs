//! Independent jobs on several threads, their results in order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Applies `job` to every item on up to `threads` threads. `done` hears how many
/// are finished each time one is. The results stand in the order of the items,
/// whoever was first.
///
/// A panic of a job goes on in the caller.
pub(crate) fn map<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    job: impl Fn(&T) -> R + Sync,
    mut done: impl FnMut(usize),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<(usize, R)> = Vec::with_capacity(items.len());
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            let (sender, next, job) = (sender.clone(), &next, &job);
            scope.spawn(move || {
                // The order in which numbers are drawn does not matter.
                let draw = || next.fetch_add(1, Ordering::Relaxed);
                while let Some((index, item)) = {
                    let index = draw();
                    items.get(index).map(|item| (index, item))
                } {
                    if sender.send((index, job(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for result in receiver {
            results.push(result);
            done(results.len());
        }
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_order_whatever_the_number_of_threads() {
        let items: Vec<u64> = (0..50).collect();
        // The first items take longest.
        let job =
            |item: &u64| (0..(50 - item) * 1000).fold(*item, |sum, _| std::hint::black_box(sum));
        for threads in [0, 1, 3, 64] {
            let mut heard = Vec::new();
            let results = map(&items, threads, job, |done| heard.push(done));
            assert_eq!(results, items);
            assert_eq!(heard, (1..=50).collect::<Vec<_>>());
        }
        assert!(map(&[], 4, job, |_| {}).is_empty());
    }
}
