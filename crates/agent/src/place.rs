//! Derives the members of a control group from its path: managers of guests (libvirt's system
//! daemon, the kubelet, Firecracker's jailer, container runtimes) each name their groups in their
//! own way. Pure. A name proves nothing by itself: it counts only if every level of the path could
//! have been created by root only, which [`super::scan`] checks.

use std::fmt;

/// The creator of a guest's group, and the purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manager {
    /// libvirt's system daemon, for this domain. Of its name the scope has letters,
    /// digits, `.` and `-` alone.
    Libvirt(String),
    /// The kubelet, for the pod with this UID.
    Pod(String),
    /// Firecracker's jailer, for the machine with this id.
    Jailer(String),
    /// A container runtime, for the container with this id.
    Container(String),
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Libvirt(domain) => write!(f, "libvirt's domain {domain}"),
            Self::Pod(uid) => write!(f, "the pod {uid}"),
            Self::Jailer(id) => write!(f, "the jailed machine {id}"),
            Self::Container(id) => write!(f, "the container {}", id.get(..12).unwrap_or(id)),
        }
    }
}

/// A group that a manager made for one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place<'p> {
    /// Its creator, and the purpose.
    pub manager: Manager,
    /// Its path, from the hierarchy's root.
    pub path: &'p str,
}

/// Returns the manager of the group that contains a path, by the names in it. The outermost match
/// counts, since the guest itself may have created the levels below. All managers except container
/// runtimes must match at the root: they create groups nowhere else.
pub fn place(path: &str) -> Option<Place<'_>> {
    let named = libvirt(path).or_else(|| pod(path)).or_else(|| jailer(path));
    let (manager, end) = named.or_else(|| {
        let (id, own) = container(path)?;
        Some((Manager::Container(id.to_owned()), own.len()))
    })?;
    Some(Place {
        manager,
        path: &path[..end],
    })
}

/// `/machine.slice/machine-qemu\x2d3\x2dweb.scope/...`, or without systemd
/// `/machine/qemu-3-web.libvirt-qemu/...`, each perhaps in partitions of the operator's.
/// Returns the manager, and where the group's path ends.
fn libvirt(path: &str) -> Option<(Manager, usize)> {
    let mut levels = components(path).skip(1);
    let (partition, systemd) = match levels.next()?.1 {
        "machine.slice" => (".slice", true),
        "machine" => (".partition", false),
        _ => return None,
    };
    let (start, name) = levels.find(|(_, name)| !name.ends_with(partition))?;
    let machine = if systemd {
        unescape(name.strip_prefix("machine-")?.strip_suffix(".scope")?)
    } else {
        name.strip_suffix(".libvirt-qemu")?.to_owned()
    };
    let machine = machine.strip_prefix("qemu-")?;
    // The number that libvirt gave it comes first.
    let domain = match machine.split_once('-') {
        Some((number, rest)) if number.parse::<u64>().is_ok() => rest,
        _ => machine,
    };
    Some((Manager::Libvirt(domain.to_owned()), start + name.len()))
}

/// `/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID.slice/...`, or
/// without systemd `/kubepods/besteffort/podUID/...`.
fn pod(path: &str) -> Option<(Manager, usize)> {
    let mut levels = components(path).skip(1);
    let systemd = match levels.next()?.1 {
        "kubepods.slice" => true,
        "kubepods" => false,
        _ => return None,
    };
    // Guaranteed pods are one level higher than the others.
    levels.take(2).find_map(|(start, name)| {
        let uid = if systemd {
            let (class, uid) = name.strip_suffix(".slice")?.rsplit_once("-pod")?;
            class
                .starts_with("kubepods")
                .then(|| uid.replace('_', "-"))?
        } else {
            name.strip_prefix("pod")?.to_owned()
        };
        (!uid.is_empty()).then(|| (Manager::Pod(uid), start + name.len()))
    })
}

/// `/firecracker/ID/...`: the jailer's default group.
fn jailer(path: &str) -> Option<(Manager, usize)> {
    let mut levels = components(path).skip(1);
    levels.next().filter(|(_, name)| *name == "firecracker")?;
    let (start, id) = levels.next().filter(|(_, id)| !id.is_empty())?;
    Some((Manager::Jailer(id.to_owned()), start + id.len()))
}

/// Returns the program that assigns CPUs to a group, by its directory.
pub fn confiner(directory: &str) -> &'static str {
    let last = directory.rsplit('/').next().unwrap_or_default();
    let unit = |kind: &str| last.ends_with(kind);
    if directory.contains("/kubepods") {
        "the kubelet gave it these"
    } else if directory.contains("/machine") {
        "libvirt gave it these: vcpupin, emulatorpin"
    } else if container(last).is_some() {
        "the container runtime gave it these: --cpuset-cpus"
    } else if unit(".slice") || unit(".service") || unit(".scope") {
        "systemd gave it these: AllowedCPUs= of that unit"
    } else {
        "they were set by another program"
    }
}

/// Returns who keeps the weight of a group as he wants it, by the group's directory.
pub fn keeper(directory: &str) -> &'static str {
    let in_kubernetes = directory.contains("/kubepods");
    let last = directory.rsplit('/').next().unwrap_or_default();
    if container(last).is_some() {
        "the container runtime (runc, crun)"
    } else if in_kubernetes {
        "the kubelet (by what the pod requests)"
    } else if last.starts_with("machine-qemu") || last.ends_with(".libvirt-qemu") {
        "libvirt (cputune shares), or systemd"
    } else if [".slice", ".scope", ".service"]
        .iter()
        .any(|kind| last.ends_with(kind))
    {
        "systemd (CPUWeight=)"
    } else {
        "another program"
    }
}

