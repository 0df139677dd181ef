//! A host and a journal in memory, which can die between any two calls.

use super::journal::{Journal, JournalError};
use super::mac::Mac;
use super::request::UplinkQueue;
use super::step::{Entry, Port, Rules};
use super::world::{
    Attached, DEFAULT_LENGTH, Guest, Host, HostError, Kernel, PortState, QueueOrigin, SeenStation,
    World,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::rc::Rc;

/// The calls that are left until the process dies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life(Rc<Cell<Option<u32>>>);

/// The moment at which a call dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    None,
    Before,
    /// The call still has its effect.
    After,
}

impl Life {
    /// Dies at the call of this number; odd numbers: after its effect.
    pub(crate) fn ends_at(&self, call: Option<u32>) {
        self.0.set(call);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.get() == Some(0)
    }

    /// Counts a change.
    fn spend(&self) -> Death {
        match self.0.get() {
            None => Death::None,
            Some(0) => Death::Before,
            Some(1) => {
                self.0.set(Some(0));
                Death::Before
            }
            Some(2) => {
                self.0.set(Some(0));
                Death::After
            }
            Some(more) => {
                self.0.set(Some(more - 2));
                Death::None
            }
        }
    }

    fn call<T>(&self, change: impl FnOnce() -> T) -> Result<T, io::Error> {
        let died = || io::Error::other("killed");
        match self.spend() {
            Death::None => Ok(change()),
            Death::Before => Err(died()),
            Death::After => {
                change();
                Err(died())
            }
        }
    }
}

/// A host in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeHost {
    pub(crate) ports: BTreeMap<u32, PortState>,
    pub(crate) rules: BTreeMap<u32, Rules>,
    pub(crate) marks: BTreeMap<u32, u32>,
    pub(crate) guests: Vec<Guest>,
    pub(crate) default_device: Option<u32>,
    /// The default disciplines of devices.
    pub(crate) defaults: BTreeMap<u32, String>,
    pub(crate) has_tcx: bool,
    /// The next change of this device fails.
    pub(crate) refuses: Option<u32>,
    pub(crate) life: Life,
}

impl FakeHost {
    pub(crate) fn world(&self) -> World {
        World {
            boot: "boot-1".into(),
            namespace: 7,
            ports: self.ports.clone(),
            guests: self.guests.clone(),
            driven: BTreeMap::new(),
            default_device: self.default_device,
            kernel: Kernel {
                tcx: self.has_tcx,
                fq: Ok(()),
                bpf_qdisc: Ok(()),
            },
        }
    }

    pub(crate) fn add(&mut self, index: u32, name: &str, kind: Option<&str>, master: Option<u32>) {
        let qdisc = if kind.is_some() { "noqueue" } else { "mq" };
        self.defaults.insert(index, qdisc.to_owned());
        let state = PortState {
            port: Port {
                index,
                name: name.to_owned(),
                mac: Mac([2, 0, 0, 0, 1, index as u8]),
            },
            kind: kind.map(str::to_owned),
            is_loopback: false,
            master,
            parent: None,
            xdp: None,
            qdisc: qdisc.to_owned(),
            origin: QueueOrigin::Kernel,
            // A CNI plugin makes a veth without a queue.
            queue_length: if kind == Some("veth") {
                0
            } else {
                DEFAULT_LENGTH
            },
            clsact: false,
            classifiers: Vec::new(),
            attached: None,
        };
        self.ports.insert(index, state);
    }

