//! A backup: the whole content of a store, as lines of JSON.
//!
//! The first line has the type, the last one the number of lines and their hash, which detects
//! truncated or changed files. Between them is one document a line, for `jq` and `grep`. The format
//! is independent of the store.

use crate::ledger::{
    AuditBlock, Change, Hosts, KeyId, KeyRecord, ReceivedReport, Snapshot, TokenRecord,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use tailbound_api::{Tenant, TopologyState};

/// The version of the lines.
const SCHEMA: u32 = 1;

/// The numbers that a restored store leaves out: they may have been given to tenants and changes
/// after the backup was made, which hosts know.
pub const LEFT_OUT: u64 = 1_000_000;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum Line {
    Backup(Head),
    Topology(Arc<TopologyState>),
    Hosts(Arc<Hosts>),
    Said {
        host: String,
        said: Arc<ReceivedReport>,
    },
    Tenant(Arc<Tenant>),
    Key {
        key: KeyId,
        record: Arc<KeyRecord>,
    },
    Token(Arc<TokenRecord>),
    Audit {
        first: u64,
        block: Arc<AuditBlock>,
    },
    End(End),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    schema: u32,
    /// The version of tailbound that wrote it.
    tailbound: String,
    revision: u64,
    next_id: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    /// Number of lines before this one.
    lines: u64,
    /// Hash of these lines, with their ends.
    sha256: String,
}

/// Reason why a text is not a usable backup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// The text does not begin with a backup's header.
    #[error("it is no backup of tailbound's: it does not begin with {{\"backup\": ...}}")]
    NoBackup,
    /// A newer program wrote it.
    #[error("it is of version {0}, and this tailbound knows {SCHEMA}: use a newer one")]
    Newer(u32),
    /// A line cannot be read.
    #[error("line {line}: {why}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Cause of the error.
        why: String,
    },
    /// The last line is missing or incomplete.
    #[error("its end is missing: it was cut off")]
    CutOff,
    /// The checksum differs from the lines.
    #[error("its lines are not those that were written: the checksum differs")]
    Changed,
}

/// Returns a backup of all this.
pub fn write(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let mut lines = 0;
    let mut put = |line: &Line| {
        text += &json(line);
        lines += 1;
    };
    put(&Line::Backup(Head {
        schema: SCHEMA,
        tailbound: env!("CARGO_PKG_VERSION").to_owned(),
        revision: snapshot.revision,
        next_id: snapshot.next_id,
    }));
    if let Some(topology) = &snapshot.topology {
        put(&Line::Topology(Arc::clone(topology)));
    }
    put(&Line::Hosts(Arc::clone(&snapshot.hosts)));
    for (host, last_report) in &snapshot.said {
        put(&Line::Said {
            host: host.clone(),
            said: Arc::clone(last_report),
        });
    }
    for tenant in snapshot.tenants.values() {
        put(&Line::Tenant(Arc::clone(tenant)));
    }
    for (key, record) in &snapshot.keys {
        put(&Line::Key {
            key: key.clone(),
            record: Arc::clone(record),
        });
    }
    for token in snapshot.tokens.values() {
        put(&Line::Token(Arc::clone(token)));
    }
    for (first, block) in &snapshot.audit {
        put(&Line::Audit {
            first: *first,
            block: Arc::clone(block),
        });
    }
    let end = Line::End(End {
        lines,
        sha256: hash(&text),
    });
    text += &json(&end);
    text
}

fn json(line: &Line) -> String {
    let mut text = serde_json::to_string(line).expect("lines have strings as keys");
    text.push('\n');
    text
}

/// Returns what a backup holds, if it is whole.
///
/// # Errors
/// The text is not a backup, has a newer version, is incomplete, or was changed.
pub fn read(text: &str) -> Result<Snapshot, BackupError> {
    let mut snapshot = Snapshot::default();
    let mut at = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if index == 0 {
            // Before anything else is said about a file that is something else.
            check_head(line)?;
        }
        if !line.ends_with('\n') {
            return Err(BackupError::CutOff);
        }
        let read = crate::kept::read(line.as_bytes()).map_err(|why| BackupError::Line {
            line: index + 1,
            why,
        })?;
        let change = match read {
            Line::Backup(head) if index == 0 => {
                snapshot.revision = head.revision;
                Change::NextId(head.next_id)
            }
            Line::Backup(_) => {
                return Err(BackupError::Line {
                    line: index + 1,
                    why: "a second beginning".to_owned(),
                });
            }
            Line::Topology(topology) => Change::Topology(topology),
            Line::Hosts(hosts) => Change::Hosts(hosts),
            Line::Said { host, said } => Change::Said(host, said),
            Line::Tenant(tenant) => Change::Tenant(tenant),
            Line::Key { key, record } => Change::Key(Arc::new(key), record),
            Line::Token(token) => Change::Token(token),
            Line::Audit { first, block } => Change::Audit(first, block),
            Line::End(end) => {
                let expected = End {
                    lines: index as u64,
                    sha256: hash(&text[..at]),
                };
                return if end == expected && at + line.len() == text.len() {
                    Ok(snapshot)
                } else {
                    Err(BackupError::Changed)
                };
            }
        };
        snapshot.apply(&[change]);
        at += line.len();
    }
    Err(if at == 0 {
        BackupError::NoBackup
    } else {
        BackupError::CutOff
    })
}

