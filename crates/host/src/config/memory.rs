//! Upper bound of the memory that packets take.

use super::{Config, GuestConfig};
use tailbound_dataplane::{Class, PacerConfig, Packet, Pool, QueueConfig, ShaperConfig};
use tailbound_switch::port::{BURST, BURST_BYTES};
use tailbound_units::Bytes;

/// Memory of a packet in the largest buffer.
const LARGEST: u64 = Pool::LARGE as u64 + Packet::OVERHEAD;
/// Memory of a packet of one MTU.
const SMALLEST: u64 = Pool::SMALL as u64 + Packet::OVERHEAD;

/// Memory of a port beside its queue: frames in transmission, frames that wait for the next attempt
/// to enter the uplink, and a received burst.
const PORT: u64 = 2 * BURST as u64 * LARGEST + 2 * BURST_BYTES as u64;

impl Config {
    /// Returns the most memory that packets can take under any load from the guests: the limits of
    /// all queues, the packets outside of queues, and the pool's unused buffers.
    pub fn packet_memory(&self) -> Bytes {
        let guests = self.guests.iter();
        let guests = guests.map(|guest| {
            // Frames that conform to their senders' guarantees have a queue of their own.
            let queues = if self.is_in_hose(guest) { 2 } else { 1 };
            // Early acknowledged data, until the guest acknowledges it.
            let retained_bytes = guest.snoop.map_or(0, |snoop| snoop.guest.0);
            queue(&self.pipeline_of(guest).queue)
                .saturating_mul(queues)
                .saturating_add(limit(guest))
                .saturating_add(PORT + retained_bytes)
        });
        let uplink = self.uplink.iter().map(|uplink| {
            let before = match &uplink.pacer {
                Some(pacer) => paced(pacer),
                None => queue(&uplink.pipeline.queue),
            };
            PORT + before
        });
        let free = (Pool::SIZES.len() * Pool::SPARED) as u64;
        let shared = free + BURST as u64 * (LARGEST + SMALLEST);
        Bytes(guests.chain(uplink).fold(shared, u64::saturating_add))
    }
}

/// Memory of the packets that wait for a guest's limit, and of one more packet, segmented. The
/// placement service may limit a VM, too.
fn limit(guest: &GuestConfig) -> u64 {
    let limit = guest.limit.as_ref().and_then(|limit| limit.out.as_ref());
    let of_file = limit.map(ShaperConfig::memory);
    let of_service = guest.vm.as_ref().map(|_| ShaperConfig::MOST_DEFAULT_MEMORY);
    let most = of_file.max(of_service);
    most.map_or(0, |memory| memory.0.saturating_add(2 * LARGEST))
}

fn queue(config: &QueueConfig) -> u64 {
    let (packets, memory) = match config {
        QueueConfig::Fifo(fifo) => (fifo.packets, fifo.memory),
        QueueConfig::Codel(codel) => (codel.packets, codel.memory),
        QueueConfig::FqCodel(fq) => (fq.packets, fq.memory),
        QueueConfig::Priority(priority) => {
            let queues = Class::ALL
                .into_iter()
                .map(|class| queue(priority.of(class)));
            return queues.fold(0, u64::saturating_add);
        }
    };
    let packets = (packets as u64).saturating_mul(LARGEST);
    packets.min(memory.0)
}

fn paced(pacer: &PacerConfig) -> u64 {
    pacer.memory.0.saturating_add(queue(&pacer.best_effort))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `guests` with the default queue, and an uplink.
    fn config(guests: usize, uplink: &str) -> Config {
        let guests = (0..guests).map(|n| {
            format!(
                "[[guest]]\nname = \"g{n}\"\nmac = \"02:00:00:00:00:{n:02x}\"\n\
                 ip = [\"10.0.0.{n}\"]\nport = {{ kind = \"tap\", interface = \"t{n}\" }}\n"
            )
        });
        let text = format!(
            "[uplink]\nport = {{ kind = \"af-packet\", interface = \"eth0\" }}\n{uplink}\n{}",
            guests.collect::<String>()
        );
        Config::parse(&text).expect("it is right")
    }

    #[test]
    fn packet_memory_counts_the_lower_limit_of_each_queue() {
        const NONE: &str =
            "pipeline = { queue = { kind = \"fifo\", packets = 1, memory = \"0B\" } }";
        let memory = |queue: &str| {
            let text = format!("pipeline = {{ queue = {{ {queue} }} }}");
            config(0, &text).packet_memory().0 - config(0, NONE).packet_memory().0
        };
        assert_eq!(memory("kind = \"fifo\", packets = 10"), 10 * LARGEST);
        assert_eq!(memory("kind = \"fq-codel\", memory = \"1MiB\""), 1 << 20);
        let all = memory("kind = \"priority\"");
        assert_eq!(all, 2 * 1000 * LARGEST + (32 << 20));
    }

    #[test]
    fn the_manual_states_the_packet_memory() {
        let mib = |config: Config| config.packet_memory().0.div_ceil(1 << 20);
        let (one, two) = (mib(config(1, "")), mib(config(2, "")));
        let paced = |keys: &str| {
            let keys = format!("pacer = {{ link = \"10Gbit/s\"{keys} }}");
            config(0, &keys).packet_memory().0
        };
        let by_default = paced("") - paced(", memory = \"1MiB\"") + (1 << 20);
        let manual = include_str!("../../../../docs/reference/host.md");
        let manual = manual.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            format!(
                "it is {one} MiB, and {} MiB for each further guest",
                two - one
            ),
            format!("({} MiB by default)", by_default >> 20),
        ] {
            assert!(manual.contains(&said), "{said}");
        }
    }

    /// The limit in contrib/tailbound-host.service, which docs/reference/host.md describes.
    #[test]
    fn the_unit_has_room_for_forty_guests_and_a_paced_uplink() {
        let unit = include_str!("../../../../contrib/tailbound-host.service");
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix("MemoryMax="));
        let gib: u64 = line
            .and_then(|line| line.strip_suffix('G'))
            .and_then(|gib| gib.parse().ok())
            .expect("in GiB");
        let packets = config(40, "pacer = { link = \"10Gbit/s\" }").packet_memory();
        let rest = 256 << 20;
        assert!(packets.0 + rest <= gib << 30, "{packets}");
        let more = config(50, "pacer = { link = \"10Gbit/s\" }").packet_memory();
        assert!(more.0 + rest > gib << 30, "the documents can promise more");
    }
}
