//! `tailbound adopt --policy`: brings the host's guests to the state of a file.

use super::report::{GuestReport, Outcome};
use super::{Carrier, Places};
use crate::exit::Failure;
use std::time::Duration;
use tailbound_adopt::carry::{self, Here};
use tailbound_adopt::policy::Policy;
use tailbound_adopt::{Entry, FileJournal, Journal as _, Origin, Request, Selection, World, plan};

/// The longest wait for another process that has the journal.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Carries out the orders of a policy. Guests that stay as they are have a report, too.
pub(super) fn apply(
    places: &Places,
    policy: &Policy,
    is_dry: bool,
) -> Result<Vec<GuestReport>, Failure> {
    let mut live = places.live();
    let mut journal = if is_dry {
        places.preview()
    } else {
        FileJournal::open_within(&places.state, MAX_WAIT)?
    };
    let world = live.world(&policy.request())?;
    let known = journal.entries()?;
    let orders = policy.orders(&world, &known);
    let mut reports = Vec::new();
    for key in &orders.release {
        let entry = known.iter().find(|entry| entry.key == *key);
        let entry = entry.expect("only an adopted guest is released");
        let mut carrier = Carrier {
            world: &world,
            host: &mut live,
            journal: &mut journal,
            is_dry,
        };
        reports.push(carrier.release(entry));
    }
    for (key, request) in &orders.adopt {
        let mut carrier = Carrier {
            world: &world,
            host: &mut live,
            journal: &mut journal,
            is_dry,
        };
        reports.extend(carrier.adopt_by_policy(key, request)?);
    }
    Ok(reports)
}

impl Carrier<'_> {
    fn release(&mut self, entry: &Entry) -> GuestReport {
        let World {
            boot, namespace, ..
        } = self.world;
        let here = Here {
            boot: boot.clone(),
            namespace: *namespace,
        };
        let mut report = GuestReport {
            guest: entry.name.clone(),
            key: entry.key.clone(),
            outcome: Outcome::Released,
            entry: None,
            notes: Vec::new(),
        };
        if self.is_dry {
            return report;
        }
        match carry::release(self.host, self.journal, &here, &entry.key) {
            Ok(released) => {
                report.notes = released.notes;
                if !released.failed.is_empty() {
                    report.outcome = Outcome::Failed(released.failed.join("; "));
                }
            }
            Err(error) => report.outcome = Outcome::Failed(error.to_string()),
        }
        report
    }

    fn adopt_by_policy(
        &mut self,
        key: &str,
        request: &Request,
    ) -> Result<Vec<GuestReport>, Failure> {
        let selection = Selection::Patterns(vec![key.to_owned()]);
        let planned = plan(self.world, &selection, request, &self.journal.entries()?)?;
        let reports = planned.into_iter().map(|mut planned| {
            if let Ok(entry) = &mut planned.entry {
                entry.origin = Origin::Policy;
            }
            self.carry(planned)
        });
        Ok(reports.collect())
    }
}