    /// Adds a guest behind a veth.
    pub(crate) fn add_guest(&mut self, index: u32, name: &str, master: Option<u32>) {
        self.add(index, &format!("veth{index}"), Some("veth"), master);
        let station = SeenStation {
            mac: Mac([2, 0, 0, 0, 2, index as u8]),
            ips: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8))],
            source: "its namespace",
        };
        self.guests.push(Guest {
            key: format!("netns/{name}"),
            name: name.to_owned(),
            kind: "namespace".into(),
            labels: BTreeMap::new(),
            is_plain: false,
            devices: vec![(index, Some(station))],
        });
        self.guests.sort_by(|a, b| a.key.cmp(&b.key));
    }

    /// The parts that a release has to restore.
    pub(crate) fn snapshot(&self) -> (BTreeMap<u32, PortState>, BTreeMap<u32, Rules>) {
        (self.ports.clone(), self.rules.clone())
    }

    fn change(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut Self, &mut PortState),
    ) -> Result<(), HostError> {
        if self.refuses == Some(index) && !self.life.is_over() {
            self.refuses = None;
            return Err(HostError::new("attach", "refused"));
        }
        let life = self.life.clone();
        let done = life.call(|| {
            if let Some(mut port) = self.ports.remove(&index) {
                change(self, &mut port);
                self.ports.insert(index, port);
            }
        });
        done.map_err(|error| HostError::new("change", error))
    }

    fn attach(
        &mut self,
        index: u32,
        role: Attached,
        queue: Option<UplinkQueue>,
    ) -> Result<(), HostError> {
        let has_tcx = self.has_tcx;
        // In two calls: the process may die between them.
        self.change(index, |_, port| {
            if let Some(queue) = queue
                && !port.is_queue_ours()
            {
                assert_ne!(port.origin, QueueOrigin::Administrator);
                let kind = match queue {
                    UplinkQueue::Fq => "fq".into(),
                    UplinkQueue::Bpf => format!("tb{index}"),
                };
                (port.qdisc, port.origin) = (kind, QueueOrigin::Tailbound);
                // As the kernel does.
                port.queue_length = port.queue_length.max(DEFAULT_LENGTH);
            }
            port.clsact |= !has_tcx;
        })?;
        self.change(index, |_, port| {
            port.attached = Some(role);
        })
    }
}

impl Host for FakeHost {
    fn port(&mut self, index: u32) -> Result<Option<PortState>, HostError> {
        if self.life.is_over() {
            return Err(HostError::new("read", "killed"));
        }
        Ok(self.ports.get(&index).cloned())
    }

    fn attach_uplink(
        &mut self,
        index: u32,
        mark: u32,
        queue: UplinkQueue,
    ) -> Result<(), HostError> {
        self.attach(index, Attached::Uplink, Some(queue))?;
        self.marks.insert(index, mark);
        Ok(())
    }

    fn attach_guest(&mut self, index: u32, rules: &Rules) -> Result<(), HostError> {
        // As `tailbound_sys::edge`: a guarantee alone needs no queue here.
        let has_fq = rules.inward.is_some() || rules.outward.is_some();
        let queue = has_fq.then_some(UplinkQueue::Fq);
        self.attach(index, Attached::Guest, queue)?;
        self.rules.insert(index, rules.clone());
        Ok(())
    }

    fn detach(&mut self, index: u32) -> Result<(), HostError> {
        self.change(index, |host, port| {
            host.rules.remove(&index);
            host.marks.remove(&index);
            port.attached = None;
        })
    }

    fn remove_queue(&mut self, index: u32) -> Result<(), HostError> {
        let default = self.defaults[&index].clone();
        self.change(index, |_, port| {
            (port.qdisc, port.origin) = (default, QueueOrigin::Kernel);
        })
    }

    fn set_queue_length(&mut self, port: &Port, packets: u32) -> Result<(), HostError> {
        self.change(port.index, |_, port| port.queue_length = packets)
    }

    fn remove_clsact(&mut self, index: u32) -> Result<(), HostError> {
        self.change(index, |_, port| port.clsact = false)
    }

    fn finish(&mut self) -> Result<(), HostError> {
        assert!(self.life.is_over() || self.ports.values().all(|it| it.attached.is_none()));
        Ok(())
    }
}

/// A journal in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeJournal {
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) life: Life,
}

impl FakeJournal {
    fn failed(source: io::Error) -> JournalError {
        JournalError::File {
            path: PathBuf::from("journal"),
            source,
        }
    }
}

impl Journal for FakeJournal {
    fn entries(&self) -> Result<Vec<Entry>, JournalError> {
        Ok(self.entries.values().cloned().collect())
    }

    fn write(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let life = self.life.clone();
        life.call(|| self.entries.insert(entry.key.clone(), entry.clone()))
            .map(drop)
            .map_err(Self::failed)
    }

    fn remove(&mut self, key: &str) -> Result<(), JournalError> {
        let life = self.life.clone();
        life.call(|| self.entries.remove(key))
            .map(drop)
            .map_err(Self::failed)
    }
}
