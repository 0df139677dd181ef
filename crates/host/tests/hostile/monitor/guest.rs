//! Moves of the guest: frames, descriptors and indices in its memory.

use super::{Hostile, make_wait};
use crate::machine::{self, BASE, Descriptor, LEN};
use crate::random::Random;
use std::io;
use std::time::Duration;

/// Frames of a flood.
const FLOOD: u16 = 512;

impl Hostile {
    /// Sends frames behind random virtio headers, until the ring is full.
    fn send(&mut self, random: &mut Random, frames: &[Vec<u8>]) -> io::Result<()> {
        let index = self.ring(random, 1)?;
        let ring = &self.machine()?.rings[index];
        let (used, entries, next) = (ring.used() + 2, ring.entries, ring.next);
        let outstanding = next.wrapping_sub(self.peek(used)?);
        let room = entries.saturating_sub(outstanding);
        let has_wild_header = random.once_in(4);
        let mut heads = Vec::new();
        for (frame, number) in frames.iter().zip(0..room) {
            let entry = next.wrapping_add(number) % entries;
            let at = self.machine()?.rings[index].buffer(entry);
            let mut bytes = vec![0; 12];
            if has_wild_header {
                bytes = random.bytes(12);
            }
            bytes.extend_from_slice(frame);
            self.poke(at, &bytes)?;
            let len = bytes.len() as u32;
            let descriptor = Descriptor::of(at, len);
            self.describe(index, entry, descriptor)?;
            heads.push(entry);
        }
        self.offer(index, heads)
    }

    /// A datagram that the guard lets pass, to another guest, a stranger or all.
    fn frame(&self, random: &mut Random, len: usize) -> Vec<u8> {
        let [one, two] = self.others;
        let to = random.pick(&[one, two, two, [2, 9, 9, 9, 9, 9], [255; 6]]);
        let ip = [10, 77, 0, self.mac[5]];
        let n = random.next() as u16;
        crate::support::long_datagram(to, self.mac, ip, n, len)
    }

    pub(super) fn send_honest(&mut self, random: &mut Random) -> io::Result<()> {
        let frames: Vec<_> = (0..=random.below(16))
            .map(|_| {
                let len = random.pick(&[60, 200, 1514]);
                self.frame(random, len)
            })
            .collect();
        self.send(random, &frames)
    }

    pub(super) fn send_refused(&mut self, random: &mut Random) -> io::Result<()> {
        let frames: Vec<_> = (0..=random.below(64))
            .map(|_| self.refused(random))
            .collect();
        self.send(random, &frames)
    }

    /// A frame in another's name, of another protocol, of a wrong length, or of random bytes.
    fn refused(&self, random: &mut Random) -> Vec<u8> {
        let mut frame = self.frame(random, 200);
        match random.below(7) {
            0 => frame[6..12].copy_from_slice(&self.others[random.below(2) as usize]),
            1 => frame[26..30].copy_from_slice(&[10, 77, 0, random.pick(&[1, 2, 9])]),
            2 => frame[12..14].copy_from_slice(&random.pick(&[[0x88, 0xa8], [0x88, 0xcc], [0; 2]])),
            3 => frame[23] = random.pick(&[2, 89, 112, 41]),
            4 => frame.truncate(random.below(60) as usize),
            5 => {
                let at = 12 + random.below(60) as usize;
                frame[at] = random.next() as u8;
            }
            _ => {
                let len = random.below(3000) as usize;
                frame = random.bytes(len);
            }
        }
        frame
    }

