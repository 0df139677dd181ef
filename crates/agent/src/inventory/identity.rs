//! The identity of a guest: a stable key, and a name that a person types. Pure.
//!
//! An identity is made of what only root could have written: control groups and their paths, state
//! files of container runtimes and of libvirt, process numbers with start times. A guest's own
//! words (its command line, its threads' names) appear in none.

use super::super::identifier::Uuid;
use super::super::text::printable;
use std::fmt;
use tailbound_sys::thread::ThreadId;

/// The program that made a container's control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    /// Docker's daemon.
    Docker,
    /// Podman, without a daemon.
    Podman,
    /// containerd, by CRI or on its own.
    Containerd,
    /// CRI-O, by CRI.
    CriO,
    /// Another one.
    Other,
}

impl Runtime {
    /// Returns the runtime that names a container's control group like this.
    pub fn of(group: &str) -> Self {
        let mut levels = group.rsplit('/');
        let last = levels.next().unwrap_or_default();
        let above = levels.next().unwrap_or_default();
        let begins = |prefix: &str| last.starts_with(prefix);
        if begins("docker-") || above == "docker" {
            Self::Docker
        } else if begins("libpod-") || above == "libpod_parent" {
            Self::Podman
        } else if begins("crio-") {
            Self::CriO
        } else if begins("cri-containerd-") || last.contains(":cri-containerd:") {
            Self::Containerd
        } else {
            Self::Other
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Containerd => "containerd",
            Self::CriO => "cri-o",
            Self::Other => "container",
        }
    }
}

/// The identity of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A domain of libvirt's.
    Domain {
        /// Its UUID, if libvirt's state file of the process may be read.
        uuid: Option<Uuid>,
        /// Its name.
        name: String,
    },
    /// A pod of Kubernetes, with all of its containers: they share one network namespace.
    Pod {
        /// Its UID.
        uid: String,
        /// Its namespace and name, if the runtime or the kubelet's log directory has them.
        name: Option<(String, String)>,
    },
    /// A container outside pods.
    Container {
        /// The runtime.
        runtime: Runtime,
        /// Its id: 64 hexadecimal digits.
        id: String,
        /// Its name, if the runtime's state file may be read.
        name: Option<String>,
    },
    /// A virtual machine that no manager started.
    Vmm {
        /// The VMM's program.
        program: &'static str,
        /// Its first thread.
        process: ThreadId,
        /// The id that Firecracker's jailer started it with.
        jailed: Option<String>,
    },
    /// A network namespace with processes in it, and nothing of the above.
    Namespace {
        /// Its name below `/run/netns`.
        name: Option<String>,
        /// Its inode.
        inode: u64,
    },
}

impl Identity {
    /// Returns the kind in one word.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Domain { .. } => "domain",
            Self::Pod { .. } => "pod",
            Self::Container { runtime, .. } => runtime.name(),
            Self::Vmm { program, .. } => program,
            Self::Namespace { .. } => "namespace",
        }
    }

    /// Returns the key: the same for as long as the guest lives, and no other guest's meanwhile.
    pub fn key(&self) -> String {
        let key = match self {
            Self::Domain { uuid: Some(it), .. } => format!("domain/{it}"),
            Self::Domain { uuid: None, name } => format!("domain/{name}"),
            Self::Pod { uid, .. } => format!("pod/{uid}"),
            Self::Container { id, .. } => format!("container/{}", short(id)),
            Self::Vmm { process, .. } => format!("process/{}.{}", process.pid, process.start),
            Self::Namespace { name, inode } => match name {
                Some(name) => format!("netns/{name}"),
                None => format!("netns/{inode}"),
            },
        };
        printable(&key)
    }

    /// Returns the name that a person types.
    pub fn name(&self) -> String {
        let name = match self {
            Self::Domain { name, .. } => name.clone(),
            Self::Pod {
                name: Some((namespace, name)),
                ..
            } => format!("{namespace}/{name}"),
            Self::Pod { uid, .. } => format!("pod-{uid}"),
            Self::Container { id, name, .. } => {
                name.clone().unwrap_or_else(|| short(id).to_owned())
            }
            Self::Vmm {
                program,
                process,
                jailed,
            } => {
                let own = || format!("{program}-{}", process.pid);
                jailed.clone().unwrap_or_else(own)
            }
            Self::Namespace { name, inode } => {
                name.clone().unwrap_or_else(|| format!("netns-{inode}"))
            }
        };
        printable(&name)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

/// The first twelve digits of a container's id.
pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_key_and_its_name() {
        let process = ThreadId {
            pid: 4_821,
            tid: 4_821,
            start: 777,
        };
        let uid = "3f0c7ad2-9b1e-4c55-8d7a-444455556666";
        let id = "4fa6".repeat(16);
        let cases = [
            (
                Identity::Domain {
                    uuid: uid.parse().ok(),
                    name: "db-3".into(),
                },
                format!("domain/{uid}"),
                "db-3",
            ),
            (
                Identity::Pod {
                    uid: uid.into(),
                    name: Some(("shop".into(), "cart-0".into())),
                },
                format!("pod/{uid}"),
                "shop/cart-0",
            ),
            (
                Identity::Container {
                    runtime: Runtime::Docker,
                    id: id.clone(),
                    name: None,
                },
                "container/4fa64fa64fa6".into(),
                "4fa64fa64fa6",
            ),
            (
                Identity::Vmm {
                    program: "qemu",
                    process,
                    jailed: None,
                },
                "process/4821.777".into(),
                "qemu-4821",
            ),
            (
                Identity::Namespace {
                    name: Some("blue".into()),
                    inode: 9,
                },
                "netns/blue".into(),
                "blue",
            ),
        ];
        for (identity, key, name) in cases {
            assert_eq!((identity.key(), identity.name()), (key, name.into()));
        }
    }

    #[test]
    fn a_name_reaches_no_terminal_as_a_control_sequence() {
        let identity = Identity::Container {
            runtime: Runtime::Docker,
            id: "4fa6".repeat(16),
            name: Some("\x1b[2Jroot".into()),
        };
        assert_eq!(identity.name(), r"\u{1b}[2Jroot");
    }

    #[test]
    fn a_runtime_is_known_by_how_it_names_groups() {
        let id = "4fa6".repeat(16);
        for (group, runtime) in [
            (format!("/docker/{id}"), Runtime::Docker),
            (format!("/system.slice/docker-{id}.scope"), Runtime::Docker),
            (format!("/machine.slice/libpod-{id}.scope"), Runtime::Podman),
            (format!("/libpod_parent/{id}"), Runtime::Podman),
            (format!("/x/cri-containerd-{id}.scope"), Runtime::Containerd),
            (format!("/x/a:cri-containerd:{id}"), Runtime::Containerd),
            (format!("/x/crio-{id}.scope"), Runtime::CriO),
            (format!("/default/{id}"), Runtime::Other),
        ] {
            assert_eq!(Runtime::of(&group), runtime, "{group}");
        }
    }
}
