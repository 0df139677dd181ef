//! The XDP program of an interface, which divides frames between the sockets and the host's own
//! stack.
//!
//! The program is short enough to be written in instructions, so that neither the build nor the
//! computer needs a compiler for it:
//!
//! | destination | goes to |
//! |---|---|
//! | the interface's own MAC address | the host's stack |
//! | broadcast and multicast | the host's stack, and a copy by a packet socket to the guests |
//! | any other | the socket of the queue it came by; the stack if the queue has none |

use super::bpf::{self, Instruction};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `XDP_PASS`.
const PASS: i32 = 2;

/// Place of an attached program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// In the driver, before the kernel makes its own buffer for the frame.
    Driver,
    /// Behind the driver, for drivers without XDP.
    Generic,
}

impl Attachment {
    /// `XDP_FLAGS_DRV_MODE`, `XDP_FLAGS_SKB_MODE`.
    const fn flags(self) -> u32 {
        match self {
            Self::Driver => 1 << 2,
            Self::Generic => 1 << 1,
        }
    }
}

/// A program that redirects frames, attached until it is dropped or the process ends for any
/// reason.
#[derive(Debug)]
pub(super) struct Program {
    map: OwnedFd,
    code: OwnedFd,
    link: Option<OwnedFd>,
}

impl Program {
    /// Loads the program of an interface with the MAC address `own` and `queues`
    /// queues.
    pub(super) fn load(own: [u8; 6], queues: u32) -> io::Result<Self> {
        let map = bpf::create_map(queues)?;
        let code = bpf::load(&instructions(own, map.as_fd()))?;
        Ok(Self {
            map,
            code,
            link: None,
        })
    }

    /// Attaches the program to an interface of this thread's network namespace; frames go to the
    /// stack as long as their queue has no socket. If it is attached already, it is detached first.
    pub(super) fn attach(&mut self, interface: u32, attachment: Attachment) -> io::Result<()> {
        self.link = None;
        let link = bpf::attach(self.code.as_fd(), interface, attachment.flags())?;
        self.link = Some(link);
        Ok(())
    }

    /// Redirects the frames of `queue` to `socket`.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        bpf::set_socket(self.map.as_fd(), queue, socket)
    }
}

/// Registers. The context is in R1, results are in R0.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;

/// `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

/// The length of an Ethernet header, in bytes.
const ETHERNET: i32 = 14;
/// `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

// Opcodes (RFC 9669).
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD_IMMEDIATE: u8 = 0x07;
const JUMP_GREATER: u8 = 0x2d;
const JUMP_BITS_SET_IMMEDIATE: u8 = 0x45;
/// These two compare 32 bits.
const JUMP_EQUAL_IMMEDIATE: u8 = 0x16;
const JUMP_UNEQUAL_IMMEDIATE: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// As the source register of [`LOAD_IMMEDIATE_64`]: the immediate is a map's descriptor.
const PSEUDO_MAP: u8 = 1;

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        registers: to | from << 4,
        offset,
        immediate,
    }
}

fn instructions(own: [u8; 6], map: BorrowedFd<'_>) -> Vec<Instruction> {
    use std::os::fd::AsRawFd as _;
    // As loads see it, in the machine's byte order.
    let front = i32::from_ne_bytes([own[0], own[1], own[2], own[3]]);
    let back = i32::from(u16::from_ne_bytes([own[4], own[5]]));
    vec![
        // The frame, if it is as long as its header.
        instruction(LOAD_WORD, R2, R1, DATA, 0),
        instruction(LOAD_WORD, R3, R1, DATA_END, 0),
        instruction(MOVE, R4, R2, 0, 0),
        instruction(ADD_IMMEDIATE, R4, 0, 0, ETHERNET),
        instruction(JUMP_GREATER, R4, R3, 13, 0),
        // A group has the lowest bit of the first byte.
        instruction(LOAD_BYTE, R4, R2, 0, 0),
        instruction(JUMP_BITS_SET_IMMEDIATE, R4, 0, 11, 1),
        instruction(LOAD_WORD, R4, R2, 0, 0),
        instruction(JUMP_UNEQUAL_IMMEDIATE, R4, 0, 2, front),
        instruction(LOAD_HALF, R4, R2, 4, 0),
        instruction(JUMP_EQUAL_IMMEDIATE, R4, 0, 7, back),
        // To the socket of its queue, or on to the stack.
        instruction(LOAD_IMMEDIATE_64, R5, PSEUDO_MAP, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(LOAD_WORD, R2, R1, RX_QUEUE_INDEX, 0),
        instruction(MOVE, R1, R5, 0, 0),
        instruction(MOVE_IMMEDIATE, R3, 0, 0, PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        // What the call returned, or the next line's.
        instruction(EXIT, 0, 0, 0, 0),
        instruction(MOVE_IMMEDIATE, R0, 0, 0, PASS),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_jump_lands_on_the_instruction_it_is_meant_for() {
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let program = instructions([2, 0, 0, 0, 0, 1], null.as_fd());
        let pass = program.len() - 2;
        let lands = |at: usize| {
            let offset = usize::try_from(program[at].offset).expect("forwards");
            at + 1 + offset
        };
        assert_eq!(program[pass].code, MOVE_IMMEDIATE);
        for (at, to) in [(4, pass), (6, pass), (10, pass), (8, 11)] {
            assert_eq!(lands(at), to, "the jump at {at}");
        }
    }
}
