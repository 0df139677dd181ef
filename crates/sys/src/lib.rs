//! System calls that no safe library wraps, and the thin shells around those
//! that one does. The only crate of the workspace that may hold `unsafe`.

mod bpf;
#[cfg(any(
    feature = "departures",
    feature = "edge",
    feature = "packets",
    feature = "waits"
))]
pub mod bpf_program;
pub mod cgroup;
pub mod clock;
pub mod cpuset;
#[cfg(feature = "departures")]
pub mod departures;
#[cfg(feature = "edge")]
pub mod edge;
mod ethtool;
#[cfg(feature = "guest-memory")]
pub mod guest_memory;
pub mod inherited;
pub mod interfaces;
pub mod link;
pub mod memory;
pub mod netns;
pub mod network;
pub mod notify;
pub mod origin;
pub mod packet;
#[cfg(feature = "packets")]
pub mod packets;
pub mod probe;
pub mod process;
pub mod procfs;
pub mod real_time;
pub mod root;
mod rtnetlink;
pub mod sched;
pub mod secret;
pub mod steering;
#[cfg(feature = "edge")]
mod struct_ops;
pub mod tap;
pub mod thread;
pub mod timer;
pub mod txtime;
pub mod udp;
pub mod user_namespace;
pub mod veth;
#[cfg(feature = "vhost-net")]
pub mod vhost_net;
#[cfg(feature = "waits")]
pub mod waits;
pub mod xdp;
