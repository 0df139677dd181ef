//! Names of containers, pods and domains in files that only root writes: the state files of
//! Docker, Podman and libvirt, and the kubelet's log directories. Files are read within a bound of
//! size; no socket is asked here.

use super::super::identifier::Uuid;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use tailbound_sys::root::Root;

/// The largest state file that is read, in bytes.
const LARGEST: u64 = 16 << 20;
/// Largest number of examined entries of a directory.
const MAX_ENTRIES: usize = 20_000;

/// Where Podman lists the containers of root's.
const PODMAN: [&str; 2] = [
    "/var/lib/containers/storage/overlay-containers/containers.json",
    "/run/containers/storage/overlay-containers/volatile-containers.json",
];

fn read(root: &Root, path: impl AsRef<Path>) -> Option<Vec<u8>> {
    let mut file = File::open(root.path(path)).ok()?;
    let is_file = file.metadata().is_ok_and(|data| data.is_file());
    let mut bytes = Vec::new();
    let read = file.by_ref().take(LARGEST + 1).read_to_end(&mut bytes);
    (is_file && read.is_ok() && bytes.len() as u64 <= LARGEST).then_some(bytes)
}

/// Returns the name of a container that Docker started.
pub(super) fn docker(root: &Root, id: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct State {
        #[serde(rename = "Name")]
        name: String,
    }
    let bytes = read(
        root,
        format!("/var/lib/docker/containers/{id}/config.v2.json"),
    )?;
    let State { name } = serde_json::from_slice(&bytes).ok()?;
    let name = name.trim_start_matches('/');
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the labels of a container that Docker started; none if they are not known.
pub(super) fn docker_labels(root: &Root, id: &str) -> BTreeMap<String, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct State {
        #[serde(rename = "Config")]
        config: Config,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Config {
        #[serde(rename = "Labels")]
        labels: BTreeMap<String, String>,
    }
    let path = format!("/var/lib/docker/containers/{id}/config.v2.json");
    let state = read(root, path).and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let State { config } = state.unwrap_or_default();
    config.labels
}

/// Returns the name of a container that root's Podman started.
pub(super) fn podman(root: &Root, id: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Listed {
        id: String,
        #[serde(default)]
        names: Vec<String>,
    }
    PODMAN.iter().find_map(|path| {
        let listed: Vec<Listed> = serde_json::from_slice(&read(root, path)?).ok()?;
        let container = listed.into_iter().find(|one| one.id == id)?;
        container.names.into_iter().find(|name| !name.is_empty())
    })
}

/// A container of a pod, by the kubelet's link to its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodContainer {
    /// The container's id.
    pub(super) id: String,
    /// Its name in its pod.
    pub(super) name: String,
}

/// Returns the containers of pods: `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`.
pub(super) fn pod_containers(root: &Root) -> Vec<PodContainer> {
    let read = |name: &str| {
        let (_, rest) = name.strip_suffix(".log")?.rsplit_once('_')?;
        let (name, id) = rest.rsplit_once('-')?;
        let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| PodContainer {
            id: id.to_owned(),
            name: name.to_owned(),
        })
    };
    names_in(root, "/var/log/containers")
        .iter()
        .filter_map(|name| read(name))
        .collect()
}

/// Returns the namespace and the name of a pod: `/var/log/pods/NAMESPACE_NAME_UID`.
pub(super) fn pod(root: &Root, uid: &str) -> Option<(String, String)> {
    names_in(root, "/var/log/pods").iter().find_map(|name| {
        let (pod, pod_uid) = name.rsplit_once('_')?;
        let (namespace, name) = pod.split_once('_')?;
        (pod_uid == uid).then(|| (namespace.to_owned(), name.to_owned()))
    })
}