fn check_head(line: &str) -> Result<(), BackupError> {
    let head: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let schema = head
        .as_ref()
        .and_then(|head| head["backup"]["schema"].as_u64());
    match schema.map(u32::try_from) {
        Some(Ok(SCHEMA)) => Ok(()),
        Some(Ok(other)) => Err(BackupError::Newer(other)),
        _ => Err(BackupError::NoBackup),
    }
}

/// Returns the changes that make a new store of what a backup holds.
pub fn changes(snapshot: &Snapshot) -> Vec<Change> {
    let mut changes = vec![
        Change::NextId(snapshot.next_id + LEFT_OUT),
        Change::Hosts(Arc::clone(&snapshot.hosts)),
    ];
    changes.extend(snapshot.topology.clone().map(Change::Topology));
    let said = snapshot.said.iter();
    changes.extend(said.map(|(host, said)| Change::Said(host.clone(), Arc::clone(said))));
    changes.extend(snapshot.tenants.values().cloned().map(Change::Tenant));
    let keys = snapshot.keys.iter();
    changes
        .extend(keys.map(|(key, record)| Change::Key(Arc::new(key.clone()), Arc::clone(record))));
    changes.extend(snapshot.tokens.values().cloned().map(Change::Token));
    let blocks = snapshot.audit.iter();
    changes.extend(blocks.map(|(first, block)| Change::Audit(*first, Arc::clone(block))));
    changes
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::testing::{call, create, ledger};
    use crate::ledger::{Call, Command, Ledger};
    use tailbound_api::HostState;
    use tailbound_units::Nanos;

    fn sample() -> Snapshot {
        let (mut ledger, _) = ledger();
        for number in 0..3 {
            let call = Call {
                key: Some(format!("key-{number}")),
                ..create("acme", &format!("web-{number}"), 2)
            };
            let _ = ledger.decide(&call, Nanos(1)).unwrap();
        }
        let drain = call(Command::SetHosts {
            node: "host-2".to_owned(),
            state: HostState::Drained,
        });
        let _ = ledger.decide(&drain, Nanos(2)).unwrap();
        ledger.set_revision(7);
        ledger.snapshot()
    }

    #[test]
    fn a_written_backup_reads_back_and_loads() {
        let snapshot = sample();
        let text = write(&snapshot);
        assert_eq!(read(&text).unwrap(), snapshot);
        let mut restored = Snapshot::default();
        restored.apply(&changes(&snapshot));
        restored.revision = 8;
        assert_eq!(restored.next_id, snapshot.next_id + LEFT_OUT);
        assert_eq!(restored.tenants, snapshot.tenants);
        let ledger = Ledger::load(restored).unwrap();
        assert_eq!(ledger.snapshot().hosts, snapshot.hosts);
    }

    #[test]
    fn a_backup_that_is_cut_off_or_changed_is_refused() {
        let text = write(&sample());
        for end in 1..text.len() {
            if text.is_char_boundary(end) {
                let error = read(&text[..end]).unwrap_err();
                let known = matches!(
                    error,
                    BackupError::CutOff | BackupError::NoBackup | BackupError::Changed
                );
                // Without its last line end it is whole but for that.
                assert!(known, "{end}: {error}");
            }
        }
        let other = text.replacen("web-1", "web-7", 1);
        assert_eq!(read(&other).unwrap_err(), BackupError::Changed);
        let twice = format!("{text}{text}");
        assert_eq!(read(&twice).unwrap_err(), BackupError::Changed);
        for text in ["", "SQLite format 3", "{\"schema\": 1}\n"] {
            assert_eq!(read(text).unwrap_err(), BackupError::NoBackup);
        }
        let newer = text.replacen("\"schema\":1", "\"schema\":9", 1);
        assert_eq!(read(&newer).unwrap_err(), BackupError::Newer(9));
        let line = text.replacen("{\"hosts\":", "{\"hostz\":", 1);
        let error = read(&line).unwrap_err().to_string();
        assert!(
            error.starts_with("line 3: unknown variant `hostz`"),
            "{error}"
        );
    }
}
