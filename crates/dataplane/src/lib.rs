//! Packet path between guests and the wire: limits, classes, tags, segmentation, queues, pacing and
//! early acknowledgement of TCP.
//!
//! Use this crate to forward or simulate packets of guests. Do not use it for I/O or to choose
//! ports: `tailbound-switch` moves frames between ports, and `tailbound-host` has the ports of a
//! real host. `examples/pacer.rs` and `examples/snoop.rs` drive single mechanisms.
//!
//! The modules follow a packet. A [`packet`] of bytes arrives and is checked once. Its guest's
//! [`shaper`] enforces a rate limit, and the [`meter`] assigns a class to its flow and tags it.
//! Then it is segmented, waits in a [`queue`], and is admitted to the NIC's queue. A [`pipeline`]
//! describes this path as data: the mechanisms, their order, and their configuration. "Unpatched"
//! is a pipeline, too.
//!
//! All mechanisms are pure: `now` is an argument, and [`Pipeline::poll_at`] returns the time of the
//! next call. They have no clock, no I/O and no threads. They see a packet only as a [`Frame`], so
//! a simulated packet runs the same code as a real one.

mod checksum;
mod ethernet;
mod frame;
mod hash;
pub mod inward;
pub mod meter;
pub mod pacer;
pub mod packet;
pub mod pipeline;
pub mod queue;
mod record;
pub mod shaper;
pub mod snoop;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use frame::ipv4::Ipv4Header;
pub use frame::{Connection, Control, FlowKey, Frame, GuestId};
pub use hash::{HashKeys, NumberHash};
pub use inward::{Admission, Inward, InwardConfig, InwardStats, SenderId};
pub use meter::{Meter, MeterConfig, MeterStats};
pub use pacer::{Guarantee, Pacer, PacerConfig, PacerStats, VoidFrame, WireClock, WireItem};
pub use packet::{
    Buffer, Checksum, Claim, Cwr, Gso, GsoKind, Malformed, Offload, Packet, PlainPacket, Pool,
    Role, Station, TcpMaker, VIRTIO_HEADER,
};
pub use pipeline::{
    Classifier, Coverage, Departure, Egress, EgressConfig, EgressStats, Leaving, Outgoing,
    PacedPipeline, PacedPipelineConfig, Pipeline, PipelineConfig, PipelineStats, Promise,
};
pub use queue::{
    Backlog, CodelConfig, Count, Drops, FifoConfig, FqCodelConfig, Nic, NicConfig, PriorityConfig,
    Queue, QueueConfig, QueueStats, Spare,
};
pub use record::{PacketRecord, Reach};
pub use shaper::{Gate, RateLimit, Shaper, ShaperConfig, ShaperError, ShaperStats, WindowPosition};
pub use snoop::{Snoop, SnoopConfig, SnoopMode, SnoopStats};
pub use tailbound_classes::{Class, Classes, Fabric, Mark, Traffic};
