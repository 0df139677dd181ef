//! ICMP echo requests at fixed intervals (RFC 792). Open loop, like the queries.

use super::events::{ALARM, Events};
use super::packet::sum;
use super::{Outcome, Sample, Schedule, Starter, now};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use tailbound_units::Nanos;

/// Data bytes of a request, equal to those of `ping`.
const DATA: usize = 56;
const HEADER: usize = 8;

pub(super) fn run(starter: &Starter<'_>, to: Ipv4Addr, every: Nanos) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::RAW,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        Some(ipproto::ICMP),
    )?;
    rustix::net::connect(&socket, &SocketAddrV4::new(to, 0))?;
    let mut events = Events::new()?;
    events.add(&socket, 0)?;
    let mut echo = Echo {
        socket,
        identifier: std::process::id() as u16,
        schedule: starter.ready()?,
        every,
        answered: Vec::new(),
        outcome: Outcome::default(),
    };
    let mut happened = Vec::new();
    loop {
        echo.send_due_requests()?;
        let next = echo.moment(echo.answered.len() as u32);
        let all_sent = next >= echo.schedule.to;
        let give_up = echo.schedule.give_up;
        if now() >= give_up || all_sent && echo.answered.iter().all(|answered| *answered) {
            break;
        }
        events.set_alarm(if all_sent { give_up } else { next })?;
        events.wait(&mut happened)?;
        if happened.iter().any(|key| *key != ALARM) {
            echo.receive()?;
        }
    }
    starter.finish(&echo.finish())
}

/// Sent requests, and their replies.
struct Echo {
    socket: OwnedFd,
    identifier: u16,
    schedule: Schedule,
    every: Nanos,
    /// True if a reply arrived, by the number of the request.
    answered: Vec<bool>,
    outcome: Outcome,
}

impl Echo {
    /// Returns the due time of request `number`.
    fn moment(&self, number: u32) -> Nanos {
        let after = Nanos(self.every.as_nanos() * u64::from(number));
        self.schedule.start.saturating_add(after)
    }

    fn send_due_requests(&mut self) -> io::Result<()> {
        loop {
            let number = self.answered.len() as u32;
            let moment = self.moment(number);
            if moment >= self.schedule.to || moment > now() {
                return Ok(());
            }
            let request = request(self.identifier, number);
            match rustix::net::send(&self.socket, &request, SendFlags::empty()) {
                // A request without room in the guest's own queue is lost like any other: it stays
                // unanswered.
                Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => {}
                Err(error) => return Err(error.into()),
            }
            self.answered.push(false);
        }
    }

    /// Receives all queued replies.
    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 2048];
        loop {
            let received = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty());
            let length = match received {
                Ok((length, _)) => length,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let end = now();
            if let Some(number) = reply(&buffer[..length.min(buffer.len())], self.identifier) {
                self.replied(number, end);
            }
        }
    }

    fn replied(&mut self, number: u32, end: Nanos) {
        // The first reply counts; replies to requests that were never sent are ignored.
        if self.answered.get(number as usize) != Some(&false) {
            return;
        }
        self.answered[number as usize] = true;
        let start = self.moment(number);
        if self.schedule.counts(start) {
            self.outcome.samples.push(Sample {
                arrival: number,
                start,
                end,
            });
        }
    }

    fn finish(mut self) -> Outcome {
        let lost = |(number, answered): (usize, &bool)| {
            !answered && self.schedule.counts(self.moment(number as u32))
        };
        let answered = self.answered.iter().enumerate();
        self.outcome.unanswered = answered.filter(|entry| lost(*entry)).count() as u64;
        self.outcome.samples.sort_by_key(|sample| sample.arrival);
        self.outcome
    }
}

/// Builds request `number`. The sequence field is too short for all numbers, so the data also has
/// the number.
fn request(identifier: u16, number: u32) -> [u8; HEADER + DATA] {
    let mut packet = [0x5a; HEADER + DATA];
    packet[..4].copy_from_slice(&[8, 0, 0, 0]);
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    packet[6..8].copy_from_slice(&(number as u16).to_be_bytes());
    packet[8..12].copy_from_slice(&number.to_be_bytes());
    let checksum = !sum(&packet);
    packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Returns the number of the request that `packet`, IP header included, replies to; `None` for
/// other packets.
fn reply(packet: &[u8], identifier: u16) -> Option<u32> {
    let header_length = usize::from(packet.first()? & 0x0f) * 4;
    let icmp = packet.get(header_length..)?;
    let ([0, 0], identifier_field) = (icmp.get(..2)?, icmp.get(4..6)?) else {
        return None;
    };
    if identifier_field != identifier.to_be_bytes() {
        return None;
    }
    let number = icmp.get(8..12)?.try_into().ok()?;
    Some(u32::from_be_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answer(identifier: u16, number: u32) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet.extend(request(identifier, number));
        packet[20] = 0;
        packet
    }

    #[test]
    fn an_echo_request_has_a_valid_checksum() {
        assert_eq!(sum(&request(1234, 70_000)), u16::MAX);
    }

    #[test]
    fn only_echo_replies_with_the_own_identifier_are_read() {
        assert_eq!(reply(&answer(7, 70_000), 7), Some(70_000));
        assert_eq!(reply(&answer(8, 70_000), 7), None);
        let mut other = answer(7, 1);
        other[20] = 8;
        assert_eq!(reply(&other, 7), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), id: u16) {
            let _ = reply(&bytes, id);
        }
    }
}
