//! Variants that cannot run on this computer, and the reasons.

use crate::LabError;
use crate::class;
use crate::experiment::{GuaranteesBy, LabExperiment, Variant, VcpuMode};
use crate::place;
use crate::session::Session;
use crate::variant::{CLASSES, confinement};
use std::collections::{BTreeMap, BTreeSet};

/// Missing capabilities.
#[derive(Debug)]
pub(crate) struct Refusals {
    /// Classes that cannot be set, and the reasons.
    classes: BTreeMap<VcpuMode, String>,
    /// Reason why VMs are unavailable.
    machines: Option<String>,
    /// Reason why the placement service is unavailable.
    service: Option<String>,
    /// Reason why a VM's CPU time cannot be limited.
    quota: Option<String>,
    /// True if real-time classes may be set.
    real_time: bool,
}

impl Refusals {
    /// Tests the capabilities that the experiment needs; changes nothing.
    pub(crate) fn find(
        experiment: &LabExperiment,
        session: &Session,
        machines: Option<&String>,
    ) -> Result<Self, LabError> {
        let mut classes = BTreeMap::new();
        if let Some(shared) = &experiment.shared_core {
            let modes: BTreeSet<VcpuMode> = experiment.variant.iter().map(|v| v.vcpu).collect();
            for mode in modes {
                let state = session.directory().join(CLASSES);
                if let Some(why) = class::refusal(mode, shared, &state)? {
                    classes.insert(mode, why);
                }
            }
        }
        Ok(Self {
            classes,
            machines: machines.cloned(),
            service: experiment
                .has_service()
                .then(|| place::refusal(&session.program))
                .flatten(),
            quota: quota_refusal(experiment),
            real_time: session.real_time,
        })
    }

    /// Returns the reason why a variant cannot run here; `None` if it can.
    pub(crate) fn of(&self, experiment: &LabExperiment, variant: &Variant) -> Option<&str> {
        if let Some(why) = self.classes.get(&variant.vcpu) {
            return Some(why);
        }
        if experiment.has_machines(variant)
            && let Some(why) = &self.machines
        {
            return Some(why);
        }
        if variant.guarantees_by == GuaranteesBy::Service
            && let Some(why) = &self.service
        {
            return Some(why);
        }
        if variant.quota
            && let Some(why) = &self.quota
        {
            return Some(why);
        }
        let mut duties = variant.running(&experiment.duty);
        if !self.real_time && duties.any(|load| load.uninterrupted) {
            return Some(
                "an uninterrupted neighbour takes CAP_SYS_NICE outside of a user \
                 namespace: run as root",
            );
        }
        None
    }

    /// Returns whether a variant runs on this computer.
    pub(crate) fn runs(&self, experiment: &LabExperiment, variant: &Variant) -> bool {
        let without_periodic = self.classes.contains_key(&VcpuMode::Periodic);
        self.of(experiment, variant).is_none()
            && (without_periodic || !variant.only_without_periodic)
    }
}

/// Returns the reason why a quota is unavailable here; `None` if it is available or not needed.
fn quota_refusal(experiment: &LabExperiment) -> Option<String> {
    let quota = experiment.quota.as_ref()?;
    let error = confinement(quota, "try").err()?;
    Some(format!(
        "limiting a machine's CPU time takes a control group: {error}"
    ))
}
