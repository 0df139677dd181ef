//! An attack and its thread, and attacks by a container, by connections and from outside.

use crate::Pace;
use crate::measure::Phase;
use crate::support::{Guest, METRICS, Nic};
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// An attack in small steps.
pub(crate) trait Attack {
    /// Goes on with the attack for at most some milliseconds; returns the number of its frames,
    /// kicks, pages or connections.
    fn step(&mut self) -> u64;

    /// Clears up between two windows.
    fn rest(&mut self) {}

    /// Does in idle windows what the same guests may do, for at most some milliseconds.
    fn behave(&mut self) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Attacks in the windows for that until the run is over; returns the sum of steps.
pub(crate) fn attack(attack: &mut dyn Attack, phase: &Phase) -> u64 {
    let (mut sum, mut was_attack) = (0, false);
    while !phase.is_over() {
        let is_attack = phase.is_attack();
        if is_attack {
            sum += attack.step();
        } else if was_attack {
            attack.rest();
        } else {
            attack.behave();
        }
        was_attack = is_attack;
    }
    sum
}

/// A control: the CPU time of an attack, and nothing else.
pub(crate) struct Spin;

impl Attack for Spin {
    fn step(&mut self) -> u64 {
        for _ in 0..10_000 {
            std::hint::spin_loop();
        }
        1
    }
}

/// Frames at a rate, from an interface: those of a neighbour to a container (n07), and
/// broadcasts from outside (n11).
pub(crate) struct Frames {
    pub(crate) nic: Nic,
    pub(crate) frame: Vec<u8>,
    pub(crate) pace: Pace,
}

impl Attack for Frames {
    fn step(&mut self) -> u64 {
        self.pace.wait();
        self.nic.send(&self.frame);
        1
    }
}

/// n08: connections to the metrics, each with a part of a request, of which 200 are open.
#[derive(Default)]
pub(crate) struct Connections(VecDeque<TcpStream>);

impl Attack for Connections {
    fn step(&mut self) -> u64 {
        const OPEN: usize = 200;
        let address = METRICS.parse().expect("an address");
        let connected = TcpStream::connect_timeout(&address, Duration::from_millis(2));
        let Ok(mut stream) = connected else {
            self.0.pop_front();
            return 0;
        };
        let _ = stream.write_all(b"GET /met");
        self.0.push_back(stream);
        if self.0.len() > OPEN {
            self.0.pop_front();
        }
        1
    }

    fn rest(&mut self) {
        self.0.clear();
    }
}

/// Opens packet sockets, each with a filter of 4,000 instructions that accepts nothing.
const SOCKETS: &str = "
import ctypes, socket, struct, sys, time
# ld #len; and #0xffffffff ...; ret #0
steps = [(0x80, 0, 0, 0)] + [(0x54, 0, 0, 0xffffffff)] * 3998 + [(0x06, 0, 0, 0)]
code = b''.join(struct.pack('HBBI', *step) for step in steps)
kept = ctypes.create_string_buffer(code)
program = struct.pack('HL', len(steps), ctypes.addressof(kept))
SO_ATTACH_FILTER, ETH_P_ALL = 26, 3
sockets = []
for _ in range(int(sys.argv[1])):
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    one.bind(('eth0', ETH_P_ALL))
    sockets.append(one)
print('open', flush=True)
time.sleep(7200)
";

/// With these sockets a frame to the container takes milliseconds. More take long to open.
const SOCKET_COUNT: &str = "200";

/// n07: a container's packet sockets with long filters.
pub(crate) struct Filters(Child);

impl Filters {
    pub(crate) fn open(container: &Guest) -> Self {
        let net = format!("--net={}", container.netns().display());
        let mut child = Command::new("nsenter")
            .args([net.as_str(), "python3", "-c", SOCKETS, SOCKET_COUNT])
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux is there");
        let output = child.stdout.take().expect("it has a pipe");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        assert!(read.is_ok() && line == "open\n", "Python's sockets: {line}");
        Self(child)
    }
}

impl Drop for Filters {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
