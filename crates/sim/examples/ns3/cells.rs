//! Cells of the matrix: networks, transports and loads that both simulators run.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::fmt::Write as _;

/// A full frame with its length on a wire, in bytes.
const FRAME: u64 = 1_538;
/// Larger than any message: ns-3 stops at an exactly full window.
pub(super) const RECEIVE_WINDOW: u64 = 64 << 20;

/// Causes of known differences from ns-3.
pub(super) const TIMES_AT_AN_EDGE: &str =
    "a percentile lies where times jump by a timeout: a few timeouts more or less move it";
pub(super) const NOT_FOUND: &str = "the cause was not found yet";
pub(super) const NEW_RENO: &str =
    "without SACK, ns-3 guesses which segments have arrived and restarts its timer once a recovery";

/// One comparison: a star of hosts, a transport and a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) name: &'static str,
    pub(super) hosts: u32,
    /// Rate of each link, in Gbit/s.
    pub(super) gigabits: u32,
    /// Delay of each link, in microseconds.
    pub(super) delay: u32,
    /// Buffer of a port, in full frames.
    pub(super) buffer: u64,
    /// Queue length from which frames are marked, in full frames. DCTCP if it is set, else `NewReno`.
    pub(super) mark_at: Option<u64>,
    pub(super) sack: bool,
    /// Initial window, in segments.
    pub(super) initial_window: u32,
    /// Least retransmission timeout, in milliseconds.
    pub(super) least_timeout: u32,
    pub(super) load: Load,
    /// Why the cell differs, if it does.
    pub(super) differs: Option<&'static str>,
}

/// The loss recovery with SACK and the DCTCP of this simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Linux's, without probes: the default.
    Linux,
    Ns3,
}

/// Messages of a cell, each on a connection of its own.
#[derive(Debug, Clone, Copy)]
pub(super) enum Load {
    /// Rounds in which all other hosts send to the first one.
    Incast {
        /// Bytes of each host.
        bytes: u64,
        rounds: u32,
    },
    /// Messages of a Pareto distribution at random times, between random hosts.
    Poisson {
        /// Mean interval of a host's messages, in microseconds.
        every: u32,
        /// Time in which messages begin, in milliseconds.
        milliseconds: u32,
    },
}

/// 32 hosts send 32 KB each through 195 frames (300 KB).
const INCAST: Cell = Cell {
    name: "32 x 32 KB",
    hosts: 33,
    gigabits: 1,
    delay: 20,
    buffer: 195,
    mark_at: None,
    sack: true,
    initial_window: 10,
    least_timeout: 10,
    load: Load::Incast {
        bytes: 32_000,
        rounds: 60,
    },
    differs: None,
};

const DUPLICATES: Cell = Cell {
    sack: false,
    ..INCAST
};

const DCTCP: Cell = Cell {
    mark_at: Some(20),
    ..INCAST
};

const POISSON: Cell = Cell {
    hosts: 16,
    buffer: 244,
    load: Load::Poisson {
        every: 1_200,
        milliseconds: 250,
    },
    ..INCAST
};

const fn incast(bytes: u64, rounds: u32) -> Load {
    Load::Incast { bytes, rounds }
}

/// The matrix.
pub(super) const CELLS: [Cell; 27] = [
    INCAST,
    Cell {
        name: "8 hosts",
        differs: Some(TIMES_AT_AN_EDGE),
        hosts: 9,
        load: incast(64_000, 200),
        buffer: 84,
        ..INCAST
    },
    Cell {
        name: "16 hosts",
        differs: Some(TIMES_AT_AN_EDGE),
        hosts: 17,
        load: incast(64_000, 80),
        ..INCAST
    },
    Cell {
        name: "64 hosts",
        hosts: 65,
        load: incast(20_000, 30),
        ..INCAST
    },
    Cell {
        name: "RTO 200 ms",
        least_timeout: 200,
        ..INCAST
    },
    Cell {
        name: "buffer 100 KB",
        buffer: 65,
        ..INCAST
    },
    Cell {
        name: "buffer 3 MB",
        buffer: 2_000,
        ..INCAST
    },
    Cell {
        name: "initial window 2",
        initial_window: 2,
        ..INCAST
    },
    Cell {
        name: "round trip 1 ms",
        delay: 250,
        ..INCAST
    },
    Cell {
        name: "no SACK",
        ..DUPLICATES
    },
    Cell {
        name: "no SACK, 8 hosts",
        differs: Some(NEW_RENO),
        hosts: 9,
        load: incast(64_000, 200),
        buffer: 84,
        ..DUPLICATES
    },
    Cell {
        name: "no SACK, 64 hosts",
        hosts: 65,
        load: incast(20_000, 30),
        ..DUPLICATES
    },
    Cell {
        name: "no SACK, RTO 200 ms",
        least_timeout: 200,
        ..DUPLICATES
    },
    Cell {
        name: "no SACK, buffer 100 KB",
        buffer: 65,
        ..DUPLICATES
    },
    Cell {
        name: "no SACK, round trip 1 ms",
        delay: 250,
        ..DUPLICATES
    },
    Cell {
        name: "DCTCP",
        differs: Some(TIMES_AT_AN_EDGE),
        ..DCTCP
    },
    Cell {
        name: "DCTCP, K 8, 16 hosts",
        hosts: 17,
        load: incast(100_000, 60),
        mark_at: Some(8),
        initial_window: 4,
        ..DCTCP
    },
    Cell {
        name: "DCTCP, K 65",
        differs: Some(TIMES_AT_AN_EDGE),
        mark_at: Some(65),
        ..DCTCP
    },
    Cell {
        name: "DCTCP, 64 hosts",
        differs: Some(TIMES_AT_AN_EDGE),
        hosts: 65,
        load: incast(20_000, 30),
        ..DCTCP
    },
    Cell {
        name: "DCTCP, buffer 100 KB",
        buffer: 65,
        ..DCTCP
    },
    Cell {
        name: "DCTCP, round trip 1 ms",
        differs: Some(NOT_FOUND),
        delay: 250,
        ..DCTCP
    },
    Cell {
        name: "Poisson",
        ..POISSON
    },
    Cell {
        name: "Poisson, no SACK",
        differs: Some(NEW_RENO),
        sack: false,
        ..POISSON
    },
    Cell {
        name: "Poisson, DCTCP",
        differs: Some(NOT_FOUND),
        mark_at: Some(20),
        ..POISSON
    },
    Cell {
        name: "Poisson, 30 frames",
        buffer: 30,
        ..POISSON
    },
    Cell {
        name: "Poisson, no SACK, 30 frames",
        differs: Some(NEW_RENO),
        sack: false,
        buffer: 30,
        initial_window: 4,
        ..POISSON
    },
    Cell {
        name: "Poisson, DCTCP, K 65, 10 Gbit/s",
        mark_at: Some(65),
        gigabits: 10,
        delay: 5,
        load: Load::Poisson {
            every: 120,
            milliseconds: 25,
        },
        ..POISSON
    },
];

