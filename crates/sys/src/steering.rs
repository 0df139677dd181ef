//! The CPUs that receive for a veth's other end (receive packet steering, `rps_cpus`).
//!
//! All receive work of a veth's other end (packet sockets, nftables, BPF) is done by the sender,
//! in a softirq of its CPU, unless the interface names CPUs in `queues/rx-*/rps_cpus`. That file
//! is in the sysfs of the interface's network namespace, which is mounted here without a place in
//! the file system (`fsmount(2)`).

use crate::cpuset::{Cpus, affinity};
use crate::veth::{self, Peer};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, pread, pwrite};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Longest mask that is read, in bytes: that of 8,192 CPUs has 2,303.
const MAX_MASK: usize = 4096;

/// The CPUs that receive for guests: all that are online, without the packet loop's if it has
/// CPUs of its own. `None` on a host with one CPU.
pub fn receivers(cpu: Option<u32>) -> io::Result<Option<Cpus>> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    let online: Cpus = online.trim().parse().map_err(io::Error::other)?;
    let of_loop = match cpu {
        Some(cpu) => Cpus::one(cpu),
        None => affinity(0)?,
    };
    Ok(choose(&online, &of_loop))
}

fn choose(online: &Cpus, of_loop: &Cpus) -> Option<Cpus> {
    let others = online.without(of_loop);
    match (online.count(), others.is_empty()) {
        (0 | 1, _) => None,
        // It runs anywhere.
        (_, true) => Some(*online),
        (_, false) => Some(others),
    }
}

/// The result of [`Steering::begin`].
#[derive(Debug)]
pub enum SteeringResult {
    /// The interface is no veth, or its other end names CPUs already.
    Left,
    /// The other end is in a network namespace that is not visible here or may not be entered.
    Unseen,
    /// The other end receives on these CPUs until the steering is dropped.
    On(Steering),
}

/// A receive queue of an interface, and the mask that it had.
#[derive(Debug)]
struct Queue {
    file: OwnedFd,
    before: Cpus,
}

/// An interface that receives on certain CPUs. Its former mask is put back when this is dropped,
/// unless another process has changed it, or the mask is [left](Self::leave).
#[derive(Debug)]
pub struct Steering {
    queues: Vec<Queue>,
    cpus: Cpus,
    is_left: bool,
}

impl Steering {
    /// Makes the other end of `interface`, which is in the network namespace `netns` or in the
    /// caller's, receive on `cpus`. CPUs that it has are left as they are; those that another
    /// process set for the same purpose are taken over.
    ///
    /// # Errors
    /// The interface is missing, or its sysfs may not be mounted or written.
    pub fn begin(interface: &str, netns: Option<&Path>, cpus: Cpus) -> io::Result<SteeringResult> {
        let begun = veth::at_peer(interface, netns, |name| Self::of(name, cpus))?;
        Ok(match begun {
            Peer::None | Peer::There(None) => SteeringResult::Left,
            Peer::Unseen => SteeringResult::Unseen,
            Peer::There(Some(steering)) => SteeringResult::On(steering),
        })
    }

    /// The same for an interface of this thread's network namespace.
    fn of(interface: &str, cpus: Cpus) -> io::Result<Option<Self>> {
        let sysfs = mount()?;
        let mut queues = Vec::new();
        for number in 0.. {
            let path = format!("class/net/{interface}/queues/rx-{number}/rps_cpus");
            let file = match openat(&sysfs, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT) => break,
                opened => opened?,
            };
            let now = read(&file)?;
            if now == cpus {
                // Of a daemon before this one: the kernel starts with none.
                let before = Cpus::default();
                queues.push(Queue { file, before });
            } else if now.is_empty() {
                write(&file, &cpus)?;
                queues.push(Queue { file, before: now });
            }
        }
        Ok((!queues.is_empty()).then_some(Self {
            queues,
            cpus,
            is_left: false,
        }))
    }

    /// The number of queues that receive elsewhere.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Sets, with `true`, that the mask stays when this is dropped: another process continues with
    /// it.
    pub fn leave(&mut self, is_left: bool) {
        self.is_left = is_left;
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        for Queue { file, before } in &self.queues {
            // An error is that the interface is gone.
            if !self.is_left && read(file).is_ok_and(|now| now == self.cpus) {
                let _ = write(file, before);
            }
        }
    }
}

