//! Configuration of a run's placement service: the tree of its hosts, a certificate, and its
//! callers' tokens. It is set up like an operator's service: with TLS, with a token for each host,
//! on a network beside the guests' wire. Its store lasts for one variant.

use crate::LabError;
use crate::bounds;
use crate::experiment::{Guaranteed, LabExperiment, Pacing, Variant};
use crate::hosts::{OWNER, fabric};
use crate::topology::SERVICE;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tailbound_dataplane::Fabric;
use tailbound_units::{Bytes, Rate};

/// File in the run's directory: the service's certificate, which clients trust.
const CERTIFICATE: &str = "place.pem";
const KEY: &str = "place.key";
const TOKENS: &str = "tokens.toml";
const TREE: &str = "tree.toml";
const STORE: &str = "place.db";
/// Name of the token with all rights. No host has this name because it has two words.
const OPERATOR: &str = "the operator";

#[derive(Serialize)]
struct Tree<'e> {
    frame: Bytes,
    classes: Classes,
    host: Vec<Host<'e>>,
}

#[derive(Serialize)]
struct Classes {
    fabric: Fabric,
}

#[derive(Serialize)]
struct Host<'e> {
    name: &'e str,
    slots: usize,
    uplink: Uplink,
}

#[derive(Serialize)]
struct Uplink {
    rate: Rate,
    buffer: Bytes,
    up_buffer: Bytes,
}

/// Returns the service's tree in a variant with this pacer configuration: each host with a slot for
/// each guest with a guarantee, and the lab's queues.
///
/// # Errors
/// A host's own queue has no bound.
pub(crate) fn tree(
    experiment: &LabExperiment,
    variant: &Variant,
    pacing: &Pacing,
) -> Result<String, LabError> {
    let rate = pacing.link(experiment.link_rate);
    let mut host = Vec::new();
    for name in followers(experiment, variant) {
        let queue = bounds::own_queue(experiment, variant, pacing, name);
        let queue = queue.ok_or_else(|| {
            let unbounded = io::Error::other(format!("nothing bounds host {name}'s own queue"));
            LabError::io("planning the placement service's tree")(unbounded)
        })?;
        host.push(Host {
            name,
            slots: experiment.guaranteed_on(variant, name),
            uplink: Uplink {
                rate,
                buffer: experiment.switch_buffer,
                up_buffer: Bytes(rate.bytes_in(queue).as_u64() + 1),
            },
        });
    }
    let pipeline = variant.pipeline.as_ref();
    let pipeline = pipeline.and_then(|name| experiment.pipeline.get(name.get_ref()));
    let tree = Tree {
        frame: pacing.frame(),
        classes: Classes {
            fabric: pipeline.and_then(fabric).unwrap_or_default(),
        },
        host,
    };
    let text = toml::to_string(&tree).map_err(io::Error::other);
    text.map_err(LabError::io("writing the placement service's tree"))
}

/// Returns the hosts that follow the service in a variant: those with guests that have a guarantee.
pub(crate) fn followers<'e>(
    experiment: &'e LabExperiment,
    variant: &Variant,
) -> impl Iterator<Item = &'e str> {
    let hosts = experiment.hosts.keys().map(String::as_str);
    hosts.filter(|host| experiment.guaranteed_on(variant, host) > 0)
}

/// Makes a certificate, and a token for the operator and each host.
///
/// # Errors
/// The directory accepts no file, or `program` makes no token.
pub(crate) fn prepare(program: &Path, directory: &Path, hosts: &[String]) -> Result<(), LabError> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(LabError::file("writing", &path))
    };
    let made = rcgen::generate_simple_self_signed([SERVICE.ip().to_string()]);
    let made = made.map_err(io::Error::other);
    let made = made.map_err(LabError::io("making a certificate"))?;
    write(CERTIFICATE, &made.cert.pem())?;
    write(KEY, &made.signing_key.serialize_pem())?;
    let mut tokens = token(program, directory, OPERATOR, &["operator"])?;
    for host in hosts {
        tokens += &token(program, directory, host, &["host", "--host", host])?;
    }
    write(TOKENS, &tokens)
}

