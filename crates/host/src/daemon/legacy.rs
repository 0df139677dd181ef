//! Handover to the daemon that takes over: the descriptors of the ports, with the frames queued
//! behind them, and the learned state.
//!
//! ```text
//! new: a line with the version      ► old: understood, reads no more, sends what waits
//! new: opens nothing that it gets   ◄ old: what it knows, and descriptors
//! new: taken                        ► old: ends
//! ```
//!
//! Until the new daemon confirms that it took them, it may fall silent or die: the old one then
//! continues to read. From the confirmation until the new one reads, frames wait in the kernel.

use super::connections::Connections;
use super::inherit::{CardKeys, InheritedPorts};
use super::level::{Levels, LevelsToRestore};
use super::others::{Others, pass_over};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use tailbound_switch::port::Estate;
use tailbound_switch::{Mac, Ports, Switch};
use tailbound_units::Nanos;

/// The first message of both sides: if one side does not know the version, nothing is handed over.
type Hello = [u8; 21];

/// A successor that takes descriptors and learned addresses.
const HELLO: &Hello = b"tailbound takeover 1\n";

/// A successor that takes the state of TCP connections, too.
const WITH_CONNECTIONS: &Hello = b"tailbound takeover 2\n";

/// Largest number of descriptors in one message (`SCM_MAX_FD` is 253).
const TOGETHER: usize = 128;

/// The longest accepted state, in bytes: enough for 2 million addresses.
const MAX_STATE_BYTES: u32 = 64 << 20;

/// The longest accepted state of connections, in bytes: a tenth of a second's work.
pub(super) const MOST_OF_CONNECTIONS: usize = 64 << 20;

/// The format of the connections' state. It changes with the words of that state.
const CONNECTIONS: u32 = 1;

/// The longest wait for the old daemon's first answer: a turn of its loop.
const ANSWER: Duration = Duration::from_millis(250);

/// The longest wait for the old daemon to send its queued frames, longer than it takes; and for the
/// new one to take the handover.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest wait for the hello of a connected process.
const GREETING: Duration = Duration::from_millis(20);

/// Acknowledgement of one byte in each direction.
const UNDERSTOOD: u8 = b'u';
const TAKEN: u8 = b't';

/// The message that goes with the descriptors.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    /// The key of each descriptor ([`super::inherit::key`]), in their order.
    pub(super) keys: Vec<String>,
    /// Learned addresses, with the names of their ports.
    pub(super) stations: Vec<([u8; 6], String)>,
    /// Ports that are more than a descriptor; their descriptors follow the others. Older daemons
    /// know neither this field nor the following ones.
    #[serde(default)]
    pub(super) estates: Vec<Heir>,
    /// The levels of guests' buckets ([`Levels`]).
    #[serde(default)]
    pub(super) levels: serde_json::Value,
    /// The guests whose connections follow this message, with the lengths of their states in bytes.
    #[serde(default)]
    pub(super) connections: Vec<(String, usize)>,
    /// The guests' slots.
    #[serde(default)]
    pub(super) slots: Vec<(usize, String)>,
    /// The format of the connections ([`CONNECTIONS`]); releases without this field have 1.
    #[serde(default)]
    pub(super) connections_format: Option<u32>,
    /// Fields of another release.
    #[serde(flatten)]
    pub(super) others: Others,
}

/// A port that is more than a descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Heir {
    /// The key of the first releases ([`CardKeys::first`]).
    key: String,
    /// The key ([`CardKeys::card`]); the first releases have none.
    #[serde(default)]
    card: Option<String>,
    /// The port's state, in the port's own format.
    state: String,
    /// The number of the port's descriptors.
    descriptors: usize,
    /// Fields of another release.
    #[serde(flatten)]
    others: Others,
}

