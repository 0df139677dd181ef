//! The request of a tenant: as flags, as a file, in words.

use crate::exit::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tailbound_api::{MachineRequest, NewTenant, PinnedHost, VmLimit};
use tailbound_document::{Document, DocumentError, Mistake, Problem};
use tailbound_placement::{
    CpuReservation, DEFAULT_BURSTS, FaultDomains, Guarantee, Message, Request, Spec,
};
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

/// The arguments that describe a request.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Request")]
pub(super) struct RequestArgs {
    /// Number of machines
    #[arg(long, value_name = "N", required_unless_present = "file")]
    vms: Option<u32>,
    #[command(flatten)]
    guarantee: GuaranteeArgs,
    /// Of each machine, in thousandths of a CPU
    #[arg(long, value_name = "THOUSANDTHS")]
    cpu: Option<u64>,
    /// Of each machine
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Reserve this CPU for each vCPU: RUNTIME in each PERIOD, by DEADLINE after it has something to
    /// do, as in 1ms/4ms/4ms
    #[arg(long, value_name = "RUNTIME/DEADLINE/PERIOD")]
    cpu_reservation: Option<ReservationText>,
    /// Number of vCPUs of each machine with that, 1 without
    #[arg(long, value_name = "N", requires = "cpu_reservation")]
    vcpus: Option<u32>,
    /// Size of a message on the wire, and the CPU time that its sender and its receiver need for
    /// it, as in 100KB or 100KB:200us:300us: `place bound` computes its duration
    #[arg(long, value_name = "SIZE[:SEND:RECEIVE]", requires = "bandwidth")]
    message: Option<MessageArgument>,
    /// Spread machines: no host, rack or pod (or HEIGHT above the hosts) has more than the machines
    /// divided by COUNT, rounded up, as in rack:3
    #[arg(long, value_name = "WHAT:COUNT")]
    domains: Option<Domains>,
    /// All of it from a file, JSON if it ends in .json and TOML otherwise
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "vms", "bandwidth", "burst", "delay", "burst_rate", "bursts", "cpu", "memory",
            "cpu_reservation", "vcpus", "message", "domains"
        ]
    )]
    file: Option<PathBuf>,
}

/// The guarantee of each machine.
#[derive(Debug, clap::Args)]
struct GuaranteeArgs {
    /// Promise each machine this average bandwidth; best effort without
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<Rate>,
    /// Burst of each machine after it has sent less
    #[arg(long, value_name = "SIZE", requires = "bandwidth")]
    burst: Option<Bytes>,
    /// The longest that a frame may wait in queues between two of them; no promise without
    #[arg(long, value_name = "TIME", requires = "bandwidth")]
    delay: Option<Nanos>,
    /// Rate of a burst; unlimited without
    #[arg(long, value_name = "RATE", requires = "bandwidth")]
    burst_rate: Option<Rate>,
    /// Number of bursts that it may send without a pause into one host, rack or pod, or
    /// per-receiver for one to each receiver; 1 without
    #[arg(long, value_name = "K", requires = "bandwidth")]
    bursts: Option<Bursts>,
    /// Bytes beyond its bandwidth that may be on their way to it from all others together, at least
    /// the burst; without, all others may send it their bursts together
    #[arg(long, value_name = "SIZE", requires = "bandwidth")]
    burst_in: Option<Bytes>,
    /// Delay class, 1 for the one that switches serve first; without, the lowest class that keeps
    /// the delay
    #[arg(long, value_name = "NUMBER", requires = "bandwidth")]
    delay_class: Option<u8>,
}

/// Changes of a guarantee.
#[derive(Debug, clap::Args)]
pub(super) struct GuaranteeChange {
    /// The new average bandwidth of each machine
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<Rate>,
    /// The new burst of each machine
    #[arg(long, value_name = "SIZE")]
    burst: Option<Bytes>,
    /// The new limit on the delay of a frame in queues
    #[arg(long, value_name = "TIME")]
    delay: Option<Nanos>,
    /// The new rate of a burst
    #[arg(long, value_name = "RATE")]
    burst_rate: Option<Rate>,
    /// The new number of bursts into one host, rack or pod
    #[arg(long, value_name = "K")]
    bursts: Option<Bursts>,
    /// The new limit on bursts that come to one machine together
    #[arg(long, value_name = "SIZE")]
    burst_in: Option<Bytes>,
    /// The new delay class; with a new delay and without this, the lowest class that keeps it
    #[arg(long, value_name = "NUMBER")]
    delay_class: Option<u8>,
}

