//! Entries of the audit on their way to the store, and their lines in the log.

use super::ServiceError;
use crate::ledger::{Change, Ledger, Reply, trail};
use std::collections::HashMap;
use std::sync::Arc;
use tailbound_api::{AuditCaller, AuditEntry, AuditOutcome};

/// Limit on the entries of one caller's refused requests between two commits of refusals.
const OF_A_CALLER: usize = 8;
/// With this number of entries the next batch of calls keeps them, even if it changes nothing.
const FULL: usize = 128;
/// Limit on the entries that wait, which is reached only if no commit succeeds.
const MAX_WAITING: usize = 512;

/// The answer to a call, with its entry in the audit.
#[derive(Debug, Clone)]
pub struct CallAnswer {
    /// The reply, once it is durable, or the reason why there is none.
    pub reply: Result<Reply, ServiceError>,
    /// The entry; `None` for a call that changed nothing. The entry of a refused call has no number
    /// yet: it is kept with the next commit or within a second.
    pub entry: Option<Arc<AuditEntry>>,
}

impl CallAnswer {
    /// Returns the answer to a call that was not decided.
    pub(super) const fn undecided(error: ServiceError) -> Self {
        Self {
            reply: Err(error),
            entry: None,
        }
    }
}

/// Writes an entry to the log, with the outcome as it is known now.
pub(crate) fn audit_line(entry: &AuditEntry, outcome: &str, after: &str) {
    let AuditCaller {
        token,
        role,
        request,
    } = &entry.caller;
    // A refused one gets its number later.
    let number = (outcome != AuditOutcome::Refused.word()).then_some(entry.number);
    tracing::info!(
        target: "audit",
        by = token,
        role,
        command = entry.command,
        owner = entry.owners.join(","),
        what = entry.what,
        before = entry.before,
        after,
        outcome,
        request,
        entry = number,
        "audit"
    );
}

/// Entries of refused calls, which wait for a commit. None costs a commit of its own, and no caller
/// fills the audit.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    entries: Vec<AuditEntry>,
    /// The number of entries of each token, and the index of the last one.
    of_tokens: HashMap<String, (usize, usize)>,
    /// The number of refused calls without an entry.
    lost: u64,
}

impl Refusals {
    /// Adds an entry. Beyond its limit a caller's last entry counts further ones.
    pub(super) fn push(&mut self, entry: AuditEntry) {
        let index = self.entries.len();
        let token = entry.caller.token.clone();
        match self.of_tokens.get_mut(&token) {
            Some((number, last)) if *number >= OF_A_CALLER => self.entries[*last].more += 1,
            _ if index >= MAX_WAITING => self.lost += 1,
            Some((number, last)) => {
                *number += 1;
                *last = index;
                self.entries.push(entry);
            }
            None => {
                self.of_tokens.insert(token, (1, index));
                self.entries.push(entry);
            }
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) const fn is_full(&self) -> bool {
        self.entries.len() >= FULL
    }

    /// Takes all entries.
    pub(super) fn take(&mut self) -> Vec<AuditEntry> {
        let Self {
            mut entries, lost, ..
        } = std::mem::take(self);
        if lost > 0
            && let Some(last) = entries.last().cloned()
        {
            entries.push(AuditEntry {
                caller: AuditCaller {
                    token: "service".to_owned(),
                    role: "service".to_owned(),
                    request: String::new(),
                },
                command: "refuse".to_owned(),
                owners: Vec::new(),
                what: "requests without entries of their own".to_owned(),
                before: String::new(),
                after: String::new(),
                outcome: AuditOutcome::Refused,
                more: lost,
                ..last
            });
        }
        entries
    }
}

/// Logs what became of entries whose commit had an unknown outcome, now that the store was read.
pub(super) fn settle(unsettled: &[Change], read: &Ledger) {
    for change in unsettled {
        let Change::Audit(first, block) = change else {
            continue;
        };
        let is_done = trail::of(read).block(*first) == Some(block);
        for entry in &block.entries {
            match entry.outcome {
                AuditOutcome::Done if is_done => audit_line(entry, "done", &entry.after),
                AuditOutcome::Done => audit_line(entry, "not done", "the store does not have it"),
                AuditOutcome::Refused => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(token: &str, number: u64) -> AuditEntry {
        AuditEntry {
            number: 0,
            at_ms: number,
            caller: AuditCaller {
                token: token.to_owned(),
                role: "operator".to_owned(),
                request: number.to_string(),
            },
            command: "create".to_owned(),
            owners: Vec::new(),
            what: "acme/web".to_owned(),
            before: String::new(),
            after: "no".to_owned(),
            outcome: AuditOutcome::Refused,
            more: 0,
            digest: String::new(),
        }
    }

    #[test]
    fn each_refusal_is_an_entry_or_counted_and_their_number_is_bounded() {
        let mut refusals = Refusals::default();
        for number in 0..100 {
            refusals.push(refusal("one", number));
        }
        refusals.push(refusal("other", 0));
        for number in 0..2 * MAX_WAITING as u64 {
            refusals.push(refusal(&format!("token-{number}"), number));
        }
        assert!(refusals.is_full());
        let entries = refusals.take();
        assert!(refusals.is_empty() && entries.len() == MAX_WAITING + 1);
        let counted = entries.iter().map(|entry| 1 + entry.more).sum::<u64>();
        // The last entry counts others, and is none itself.
        assert_eq!(counted - 1, 101 + 2 * MAX_WAITING as u64);
        let one = entries.iter().filter(|entry| entry.caller.token == "one");
        assert_eq!(one.clone().count(), OF_A_CALLER);
        assert_eq!(one.map(|entry| entry.more).sum::<u64>(), 92);
    }
}