impl Heir {
    /// The entry of a port.
    pub(super) fn new(keys: CardKeys, estate: &Estate) -> Self {
        Self {
            key: keys.first,
            card: Some(keys.card),
            state: estate.state.clone(),
            descriptors: estate.descriptors.len(),
            others: Others::new(),
        }
    }
}

/// A connected process that requests a takeover.
#[derive(Debug)]
pub(super) struct Successor {
    stream: UnixStream,
    /// True if the process takes the state of early acknowledged connections.
    pub(super) takes_connections: bool,
}

impl Successor {
    /// Accepts a connection; `None` if the process has another user, or another version of the
    /// protocol.
    pub(super) fn accept(listener: &UnixListener) -> io::Result<Option<Self>> {
        let (mut stream, _) = listener.accept()?;
        let peer = socket_peercred(&stream)?.uid;
        if peer != rustix::process::geteuid() && !peer.is_root() {
            return Ok(None);
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(GREETING))?;
        stream.set_write_timeout(Some(HANDOVER_TIMEOUT))?;
        let mut hello = Hello::default();
        stream.read_exact(&mut hello)?;
        if ![HELLO, WITH_CONNECTIONS].contains(&&hello) {
            return Ok(None);
        }
        stream.write_all(&[UNDERSTOOD])?;
        Ok(Some(Self {
            stream,
            takes_connections: hello == *WITH_CONNECTIONS,
        }))
    }

    /// Hands over, and waits for the confirmation.
    ///
    /// # Errors
    /// The successor did not confirm; then nothing has changed.
    pub(super) fn give(
        self,
        mut state: State,
        connections: Connections,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut stream = self.stream;
        let guests = connections.guests.iter();
        state.connections = guests
            .map(|(name, all)| (name.clone(), all.len()))
            .collect();
        state.slots = connections.slots;
        state.connections_format = Some(CONNECTIONS);
        let text = serde_json::to_vec(&state)?;
        let len = u32::try_from(text.len()).map_err(io::Error::other)?;
        stream.write_all(&len.to_le_bytes())?;
        stream.write_all(&text)?;
        for (_, all) in &connections.guests {
            stream.write_all(all)?;
        }
        for some in descriptors.chunks(TOGETHER) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(some));
            let bytes = [IoSlice::new(&[0])];
            sendmsg(&stream, &bytes, &mut control, SendFlags::NOSIGNAL)?;
        }
        stream.set_read_timeout(Some(HANDOVER_TIMEOUT))?;
        expect(&mut stream, TAKEN)
    }
}

/// The handover of a former daemon.
#[derive(Debug)]
pub(super) struct Legacy {
    pub(super) ports: InheritedPorts,
    pub(super) stations: Vec<([u8; 6], String)>,
    pub(super) levels: Option<Levels>,
    pub(super) connections: Connections,
}

impl Legacy {
    /// Returns the descriptors that systemd stored of a daemon that died.
    pub(super) fn from_systemd() -> Self {
        Self {
            ports: InheritedPorts::from_systemd(),
            stations: Vec::new(),
            levels: None,
            connections: Connections::default(),
        }
    }

    /// Returns the inherited ports, once.
    pub(super) fn take_ports(&mut self) -> InheritedPorts {
        std::mem::take(&mut self.ports)
    }

    /// Restores the learned state in a switch with open ports. Returns the levels, which are
    /// restored once guests have their guarantees.
    pub(super) fn resume(self, now: Nanos, switch: &mut Switch, ports: &Ports) -> LevelsToRestore {
        switch.look_for_guests(now, ports);
        let stations = self.stations.iter();
        let stations = stations.map(|(mac, port)| (Mac(*mac), port.as_str()));
        switch.learn(now, stations);
        self.connections.resume(now, switch);
        LevelsToRestore::from(self.levels.unwrap_or_default())
    }