/// Makes a token, stores its secret, and returns its lines for the service's file.
fn token(program: &Path, directory: &Path, whose: &str, role: &[&str]) -> Result<String, LabError> {
    let mut command = Command::new(program);
    let request = command.args(["place", "token", "--role"]).args(role);
    let output = request.output().map_err(LabError::io("making a token"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let secret = text.lines().last().filter(|_| output.status.success());
    let secret = secret.ok_or_else(|| LabError::Child {
        who: "tailbound place token".into(),
        what: "failed".into(),
        stderr: text.to_string(),
    })?;
    let path = secret_of(directory, whose);
    fs::write(&path, secret).map_err(LabError::file("writing", &path))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn secret_of(directory: &Path, whose: &str) -> PathBuf {
    directory.join(format!("{whose}.token"))
}

/// Returns the path where a host stores the service's last state.
fn state_of(directory: &Path, host: &str) -> PathBuf {
    directory.join(format!("{host}.guarantees"))
}

/// Returns the reason if `program` cannot be a placement service; `None` if it can.
pub(crate) fn refusal(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.args(["place", "serve", "--help"]).output();
    let is_there = output.is_ok_and(|output| output.status.success());
    (!is_there).then(|| "this program was built without `place`".to_owned())
}

/// Writes the tree of a variant, and removes the state of the previous one.
///
/// # Errors
/// The directory accepts no file.
pub(crate) fn begin(directory: &Path, tree: &str, hosts: &[String]) -> Result<(), LabError> {
    // Files of the previous variant.
    for end in ["", "-wal", "-shm", "-journal"] {
        let _ = fs::remove_file(directory.join(format!("{STORE}{end}")));
    }
    for host in hosts {
        let _ = fs::remove_file(state_of(directory, host));
    }
    let path = directory.join(TREE);
    fs::write(&path, tree).map_err(LabError::file("writing", &path))
}

/// Returns the arguments of the service.
pub(crate) fn serve(directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    [
        ["place".to_owned(), "serve".to_owned()],
        ["--listen".to_owned(), SERVICE.to_string()],
        ["--store".to_owned(), format!("sqlite:{}", file(STORE))],
        ["--topology".to_owned(), file(TREE)],
        ["--tokens".to_owned(), file(TOKENS)],
        ["--tls-cert".to_owned(), file(CERTIFICATE)],
        ["--tls-key".to_owned(), file(KEY)],
    ]
    .concat()
}

/// Returns the arguments by which a host's daemon follows the service.
pub(crate) fn follow(directory: &Path, host: &str) -> Vec<String> {
    let text = |path: PathBuf| path.display().to_string();
    [
        ["--control", &format!("https://{SERVICE}")],
        ["--control-host", host],
        ["--control-ca", &text(directory.join(CERTIFICATE))],
        ["--control-token-file", &text(secret_of(directory, host))],
        ["--control-state", &text(state_of(directory, host))],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

/// Returns the arguments of an operator's request to the service.
pub(crate) fn ask(directory: &Path, words: &str) -> Vec<String> {
    let text = |path: PathBuf| path.display().to_string();
    let arguments = words.split(' ').map(str::to_owned);
    let arguments = std::iter::once("place".to_owned()).chain(arguments);
    arguments
        .chain([
            "--url".to_owned(),
            format!("https://{SERVICE}"),
            "--ca".to_owned(),
            text(directory.join(CERTIFICATE)),
            "--token-file".to_owned(),
            text(secret_of(directory, OPERATOR)),
            "--output".to_owned(),
            "json".to_owned(),
        ])
        .collect()
}

/// Returns the service's name of a tenant.
pub(crate) fn tenant(name: &str) -> String {
    format!("{OWNER}/{name}")
}

/// Returns the request of a tenant with `vms` VMs for admission.
pub(crate) fn request(guaranteed: &Guaranteed, pacing: &Pacing, link: Rate, vms: usize) -> String {
    let Guaranteed {
        tenant,
        bandwidth,
        burst,
        ..
    } = guaranteed;
    let burst_rate = guaranteed.burst_rate(pacing, link);
    let delay = guaranteed.delay.map(|delay| format!(" --delay {delay}"));
    format!(
        "create {} --owner {OWNER} --vms {vms} --bandwidth {bandwidth} --burst {burst} \
         --burst-rate {burst_rate}{}",
        tenant.get_ref(),
        delay.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::GuaranteesBy;
    use crate::experiment::testing::all;
    use tailbound_placement::{Datacentre, Guarantee, Policy, Request, Spec, TenantId};

    #[test]
    fn the_service_admits_every_tenant_where_the_experiment_has_its_machines() {
        let mut admitted = 0;
        for experiment in all() {
            for variant in &experiment.variant {
                if variant.guarantees_by == GuaranteesBy::File {
                    continue;
                }
                let pacing = experiment.pacing(variant).unwrap();
                let text = tree(&experiment, variant, pacing).unwrap();
                let spec = Spec::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
                let topology = spec.build().unwrap();
                let mut centre = Datacentre::new(topology, Policy::Silo);
                for (id, member) in (1..).zip(experiment.guarantees(variant)) {
                    let guests = &experiment.tenant[member.tenant.get_ref()];
                    let request = Request {
                        vms: guests.len() as u32,
                        guarantee: Some(Guarantee {
                            bandwidth: member.bandwidth,
                            burst: member.burst,
                            delay: member.delay,
                            burst_rate: Some(member.burst_rate(pacing, experiment.link_rate)),
                            bursts: None,
                            burst_in: None,
                            class: None,
                        }),
                        cpu: 0,
                        memory: Bytes::ZERO,
                        domains: None,
                        cpu_reservation: None,
                        message: None,
                    };
                    let placement = centre.admit(TenantId(id), &request).unwrap().clone();
                    let hosts: Vec<&str> = placement
                        .hosts()
                        .iter()
                        .flat_map(|(host, count)| (0..*count).map(|_| *host))
                        .map(|host| centre.topology().name(host))
                        .collect();
                    let wanted: Vec<&str> = guests
                        .iter()
                        .map(|guest| experiment.host_of(guest.get_ref()).unwrap())
                        .collect();
                    assert_eq!(hosts, wanted, "{}", variant.name.get_ref());
                    admitted += 1;
                }
            }
        }
        assert!(admitted > 0);
    }
}
