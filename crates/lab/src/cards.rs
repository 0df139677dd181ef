//! Throughput in frames from one VM's NIC to another's: through tailbound's vhost-user ports,
//! compared with its TAP ports and a Linux bridge.
//!
//! DPDK's testpmd plays both VMs, in one process on one CPU; tailbound has another CPU. testpmd
//! sends a fixed number of frames in a circle, from its first port to its second and back, so that
//! no frame is lost and the slowest part limits the throughput. On TAPs and the bridge it uses
//! packet sockets with rings (`net_af_packet`). The backends take turns, and the result is the
//! ratio within one round.

use crate::LabError;
use crate::build::batch;
use crate::pair::{BRIDGE, mac};
use crate::processes::{POLL, Ready, Start, Supervisor};
use crate::summarise;
use crate::tools::words;
use crate::topology::namespace_path;
pub use crate::turns::Options;
use crate::turns::{Place, in_turn};
use rustix::thread::CpuSet;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use tailbound_experiment::{
    Catalogue, Document, Experiment, Found, Mistake, Mistakes, Run, catalogue,
};
use tailbound_report::Variant;
use tailbound_sys::process::find_program;
use tailbound_units::Nanos;

const TESTPMD: &str = "dpdk-testpmd";
/// Bytes of frames without the FCS: the smallest, and a full one.
const SMALL: u32 = 60;
const FULL: u32 = 1514;
/// Bursts of 32 frames that each port sends first.
const BURSTS: u32 = 8;
const WARMUP: Nanos = Nanos::from_millis(500);
/// Namespaces of testpmd and of the bridge.
const GUESTS: &str = "cards";
const MIDDLE: &str = "middle";

/// Backend between the two VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Backend {
    /// `tailbound host` with a vhost-user port for each VM.
    Vhost,
    /// `tailbound host` with a TAP for each VM.
    Tap,
    /// A Linux bridge with a veth pair for each VM.
    Bridge,
}

/// One measurement of a backend in frames per second.
#[derive(Debug, Clone, Copy)]
struct Measured {
    small: f64,
    full: f64,
}

/// The experiment `cards`. Its file has the checks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardsExperiment {}

/// State that the measurements share.
struct Bench<'a> {
    place: &'a Place,
    duration: Nanos,
    /// The CPU of testpmd, and the CPU of tailbound.
    cpus: [u32; 2],
}

impl Experiment for CardsExperiment {
    type Options = Options;
    type Error = LabError;

    const CATALOGUE: Catalogue = catalogue!("experiments": "cards");

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, _: &str, _: &mut Mistakes) {}

    fn outline(&self) -> Vec<Variant> {
        variants(&Backend::ALL.map(|backend| (backend, Vec::new())).into())
    }

    /// Moves this process into namespaces of its own, as a run of the lab does.
    fn run(&self, run: &mut Run<'_, Options>) -> Result<Found, LabError> {
        let options = run.options;
        for (program, package) in [("ip", "iproute2"), (TESTPMD, "dpdk")] {
            if find_program(program).is_none() {
                return Err(LabError::Missing { program, package });
            }
        }
        let place = Place::enter()?;
        let cpus = &place.cpus;
        let other = (0..CpuSet::MAX_CPU).find(|cpu| cpus.others.is_set(*cpu));
        let bench = Bench {
            place: &place,
            duration: options.duration,
            cpus: [
                cpus.shared_core,
                other.map_or(cpus.shared_core, |cpu| cpu as u32),
            ],
        };
        let mut found = place.found(options);
        let measured = in_turn(
            run,
            options.repeat,
            &Backend::ALL,
            Backend::name,
            |backend| {
                Ok(Measured {
                    small: bench.measure(backend, SMALL)?,
                    full: bench.measure(backend, FULL)?,
                })
            },
        )?;
        place.add(variants(&measured), &mut found);
        Ok(found)
    }
}