    /// Requests the handover, and the end, of the daemon that listens at `path`.
    ///
    /// # Errors
    /// The daemon refuses, or does not know the protocol, and continues to run.
    pub(super) fn ask(path: &Path) -> io::Result<Self> {
        match Self::ask_by(path, WITH_CONNECTIONS) {
            // A daemon that does not know this version closes the connection and continues to run.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Self::ask_by(path, HELLO),
            asked => asked,
        }
    }

    fn ask_by(path: &Path, hello: &Hello) -> io::Result<Self> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(ANSWER))?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(hello)?;
        expect(&mut stream, UNDERSTOOD)?;
        stream.set_read_timeout(Some(HANDOVER_TIMEOUT))?;
        let mut len = [0; 4];
        stream.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len);
        if len > MAX_STATE_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut text = vec![0; len as usize];
        stream.read_exact(&mut text)?;
        let state: State = serde_json::from_slice(&text)?;
        let connections = receive_connections(&mut stream, &state)?;
        let of_estates = state.estates.iter().map(|estate| estate.descriptors);
        let wanted = of_estates.fold(state.keys.len(), usize::saturating_add);
        let mut descriptors = Vec::new();
        while descriptors.len() < wanted {
            receive(&stream, &mut descriptors)?;
        }
        stream.write_all(&[TAKEN])?;
        Ok(Self::read(state, connections, descriptors))
    }

    /// Returns the legacy that a daemon's words and descriptors describe. The log names the skipped
    /// parts.
    fn read(
        state: State,
        mut connections: Vec<(String, Vec<u8>)>,
        descriptors: Vec<OwnedFd>,
    ) -> Self {
        pass_over("host", &state.others);
        let format = state.connections_format.unwrap_or(1);
        if format != CONNECTIONS && !connections.is_empty() {
            tracing::error!(
                format,
                known = CONNECTIONS,
                guests = connections.len(),
                "connections that were acknowledged early stand still: the daemon before hands \
                 them over in a format of another release"
            );
            connections.clear();
        }
        let mut descriptors = descriptors.into_iter();
        let ports: Vec<_> = state.keys.into_iter().zip(descriptors.by_ref()).collect();
        let estates = state.estates.into_iter().map(|heir| {
            let key = heir.card.unwrap_or(heir.key);
            pass_over(&key, &heir.others);
            let descriptors = descriptors.by_ref().take(heir.descriptors).collect();
            let state = heir.state;
            (key, Estate { state, descriptors })
        });
        Self {
            ports: InheritedPorts::handed_over(ports, estates),
            stations: state.stations,
            levels: Levels::read(state.levels),
            connections: Connections {
                slots: state.slots,
                guests: connections,
            },
        }
    }
}

