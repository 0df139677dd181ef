//! Keeps CPUs and interrupts for the host's own path, with what was there before in the journal.

use super::{Agent, AgentError};
use crate::apply::Restored;
use crate::path::live::Condition;
use crate::path::partition::{has_cpus, plan};
use crate::path::{PathConfig, PathError, PathStep, live};
use tailbound_sys::root::Root;

impl Agent {
    /// Returns what has to be done so that the path of the processes `daemon` has CPUs of its own;
    /// changes nothing.
    ///
    /// # Errors
    /// [`AgentError::Path`], [`AgentError::Observe`].
    pub fn plan_path(
        &self,
        config: &PathConfig,
        daemon: &[u32],
    ) -> Result<Vec<PathStep>, AgentError> {
        let Some(wanted) = config.cpus.filter(|_| !daemon.is_empty()) else {
            return Ok(Vec::new());
        };
        let done = &self.changes().path;
        let machine = live::read(&Root::default(), config, daemon, has_cpus(done, wanted));
        let machine = machine.map_err(AgentError::Observe)?;
        Ok(plan(config, &machine, done, daemon)?)
    }

    /// Makes the steps, each after it is in the journal.
    ///
    /// # Errors
    /// [`AgentError::Path`] for the first that the kernel refused: it was undone, those before it
    /// stay. [`AgentError::State`].
    pub fn apply_path(&mut self, steps: &[PathStep]) -> Result<(), AgentError> {
        for step in steps {
            self.journal
                .update(|changes| changes.path.push(step.clone()))?;
            let Err(why) = live::make(&Root::default(), step) else {
                continue;
            };
            let why = match live::undo(&Root::default(), step) {
                Ok(()) => {
                    self.journal.update(|changes| {
                        changes.path.pop();
                    })?;
                    why
                }
                Err(undone) => format!("{why}; NOT put back: {undone}"),
            };
            let what = step.to_string();
            return Err(PathError::Kernel { what, why }.into());
        }
        Ok(())
    }

    /// Brings the daemon's processes back to where they were, and the steps that `again` picks of
    /// those that are not in force.
    ///
    /// # Errors
    /// [`AgentError::Path`].
    pub(crate) fn attend_path(
        &mut self,
        daemon: &[u32],
        mut again: impl FnMut(&PathStep, Condition) -> bool,
    ) -> Result<(), AgentError> {
        for step in &self.changes().path {
            let failed = |why| PathError::Kernel {
                what: step.to_string(),
                why,
            };
            let condition = live::condition(&Root::default(), step);
            if condition != Condition::InForce && again(step, condition) {
                live::make(&Root::default(), step).map_err(failed)?;
            }
            live::attend(step, daemon).map_err(failed)?;
        }
        Ok(())
    }

    /// Reverts all steps, the last first; an interrupt that another program moved stays.
    ///
    /// # Errors
    /// [`AgentError::State`]; what could not be taken back is in the result.
    pub fn restore_path(&mut self) -> Result<Restored, AgentError> {
        let mut restored = Restored::default();
        let mut remaining = Vec::new();
        for step in self.changes().path.iter().rev() {
            let is_interrupt = matches!(step, PathStep::Interrupt { .. });
            if is_interrupt && live::condition(&Root::default(), step) != Condition::InForce {
                restored.drifted.push(step.to_string());
                continue;
            }
            match live::undo(&Root::default(), step) {
                Ok(()) => restored.restored += 1,
                Err(why) => {
                    restored.failed.push(format!("{step}: {why}"));
                    remaining.insert(0, step.clone());
                }
            }
        }
        self.journal.update(|changes| changes.path = remaining)?;
        Ok(restored)
    }
}