/// The sysfs of this thread's network namespace.
fn mount() -> io::Result<OwnedFd> {
    let sysfs = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(sysfs.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(
        sysfs.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

fn read(file: &OwnedFd) -> io::Result<Cpus> {
    let mut bytes = [0; MAX_MASK];
    let len = pread(file, &mut bytes, 0)?;
    let text = std::str::from_utf8(&bytes[..len]).ok();
    let cpus = text.and_then(|text| parse(text.trim()));
    cpus.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn write(file: &OwnedFd, cpus: &Cpus) -> io::Result<()> {
    pwrite(file, mask(cpus).as_bytes(), 0)?;
    Ok(())
}

/// A mask as the kernel writes it: words of 32 bits, the highest first.
fn mask(cpus: &Cpus) -> String {
    let last = cpus.iter().max().unwrap_or(0) / 32;
    let words = (0..=last).rev().map(|word| {
        let bits = (0..32).filter(|bit| cpus.contains(32 * word + bit));
        format!("{:08x}", bits.fold(0u32, |all, bit| all | 1 << bit))
    });
    words.collect::<Vec<_>>().join(",")
}

fn parse(mask: &str) -> Option<Cpus> {
    let words = mask.rsplit(',').map(|word| u32::from_str_radix(word, 16));
    let words = words.collect::<Result<Vec<_>, _>>().ok()?;
    let cpus = (0u32..).zip(words).flat_map(|(place, word)| {
        let bits = (0..32).filter(move |bit| word >> bit & 1 == 1);
        bits.map(move |bit| 32 * place + bit)
    });
    Some(cpus.collect())
}

/// Mounts the sysfs of this network namespace and writes to a queue of `lo`, as
/// [`Steering::begin`] does elsewhere.
///
/// # Errors
/// The reason why that is impossible.
pub fn probe() -> io::Result<()> {
    let sysfs = mount()?;
    let file = openat(
        &sysfs,
        "class/net/lo/queues/rx-0/rps_cpus",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let now = read(&file)?;
    write(&file, &now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpus(list: &str) -> Cpus {
        list.parse().expect("a list")
    }

    #[test]
    fn cpu_masks_have_the_format_of_the_kernel() {
        assert_eq!(mask(&cpus("0")), "00000001");
        assert_eq!(mask(&cpus("1-3,33")), "00000002,0000000e");
        assert_eq!(parse("0"), Some(Cpus::default()));
        assert_eq!(parse("3"), Some(cpus("0-1")));
        assert_eq!(parse("00000002,0000000e"), Some(cpus("1-3,33")));
        assert_eq!(parse("x"), None);
    }

    proptest! {
        #[test]
        fn an_encoded_value_decodes_to_the_same_value(some in prop::collection::btree_set(0u32..1000, 0..40)) {
            let some: Cpus = some.into_iter().collect();
            prop_assert_eq!(parse(&mask(&some)), Some(some));
        }
    }

    #[test]
    fn guests_receive_beside_the_loop_where_it_has_cpus_of_its_own() {
        let online = cpus("0-3");
        assert_eq!(choose(&online, &cpus("1")), Some(cpus("0,2-3")));
        assert_eq!(choose(&online, &cpus("2-3")), Some(cpus("0-1")));
        assert_eq!(choose(&online, &online), Some(online));
        assert_eq!(choose(&cpus("0"), &cpus("0")), None);
        assert_eq!(choose(&cpus("0-1"), &cpus("0,5")), Some(cpus("1")));
    }
}
