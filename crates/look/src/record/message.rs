//! The messages of an entry: the schema of Protocol Buffers, as types.

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Entry {
    #[prost(uint64, tag = "1")]
    pub(super) from: u64,
    #[prost(sint32, tag = "2")]
    pub(super) offset: i32,
    #[prost(string, tag = "3")]
    pub(super) boot: String,
    #[prost(string, tag = "4")]
    pub(super) host: String,
    #[prost(string, tag = "5")]
    pub(super) program: String,
    /// The reasons why waits for a CPU, packets, interrupts and steal were not examined.
    #[prost(string, optional, tag = "6")]
    pub(super) cpu: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub(super) packets: Option<String>,
    #[prost(string, optional, tag = "8")]
    pub(super) interrupts: Option<String>,
    #[prost(string, optional, tag = "9")]
    pub(super) steal: Option<String>,
    #[prost(string, repeated, tag = "10")]
    pub(super) notes: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    pub(super) names: Vec<String>,
    #[prost(message, repeated, tag = "12")]
    pub(super) guests: Vec<Guest>,
    #[prost(uint32, tag = "13")]
    pub(super) left_out: u32,
    /// The part of the slice in which packets were examined, if not all of it.
    #[prost(uint64, optional, tag = "14")]
    pub(super) examined: Option<u64>,
    /// The same of interrupts and waits for a CPU.
    #[prost(uint64, optional, tag = "15")]
    pub(super) interrupts_examined: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Guest {
    #[prost(uint32, tag = "1")]
    pub(super) key: u32,
    #[prost(uint32, tag = "2")]
    pub(super) name: u32,
    #[prost(uint32, tag = "3")]
    pub(super) kind: u32,
    #[prost(uint32, repeated, tag = "4")]
    pub(super) notes: Vec<u32>,
    #[prost(uint64, tag = "5")]
    pub(super) window: u64,
    #[prost(uint64, tag = "6")]
    pub(super) answered: u64,
    #[prost(message, repeated, tag = "7")]
    pub(super) requests: Vec<Request>,
    #[prost(message, repeated, tag = "8")]
    pub(super) packets: Vec<Queue>,
    #[prost(message, repeated, tag = "9")]
    pub(super) stalls: Vec<Stall>,
    #[prost(message, repeated, tag = "10")]
    pub(super) waits: Vec<Wait>,
    #[prost(uint64, tag = "11")]
    pub(super) lost_waits: u64,
    /// Count and time of requests, packets, stalls and waits, and the shared time.
    #[prost(uint64, repeated, tag = "12")]
    pub(super) left_out: Vec<u64>,
    #[prost(message, repeated, tag = "13")]
    pub(super) cpu_use: Vec<CpuUse>,
    #[prost(uint32, optional, tag = "14")]
    pub(super) quota: Option<u32>,
    #[prost(uint64, tag = "15")]
    pub(super) throttled_periods: u64,
    #[prost(uint64, tag = "16")]
    pub(super) throttled: u64,
    #[prost(message, repeated, tag = "17")]
    pub(super) limits: Vec<Limit>,
    #[prost(string, optional, tag = "18")]
    pub(super) select: Option<String>,
    #[prost(string, optional, tag = "19")]
    pub(super) raise_quota: Option<String>,
    #[prost(string, optional, tag = "20")]
    pub(super) raise_limit: Option<String>,
    #[prost(string, optional, tag = "21")]
    pub(super) queue: Option<String>,
    #[prost(message, repeated, tag = "22")]
    pub(super) interruptions: Vec<Interruption>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Interruption {
    #[prost(uint32, tag = "1")]
    pub(super) thread: u32,
    #[prost(sint64, tag = "2")]
    pub(super) from: i64,
    #[prost(sint64, tag = "3")]
    pub(super) until: i64,
    #[prost(uint64, tag = "4")]
    pub(super) stolen: u64,
    #[prost(uint64, tag = "5")]
    pub(super) interrupted: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Limit {
    #[prost(uint32, tag = "1")]
    pub(super) text: u32,
    #[prost(bool, tag = "2")]
    pub(super) is_outward: bool,
    #[prost(bool, tag = "3")]
    pub(super) was_reached: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Request {
    #[prost(bool, tag = "1")]
    pub(super) is_made: bool,
    /// Begin; then arrived, delivered, sent, left, and taken if known.
    #[prost(sint64, repeated, tag = "2")]
    pub(super) times: Vec<i64>,
    #[prost(uint32, tag = "3")]
    pub(super) peer: u32,
    #[prost(uint32, optional, tag = "4")]
    pub(super) peer_guest: Option<u32>,
    #[prost(message, optional, tag = "5")]
    pub(super) inward: Option<Ahead>,
    #[prost(message, optional, tag = "6")]
    pub(super) outward: Option<Ahead>,
    #[prost(uint32, tag = "7")]
    pub(super) retransmits: u32,
    #[prost(uint32, tag = "8")]
    pub(super) dropped: u32,
    /// 1 the guest's, 2 the peer's.
    #[prost(uint32, tag = "9")]
    pub(super) zero_window: u32,
    #[prost(uint32, optional, tag = "10")]
    pub(super) thread: Option<u32>,
    /// The time in queues inward and outward, if it is known.
    #[prost(uint64, repeated, tag = "11")]
    pub(super) queued: Vec<u64>,
}

/// The guest's own frames, or those of the guest with this name.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Ahead {
    #[prost(uint32, optional, tag = "1")]
    pub(super) guest: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Queue {
    #[prost(sint64, tag = "1")]
    pub(super) until: i64,
    #[prost(uint64, tag = "2")]
    pub(super) count: u64,
    #[prost(uint64, tag = "3")]
    pub(super) time: u64,
    #[prost(bool, tag = "4")]
    pub(super) is_outward: bool,
    #[prost(message, optional, tag = "5")]
    pub(super) ahead: Option<Ahead>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Stall {
    #[prost(sint64, tag = "1")]
    pub(super) from: i64,
    #[prost(sint64, tag = "2")]
    pub(super) until: i64,
    #[prost(uint64, tag = "3")]
    pub(super) count: u64,
    #[prost(uint64, tag = "4")]
    pub(super) time: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CpuUse {
    #[prost(sint64, tag = "1")]
    pub(super) from: i64,
    #[prost(sint64, tag = "2")]
    pub(super) until: i64,
    #[prost(uint64, tag = "3")]
    pub(super) ran: u64,
    #[prost(uint64, tag = "4")]
    pub(super) interrupts: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Wait {
    #[prost(uint32, tag = "1")]
    pub(super) thread: u32,
    #[prost(bool, tag = "2")]
    pub(super) was_preempted: bool,
    #[prost(sint64, tag = "3")]
    pub(super) from: i64,
    #[prost(uint64, tag = "4")]
    pub(super) length: u64,
    #[prost(uint64, tag = "5")]
    pub(super) reservation: u64,
    #[prost(uint64, tag = "6")]
    pub(super) quota: u64,
    #[prost(message, repeated, tag = "7")]
    pub(super) runs: Vec<Run>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Run {
    /// The time since the end of the run before, or the begin of the wait.
    #[prost(sint64, tag = "1")]
    pub(super) gap: i64,
    #[prost(uint64, tag = "2")]
    pub(super) length: u64,
    /// 0 the guest itself, 1 a guest, 2 a program, 3 the kernel, 4 one that exited, 5 idle.
    #[prost(uint32, tag = "3")]
    pub(super) owner: u32,
    #[prost(uint32, tag = "4")]
    pub(super) name: u32,
    #[prost(bool, tag = "5")]
    pub(super) is_real_time: bool,
    #[prost(uint64, tag = "6")]
    pub(super) stolen: u64,
    #[prost(uint64, tag = "7")]
    pub(super) interrupted: u64,
}
