//! Queueing disciplines of an interface, by rtnetlink: a list of them, and `fq` in place of the kernel's
//! default. Tailbound's own ones have the handle [`HANDLE`].

use super::queue;
use super::rules::Queue;
use crate::rtnetlink::{
    DELETE_QDISC, GET_FILTER, GET_QDISC, NEW_QDISC, Netlink, TC_HEAD, attribute, find, tc_head,
    text,
};
use std::io;

const CREATE: u16 = 0x400;
const REPLACE: u16 = 0x100;

/// Kind and options of a qdisc.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// Transmit queues of an interface.
const TRANSMIT_QUEUES: u16 = 31;

const ROOT: u32 = 0xffff_ffff;
/// Parent of `ingress` and `clsact`, and their handle.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// Parents of filters at both sides of clsact.
pub(super) const SIDES: [u32; 2] = [0xffff_fff2, 0xffff_fff3];

/// Handle of the root qdisc, and handle and priority of filters.
pub(super) const HANDLE: u16 = 0x7b1d;
pub(super) const PRIORITY: u16 = 1;

/// Frames that an `fq` holds, of all flows and of one. Horizons limit waiting frames; this is above
/// what a horizon of 200 ms has of the smallest frames at 3 Gbit/s.
const LIMIT: u32 = 1 << 20;
/// By how much a timer may be late to serve others as well.
const SLACK: u32 = 1_000;
/// Farthest departure time that `fq` accepts, in microseconds.
const HORIZON: u32 = 10_000_000;

/// The root qdisc of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Root {
    /// The kernel's default, of this kind.
    Default(String),
    /// Tailbound's own.
    Own,
    /// Another one, of this kind.
    Others(String),
}

/// The qdisc for programs before tcx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hook {
    /// There is none.
    None,
    /// Filters of several owners can be there.
    Clsact,
    /// One that excludes clsact.
    Others(String),
}

/// Queries and changes of one interface.
pub(super) struct Qdiscs {
    netlink: Netlink,
    ifindex: u32,
}

impl Qdiscs {
    pub(super) fn of(ifindex: u32) -> io::Result<Self> {
        let netlink = Netlink::open()?;
        Ok(Self { netlink, ifindex })
    }

    /// Returns kind, parent and handle of all.
    fn all(&self) -> io::Result<Vec<(String, u32, u32)>> {
        let bodies = self.netlink.dump(GET_QDISC, &[0; TC_HEAD])?;
        let ours = bodies.iter().filter(|it| number(it, 4) == self.ifindex);
        let read = |body: &Vec<u8>| {
            let (handle, parent) = (number(body, 8), number(body, 12));
            (kind(body), parent, handle)
        };
        Ok(ours.map(read).collect())
    }

    pub(super) fn root(&self) -> io::Result<Root> {
        let all = self.all()?;
        let root = all.into_iter().find(|(_, parent, _)| *parent == ROOT);
        Ok(match root {
            None => Root::Default("noqueue".to_owned()),
            Some((kind, _, 0)) => Root::Default(kind),
            Some((_, _, handle)) if handle == u32::from(HANDLE) << 16 => Root::Own,
            Some((kind, ..)) => Root::Others(kind),
        })
    }

    pub(super) fn hook(&self) -> io::Result<Hook> {
        let all = self.all()?;
        let hook = all.into_iter().find(|(_, parent, _)| *parent == CLSACT);
        Ok(match hook {
            None => Hook::None,
            Some((kind, ..)) if kind == "clsact" => Hook::Clsact,
            Some((kind, ..)) => Hook::Others(kind),
        })
    }