/// Returns the backends with their figures. A ratio is the median of the ratios of all rounds.
fn variants(measured: &BTreeMap<Backend, Vec<Measured>>) -> Vec<Variant> {
    type Figure = fn(&Measured) -> f64;
    const SMALL: Figure = |measured| measured.small;
    const FULL: Figure = |measured| measured.full;
    let variant = |(backend, rounds): (&Backend, &Vec<Measured>)| {
        let mut values = BTreeMap::new();
        for (name, figure) in [("small_frames_s", SMALL), ("full_frames_s", FULL)] {
            let figures = rounds.iter().map(figure).collect();
            values.insert(name.to_owned(), summarise::value("frames/s", figures));
        }
        for (other, of) in [(Backend::Tap, "tap"), (Backend::Bridge, "bridge")] {
            if *backend != Backend::Vhost {
                continue;
            }
            for (name, figure) in [("small", SMALL), ("full", FULL)] {
                let pairs = rounds.iter().zip(&measured[&other]);
                let ratios = pairs.map(|(ours, theirs)| figure(ours) / figure(theirs));
                let value = summarise::value("", ratios.collect());
                values.insert(format!("{name}_to_{of}"), value);
            }
        }
        Variant {
            name: backend.name().into(),
            values,
            ..Variant::default()
        }
    };
    measured.iter().map(variant).collect()
}

impl Backend {
    const ALL: [Self; 3] = [Self::Vhost, Self::Tap, Self::Bridge];

    const fn name(self) -> &'static str {
        match self {
            Self::Vhost => "vhost-user",
            Self::Tap => "tap",
            Self::Bridge => "bridge",
        }
    }

    /// Makes the interfaces.
    fn build(self) -> Result<(), LabError> {
        batch("ip", None, &format!("netns add {GUESTS}\n"))?;
        match self {
            Self::Vhost => return Ok(()),
            Self::Tap => batch(
                "ip",
                Some(GUESTS),
                "tuntap add dev eth1 mode tap vnet_hdr\ntuntap add dev eth2 mode tap vnet_hdr\n",
            )?,
            Self::Bridge => {
                let pair = |number| {
                    format!(
                        "link add eth{number} netns {GUESTS} type veth \
                         peer name port{number} netns {MIDDLE}\n"
                    )
                };
                let pairs = format!("netns add {MIDDLE}\n{}{}", pair(1), pair(2));
                batch("ip", None, &pairs)?;
                batch("ip", Some(MIDDLE), BRIDGE)?;
                let stations = [1, 2].map(|number| {
                    format!("fdb add {} dev port{number} master static\n", mac(number))
                });
                batch("bridge", Some(MIDDLE), &stations.concat())?;
            }
        }
        // The kernel behind these interfaces is not the VM and answers no request: the interfaces have other
        // MAC addresses, so the kernel drops the frames for testpmd at once.
        batch(
            "ip",
            Some(GUESTS),
            "link set eth1 arp off up\nlink set eth2 arp off up\n",
        )
    }

    /// Removes all interfaces.
    fn remove(self) -> Result<(), LabError> {
        if self == Self::Bridge {
            batch("ip", None, &format!("netns del {MIDDLE}\n"))?;
        }
        batch("ip", None, &format!("netns del {GUESTS}\n"))
    }
}