impl GuaranteeChange {
    /// Returns true if a part of the guarantee changes.
    pub(super) const fn is_given(&self) -> bool {
        self.bandwidth.is_some()
            || self.burst.is_some()
            || self.delay.is_some()
            || self.burst_rate.is_some()
            || self.bursts.is_some()
            || self.burst_in.is_some()
            || self.delay_class.is_some()
    }

    /// Returns the changed guarantee; None without a change.
    pub(super) fn of(&self, now: Option<Guarantee>) -> Result<Option<Guarantee>, Failure> {
        let Self {
            bandwidth,
            burst,
            delay,
            burst_rate,
            bursts,
            burst_in,
            delay_class,
        } = self;
        if !self.is_given() {
            return Ok(None);
        }
        let bandwidth = bandwidth.or(now.map(|now| now.bandwidth)).ok_or_else(|| {
            Failure::wrong_arguments("the tenant has no guarantee; a new one needs --bandwidth")
        })?;
        Ok(Some(Guarantee {
            bandwidth,
            burst: burst.or(now.map(|now| now.burst)).unwrap_or_default(),
            delay: delay.or(now.and_then(|now| now.delay)),
            burst_rate: burst_rate.or(now.and_then(|now| now.burst_rate)),
            bursts: bursts.or(now.and_then(|now| now.bursts)),
            burst_in: burst_in.or(now.and_then(|now| now.burst_in)),
            // A new delay has a class of its own.
            class: delay_class.or(now.filter(|_| delay.is_none()).and_then(|now| now.class)),
        }))
    }
}

/// A file with a request; with a name and an owner it is a tenant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestFile {
    name: Option<String>,
    owner: Option<String>,
    vms: u32,
    guarantee: Option<Guarantee>,
    #[serde(default)]
    cpu: u64,
    #[serde(default)]
    memory: Bytes,
    domains: Option<FaultDomains>,
    cpu_reservation: Option<CpuReservation>,
    message: Option<Message>,
    #[serde(default)]
    limit: VmLimit,
    #[serde(default)]
    placement: Vec<PinnedHost>,
}

impl RequestFile {
    const fn request(&self) -> Request {
        Request {
            vms: self.vms,
            guarantee: self.guarantee,
            cpu: self.cpu,
            memory: self.memory,
            domains: self.domains,
            cpu_reservation: self.cpu_reservation,
            message: self.message,
        }
    }
}

impl RequestArgs {
    /// Returns the request without the names of its tenant.
    pub(super) fn request(&self) -> Result<Request, Failure> {
        Ok(self.file()?.request())
    }

    /// Returns the request as a tenant. A name and an owner given here replace those of the file.
    pub(super) fn tenant(
        &self,
        name: Option<&String>,
        owner: Option<&String>,
    ) -> Result<NewTenant, Failure> {
        let document = self.file()?;
        let name = name.cloned().or(document.name).ok_or_else(|| {
            Failure::new("the tenant has no name; pass one, or set `name = ...` in the file")
        })?;
        Ok(NewTenant {
            name,
            owner: owner.cloned().or(document.owner),
            vms: document.vms,
            guarantee: document.guarantee,
            cpu: document.cpu,
            memory: document.memory,
            domains: document.domains,
            cpu_reservation: document.cpu_reservation,
            message: document.message,
            limit: document.limit,
            placement: document.placement,
        })
    }

    fn file(&self) -> Result<RequestFile, Failure> {
        if let Some(path) = &self.file {
            return read(path);
        }
        let request = Request {
            vms: self.vms.unwrap_or_default(),
            guarantee: self.guarantee.bandwidth.map(|bandwidth| Guarantee {
                bandwidth,
                burst: self.guarantee.burst.unwrap_or_default(),
                delay: self.guarantee.delay,
                burst_rate: self.guarantee.burst_rate,
                bursts: self.guarantee.bursts,
                burst_in: self.guarantee.burst_in,
                class: self.guarantee.delay_class,
            }),
            cpu: self.cpu.unwrap_or_default(),
            memory: self.memory.unwrap_or_default(),
            domains: self.domains.map(|domains| domains.0),
            cpu_reservation: self
                .cpu_reservation
                .map(|ReservationText(each)| CpuReservation {
                    vcpus: self.vcpus.unwrap_or(each.vcpus),
                    ..each
                }),
            message: self.message.map(|message| message.0),
        };
        // The service checks the same; here errors are wrong arguments, and no request is sent.
        request.check().map_err(Failure::wrong_arguments)?;
        Ok(RequestFile {
            name: None,
            owner: None,
            vms: request.vms,
            guarantee: request.guarantee,
            cpu: request.cpu,
            memory: request.memory,
            domains: request.domains,
            cpu_reservation: request.cpu_reservation,
            message: request.message,
            limit: VmLimit::default(),
            placement: Vec::new(),
        })
    }
}

