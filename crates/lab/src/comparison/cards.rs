//! Throughput in frames from one VM's NIC to another's: through tailbound's vhost-user ports,
//! compared with its TAP ports, a Linux bridge, and DPDK's own vhost-user ports.
//!
//! DPDK's testpmd plays both VMs, in one process on one CPU; tailbound has another CPU. testpmd
//! sends a fixed number of frames in a circle, from its first port to its second and back, so that
//! no frame is lost and the slowest part limits the throughput. On TAPs and the bridge it uses
//! packet sockets with rings (`net_af_packet`). A second testpmd in place of tailbound passes each
//! frame on without a look at it (`net_vhost`, forward mode `io`).

use super::rig::{MIDDLE, Rig, add_namespace, bridge, connect, guest_config, remove_namespaces};
use super::{Bench, Ratio};
use crate::LabError;
use crate::build::batch;
use crate::measurement::Measurement;
use crate::processes::{POLL, Ready, Start, Supervisor};
use crate::session::Tool;
use crate::tools::words;
use crate::topology::Guest;
use rustix::thread::CpuSet;
use std::path::PathBuf;

const TESTPMD: &str = "dpdk-testpmd";
/// The figures, and the bytes of their frames without the FCS: the smallest, and a full one.
const FIGURES: [(&str, u32); 2] = [("small_frames_s", 60), ("full_frames_s", 1514)];
/// Bursts of 32 frames that each port sends first.
const BURSTS: u32 = 8;
/// The namespace of testpmd.
const GUESTS: &str = "cards";

const COMPARED: &[(&str, &str)] = &[("small", FIGURES[0].0), ("full", FIGURES[1].0)];

const RATIOS: [Ratio; 3] = [
    ratio(Backend::Tap),
    ratio(Backend::Bridge),
    ratio(Backend::Dpdk),
];

const fn ratio(to: Backend) -> Ratio {
    Ratio {
        of: Backend::Vhost.name(),
        to: to.name(),
        figures: COMPARED,
    }
}

/// Backend between the two VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    /// `tailbound host` with a vhost-user port for each VM.
    Vhost,
    /// `tailbound host` with a TAP for each VM.
    Tap,
    /// A Linux bridge with a veth pair for each VM.
    Bridge,
    /// A second testpmd with a vhost-user port for each VM.
    Dpdk,
}

/// The comparison of NICs.
pub(super) struct Cards;

impl Bench for Cards {
    fn backends(&self) -> Vec<&'static str> {
        Backend::ALL.map(Backend::name).into()
    }

    fn tools(&self) -> &'static [Tool] {
        &[("ip", "iproute2"), (TESTPMD, "dpdk")]
    }

    fn figures(&self, _: usize) -> Vec<String> {
        FIGURES.map(|(name, _)| name.to_owned()).into()
    }

    fn ratios(&self) -> &'static [Ratio] {
        &RATIOS
    }

    fn measure(&self, rig: &Rig<'_>, backend: usize) -> Result<Measurement, LabError> {
        let mut measured = Measurement::default();
        for (name, size) in FIGURES {
            let rate = frames(rig, Backend::ALL[backend], size)?;
            measured.value(name, "frames/s", rate);
        }
        Ok(measured)
    }
}

impl Backend {
    const ALL: [Self; 4] = [Self::Vhost, Self::Tap, Self::Bridge, Self::Dpdk];

    const fn name(self) -> &'static str {
        match self {
            Self::Vhost => "vhost-user",
            Self::Tap => "tap",
            Self::Bridge => "bridge",
            Self::Dpdk => "dpdk",
        }
    }

    /// Makes the interfaces.
    fn build(self) -> Result<(), LabError> {
        add_namespace(GUESTS)?;
        match self {
            Self::Vhost | Self::Dpdk => return Ok(()),
            Self::Tap => batch(
                "ip",
                Some(GUESTS),
                "tuntap add dev eth1 mode tap vnet_hdr\ntuntap add dev eth2 mode tap vnet_hdr\n",
            )?,
            Self::Bridge => {
                add_namespace(MIDDLE)?;
                (1..=2).try_for_each(|number| connect(number, GUESTS, &format!("eth{number}")))?;
                bridge()?;
                let stations = [1, 2].map(|number| {
                    format!("fdb add {} dev port{number} master static\n", mac(number))
                });
                batch("bridge", Some(MIDDLE), &stations.concat())?;
            }
        }
        // The kernel behind these interfaces is not the VM and answers no request: the interfaces
        // have other MAC addresses, so the kernel drops the frames for testpmd at once.
        batch(
            "ip",
            Some(GUESTS),
            "link set eth1 arp off up\nlink set eth2 arp off up\n",
        )
    }
}

/// Returns the CPUs of testpmd and of tailbound.
fn cpus(rig: &Rig<'_>) -> [u32; 2] {
    let cpus = &rig.session.cpus;
    let other = (0..CpuSet::MAX_CPU).find(|cpu| cpus.others.is_set(*cpu));
    let shared = cpus.shared_core;
    [shared, other.map_or(shared, |cpu| cpu as u32)]
}

