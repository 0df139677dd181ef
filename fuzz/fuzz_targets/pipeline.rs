//! Any sequence of pushes, pulls and changes of the configuration: every frame is
//! pulled, dropped, or waiting, and a pull succeeds when it was promised.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tailbound_dataplane::{
    Classes, CodelConfig, Fabric, FifoConfig, FqCodelConfig, MeterConfig, NicConfig, Pipeline,
    PipelineConfig, Pool, PriorityConfig, QueueConfig, RateLimit,
};
use tailbound_fuzz::packet;
use tailbound_units::{Bytes, Nanos, Rate};

#[derive(Debug, Arbitrary)]
enum Step {
    Push {
        guest: Option<u8>,
        frame: Vec<u8>,
        virtio: [u8; 10],
    },
    Bulk {
        guest: u8,
        destination: u8,
        packets: u8,
    },
    Pull {
        times: u8,
    },
    Wait {
        micros: u16,
    },
    Reconfigure(Shape),
}

#[derive(Debug, Arbitrary)]
struct Shape {
    kind: u8,
    packets: u16,
    memory: u32,
    quantum: u16,
    target: u32,
    interval: u32,
    ecn: bool,
    mtu: u16,
    ce_threshold: Option<u32>,
    meter: Option<(u32, u32, u8)>,
    segment: bool,
    nic: Option<(u32, u16)>,
    limit: Option<(u32, u32)>,
}

impl Shape {
    fn config(&self) -> PipelineConfig {
        let packets = usize::from(self.packets);
        let memory = Bytes(self.memory.into());
        let (target, interval) = (Nanos(self.target.into()), Nanos(self.interval.into()));
        let mtu = Bytes(self.mtu.into());
        let ce_threshold = self.ce_threshold.map(|wait| Nanos(wait.into()));
        let fifo = FifoConfig { packets, memory };
        let codel = CodelConfig {
            target,
            interval,
            ecn: self.ecn,
            mtu,
            ce_threshold,
            packets,
            memory,
        };
        let fq_codel = FqCodelConfig {
            target,
            interval,
            ecn: self.ecn,
            mtu,
            ce_threshold,
            quantum: Bytes(self.quantum.into()),
            packets,
            memory,
            flows: packets,
        };
        let queue = match self.kind % 4 {
            0 => QueueConfig::Fifo(fifo),
            1 => QueueConfig::Codel(codel),
            2 => QueueConfig::FqCodel(fq_codel),
            _ => QueueConfig::Priority(PriorityConfig {
                small: Box::new(QueueConfig::Codel(codel)),
                lowest: Box::new(QueueConfig::FqCodel(fq_codel)),
                ..PriorityConfig::default()
            }),
        };
        PipelineConfig {
            meter: self.meter.map(|(rate, burst, flows)| MeterConfig {
                rate: Rate(rate.into()),
                burst: Bytes(burst.into()),
                flows: flows.into(),
                ..MeterConfig::default()
            }),
            segment: self.segment,
            queue,
            nic: self.nic.map(|(rate, limit)| NicConfig {
                limit: Some(Bytes(limit.into())),
                ..NicConfig::new(Rate(rate.into()))
            }),
            limit: self.limit.map(|(rate, depth)| RateLimit {
                rate: Rate(rate.into()),
                depth: Some(Bytes(depth.into())),
            }),
            classes: Some(Classes::of(Fabric::SmallFlowsFirst)),
        }
    }
}

/// 10,000 bytes of TCP with a request for segmentation.
fn bulk(destination: u8) -> (Vec<u8>, [u8; 10]) {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 2]);
    frame.extend(10_040u16.to_be_bytes());
    frame.extend([
        0,
        1,
        0x40,
        0,
        64,
        6,
        0,
        0,
        10,
        0,
        0,
        1,
        10,
        0,
        0,
        destination,
    ]);
    frame.resize(34 + 20 + 10_000, 0);
    frame[34 + 12] = 0x50;
    let mut virtio = [1, 1, 54, 0, 0, 0, 34, 0, 16, 0];
    virtio[4..6].copy_from_slice(&1460u16.to_le_bytes());
    (frame, virtio)
}

fuzz_target!(|input: (Shape, Vec<Step>)| {
    let (shape, steps) = input;
    let pool = Pool::new();
    let mut pipeline = Pipeline::new(&shape.config());
    let mut now = Nanos::ZERO;
    for step in steps {
        match step {
            Step::Push {
                guest,
                frame,
                virtio,
            } => {
                if let Ok(packet) = packet(&pool, &frame, Some(virtio), guest.map(u32::from)) {
                    pipeline.push(now, packet);
                }
            }
            Step::Bulk {
                guest,
                destination,
                packets,
            } => {
                let (frame, virtio) = bulk(destination);
                for _ in 0..packets % 16 {
                    let packet = packet(&pool, &frame, Some(virtio), Some(guest.into()));
                    pipeline.push(now, packet.expect("well formed"));
                }
            }
            Step::Pull { times } => {
                for _ in 0..times {
                    let promised = pipeline.poll_at();
                    let departure = pipeline.pull(now);
                    if promised.is_none_or(|at| at > now) {
                        assert!(departure.is_none(), "before it was promised");
                    }
                    if let Some(mut departure) = departure {
                        departure.frame.complete_checksum();
                    }
                }
            }
            Step::Wait { micros } => now += Nanos::from_micros(micros.into()),
            Step::Reconfigure(shape) => {
                let waiting = pipeline.backlog();
                pipeline.reconfigure(now, &shape.config());
                assert_eq!(pipeline.backlog(), waiting);
            }
        }
        let stats = pipeline.stats().queue;
        let waiting = pipeline.backlog().packets as u64;
        assert_eq!(
            stats.pushed.packets,
            stats.pulled.packets + stats.drops.total() + waiting
        );
    }
    while let Some(at) = pipeline.poll_at() {
        pipeline.pull(at.max(now));
        now = now.max(at);
        if at == Nanos::MAX {
            break;
        }
    }
});
