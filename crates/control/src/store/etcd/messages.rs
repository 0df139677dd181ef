//! The part of etcd's protocol (v3) that a store needs, as protobuf messages.
//!
//! The numbers are those of etcd's `rpc.proto` (package `etcdserverpb`) and `kv.proto` (package
//! `mvccpb`). Fields that no store reads or sets are left out: a decoder skips them, and an encoder
//! leaves them at their defaults.

use prost::{Message, Oneof};

/// A key and its value.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeyValue {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The revision at which the key was created.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// The revision at which the value was written.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// The value.
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
}

/// The head of every answer.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ResponseHeader {
    /// The revision of the store when the request was applied.
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// Reads one key, or the keys of a range.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RangeRequest {
    /// The key, or the first one of the range.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end of the range, which is not in it; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The largest number of keys in the answer; 0 for no limit.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// The revision to read at; 0 for the newest one.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// Leaves the values out of the answer.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

impl RangeRequest {
    /// Makes a request that reads one key at the newest revision.
    pub fn one(key: impl Into<Vec<u8>>) -> Self {
        Self {
            key: key.into(),
            ..Self::default()
        }
    }
}

/// The keys that were read, in their order.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RangeResponse {
    /// The revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The keys and their values.
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// Set if the limit cut the answer short.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// Writes one key.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PutRequest {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The value.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    /// The lease with whose end the key is deleted; 0 for none.
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

/// Deletes one key, or the keys of a range.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeleteRangeRequest {
    /// The key, or the first one of the range.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end of the range, which is not in it; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RequestOp {
    /// The operation.
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub request: Option<Operation>,
}

/// The kinds of operations.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Operation {
    /// A read of a range of keys.
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    /// A write of a key.
    #[prost(message, tag = "2")]
    Put(PutRequest),
    /// The deletion of a range of keys.
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

impl RequestOp {
    /// Makes an operation that reads one key.
    pub fn read(key: impl Into<Vec<u8>>) -> Self {
        Operation::Range(RangeRequest::one(key)).into()
    }

    /// Makes an operation that writes one key.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::put_with_lease(key, value, 0)
    }

    /// Makes an operation that writes one key, which is deleted with the end of the lease.
    pub fn put_with_lease(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: i64) -> Self {
        let (key, value) = (key.into(), value.into());
        Operation::Put(PutRequest { key, value, lease }).into()
    }

    /// Makes an operation that deletes one key.
    pub fn delete(key: impl Into<Vec<u8>>) -> Self {
        let (key, range_end) = (key.into(), Vec::new());
        Operation::Delete(DeleteRangeRequest { key, range_end }).into()
    }

    /// Makes an operation that deletes all keys with a prefix.
    pub fn delete_prefix(prefix: impl Into<Vec<u8>>) -> Self {
        let key = prefix.into();
        let range_end = prefix_end(&key);
        Operation::Delete(DeleteRangeRequest { key, range_end }).into()
    }
}

impl From<Operation> for RequestOp {
    fn from(operation: Operation) -> Self {
        Self {
            request: Some(operation),
        }
    }
}

/// Returns the end of the range of all keys with a prefix.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    match prefix.iter().rposition(|byte| *byte < u8::MAX) {
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        }
        // No key comes after all of these; this end stands for that of all keys.
        None => vec![0],
    }
}

/// The answer to one operation of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResponseOp {
    /// The keys that were read, if the operation reads.
    #[prost(message, optional, tag = "1")]
    pub response_range: Option<RangeResponse>,
}

/// A condition of a transaction: equality, which is the kind of comparison with the number 0.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Compare {
    /// The number of the kind of operand ([`CREATE`] or [`VALUE`]).
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "Operand", tags = "5, 7")]
    operand: Option<Operand>,
}

/// The value with which a key's property is compared.
#[derive(Clone, PartialEq, Eq, Oneof)]
enum Operand {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

/// `CompareTarget.CREATE`.
const CREATE: i32 = 1;
/// `CompareTarget.VALUE`.
const VALUE: i32 = 3;

impl Compare {
    /// Makes the condition that the key was created at a revision; 0 if it is not there.
    pub fn created(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self {
            target: CREATE,
            key: key.into(),
            operand: Some(Operand::CreateRevision(revision)),
        }
    }

    /// Makes the condition that the key has a value.
    pub fn value(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self {
            target: VALUE,
            key: key.into(),
            operand: Some(Operand::Value(value.into())),
        }
    }
}

/// A transaction: one of two lists of operations, by whether conditions hold.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TxnRequest {
    /// The conditions.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// The operations if all conditions hold.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    /// The operations if one does not.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

/// The outcome of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TxnResponse {
    /// The revision of the store after it.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Set if all conditions held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// The answers to the operations that were done.
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// Requests a lease.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseGrantRequest {
    /// The wanted length in seconds.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
}

