//! `tailbound adopt`: protects guests in the network that they have.

mod again;
mod follow;
pub(super) mod lateness;
mod list;
mod policy;
mod report;
mod watch;

use super::output::Output;
use crate::exit::{Exit, Failure};
use report::{GuestReport, Outcome, Report};
use std::net::IpAddr;
use std::path::PathBuf;
use tailbound_adopt::carry;
use tailbound_adopt::journal::DEFAULT_STATE;
use tailbound_adopt::live::Live;
use tailbound_adopt::plan::{self, GuestPlan};
use tailbound_adopt::policy::Policy;
use tailbound_adopt::request::longest_packet;
use tailbound_adopt::{
    Allowance, Bucket, CarryError, Devices, Entry, FileJournal, Journal as _, Mac, Request,
    Selection, UplinkQueue, World,
};
use tailbound_api::VmName;
use tailbound_units::{Bytes, Rate};

/// Version of the JSON documents' format.
const SCHEMA: u32 = 1;

/// Arguments of `tailbound adopt`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The guest keeps its network: the bridge, Open vSwitch, Docker or the CNI plugin goes \
    on forwarding. Programs on its interface check the sources of its frames and set their DSCP; for limits \
    and the guarantee, frames wait for their departure times in fq, at the uplink and at the \
    interface, or at the uplink in a qdisc of BPF programs (--qdisc bpf). All stays until `tailbound release`, without a process. GUEST is a name or a key as \
    `tailbound watch` lists it, with * for any text, or the name of a TAP, veth or netkit. A RATE is \
    100Mbit/s, or with a burst 100Mbit/s,30KB, counted on the wire. Adopting again changes the rules \
    in place. Example: tailbound adopt db-3 --limit-out 1Gbit/s --dry-run. Exit code: 0 all guests are \
    adopted (--dry-run: can be); 1 a guest is refused, and stays as before; 2 the command \
    could not run."
)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub(crate) struct Args {
    /// The guests
    #[arg(value_name = "GUEST", required_unless_present_any = ["all", "again", "list", "policy", "control"])]
    guests: Vec<String>,
    /// Adopt all guests with an interface on this host
    #[arg(long, conflicts_with = "guests")]
    all: bool,
    /// Adopt all guests again that were adopted, after a reboot of the host or of a guest
    #[arg(long, conflicts_with_all = ["guests", "all", "rules", "named", "list"])]
    again: bool,
    /// Adopt guests by the rules of this file, and release those that it adopted and that have gone
    #[arg(long, value_name = "FILE", conflicts_with_all = ["guests", "all", "again", "rules", "named", "list"])]
    policy: Option<PathBuf>,
    /// Follow the guests of the policy that appear and go, until SIGTERM; SIGHUP reads FILE again
    #[arg(long, requires = "policy", conflicts_with_all = ["dry_run", "output"])]
    watch: bool,
    /// List adopted guests, their rules, and the frames that their guards dropped
    #[arg(long, conflicts_with_all = ["guests", "all", "rules", "named", "dry_run"])]
    list: bool,
    #[command(flatten)]
    control: Option<follow::Control>,
    #[command(flatten)]
    rules: Rules,
    /// Drop longer packets of guests with a guarantee, in bytes on the wire: a packet of segmentation
    /// offload leaves whole [default: 80KB]
    #[arg(long, value_name = "SIZE", value_parser = longest_packet,
        conflicts_with_all = ["again", "policy", "list"])]
    packet: Option<Bytes>,
    /// Print the plan, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    places: Places,
    /// The form of the output
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// The protection of each guest.
#[derive(Debug, clap::Args)]
#[group(id = "rules", multiple = true)]
struct Rules {
    /// Limit the frames of the guest
    #[arg(long, value_name = "RATE")]
    limit_out: Option<Bucket>,
    /// Limit the frames to the guest
    #[arg(long, value_name = "RATE")]
    limit_in: Option<Bucket>,
    /// Let the guest's frames leave the uplink within this rate and burst
    #[arg(long, value_name = "RATE")]
    guarantee: Option<Bucket>,
    /// The rate within a burst of the guarantee [default: that of the uplink]
    #[arg(long, value_name = "RATE", requires = "guarantee")]
    peak: Option<Rate>,
    /// The machine of the placement service that the guest is: OWNER/NAME/NUMBER
    #[arg(long, value_name = "VM")]
    vm: Option<VmName>,
    /// The DSCP of the guest's packets, 0 to 63, in place of the guest's own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..64))]
    dscp: Option<u8>,
    /// Do not check the sources of the guest's frames
    #[arg(long, conflicts_with_all = ["mac", "ip"])]
    no_guard: bool,
    /// Send frames past the guest's Linux bridge, whose nftables rules then see few of them
    #[arg(long, conflicts_with = "no_guard")]
    direct: bool,
    /// The guest's MAC address, instead of the one that is found
    #[arg(long, value_name = "ADDRESS")]
    mac: Option<Mac>,
    /// An IP address of the guest, instead of those that are found; repeat it for several
    #[arg(long, value_name = "ADDRESS")]
    ip: Vec<IpAddr>,
    #[command(flatten)]
    named: DeviceArguments,
}