    /// Puts an `fq` in place of the kernel's default; of several queues, one for each.
    pub(super) fn add(&self, queue: Queue) -> io::Result<()> {
        let root = u32::from(HANDLE) << 16;
        match queue {
            Queue::Untouched => Ok(()),
            Queue::Fq => self.put(ROOT, root, "fq", &fq_options()),
            Queue::Bpf => self.put(ROOT, root, &queue::kind(self.ifindex), &[]),
            Queue::MultiFq => {
                self.put(ROOT, root, "mq", &[])?;
                let each = (1..=self.transmit_queues()?)
                    .try_for_each(|number| self.put(root | number, 0, "fq", &fq_options()));
                if each.is_err() {
                    let _ = self.remove();
                }
                each
            }
        }
    }

    fn transmit_queues(&self) -> io::Result<u32> {
        let link = self.netlink.link(self.ifindex)?;
        let queues = find(&link, TRANSMIT_QUEUES).and_then(|value| value.first_chunk());
        Ok(queues.map_or(1, |bytes| u32::from_ne_bytes(*bytes)))
    }

    /// Removes tailbound's root qdisc; the kernel puts its default there. Waiting frames are dropped.
    pub(super) fn remove(&self) -> io::Result<()> {
        if self.root()? != Root::Own {
            return Ok(());
        }
        let head = self.head(ROOT, u32::from(HANDLE) << 16);
        self.netlink.change(DELETE_QDISC, 0, &head)
    }

    /// Removes clsact, unless it has filters of others.
    pub(super) fn remove_clsact(&self) -> io::Result<()> {
        if self.hook()? != Hook::Clsact {
            return Ok(());
        }
        for side in SIDES {
            if !self.filters(side)?.is_empty() {
                return Ok(());
            }
        }
        let head = self.head(CLSACT, CLSACT_HANDLE);
        self.netlink.change(DELETE_QDISC, 0, &head)
    }

    /// Returns handle and priority of all filters at a side of clsact.
    pub(super) fn filters(&self, side: u32) -> io::Result<Vec<(u32, u16)>> {
        let head = self.head(side, 0);
        let bodies = self.netlink.dump(GET_FILTER, &head)?;
        let read = |body: &Vec<u8>| (number(body, 8), (number(body, 16) >> 16) as u16);
        // One entry is that of the chain of filters itself.
        let filters = bodies.iter().map(read).filter(|(handle, _)| *handle != 0);
        Ok(filters.collect())
    }

    fn put(&self, parent: u32, handle: u32, kind: &str, options: &[u8]) -> io::Result<()> {
        let mut body = self.head(parent, handle).to_vec();
        body.extend(attribute(KIND, &[kind.as_bytes(), &[0]].concat()));
        if !options.is_empty() {
            body.extend(attribute(OPTIONS, options));
        }
        let done = self.netlink.change(NEW_QDISC, CREATE | REPLACE, &body);
        done.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => io::Error::new(
                io::ErrorKind::Unsupported,
                format!("this kernel has no qdisc {kind} (requires CONFIG_NET_SCH_FQ)"),
            ),
            _ => error,
        })
    }

    fn head(&self, parent: u32, handle: u32) -> [u8; TC_HEAD] {
        tc_head(self.ifindex, handle, parent)
    }
}

/// The options of an `fq` for departure times.
fn fq_options() -> Vec<u8> {
    const PLIMIT: u16 = 1;
    const FLOW_PLIMIT: u16 = 2;
    const TIMER_SLACK: u16 = 13;
    const HORIZON_TIME: u16 = 14;
    let options = [
        (PLIMIT, LIMIT),
        (FLOW_PLIMIT, LIMIT),
        (TIMER_SLACK, SLACK),
        (HORIZON_TIME, HORIZON),
    ];
    options
        .map(|(kind, value)| attribute(kind, &value.to_ne_bytes()))
        .concat()
}

fn number(body: &[u8], at: usize) -> u32 {
    crate::rtnetlink::number(body, at).unwrap_or(0)
}

fn kind(body: &[u8]) -> String {
    let name = find(body.get(TC_HEAD..).unwrap_or_default(), KIND);
    text(name.unwrap_or_default())
}
