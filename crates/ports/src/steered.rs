//! The other end of a guest's veth, which receives on other CPUs than the packet loop's.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tailbound_sys::steering::{Steering, SteeringResult, receivers};

/// The state of an other end for as long as its port is open.
#[derive(Debug, Default)]
struct EndState {
    steering: Option<Steering>,
    /// True if another process continues with the port.
    is_left: bool,
}

/// The other end of a port. When this is dropped, its former CPUs are restored.
#[derive(Debug, Default)]
pub(crate) struct SteeredEnd(Arc<Mutex<EndState>>);

fn kept(kept: &Mutex<EndState>) -> MutexGuard<'_, EndState> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SteeredEnd {
    /// Moves the receive work of the other end away from the packet loop, which is bound to `cpu`
    /// or to the CPUs of this thread. It runs on a thread, since it searches all network
    /// namespaces. If it fails, the log has a line, and the port works without steering.
    pub(crate) fn begin(&self, interface: String, netns: Option<PathBuf>, cpu: Option<u32>) {
        let end = Arc::downgrade(&self.0);
        let thread = std::thread::Builder::new().name("rps".to_owned());
        let begun = thread.spawn(move || {
            let steered = receivers(cpu).and_then(|cpus| {
                let Some(cpus) = cpus else {
                    return Ok((SteeringResult::Left, None));
                };
                let steered = Steering::begin(&interface, netns.as_deref(), cpus)?;
                Ok((steered, Some(cpus)))
            });
            let why = match steered {
                Ok((SteeringResult::Left, _)) => return,
                Ok((SteeringResult::On(steering), cpus)) => {
                    let queues = steering.queues();
                    let cpus = cpus.map(tracing::field::display);
                    tracing::debug!(interface, queues, cpus, "its other end receives there");
                    if let Some(end) = end.upgrade() {
                        let mut kept = kept(&end);
                        let is_left = kept.is_left;
                        kept.steering.insert(steering).leave(is_left);
                    }
                    return;
                }
                Ok((SteeringResult::Unseen, _)) => {
                    "its network namespace cannot be entered".to_owned()
                }
                Err(error) => error.to_string(),
            };
            tracing::info!(
                interface,
                why,
                "its other end receives on the packet loop's CPU: filters there delay all guests"
            );
        });
        if let Err(error) = begun {
            tracing::error!(%error, "the other end of a veth receives on the packet loop's CPU");
        }
    }

    /// Sets, with `true`, that another process continues with the port: then the CPUs stay as they
    /// are.
    pub(super) fn leave(&self, is_left: bool) {
        let mut kept = kept(&self.0);
        kept.is_left = is_left;
        if let Some(steering) = &mut kept.steering {
            steering.leave(is_left);
        }
    }
}