/// Reads a request without names from a file.
pub(super) fn read_request(path: &Path) -> Result<Request, Failure> {
    let document: RequestFile = read(path)?;
    Ok(document.request())
}

/// Reads the request of each machine from such a file, whose number of machines is ignored.
pub(super) fn read_machine(path: &Path) -> Result<MachineRequest, Failure> {
    let request = read_request(path)?;
    Ok(MachineRequest {
        guarantee: request.guarantee,
        cpu: request.cpu,
        memory: request.memory,
        cpu_reservation: request.cpu_reservation,
        message: request.message,
    })
}

/// Reads a document from a file: JSON if the file's name ends in `.json`, TOML otherwise.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    if is_json(path) {
        return read_json(path);
    }
    Ok(DocumentError::load(path, |text| {
        Document::parse(text)?.whole()
    })?)
}

/// Reads a topology from a file in the same way, and checks that it can be built.
pub(super) fn read_topology(path: &Path) -> Result<Spec, Failure> {
    if is_json(path) {
        let spec: Spec = read_json(path)?;
        return match spec.build() {
            Ok(_) => Ok(spec),
            Err(error) => Err(Failure::new(format!("{}: {error}", path.display()))),
        };
    }
    let spec = DocumentError::load(path, |text| {
        let document = Document::parse(text)?;
        let spec = Spec::from_document(&document)?;
        let built = spec.build().map(|_| ());
        built.map_err(|error| {
            document.locate([Problem::new(&error.path(&spec), error.to_string())])
        })?;
        Ok::<_, Vec<Mistake>>(spec)
    })?;
    Ok(spec)
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "json")
}

/// Reads a JSON document, with errors in the format of those of TOML.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("{}: cannot be read: {error}", path.display())))?;
    serde_json::from_str(&text).map_err(|error| {
        let message = error.to_string();
        // serde_json names the location at the end of its message.
        let end = format!(" at line {} column {}", error.line(), error.column());
        let message = message.strip_suffix(&end).unwrap_or(&message);
        let (line, column) = (error.line(), error.column());
        Failure::new(format!("{}:{line}:{column}: {message}", path.display()))
    })
}

/// Fault domains in the format of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Domains(FaultDomains);

const HEIGHTS: [&str; 3] = ["host", "rack", "pod"];

impl FromStr for Domains {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "write WHAT:COUNT: host, rack, pod or a height, and a number, as in rack:3";
        let (scope, count) = text.split_once(':').ok_or(wrong)?;
        let height = match HEIGHTS.iter().position(|name| *name == scope) {
            Some(height) => height as u8,
            None => scope.parse().map_err(|_| wrong)?,
        };
        let count = count.parse().map_err(|_| wrong)?;
        Ok(Self(FaultDomains { height, count }))
    }
}

impl fmt::Display for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultDomains { height, count } = self.0;
        match HEIGHTS.get(usize::from(height)) {
            Some(name) => write!(f, "{name}:{count}"),
            None => write!(f, "{height}:{count}"),
        }
    }
}

/// A reservation of CPU in the format of the command line, for one vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReservationText(CpuReservation);

impl FromStr for ReservationText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split('/').collect();
        let [runtime, deadline, period] = parts[..] else {
            return Err("write RUNTIME/DEADLINE/PERIOD, as in 1ms/4ms/4ms".to_owned());
        };
        Ok(Self(CpuReservation {
            runtime: time("runtime", runtime)?,
            deadline: time("deadline", deadline)?,
            period: time("period", period)?,
            vcpus: 1,
        }))
    }
}

impl fmt::Display for ReservationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CpuReservation {
            runtime,
            deadline,
            period,
            ..
        } = self.0;
        write!(f, "{runtime}/{deadline}/{period}")
    }
}

/// A message in the format of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MessageArgument(Message);

impl FromStr for MessageArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split(':').collect();
        let (size, [send, receive]) = match parts[..] {
            [size] => (size, [Nanos::ZERO; 2]),
            [size, send, receive] => (size, [time("send", send)?, time("receive", receive)?]),
            _ => return Err("write SIZE or SIZE:SEND:RECEIVE, as in 100KB:200us:300us".to_owned()),
        };
        let size = size.parse().map_err(|error| format!("size: {error}"))?;
        Ok(Self(Message {
            size,
            send,
            receive,
        }))
    }
}

impl fmt::Display for MessageArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Message {
            size,
            send,
            receive,
        } = self.0;
        if send.max(receive) == Nanos::ZERO {
            return write!(f, "{size}");
        }
        write!(f, "{size}:{send}:{receive}")
    }
}

