//! A frame without bytes.

use crate::{Class, Connection, FlowKey, Frame, GuestId, Mark};
use tailbound_units::Bytes;

/// A simulated packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) len: usize,
    pub(crate) source: Option<GuestId>,
    pub(crate) destination: Option<u128>,
    pub(crate) connection: u32,
    pub(crate) is_scalable: bool,
    /// Memory of the packet, if it differs from its length.
    pub(crate) truesize: Option<u64>,
    pub(crate) class: Class,
    pub(crate) takes_marks: bool,
    pub(crate) marked: bool,
}

impl Record {
    pub(crate) fn new(id: u64, guest: u32, len: usize) -> Self {
        Self {
            id,
            len,
            source: Some(GuestId::first(guest)),
            destination: Some(1),
            connection: 0,
            is_scalable: false,
            truesize: None,
            class: Class::Lowest,
            takes_marks: false,
            marked: false,
        }
    }
}

/// Payload bytes of a record's segments.
const RECORD_MTU: usize = 1500;

impl Frame for Record {
    fn len(&self) -> usize {
        self.len
    }
    fn source(&self) -> Option<GuestId> {
        self.source
    }
    fn flow(&self) -> Option<FlowKey> {
        Some(FlowKey {
            source: self.source?,
            destination: self.destination?,
        })
    }
    fn connection(&self) -> Connection {
        Connection(self.connection)
    }
    fn truesize(&self) -> Bytes {
        Bytes(self.truesize.unwrap_or(self.len as u64))
    }
    fn is_scalable(&self) -> bool {
        self.is_scalable
    }
    fn class(&self) -> Class {
        self.class
    }
    fn set_class(&mut self, class: Class, _: Mark) {
        self.class = class;
    }
    fn mark_congestion(&mut self) -> bool {
        self.marked = self.takes_marks;
        self.takes_marks
    }
    fn segments(&self) -> usize {
        self.len.div_ceil(RECORD_MTU)
    }
    fn segment(self, mut sink: impl FnMut(Self)) {
        let mut left = self.len;
        while left > 0 {
            let len = left.min(RECORD_MTU);
            sink(Self { len, ..self });
            left -= len;
        }
    }
}
