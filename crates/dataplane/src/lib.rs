//! What happens to a packet between a guest and the wire.
//!
//! The modules follow the packet's way: a [`packet`] of bytes comes in and is
//! checked once; its guest's [`shaper`] holds it to a limit; the [`meter`] gives its flow a
//! class and tags it; it is segmented, waits in a [`queue`], and is admitted by the NIC's queue. A
//! [`pipeline`] is that way as data: which mechanisms, in which order, with
//! which configuration. "Unpatched" is a pipeline too.
//!
//! Everything here is pure: `now` goes in, [`Pipeline::poll_at`] comes out. No
//! clock, no I/O, no thread. The mechanisms know a packet only as a [`Frame`], so
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
#[cfg(test)]
mod testing;

pub use frame::ipv4::Ipv4Header;
pub use frame::{Connection, Control, FlowKey, Frame, GuestId};
pub use hash::HashKeys;
pub use inward::{Admission, Inward, InwardConfig, InwardStats, SenderId};
pub use meter::{Meter, MeterConfig, MeterStats};
pub use pacer::{Guarantee, Paced, Pacer, PacerConfig, PacerStats, VoidFrame, WireClock};
pub use packet::{
    Buffer, Checksum, Claim, Cwr, Gso, GsoKind, Malformed, Offload, Packet, Pool, Role, Station,
    TcpMaker, VIRTIO_HEADER,
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
