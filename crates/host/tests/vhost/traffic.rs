//! Numbered frames between two VMs.

use crate::cards::{Cards, frame};
use crate::machine::{self, Build, Machine};

/// Two VMs that exchange numbered frames until they are stopped.
pub(crate) struct Traffic {
    pub(crate) machines: [Machine; 2],
    /// The next number of each VM, and the numbers received by each.
    pub(crate) next: [u32; 2],
    came: [Vec<u32>; 2],
}

impl Traffic {
    pub(crate) fn new(cards: &Cards) -> Self {
        let build = Build {
            entries: 64,
            ..Build::default()
        };
        Self {
            machines: [1, 2].map(|number| Machine::start(&cards.socket(number), build)),
            next: [0; 2],
            came: [Vec::new(), Vec::new()],
        }
    }

    fn numbered(from: usize, number: u32) -> Vec<u8> {
        let (from, to) = (from as u8 + 1, 2 - from as u8);
        let mut bytes = frame(from, to, 0);
        bytes[14..18].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// Returns the number of chains that a VM has offered and not got back.
    pub(crate) fn outstanding(&self, from: usize) -> u16 {
        let machine = &self.machines[from];
        machine.rings[1].next.wrapping_sub(machine.used(1))
    }

    /// Sends one frame in each direction if there is room, and takes the received ones.
    pub(crate) fn turn(&mut self) {
        for from in 0..2 {
            if self.outstanding(from) < 60 {
                let bytes = Self::numbered(from, self.next[from]);
                self.machines[from].send(0, [0; 10], &bytes);
                self.next[from] += 1;
            }
        }
        self.take();
        std::thread::sleep(std::time::Duration::from_micros(100));
    }

    fn take(&mut self) {
        for (machine, came) in self.machines.iter_mut().zip(&mut self.came) {
            while let Some((_, bytes)) = machine.receive(0, true) {
                let number = bytes[14..18].first_chunk().copied();
                came.push(number.map_or(0, u32::from_be_bytes));
            }
        }
    }

    /// Stops sending, and waits until the last frame of each VM has arrived.
    pub(crate) fn settle(&mut self) {
        machine::until("the last frames", || {
            self.take();
            let last = [self.next[1], self.next[0]].map(|next| next.checked_sub(1));
            let is_there = self
                .came
                .iter()
                .zip(last)
                .all(|(came, last)| came.last().copied() == last);
            is_there.then_some(())
        });
    }

    /// Returns the missing numbers of each VM. Checks that the others arrived in order, and once.
    pub(crate) fn lost(&self) -> [Vec<u32>; 2] {
        [0, 1].map(|to| {
            let came = &self.came[to];
            assert!(came.is_sorted_by(|a, b| a < b), "in order, each once");
            let sent = 0..self.next[1 - to];
            sent.filter(|number| came.binary_search(number).is_err())
                .collect()
        })
    }
}