    pub(super) fn flood(&mut self, random: &mut Random) -> io::Result<()> {
        let len = random.pick(&[60, 60, 1514]);
        let frame = self.frame(random, len);
        let frames = vec![frame; usize::from(FLOOD)];
        for _ in 0..=random.below(4) {
            self.send(random, &frames)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// A descriptor whose every part may be wrong.
    fn descriptor(random: &mut Random, entries: u16) -> Descriptor {
        let near_end = BASE + LEN - random.below(5000);
        let inside = BASE + random.below(LEN);
        let wild = random.word();
        Descriptor {
            at: random.pick(&[inside, inside, near_end, BASE, wild]),
            len: random.pick(&[0, 1, 12, 16, 72, 72, 1526, 8192, 100_000, wild as u32]),
            flags: random.pick(&[0, 0, 1, 1, 2, 3, 4, 5, 6, wild as u16]),
            next: random.pick(&[0, 1, entries - 1, entries, wild as u16 % entries]),
        }
    }

    pub(super) fn describe_randomly(&mut self, random: &mut Random) -> io::Result<()> {
        let index = self.any_ring(random)?;
        let entries = self.machine()?.rings[index].entries;
        for _ in 0..=random.below(32) {
            let entry = random.below(entries.into()) as u16;
            let descriptor = Self::descriptor(random, entries);
            self.describe(index, entry, descriptor)?;
        }
        let count = random.below(16) as usize;
        let heads: Vec<_> = (0..=count)
            .map(|_| random.below(u64::from(entries) + 1) as u16)
            .collect();
        self.offer(index, heads)
    }

    /// Fills a table with descriptors of `len` bytes, and offers it as often as a ring has
    /// entries.
    fn offer_table(&mut self, random: &mut Random, len: u32) -> io::Result<()> {
        const TABLE: u16 = 511;
        let index = self.ring(random, 1)?;
        let ring = &self.machine()?.rings[index];
        let (table, entries, at) = (ring.buffer(1), ring.entries, ring.buffer(0));
        for entry in 0..TABLE {
            let is_last = entry + 1 == TABLE;
            let descriptor = Descriptor {
                at,
                len: if is_last { 72 } else { len },
                flags: if is_last { 0 } else { machine::NEXT },
                next: entry + 1,
            };
            self.describe_at(table + 16 * u64::from(entry), descriptor)?;
        }
        for entry in 0..entries {
            let descriptor =
                Descriptor::of(table, 16 * u32::from(TABLE)).with(machine::IS_INDIRECT);
            self.describe(index, entry, descriptor)?;
        }
        let used = self.machine()?.rings[index].used() + 2;
        let next = self.machine()?.rings[index].next;
        let room = entries.saturating_sub(next.wrapping_sub(self.peek(used)?));
        self.offer(index, 0..room)
    }

    pub(super) fn describe_empty(&mut self, random: &mut Random) -> io::Result<()> {
        self.offer_table(random, 0)
    }

    pub(super) fn describe_longest(&mut self, random: &mut Random) -> io::Result<()> {
        self.offer_table(random, 1)
    }

    pub(super) fn offer_short(&mut self, random: &mut Random) -> io::Result<()> {
        let index = self.ring(random, 0)?;
        let entries = self.machine()?.rings[index].entries;
        for entry in 0..entries {
            let descriptor = Descriptor::of(
                self.machine()?.rings[index].buffer(entry),
                random.pick(&[0, 1, 1, 1, 12, 13]),
            )
            .with(machine::WRITE);
            self.describe(index, entry, descriptor)?;
        }
        self.take(random)
    }

    /// Offers again all that a ring has given back.
    pub(super) fn take(&mut self, random: &mut Random) -> io::Result<()> {
        let index = self.ring(random, 0)?;
        let ring = &self.machine()?.rings[index];
        let (used, entries, next) = (ring.used() + 2, ring.entries, ring.next);
        let room = entries.saturating_sub(next.wrapping_sub(self.peek(used)?));
        self.offer(index, (0..room).map(|n| next.wrapping_add(n) % entries))
    }

    pub(super) fn jump(&mut self, random: &mut Random) -> io::Result<()> {
        let index = self.any_ring(random)?;
        let ring = &mut self.machine()?.rings[index];
        let by = random.pick(&[
            1,
            ring.entries,
            ring.entries + 1,
            0x8000,
            random.clone().next() as u16,
        ]);
        ring.next = ring.next.wrapping_add(by);
        self.offer(index, [])
    }

    pub(super) fn scribble(&mut self, random: &mut Random) -> io::Result<()> {
        let index = self.any_ring(random)?;
        let ring = &self.machine()?.rings[index];
        let places = [ring.at, ring.available(), ring.used(), ring.buffer(0)];
        let at = random.pick(&places) + random.below(64);
        let len = random.below(600) as usize;
        let bytes = random.bytes(len);
        self.poke(at, &bytes)?;
        self.kick(index)
    }

    pub(super) fn kick_often(&mut self, random: &mut Random) -> io::Result<()> {
        for _ in 0..random.below(500) {
            let ring = self.any_ring(random)?;
            self.kick(ring)?;
        }
        Ok(())
    }

    pub(super) fn make_calls_wait(&mut self, random: &mut Random) -> io::Result<()> {
        let index = self.any_ring(random)?;
        let ring = &self.machine()?.rings[index];
        for event in [&ring.call, &ring.error] {
            make_wait(event)?;
        }
        // A frame of its own that is given back is a reason to call.
        self.flood(random)
    }
}