fn names_in(root: &Root, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(root.path(directory)).into_iter().flatten();
    let names = entries.take(MAX_ENTRIES).flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Returns the name and the UUID of the domain that libvirt's system daemon runs as the process
/// `pid`: its state file names the process.
pub(super) fn domain(root: &Root, pid: u32) -> Option<(String, Uuid)> {
    let directory = "/run/libvirt/qemu";
    names_in(root, directory).iter().find_map(|name| {
        name.strip_suffix(".xml")?;
        let text = read(root, format!("{directory}/{name}"))?;
        domain_of(&String::from_utf8_lossy(&text), pid)
    })
}

/// Reads a state file: `<domstatus ... pid='7'> ... <domain><name>..</name><uuid>..</uuid>`.
fn domain_of(text: &str, pid: u32) -> Option<(String, Uuid)> {
    let (_, status) = text.split_once("<domstatus")?;
    let (head, rest) = status.split_once('>')?;
    let own = [format!(" pid='{pid}'"), format!(" pid=\"{pid}\"")];
    if !own.iter().any(|own| head.contains(own)) {
        return None;
    }
    let (_, domain) = rest.split_once("<domain")?;
    let element = |name: &str| {
        let (_, after) = domain.split_once(&format!("<{name}>"))?;
        Some(after.split_once(&format!("</{name}>"))?.0)
    };
    let name = element("name")?
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&");
    Some((name, element("uuid")?.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "4fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa64fa6";

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn containers_have_the_names_of_their_runtimes_files() {
        let docker_file = format!("var/lib/docker/containers/{ID}/config.v2.json");
        let podman_file = PODMAN[0].trim_start_matches('/');
        let listed = format!(r#"[{{"id":"x"}},{{"id":"{ID}","names":["cache"],"layer":"y"}}]"#);
        let there = tree(&[
            (&docker_file, r#"{"ID":"x","Name":"/web-7"}"#),
            (podman_file, &listed),
        ]);
        let root = Root::at(there.path());
        assert_eq!(docker(&root, ID).as_deref(), Some("web-7"));
        assert_eq!(podman(&root, ID).as_deref(), Some("cache"));
        assert_eq!((docker(&root, "x"), podman(&root, "x")), (None, None));
        for damaged in ["", "{", "[]", r#"{"Name":7}"#, r#"{"Name":"/"}"#] {
            let there = tree(&[(&docker_file, damaged), (podman_file, damaged)]);
            let root = Root::at(there.path());
            assert_eq!((docker(&root, ID), podman(&root, ID)), (None, None));
        }
    }

    #[test]
    fn pods_and_their_containers_are_named_by_the_kubelets_logs() {
        let uid = "3f0c7ad2-1111-2222-3333-444455556666";
        let log = format!("var/log/containers/cart-0_shop_app-server-{ID}.log");
        let pods = format!("var/log/pods/shop_cart-0_{uid}/app-server/0.log");
        let there = tree(&[
            (&log, ""),
            (&pods, ""),
            ("var/log/containers/other.log", ""),
        ]);
        let root = Root::at(there.path());
        let expected = PodContainer {
            id: ID.into(),
            name: "app-server".into(),
        };
        assert_eq!(pod_containers(&root), [expected]);
        assert_eq!(pod(&root, uid), Some(("shop".into(), "cart-0".into())));
        assert_eq!(pod(&root, "other"), None);
    }

    #[test]
    fn a_domain_is_the_one_whose_state_file_names_the_process() {
        let uuid = "3f0c7ad2-9b1e-4c55-8d7a-444455556666";
        let state = |pid: &str| {
            format!(
                "<!--\nWARNING\n--><domstatus state='running' reason='booted' {pid}>\n\
                 <monitor path='x'/><domain type='kvm' id='1'>\n<name>a&amp;b</name>\n\
                 <uuid>{uuid}</uuid></domain></domstatus>"
            )
        };
        let there = tree(&[
            ("run/libvirt/qemu/other.xml", &state("pid='81'")),
            ("run/libvirt/qemu/web.xml", &state("pid='812'")),
            ("run/libvirt/qemu/web.pid", "812"),
        ]);
        let root = Root::at(there.path());
        assert_eq!(
            domain(&root, 812),
            Some(("a&b".into(), uuid.parse().unwrap()))
        );
        assert_eq!(domain(&root, 8), None);
    }

    proptest! {
        #[test]
        fn any_text_can_be_a_state_file(text in "(<domstatus pid='7'>)?(<domain>)?(<name>)?[ -~]{0,60}") {
            let _ = domain_of(&text, 7);
        }
    }
}
