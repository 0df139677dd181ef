//! The layout of a store's documents: long ones are in parts, and large tenants in sections.

use super::keys;
use super::value::Pointer;
use crate::store::sections::StoredTenants;
use std::collections::HashMap;
use tailbound_placement::TenantId;

/// The layout of the documents of a store, which its next leader needs to write.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// The pointers of long documents by name.
    long: HashMap<String, Pointer>,
    /// The digests of the tenants' own documents.
    digests: HashMap<TenantId, u64>,
}

impl Layout {
    /// Notes a document with the value under its key.
    pub fn put(&mut self, name: &str, value: &[u8], document: &[u8]) {
        match Pointer::read(value) {
            Some(pointer) => drop(self.long.insert(name.to_owned(), pointer)),
            None => drop(self.long.remove(name)),
        }
        if let Some(id) = keys::tenant_of(name) {
            self.digests.insert(id, keys::digest(document));
        }
    }

    /// Notes that a document was deleted.
    pub fn remove(&mut self, name: &str) {
        self.long.remove(name);
        if let Some(id) = keys::tenant_of(name) {
            self.digests.remove(&id);
        }
    }

    /// Returns the digest of a tenant's own document.
    pub(super) fn digest(&self, id: TenantId) -> Option<u64> {
        self.digests.get(&id).copied()
    }

    /// Returns the pointers of long documents, and the stored tenants.
    pub(super) fn into_state(self) -> (HashMap<String, Pointer>, StoredTenants) {
        (self.long, StoredTenants::new(&self.digests))
    }
}