/// Measures the frames of this size per second, of both directions together.
fn frames(rig: &Rig<'_>, backend: Backend, size: u32) -> Result<f64, LabError> {
    let mut supervisor = rig.session.supervisor();
    backend.build()?;
    match backend {
        Backend::Bridge => {}
        Backend::Dpdk => {
            // It binds to no file that one of another frame size has left.
            for number in 1..=2 {
                let socket = socket(rig, number);
                if socket.exists() {
                    std::fs::remove_file(&socket).map_err(LabError::file("removing", &socket))?;
                }
            }
            let other = start(rig, &mut supervisor, forwarder(rig), false)?;
            supervisor.tell(other, "start\n")?;
        }
        Backend::Vhost | Backend::Tap => {
            rig.daemon(&mut supervisor, GUESTS, &config(rig, backend))?;
        }
    }
    let testpmd = start(rig, &mut supervisor, arguments(rig, backend, size), true)?;
    supervisor.tell(testpmd, &format!("start tx_first {BURSTS}\n"))?;
    supervisor.rest(rig.warmup.into())?;
    // The second output covers the time since the first.
    supervisor.tell(testpmd, "show port stats all\n")?;
    supervisor.rest(rig.options.duration.into())?;
    supervisor.tell(testpmd, "show port stats all\nstop\nquit\n")?;
    while !supervisor.all_ended()? {
        supervisor.rest(POLL)?;
    }
    let output = &supervisor.member(testpmd).stdout;
    let text = std::fs::read_to_string(output).map_err(LabError::file("reading", output))?;
    let rate = rate(&text).ok_or_else(|| LabError::Child {
        who: "testpmd".to_owned(),
        what: "did not report its received bytes".to_owned(),
        stderr: text,
    })?;
    supervisor.end()?;
    remove_namespaces()?;
    Ok(rate)
}

/// Starts a testpmd and waits for its prompt. One that `ends` receives `quit` later; others are
/// stopped with all processes. Returns its index.
fn start(
    rig: &Rig<'_>,
    supervisor: &mut Supervisor<'_>,
    arguments: Vec<String>,
    ends: bool,
) -> Result<usize, LabError> {
    let first = supervisor.len();
    let testpmd = supervisor.start(Start {
        ready: Ready::Stdout("testpmd>"),
        ends,
        ..rig.program(TESTPMD, GUESTS, arguments)
    })?;
    supervisor.wait_ready(first)?;
    Ok(testpmd)
}

/// Returns the configuration of a daemon with both VMs, on a CPU of its own.
fn config(rig: &Rig<'_>, backend: Backend) -> String {
    let [testpmd, own] = cpus(rig);
    let pinned = (own != testpmd).then(|| format!("cpu = {own}\n"));
    let guest = |number| {
        let port = match backend {
            Backend::Vhost | Backend::Dpdk => {
                let socket = socket(rig, number);
                format!("kind = \"vhost-user\", socket = \"{}\"", socket.display())
            }
            _ => format!("kind = \"tap\", interface = \"eth{number}\""),
        };
        // Both VMs' frames from testpmd have the same IP source.
        let more = "anti_spoofing = false\npipeline = { segment = false, meter = {}, \
                    queue = { kind = \"fq-codel\" } }\n";
        guest_config(number, &port, more)
    };
    pinned.into_iter().chain((1..=2).map(guest)).collect()
}

/// Returns the arguments of testpmd with both VMs, on a CPU of their own.
fn arguments(rig: &Rig<'_>, backend: Backend, size: u32) -> Vec<String> {
    let [cpu, _] = cpus(rig);
    let device = |number: u8| match backend {
        Backend::Vhost | Backend::Dpdk => format!(
            "--vdev=net_virtio_user{number},path={},mac={},queue_size=1024",
            socket(rig, number).display(),
            mac(number)
        ),
        Backend::Tap | Backend::Bridge => {
            format!("--vdev=net_af_packet{number},iface=eth{number},framecnt=1024,qdisc_bypass=1")
        }
    };
    let more = format!(
        "--forward-mode=mac --eth-peer=0,{} --eth-peer=1,{} --txpkts={size}",
        mac(2),
        mac(1),
    );
    testpmd(cpu, "cards", &[device(1), device(2)], &more)
}

/// Returns the arguments of the testpmd in place of tailbound, on a CPU of its own.
fn forwarder(rig: &Rig<'_>) -> Vec<String> {
    let [_, cpu] = cpus(rig);
    let device = |number: u8| {
        let socket = socket(rig, number);
        format!("--vdev=net_vhost{number},iface={}", socket.display())
    };
    testpmd(
        cpu,
        "forwarder",
        &[device(1), device(2)],
        "--forward-mode=io",
    )
}

/// Returns the arguments of a testpmd with two ports on a CPU.
fn testpmd(cpu: u32, prefix: &str, devices: &[String; 2], more: &str) -> Vec<String> {
    words(&format!(
        "--lcores=0@{cpu},1@{cpu} --no-huge -m 256 --no-pci --no-telemetry \
         --file-prefix={prefix}{} {} -- -i --nb-cores=1 --total-num-mbufs=16384 --no-mlockall \
         --txd=1024 --rxd=1024 {more}",
        std::process::id(),
        devices.join(" "),
    ))
}

fn mac(number: u8) -> String {
    Guest::alone(number).mac_text()
}

fn socket(rig: &Rig<'_>, number: u8) -> PathBuf {
    rig.session.directory().join(format!("card{number}"))
}

/// Parses the frames per second that both ports received from testpmd's last output.
fn rate(text: &str) -> Option<f64> {
    let rates = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("Rx-pps:")?;
        rest.split_whitespace().next()?.parse().ok()
    });
    let rates: Vec<f64> = rates.collect();
    let last = rates.last_chunk::<2>()?;
    // testpmd printed the statistics twice: the first output covers the warm-up.
    (rates.len() == 4).then(|| last.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receive_rate_is_taken_from_the_second_reading() {
        let port = |rate| format!("  Rx-pps:   {rate}   Rx-bps:  64\n  Tx-pps: 9  Tx-bps: 9\n");
        let text = [1, 2, 30, 12].map(port).concat();
        assert_eq!(rate(&text), Some(42.0));
        assert_eq!(rate("testpmd> Bye...\n"), None);
    }
}
