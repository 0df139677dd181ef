//! Unknown fields in the handover of another release.

use std::collections::BTreeMap;

/// Fields that this release does not know.
pub(super) type Others = BTreeMap<String, serde_json::Value>;

/// Logs the unknown fields of a part of the handover.
pub(super) fn pass_over(of: &str, others: &Others) {
    if !others.is_empty() {
        let fields: Vec<_> = others.keys().map(String::as_str).collect();
        let fields = fields.join(", ");
        tracing::warn!(
            of,
            fields,
            "the daemon before is of another release: these fields are passed over, and their \
             subjects begin anew"
        );
    }
}