impl Bench<'_> {
    /// Measures the frames of this size per second, of both directions together.
    fn measure(&self, backend: Backend, size: u32) -> Result<f64, LabError> {
        let mut supervisor = Supervisor::new(&self.place.run_dir, Arc::clone(&self.place.signal));
        backend.build()?;
        if backend != Backend::Bridge {
            self.daemon(&mut supervisor, backend)?;
        }
        let testpmd = self.testpmd(&mut supervisor, backend, size)?;
        supervisor.tell(testpmd, &format!("start tx_first {BURSTS}\n"))?;
        supervisor.rest(WARMUP.into())?;
        // The second output covers the time since the first.
        supervisor.tell(testpmd, "show port stats all\n")?;
        supervisor.rest(self.duration.into())?;
        supervisor.tell(testpmd, "show port stats all\nstop\nquit\n")?;
        while !supervisor.all_ended()? {
            supervisor.rest(POLL)?;
        }
        let output = &supervisor.member(testpmd).stdout;
        let text = std::fs::read_to_string(output).map_err(LabError::file("reading", output))?;
        let rate = rate(&text).ok_or_else(|| LabError::Child {
            who: "testpmd".to_owned(),
            what: "did not say how much it received".to_owned(),
            stderr: text,
        })?;
        supervisor.end()?;
        backend.remove()?;
        Ok(rate)
    }

    /// Starts a daemon with both VMs, on a CPU of its own.
    fn daemon(&self, supervisor: &mut Supervisor<'_>, backend: Backend) -> Result<(), LabError> {
        let [testpmd, own] = self.cpus;
        let mut config = String::new();
        if own != testpmd {
            let _ = writeln!(config, "cpu = {own}");
        }
        for number in [1, 2] {
            let port = if backend == Backend::Vhost {
                let socket = self.socket(number);
                format!("kind = \"vhost-user\", socket = \"{}\"", socket.display())
            } else {
                format!("kind = \"tap\", interface = \"eth{number}\"")
            };
            // Writing to a string cannot fail. Both VMs' frames from testpmd have the same IP
            // source.
            let _ = write!(
                config,
                "[[guest]]\nname = \"card{number}\"\nmac = \"{}\"\nanti_spoofing = false\n\
                 port = {{ {port} }}\n\
                 pipeline = {{ segment = false, meter = {{}}, \
                 queue = {{ kind = \"fq-codel\" }} }}\n",
                mac(number),
            );
        }
        self.place
            .daemon(supervisor, &config, &namespace_path(GUESTS))
            .map(drop)
    }

    /// Starts both VMs on a CPU of their own.
    fn testpmd(
        &self,
        supervisor: &mut Supervisor<'_>,
        backend: Backend,
        size: u32,
    ) -> Result<usize, LabError> {
        let cpu = self.cpus[0];
        let device = |number: u8| match backend {
            Backend::Vhost => format!(
                "--vdev=net_virtio_user{number},path={},mac={},queue_size=1024",
                self.socket(number).display(),
                mac(number)
            ),
            Backend::Tap | Backend::Bridge => format!(
                "--vdev=net_af_packet{number},iface=eth{number},framecnt=1024,qdisc_bypass=1"
            ),
        };
        let line = format!(
            "--lcores=0@{cpu},1@{cpu} --no-huge -m 256 --no-pci --no-telemetry \
             --file-prefix=cards{} {} {} -- -i --nb-cores=1 --total-num-mbufs=16384 \
             --no-mlockall --forward-mode=mac --eth-peer=0,{} --eth-peer=1,{} \
             --txd=1024 --rxd=1024 --txpkts={size}",
            std::process::id(),
            device(1),
            device(2),
            mac(2),
            mac(1),
        );
        let first = supervisor.len();
        let place = supervisor.start(Start {
            name: "testpmd".to_owned(),
            program: TESTPMD.into(),
            args: words(&line),
            netns: &namespace_path(GUESTS),
            cpus: self.place.cpus.all,
            policy: None,
            ready: Ready::Stdout("testpmd>"),
            ends: true,
        })?;
        supervisor.wait_ready(first)?;
        Ok(place)
    }

    fn socket(&self, number: u8) -> PathBuf {
        self.place.run_dir.path().join(format!("card{number}"))
    }
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
    fn what_was_received_is_that_of_the_second_time() {
        let port = |rate| format!("  Rx-pps:   {rate}   Rx-bps:  64\n  Tx-pps: 9  Tx-bps: 9\n");
        let text = [1, 2, 30, 12].map(port).concat();
        assert_eq!(rate(&text), Some(42.0));
        assert_eq!(rate("testpmd> Bye...\n"), None);
    }
}