/// Receives the state of each guest's connections.
fn receive_connections(
    stream: &mut UnixStream,
    state: &State,
) -> io::Result<Vec<(String, Vec<u8>)>> {
    let lens = state.connections.iter().map(|(_, len)| *len);
    if lens.fold(0, usize::saturating_add) > 2 * MOST_OF_CONNECTIONS {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut guests = Vec::new();
    for (name, len) in &state.connections {
        let mut all = vec![0; *len];
        stream.read_exact(&mut all)?;
        guests.push((name.clone(), all));
    }
    Ok(guests)
}

/// Receives the descriptors of one message.
fn receive(stream: &UnixStream, descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let recv_result = recvmsg(stream, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let before = descriptors.len();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    if recv_result.bytes == 0 || descriptors.len() == before {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Waits for a byte.
fn expect(stream: &mut UnixStream, wanted: u8) -> io::Result<()> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    if byte != [wanted] {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PortConfig;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::thread;

    fn port(number: usize) -> PortConfig {
        PortConfig::Tap {
            interface: format!("t{number}"),
            netns: None,
        }
    }

    fn card() -> PortConfig {
        PortConfig::VhostUser {
            socket: "card".into(),
            mode: tailbound_vhost::Mode::Server,
            user: None,
            queues: 1,
            capture: None,
        }
    }

    /// Returns a socket's name and its listener.
    fn listener() -> (tempfile::TempDir, std::path::PathBuf, UnixListener) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("takeover");
        let listener = UnixListener::bind(&path).expect("bound");
        (directory, path, listener)
    }

    #[test]
    fn hundreds_of_descriptors_and_all_stations_arrive_and_each_by_its_key() {
        const PORTS: usize = 300;
        let (_directory, path, listener) = listener();
        let old = thread::spawn(move || {
            let successor = Successor::accept(&listener).expect("it connects");
            let files: Vec<_> = (0..PORTS)
                .map(|number| {
                    let mut file = tempfile::tempfile().expect("a file");
                    file.write_all(&[number as u8]).expect("written");
                    file
                })
                .collect();
            let keys = (0..PORTS).map(|number| super::super::inherit::key(&port(number)));
            let state = State {
                keys: keys.map(|key| key.expect("a TAP has one")).collect(),
                stations: vec![([2, 0, 0, 0, 0, 1], "uplink".to_owned()); 10_000],
                estates: vec![Heir {
                    key: CardKeys::of(&card()).expect("a card").first,
                    card: None,
                    state: "as it was".to_owned(),
                    descriptors: 2,
                    others: Others::new(),
                }],
                levels: serde_json::json!({"at": 0, "guests": []}),
                ..State::default()
            };
            let connections = Connections {
                slots: vec![(7, "a".to_owned())],
                guests: [("a", 100_000), ("b", 0)]
                    .map(|(name, len)| (name.to_owned(), vec![1; len]))
                    .into(),
            };
            let of_port = files[..2].iter();
            let descriptors: Vec<_> = files.iter().chain(of_port).map(AsFd::as_fd).collect();
            let successor = successor.expect("ours");
            assert!(successor.takes_connections);
            successor.give(state, connections, &descriptors)
        });
        let mut legacy = Legacy::ask(&path).expect("handed over");
        old.join().expect("no panic").expect("taken");
        assert_eq!(legacy.stations.len(), 10_000);
        let known = &legacy.connections;
        let lens: Vec<_> = known.guests.iter().map(|(_, all)| all.len()).collect();
        assert_eq!((known.slots.len(), lens), (1, vec![100_000, 0]));
        assert!(legacy.levels.is_some());
        for number in 0..PORTS {
            let taken = legacy.ports.take(&port(number), |fd| {
                let mut byte = [0];
                rustix::io::pread(File::from(fd), &mut byte, 0)?;
                Ok(byte[0])
            });
            assert_eq!(taken, Some(number as u8));
        }
        assert!(legacy.ports.take(&port(0), |_| Ok(())).is_none());
        let taken = legacy.ports.take_estate(&card(), |estate| {
            assert_eq!(estate.state, "as it was");
            Ok(estate.descriptors.len())
        });
        assert_eq!(taken, Some(2));
    }

    /// The words that the release before this one handed over, with the [`card`] under the key
    /// of the first releases.
    const FIRST: &str = r#"{"keys":[],"stations":[[[2,0,0,0,0,1],"uplink"]],"estates":[{"key":"VhostUser { socket: \"card\", mode: Server, user: None, queues: 1, capture: None }","state":"{\"listens\":7}","descriptors":2}],"levels":{"at":1,"guests":[{"name":"a","holds":7,"destinations":[],"groups":0,"unknown":0}]},"connections":[],"slots":[]}"#;

    /// The fields that the first release reads.
    #[derive(Deserialize)]
    struct FirstState {
        keys: Vec<String>,
        #[serde(default)]
        estates: Vec<FirstHeir>,
    }

    #[derive(Deserialize)]
    struct FirstHeir {
        key: String,
        state: String,
        descriptors: usize,
    }

    /// The legacy that a successor reads from words, with all descriptors that they announce.
    fn read(text: &str) -> Legacy {
        let state: State = serde_json::from_str(text).expect("it is understood");
        let count = state.estates.iter().map(|heir| heir.descriptors).sum();
        let files = (0..count).map(|_| tempfile::tempfile().expect("a file").into());
        Legacy::read(state, Vec::new(), files.collect())
    }

    fn is_taken(legacy: &mut Legacy, card: &PortConfig) -> bool {
        let taken = legacy.ports.take_estate(card, |estate| {
            assert_eq!(
                (estate.state.as_str(), estate.descriptors.len()),
                (r#"{"listens":7}"#, 2)
            );
            Ok(())
        });
        taken.is_some()
    }

    /// The words in which this release hands a card over.
    fn told() -> String {
        let estate = Estate {
            state: r#"{"listens":7}"#.to_owned(),
            descriptors: (0..2)
                .map(|_| tempfile::tempfile().expect("a file").into())
                .collect(),
        };
        let keys = CardKeys::of(&card()).expect("a card");
        let state = State {
            estates: vec![Heir::new(keys, &estate)],
            ..State::default()
        };
        serde_json::to_string(&state).expect("plain data")
    }

    #[test]
    fn a_card_of_the_release_before_is_taken_and_rolled_back_to_it() {
        let mut legacy = read(FIRST);
        assert!(is_taken(&mut legacy, &card()));
        assert_eq!(legacy.stations.len(), 1);
        assert!(legacy.levels.is_some());
        let known: FirstState = serde_json::from_str(FIRST).expect("its own");
        let rolled_back: FirstState = serde_json::from_str(&told()).expect("it is understood");
        assert!(rolled_back.keys.is_empty());
        let [heir] = &rolled_back.estates[..] else {
            panic!("one card");
        };
        assert_eq!(heir.key, known.estates[0].key, "it looks for that");
        assert_eq!(heir.state, known.estates[0].state);
        assert_eq!(heir.descriptors, 2);
    }

    #[test]
    fn a_card_of_a_release_with_one_more_field_everywhere_is_taken() {
        let told = told();
        let more = told.replacen('{', r#"{"more":{"a":[1]},"#, 1);
        let more = more.replace(r#""estates":[{"#, r#""estates":[{"more":7,"#);
        // Its configuration has one more, too: what the first releases look for is another.
        let more = more.replace("capture: None }", "capture: None, more: 7 }");
        assert_eq!(more.matches("more").count(), 3, "{more}");
        assert!(is_taken(&mut read(&more), &card()));
    }

    #[test]
    fn connections_of_another_format_are_not_read() {
        for (format, known) in [(Some(CONNECTIONS), 1), (None, 1), (Some(99), 0)] {
            let state = State {
                connections_format: format,
                ..State::default()
            };
            let connections = vec![("a".to_owned(), vec![0; 8])];
            let legacy = Legacy::read(state, connections, Vec::new());
            assert_eq!(legacy.connections.guests.len(), known, "{format:?}");
        }
    }

    #[test]
    fn a_takeover_by_another_version_or_dead_successor_fails() {
        let (_directory, path, listener) = listener();
        let mut other = UnixStream::connect(&path).expect("it listens");
        other.write_all(b"tailbound takeover 3\n").expect("sent");
        assert!(Successor::accept(&listener).expect("it speaks").is_none());
        let silent = UnixStream::connect(&path).expect("it listens");
        assert!(Successor::accept(&listener).is_err());
        drop(silent);
        let mut dying = UnixStream::connect(&path).expect("it listens");
        dying.write_all(HELLO).expect("sent");
        let successor = Successor::accept(&listener).expect("it speaks");
        drop(dying);
        let successor = successor.expect("ours");
        assert!(!successor.takes_connections);
        let given = successor.give(State::default(), Connections::default(), &[]);
        assert!(given.is_err());
        // Nobody answers.
        drop(listener);
        assert!(Legacy::ask(&path).is_err());
    }
}
