//! Commands that would change a guest's settings, by its manager. Without I/O.

use super::records::tightest;
use tailbound_agent::inventory::{Guest, Identity, Runtime};
use tailbound_agent::scan::GroupQuota;
use tailbound_look::evidence::Handles;

/// The factor by which a command raises a limit.
const RAISE: u64 = 2;

/// Returns the commands for a guest.
pub(super) fn handles(guest: &Guest) -> Handles {
    Handles {
        select: select(guest),
        quota: tightest(&guest.quotas).map(|quota| raise(guest, quota)),
        limit: guest.limits.first().and_then(|limit| {
            let interface = guest.interfaces.iter().find(|it| it.index == limit.index)?;
            Some(format!(
                "tc class show dev {0}; tc qdisc show dev {0}",
                quote(&interface.name)
            ))
        }),
        queue: None,
    }
}

/// Returns the flags with which `tailbound vcpu apply` selects the guest.
fn select(guest: &Guest) -> Option<String> {
    match &guest.identity {
        Identity::Domain { uuid: Some(it), .. } => Some(format!("--uuid {it}")),
        Identity::Domain { uuid: None, name } => Some(format!("--guest {}", quote(name))),
        Identity::Pod { uid, .. } => Some(format!("--pod {}", quote(uid))),
        Identity::Container { id, .. } => {
            Some(format!("--container {}", id.get(..12).unwrap_or(id)))
        }
        Identity::Vmm { .. } | Identity::Namespace { .. } => match guest.processes.as_slice() {
            [process] => Some(format!("--pid {}", process.pid)),
            _ => None,
        },
    }
}

/// Returns the command that raises a quota, or the setting to raise.
fn raise(guest: &Guest, quota: &GroupQuota) -> String {
    let (runtime, period) = (quota.quota.runtime.0, quota.quota.period.0.max(1));
    let hundredths = runtime.saturating_mul(100 * RAISE) / period;
    let cpus = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    match &guest.identity {
        Identity::Container {
            runtime: runtime @ (Runtime::Docker | Runtime::Podman),
            ..
        } => format!(
            "{} update --cpus {cpus} {}",
            runtime.name(),
            quote(&guest.name)
        ),
        Identity::Pod { .. } => format!(
            "raise resources.limits.cpu in the specification of pod {}",
            guest.name
        ),
        Identity::Domain { name, .. } => format!(
            "virsh schedinfo {} --live vcpu_quota={}",
            quote(name),
            runtime / 1_000 * RAISE
        ),
        _ => {
            let group = quota.group.display().to_string();
            let runtime = runtime / 1_000 * RAISE;
            if quota.group.join("cpu.max").exists() {
                let file = quote(&format!("{group}/cpu.max"));
                return format!("echo {runtime} {} > {file}", period / 1_000);
            }
            format!(
                "echo {runtime} > {}",
                quote(&format!("{group}/cpu.cfs_quota_us"))
            )
        }
    }
}

/// Returns a word, quoted for a shell.
fn quote(word: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "._-/:@".contains(character);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_to_a_shell() {
        for (word, quoted) in [
            ("web-7", "web-7"),
            ("a b", "'a b'"),
            ("$(reboot)", "'$(reboot)'"),
            ("it's", r"'it'\''s'"),
            ("-rf", "'-rf'"),
            ("", "''"),
        ] {
            assert_eq!(quote(word), quoted);
        }
    }
}