/// Returns the id of the container that a group belongs to, and that group's path: the
/// 64 hexadecimal digits in the names that docker, containerd, CRI-O and podman
/// give.
pub fn container(path: &str) -> Option<(&str, &str)> {
    components(path).find_map(|(start, name)| {
        let id = name.strip_suffix(".scope").unwrap_or(name);
        let id = id.rsplit(['-', ':']).next()?;
        let digits = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| (id, &path[..start + name.len()]))
    })
}

/// Returns the names in a path, each with where it starts.
fn components(path: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    path.split('/').map(move |name| {
        let at = start;
        start += name.len() + 1;
        (at, name)
    })
}

/// Undoes systemd's escapes: `\x2d` is `-`.
fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let escaped = text
            .get(at..at + 4)
            .and_then(|escape| escape.strip_prefix(r"\x"))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UID: &str = "3f0c7ad2-1111-2222-3333-444455556666";

    fn seen(path: &str) -> Option<(Manager, &str)> {
        place(path).map(|place| (place.manager, place.path))
    }

    #[test]
    fn each_managers_groups_are_known_from_the_root_on() {
        let libvirt = |domain: &str| Manager::Libvirt(domain.into());
        let cases = [
            (
                r"/machine.slice/machine-qemu\x2d3\x2da\x2db.scope",
                libvirt("a-b"),
            ),
            (
                "/machine.slice/machine-prod.slice/machine-qemu\\x2d1\\x2dweb.scope",
                libvirt("web"),
            ),
            ("/machine/qemu-1-web.libvirt-qemu", libvirt("web")),
            (
                "/machine/prod.partition/qemu-12-web-2.libvirt-qemu",
                libvirt("web-2"),
            ),
            ("/firecracker/fn-42", Manager::Jailer("fn-42".into())),
        ];
        for (path, manager) in cases {
            assert_eq!(seen(path), Some((manager.clone(), path)));
            assert_eq!(
                seen(&format!("{path}/libvirt/vcpu0")),
                Some((manager, path))
            );
        }
        let uid = UID.replace('-', "_");
        for path in [
            format!("/kubepods.slice/kubepods-pod{uid}.slice"),
            format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice"),
            format!("/kubepods/pod{UID}"),
            format!("/kubepods/besteffort/pod{UID}"),
        ] {
            let inside = format!("{path}/cri-containerd-{}.scope", "4fa6".repeat(16));
            let manager = Manager::Pod(UID.into());
            assert_eq!(seen(&inside), Some((manager, path.as_str())));
        }
    }

    #[test]
    fn managers_group_names_below_other_groups_are_not_trusted() {
        for path in [
            r"/user.slice/user-1000.slice/user@1000.service/machine.slice/machine-qemu\x2d1\x2dweb.scope",
            "/system.slice/x.service/machine/qemu-1-web.libvirt-qemu",
            "/x/kubepods/besteffort/pod3f0c",
            "/x/firecracker/fn-42",
            r"/machine.slice/x.service/machine-qemu\x2d1\x2dweb.scope",
            "/machine/x/qemu-1-web.libvirt-qemu",
            "/machine.slice",
            "/kubepods.slice/kubepods-besteffort.slice",
            "/firecracker",
            "/",
            "",
        ] {
            assert_eq!(seen(path), None, "{path}");
        }
    }

    #[test]
    fn the_program_that_resets_a_groups_weight_is_named() {
        let pod = "/sys/fs/cgroup/kubepods.slice/kubepods-burstable-podab.slice";
        for (directory, name) in [
            (pod.to_owned(), "the kubelet"),
            (
                format!("{pod}/cri-containerd-{}.scope", "4fa6".repeat(16)),
                "the container runtime",
            ),
            (
                r"/x/machine.slice/machine-qemu\x2d1\x2dweb.scope".into(),
                "libvirt",
            ),
            ("/x/system.slice/web.service".into(), "systemd"),
            ("/x/vms/web".into(), "another program"),
        ] {
            assert!(keeper(&directory).starts_with(name), "{directory}");
        }
    }

    #[test]
    fn containers_are_known_by_their_ids() {
        let id = "4fa6".repeat(16);
        for path in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/machine.slice/libpod-{id}.scope"),
            format!("/system.slice/x.service:cri-containerd:{id}"),
        ] {
            assert_eq!(container(&path), Some((id.as_str(), path.as_str())));
            // Whatever is made inside is the container's.
            let inside = format!(r"{path}/machine.slice/machine-qemu\x2d1\x2dweb.scope");
            let manager = Manager::Container(id.clone());
            assert_eq!(seen(&inside), Some((manager, path.as_str())));
        }
        assert_eq!(container("/user.slice/session-3.scope"), None);
    }

    proptest! {
        #[test]
        fn no_cgroup_path_makes_the_parser_panic(
            path in "(/machine(.slice)?|/kubepods(.slice)?|/firecracker|/docker)?(/machine-qemu|/qemu-|/pod|/kubepods-pod)?[-\\\\x2d0-9a-zé./]{0,40}",
        ) {
            if let Some(place) = place(&path) {
                prop_assert!(path.starts_with(place.path));
            }
        }
    }
}
