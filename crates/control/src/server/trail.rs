//! The lines of the log about changes: copies of the entries of the audit.

use crate::service::{CallAnswer, ServiceError, audit_line};
use crate::store::StoreError;
use tailbound_api::AuditCaller;

/// Writes the line of a call, unless the call changed nothing. A call whose commit may have become
/// durable has the outcome `unknown`; if the change was made, its entry is in the audit.
pub(super) fn log(command: &str, caller: &AuditCaller, answer: &CallAnswer) {
    let (outcome, error) = match &answer.reply {
        Ok(_) => ("done", None),
        Err(error @ (ServiceError::Store(StoreError::Uncertain(_)) | ServiceError::Ended)) => {
            ("unknown", Some(error))
        }
        Err(error) => ("refused", Some(error)),
    };
    let error = error.map(ToString::to_string);
    if let Some(entry) = &answer.entry {
        audit_line(entry, outcome, error.as_deref().unwrap_or(&entry.after));
    } else if let Some(error) = error {
        let (by, role, request) = (&caller.token, &caller.role, &caller.request);
        tracing::info!(
            target: "audit", by, role, command, after = error, outcome, request, "audit"
        );
    }
}