/// A lease.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseGrantResponse {
    /// The number of the lease.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// The length in seconds, which may be longer than the wanted one.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

/// Ends a lease.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseRevokeRequest {
    /// The number of the lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// The answer to [`LeaseRevokeRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseRevokeResponse {}

/// Starts a lease's time anew.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseKeepAliveRequest {
    /// The number of the lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// The answer to [`LeaseKeepAliveRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseKeepAliveResponse {
    /// The time that the lease has again, in seconds; 0 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

/// A message of a client that watches.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WatchRequest {
    /// Starts a watch.
    #[prost(message, optional, tag = "1")]
    pub create_request: Option<WatchCreateRequest>,
}

/// Starts a watch.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WatchCreateRequest {
    /// The key, or the first one of the range.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end of the range, which is not in it; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The revision of the first event to be sent.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
}

/// Events, or the end of a watch.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WatchResponse {
    /// Set if the watch has ended.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// The revision up to which the store was compacted, if that ended the watch.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// The reason of the end.
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// The events in the order of revisions; those of one transaction are in one message.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// A change of a key.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Event {
    /// The number of the kind of change (`EventType`): 0 if the key was put.
    #[prost(int32, tag = "1")]
    kind: i32,
    /// The key. The value is empty if the key was deleted.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

/// `EventType.PUT`.
const PUT: i32 = 0;

impl Event {
    /// Returns the key and its value if they were put, and none if the key was deleted.
    pub fn put(&self) -> Option<&KeyValue> {
        self.kv.as_ref().filter(|_| self.kind == PUT)
    }
}

/// Logs a user in.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AuthenticateRequest {
    /// The user.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The password.
    #[prost(string, tag = "2")]
    pub password: String,
}

/// The answer to [`AuthenticateRequest`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AuthenticateResponse {
    /// The token that goes with all further calls.
    #[prost(string, tag = "2")]
    pub token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are written by hand from the protobuf encoding: a tag is the number of a field
    /// times 8, and 0 for a whole number or 2 for bytes with their length before them.
    #[test]
    fn a_transaction_is_encoded_as_etcd_defines_it() {
        let txn = TxnRequest {
            compare: vec![Compare::created("l", 300), Compare::value("c", "1/7")],
            success: vec![
                RequestOp::put_with_lease("a", "x", 5),
                RequestOp::delete_prefix("p/"),
            ],
            failure: vec![RequestOp::read("c")],
        };
        let expected: [&[u8]; 5] = [
            b"\x0a\x08\x10\x01\x1a\x01l\x28\xac\x02",
            b"\x0a\x0a\x10\x03\x1a\x01c\x3a\x031/7",
            b"\x12\x0a\x12\x08\x0a\x01a\x12\x01x\x18\x05",
            b"\x12\x0a\x1a\x08\x0a\x02p/\x12\x02p0",
            b"\x1a\x05\x0a\x03\x0a\x01c",
        ];
        assert_eq!(txn.encode_to_vec(), expected.concat());
    }

    #[test]
    fn an_absent_key_condition_is_encoded_with_its_zero_operand() {
        // Without an operand etcd would refuse the condition.
        let condition = Compare::created("l", 0).encode_to_vec();
        assert_eq!(condition, b"\x10\x01\x1a\x01l\x28\x00");
    }

    #[test]
    fn events_are_read_and_unknown_fields_are_skipped() {
        // A header, the number of the watch, a put key with a version and a lease, a deleted one.
        let bytes: [&[u8]; 4] = [
            b"\x0a\x06\x08\x01\x18\x09\x20\x02",
            b"\x10\x03",
            b"\x5a\x10\x12\x0e\x0a\x01k\x10\x08\x18\x09\x20\x02\x2a\x01v\x30\x05",
            b"\x5a\x09\x08\x01\x12\x05\x0a\x01d\x18\x09",
        ];
        let message = WatchResponse::decode(bytes.concat().as_slice()).unwrap();
        assert!(!message.canceled);
        let [put, deleted] = message.events.as_slice() else {
            panic!("{message:?}");
        };
        let kv = KeyValue {
            key: b"k".to_vec(),
            create_revision: 8,
            mod_revision: 9,
            value: b"v".to_vec(),
        };
        assert_eq!(put.put(), Some(&kv));
        assert_eq!(deleted.put(), None);
        assert_eq!(deleted.kv.as_ref().unwrap().key, b"d");
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_key_without_it() {
        assert_eq!(prefix_end(b"foo1"), b"foo2");
        assert_eq!(prefix_end(b"foo\xff"), b"fop");
        assert_eq!(prefix_end(b"\xff"), b"\0");
    }
}