fn time(name: &str, text: &str) -> Result<Nanos, String> {
    text.parse().map_err(|error| format!("{name}: {error}"))
}

/// Returns the flags that describe a request.
pub(in crate::command) fn flags(request: &Request) -> String {
    let mut flags = format!("--vms {}", request.vms);
    let mut flag = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a String does not fail.
        let _ = write!(flags, " --{name} {value}");
    };
    if let Some(guarantee) = &request.guarantee {
        flag("bandwidth", &guarantee.bandwidth);
        if guarantee.burst != Bytes::ZERO {
            flag("burst", &guarantee.burst);
        }
        if let Some(delay) = &guarantee.delay {
            flag("delay", delay);
        }
        if let Some(burst_rate) = &guarantee.burst_rate {
            flag("burst-rate", burst_rate);
        }
        if let Some(bursts) = other_bursts(guarantee) {
            flag("bursts", &bursts);
        }
        if let Some(burst_in) = &guarantee.burst_in {
            flag("burst-in", burst_in);
        }
    }
    if request.cpu != 0 {
        flag("cpu", &request.cpu);
    }
    if request.memory != Bytes::ZERO {
        flag("memory", &request.memory);
    }
    if let Some(domains) = request.domains {
        flag("domains", &Domains(domains));
    }
    if let Some(reservation) = request.cpu_reservation {
        flag("cpu-reservation", &ReservationText(reservation));
        if reservation.vcpus != 1 {
            flag("vcpus", &reservation.vcpus);
        }
    }
    if let Some(message) = request.message {
        flag("message", &MessageArgument(message));
    }
    flags
}

/// Returns a request in words.
pub(super) fn words(request: &Request) -> String {
    let mut text = machines(request.vms);
    let cpu = (request.cpu != 0).then(|| cpus(request.cpu));
    let memory = (request.memory != Bytes::ZERO).then(|| request.memory.to_string());
    let each: Vec<_> = cpu.into_iter().chain(memory).collect();
    if !each.is_empty() {
        text += " of ";
        text += &each.join(" and ");
    }
    text += ", ";
    text += &promise(request.guarantee.as_ref());
    if let Some(reservation) = request.cpu_reservation {
        // Writing to a String does not fail.
        let _ = write!(text, ", {} of CPU", ReservationText(reservation));
        if reservation.vcpus != 1 {
            let _ = write!(text, " for each of {} vCPUs", reservation.vcpus);
        }
    }
    if let Some(message) = request.message {
        let _ = write!(text, ", messages of {}", message.size);
    }
    if let Some(domains) = request.domains {
        text += ", kept apart by ";
        text += &Domains(domains).to_string();
    }
    text
}

/// `1 CPU`, `1.5 CPUs`.
fn cpus(thousandths: u64) -> String {
    let digits = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits} CPU{}", if digits == "1" { "" } else { "s" })
}

/// `1 machine`, `9 machines`.
pub(super) fn machines(vms: u32) -> String {
    count(vms.into(), "machine")
}

/// Returns a number with its noun, such as `9 machines`.
pub(super) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns the number of bursts of a guarantee that differs from the default.
fn other_bursts(guarantee: &Guarantee) -> Option<Bursts> {
    guarantee.bursts.filter(|bursts| *bursts != DEFAULT_BURSTS)
}

/// Returns the guarantee of each machine in words.
fn promise(guarantee: Option<&Guarantee>) -> String {
    let Some(guarantee) = guarantee else {
        return "best effort".to_owned();
    };
    let mut text = format!("each {}", guarantee.bandwidth);
    // Writing to a String does not fail.
    if guarantee.burst != Bytes::ZERO {
        let _ = write!(text, ", burst {}", guarantee.burst);
        if let Some(burst_rate) = guarantee.burst_rate {
            let _ = write!(text, " at {burst_rate}");
        }
    }
    match other_bursts(guarantee) {
        Some(Bursts::PerReceiver) => text += ", a burst for each receiver",
        Some(Bursts::PerSubtree(number)) => {
            let bursts = count(number.into(), "burst");
            let _ = write!(text, ", {bursts} into each host, rack and pod");
        }
        None => {}
    }
    if let Some(burst_in) = guarantee.burst_in {
        let _ = write!(text, ", inward burst {burst_in}");
    }
    if let Some(delay) = guarantee.delay {
        let _ = write!(text, ", delay {delay}");
    }
    if let Some(class) = guarantee.class {
        let _ = write!(text, ", delay class {class}");
    }
    text
}

#[cfg(test)]
mod tests;
