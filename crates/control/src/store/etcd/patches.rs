//! Events of a watch as changes of a ledger: sections become tenants.

use super::keys;
use crate::ledger::Change;
use crate::store::sections::{self, Sections};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_api::Tenant;
use tailbound_placement::TenantId;

/// The changes of consecutive transactions.
pub struct Patches<T> {
    /// Returns a tenant as it is before the first transaction.
    before: T,
    /// The tenants that transactions changed; None for one that is gone.
    tenants: BTreeMap<TenantId, Option<Arc<Tenant>>>,
    /// The sections of the present transaction.
    sections: BTreeMap<TenantId, Sections>,
    changes: Vec<Change>,
}

impl<T: Fn(TenantId) -> Option<Arc<Tenant>>> Patches<T> {
    /// Begins with a transaction. `before` returns a tenant as it is before it.
    pub const fn new(before: T) -> Self {
        Self {
            before,
            tenants: BTreeMap::new(),
            sections: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    /// Adds a document that the transaction puts; None for one that it deletes.
    ///
    /// # Errors
    /// The document is damaged, or none of a store.
    pub fn add(&mut self, name: &str, document: Option<&[u8]>) -> Result<(), String> {
        match (keys::section_of(name), document) {
            (None, document) => self.changes.push(keys::change(name, document)?),
            // A section ends only with the tenant's document, or after it.
            (Some(_), None) => {}
            (Some((id, number)), Some(document)) => {
                let section = keys::read_section(document)?;
                self.sections.entry(id).or_default().insert(number, section);
            }
        }
        Ok(())
    }

    /// Ends the transaction, and returns its changes.
    ///
    /// # Errors
    /// A section does not fit its tenant.
    pub fn end(&mut self) -> Result<Vec<Change>, String> {
        let mut changes = std::mem::take(&mut self.changes);
        self.note(&changes);
        for (id, sections) in std::mem::take(&mut self.sections) {
            let tenant = match self.tenants.get(&id) {
                Some(tenant) => tenant.clone(),
                None => (self.before)(id),
            };
            let bad = |why: &str| format!("tenant {}: {why}", id.0);
            let tenant = tenant.ok_or_else(|| bad("it has a section, and is not there"))?;
            let new = sections::patched(&tenant, &sections).map_err(|why| bad(&why))?;
            let new = [Change::Tenant(Arc::new(new))];
            self.note(&new);
            changes.extend(new);
        }
        Ok(changes)
    }

    fn note(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Tenant(tenant) => {
                    self.tenants.insert(tenant.id, Some(Arc::clone(tenant)));
                }
                Change::Gone(id) => {
                    self.tenants.insert(*id, None);
                }
                _ => {}
            }
        }
    }
}
