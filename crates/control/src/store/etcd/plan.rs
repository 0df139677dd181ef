//! The documents that a commit writes.

use super::keys;
use crate::ledger::Change;
use crate::store::StoreError;
use crate::store::sections::{self, StoredTenants};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailbound_api::Tenant;
use tailbound_placement::TenantId;

/// The documents of a commit, and the tenants that the store has after it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The documents by name; None for one that is deleted.
    pub(super) documents: BTreeMap<String, Option<Vec<u8>>>,
    /// The tenants whose sections end.
    pub(super) ends: BTreeSet<TenantId>,
    /// Tenants that are written as a whole, with the digests of their documents.
    whole: Vec<(Arc<Tenant>, u64)>,
    in_sections: Vec<Arc<Tenant>>,
    gone: Vec<TenantId>,
}

impl Plan {
    /// Plans the commit of some changes, with at most `most` documents.
    ///
    /// # Errors
    /// A change cannot be written.
    pub(super) fn new(
        stored: &StoredTenants,
        changes: &[Change],
        most: usize,
    ) -> Result<Self, StoreError> {
        let plan = Self::with_sections(stored, changes, sections::MAX_SECTIONS)?;
        if plan.documents.len() <= most {
            return Ok(plan);
        }
        // A document for each change.
        Self::with_sections(stored, changes, 1)
    }

    fn with_sections(
        stored: &StoredTenants,
        changes: &[Change],
        most: usize,
    ) -> Result<Self, StoreError> {
        let mut plan = Self::default();
        for change in Change::coalesced(changes) {
            plan.add(stored, change, most)
                .map_err(|error| StoreError::Failed(format!("{change:?}: {error}")))?;
        }
        Ok(plan)
    }

    fn add(
        &mut self,
        stored: &StoredTenants,
        change: &Change,
        most: usize,
    ) -> serde_json::Result<()> {
        if let Change::Tenant(tenant) = change
            && let Some(sections) = stored.sections(tenant, most)
        {
            for (number, section) in sections {
                let name = keys::section(tenant.id, number);
                let document = serde_json::to_vec(&section)?;
                self.documents.insert(name, Some(document));
            }
            self.in_sections.push(Arc::clone(tenant));
            return Ok(());
        }
        let document = keys::document(change)?;
        match (change, &document) {
            (Change::Tenant(tenant), Some(document)) => {
                let digest = keys::digest(document);
                self.whole.push((Arc::clone(tenant), digest));
                self.end(stored, tenant.id);
            }
            (Change::Gone(id), _) => {
                self.gone.push(*id);
                self.end(stored, *id);
            }
            _ => {}
        }
        self.documents
            .insert(keys::name(change.subject()), document);
        Ok(())
    }

    fn end(&mut self, stored: &StoredTenants, id: TenantId) {
        if stored.may_have_sections(id) {
            self.ends.insert(id);
        }
    }

    /// Notes a commit. The sections of the tenants `left` are still there.
    pub(super) fn note(self, stored: &mut StoredTenants, left: &BTreeSet<TenantId>) {
        for (tenant, digest) in self.whole {
            let are_left = left.contains(&tenant.id);
            stored.put_whole(&tenant, digest, are_left);
        }
        for tenant in self.in_sections {
            stored.put_sections(&tenant);
        }
        for id in self.gone {
            stored.remove(id);
        }
    }
}

#[cfg(test)]
pub(in crate::store) mod tests;