impl Cell {
    pub(super) const fn is_dctcp(&self) -> bool {
        self.mark_at.is_some()
    }

    /// Buffer of a port, in bytes on a wire.
    pub(super) const fn buffer(&self) -> u64 {
        self.buffer * FRAME
    }

    /// Queue length from which frames are marked, in bytes on a wire; 0 if none is.
    pub(super) fn mark_at(&self) -> u64 {
        self.mark_at.unwrap_or(0) * FRAME
    }

    /// The experiment of this simulator, in TOML. The messages of an incast are those of `flows`, a
    /// file beside it.
    pub(super) fn experiment(&self, flows: &str, way: Way) -> String {
        let mut text = format!(
            "name = \"ns3\"\ntitle = \"ns-3\"\nsource = \"nowhere\"\n\
             [messages]\nduration = \"{}us\"\nstops = true\n\
             star = {{ hosts = {}, link = {{ rate = \"{}Gbit/s\", delay = \"{}us\" }} }}\n",
            self.duration(),
            self.hosts,
            self.gigabits,
            self.delay
        );
        let _ = match self.load {
            Load::Incast { .. } => writeln!(
                text,
                "trace = {{ file = \"{flows}\", own_connections = true }}"
            ),
            Load::Poisson { every, .. } => write!(
                text,
                "[messages.flows]\nevery = \"{every}us\"\nown_connections = true\n\
                 sizes = {{ pareto = {{ shape = 1.2, mean = \"100KB\", most = \"10MB\" }} }}\n"
            ),
        };
        let marks = if self.is_dctcp() {
            let at = self.mark_at();
            format!(", mark_at = \"{at}B\", host_mark_at = \"{at}B\"")
        } else {
            String::new()
        };
        let buffer = self.buffer();
        let _ = write!(
            text,
            "[[messages.setting]]\nname = \"one\"\n\
             switches = {{ buffer = \"{buffer}B\", host_buffer = \"{buffer}B\"{marks} }}\n\
             [messages.setting.transport]\ncongestion = \"{}\"\nsack = {}\ninitial_window = {}\n\
             least_timeout = \"{}ms\"\ndelayed_ack = \"1ms\"\nquick_acks = 1\n\
             receive_window = \"{RECEIVE_WINDOW}B\"\nrestarts = false\nprobes = false\n\
             like_ns3 = {}\n",
            if self.is_dctcp() { "dctcp" } else { "newreno" },
            self.sack,
            self.initial_window,
            self.least_timeout,
            way == Way::Ns3 && self.sack,
        );
        text
    }

    /// Time in which messages begin, in microseconds.
    fn duration(&self) -> u64 {
        match self.load {
            Load::Incast { rounds, .. } => self.period() * u64::from(rounds),
            Load::Poisson { milliseconds, .. } => 1_000 * u64::from(milliseconds),
        }
    }

    /// Time from one round to the next, in microseconds: nearly all messages end within it.
    const fn period(&self) -> u64 {
        20_000 * self.least_timeout as u64
    }

    /// Messages of an incast as rows of a trace, in the order of their starts: each begins within
    /// the first 50 us of its round, at a random moment. None for other loads.
    pub(super) fn trace(&self, seed: u64) -> Option<Vec<TraceRow>> {
        let Load::Incast { bytes, rounds } = self.load else {
            return None;
        };
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut rows = Vec::new();
        for round in 0..u64::from(rounds) {
            let begin = 1_000 * self.period() * round;
            rows.extend((1..self.hosts).map(|source| TraceRow {
                start_ns: begin + random.random_range(0..50_000),
                source,
                destination: 0,
                bytes,
            }));
        }
        rows.sort_by_key(|row| (row.start_ns, row.source));
        Some(rows)
    }
}

/// A message in a trace's file.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(super) struct TraceRow {
    start_ns: u64,
    source: u32,
    destination: u32,
    bytes: u64,
}