/// Devices that are named, and the uplink's queueing discipline.
#[derive(Debug, clap::Args)]
#[group(id = "named", multiple = true)]
struct DeviceArguments {
    /// The only one of the guest's interfaces to adopt
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// The interface by which frames leave the host [default: the physical port of the guest's
    /// bridge, or else the device of the default route]
    #[arg(long, value_name = "NAME")]
    uplink: Option<String>,
    /// The uplink's queueing discipline: by departure times (fq), or BPF programs that charge frames when they
    /// leave, from Linux 6.16 on (bpf) [default: the qdisc for other adopted guests, or else fq]
    #[arg(long, value_name = "KIND", value_enum)]
    qdisc: Option<QdiscKind>,
}

/// A queueing discipline of an uplink.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum QdiscKind {
    Fq,
    Bpf,
}

impl From<QdiscKind> for UplinkQueue {
    fn from(kind: QdiscKind) -> Self {
        match kind {
            QdiscKind::Fq => Self::Fq,
            QdiscKind::Bpf => Self::Bpf,
        }
    }
}

impl Rules {
    fn request(&self, packet: Option<Bytes>) -> Request {
        Request {
            guard: !self.no_guard,
            dscp: self.dscp,
            outward: self.limit_out,
            inward: self.limit_in,
            guarantee: self.guarantee,
            peak: self.peak,
            allowance: Allowance {
                packet,
                lateness: None,
            },
            vm: self.vm.as_ref().map(ToString::to_string),
            direct: self.direct,
            devices: Devices {
                uplink: self.named.uplink.clone(),
                interface: self.named.interface.clone(),
                qdisc: self.named.qdisc.map(Into::into),
            },
            mac: self.mac,
            ips: self.ip.clone(),
        }
    }
}

/// The places of the journal and the programs.
#[derive(Debug, clap::Args)]
pub(super) struct Places {
    /// The directory of the journal
    #[arg(long, value_name = "DIRECTORY", default_value = DEFAULT_STATE)]
    pub(super) state: PathBuf,
    /// The directory of pinned programs, in a bpffs
    #[arg(long, value_name = "DIRECTORY", default_value = tailbound_sys::edge::PIN)]
    pub(super) pins: PathBuf,
}

impl Places {
    pub(super) fn live(&self) -> Live {
        Live::new(&self.pins)
    }

    /// Opens the journal for changes.
    pub(super) fn journal(&self) -> Result<FileJournal, Failure> {
        Ok(FileJournal::open(&self.state)?)
    }

    /// Opens the journal, to read it alone if nothing is changed.
    fn open(&self, is_dry: bool) -> Result<FileJournal, Failure> {
        if is_dry {
            return Ok(self.preview());
        }
        self.journal()
    }

    /// Reads the journal.
    pub(super) fn preview(&self) -> FileJournal {
        FileJournal::preview(&self.state)
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        if self.packet.is_some() && self.control.is_none() && self.rules.guarantee.is_none() {
            return Err(Failure::wrong_arguments(
                "--packet limits the packets of a guarantee; add --guarantee, or --control",
            ));
        }
        if self.list {
            return list::run(&self.places, self.output);
        }
        if let Some(control) = &self.control {
            return follow::run(&self.places, control, self.packet);
        }
        if self.again {
            return again::run(&self.places, self.dry_run, self.output);
        }
        if let Some(file) = &self.policy {
            if self.watch {
                return watch::run(&self.places, file);
            }
            let policy = Policy::load(file)?;
            let guests = policy::apply(&self.places, &policy, self.dry_run)?;
            return Ok(Report::new(self.dry_run, guests).print(self.output));
        }
        let selection = if self.all {
            Selection::All
        } else {
            Selection::Patterns(self.guests.clone())
        };
        let request = self.rules.request(self.packet);
        let mut live = self.places.live();
        let mut journal = self.places.open(self.dry_run)?;
        let world = live.world(&request)?;
        let planned = plan::plan(&world, &selection, &request, &journal.entries()?)?;
        let mut carrier = Carrier {
            world: &world,
            host: &mut live,
            journal: &mut journal,
            is_dry: self.dry_run,
        };
        let guests = planned.into_iter().map(|it| carrier.carry(it));
        Ok(Report::new(self.dry_run, guests.collect()).print(self.output))
    }
}

/// Carries plans out.
struct Carrier<'c> {
    world: &'c World,
    host: &'c mut Live,
    journal: &'c mut FileJournal,
    is_dry: bool,
}

impl Carrier<'_> {
    fn carry(&mut self, planned: GuestPlan) -> GuestReport {
        let GuestPlan {
            guest,
            key,
            mut notes,
            entry,
        } = planned;
        let (entry, outcome) = match entry {
            Err(refusal) => (None, Outcome::Refused(refusal.to_string())),
            Ok(entry) if self.is_dry => (Some(entry), Outcome::Planned),
            Ok(entry) => {
                let outcome = self.outcome(&entry, &mut notes);
                (Some(entry), outcome)
            }
        };
        GuestReport {
            guest,
            key,
            outcome,
            entry,
            notes,
        }
    }

    fn outcome(&mut self, entry: &Entry, notes: &mut Vec<String>) -> Outcome {
        if let Err(why) = self.host.make_ready(&entry.request) {
            return Outcome::Refused(why.to_string());
        }
        match self.adopt(entry, notes) {
            Ok(0) => Outcome::Unchanged,
            Ok(_) => Outcome::Adopted,
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }

    /// Returns the number of changed devices.
    fn adopt(&mut self, entry: &Entry, notes: &mut Vec<String>) -> Result<usize, CarryError> {
        let adopted = carry::settle(self.world, self.host, self.journal, entry)?;
        notes.extend(adopted.notes);
        Ok(adopted.changed.len())
    }
}
