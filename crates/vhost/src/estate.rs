//! State of a NIC for another process: text, and the descriptors of the connection to the VMM, the
//! guest's memory and the rings' eventfds.
//!
//! Guest and VMM do not notice the handover. A ring's position is in the guest's memory.

use crate::caller::Event;
use crate::config::VhostConfig;
use crate::device::{Device, Kick, Parts, Shared, State, Vring};
use crate::features::Features;
use crate::handler::Handler;
use crate::memory::{Log, Memory, Place};
use crate::server::{Endpoint, Requests, Session, check_peer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use tailbound_switch::port::Estate;

/// Version of this format. Earlier releases wrote none.
const VERSION: u32 = 1;

/// A NIC, in the order of its descriptors. New fields need a default: a release ignores an unknown
/// field unless it is in `needs`.
#[derive(Debug, Serialize, Deserialize)]
struct CardState {
    #[serde(default)]
    version: u32,
    /// Fields, of the card or of a ring, that a successor must know.
    #[serde(default)]
    needs: Vec<String>,
    /// The number of the socket's file where monitors connect; its listener.
    listens: Option<u64>,
    /// The protocol features of the monitor that is connected; its connection.
    monitor: Option<u64>,
    features: u64,
    /// Regions; the file of each.
    memory: Option<Vec<Place>>,
    rings: Vec<RingState>,
    /// Offset of the page log in its file, and its length in bytes.
    log: Option<(u64, usize)>,
    /// Pages of the guest's memory that the process touched first.
    #[serde(default)]
    touched: u64,
    #[serde(flatten)]
    others: Others,
}

/// Unknown fields of another release.
type Others = BTreeMap<String, serde_json::Value>;

impl CardState {
    /// Reads what another process wrote.
    ///
    /// # Errors
    /// The text is damaged, or needs a field that this release does not know.
    fn read(text: &str, name: &Path) -> io::Result<Self> {
        let state: Self = serde_json::from_str(text)?;
        let of_rings = state.rings.iter().flat_map(|ring| ring.others.keys());
        let unknown: BTreeSet<_> = state.others.keys().chain(of_rings).cloned().collect();
        let needed = state.needs.iter().find(|need| unknown.contains(*need));
        if let Some(needed) = needed {
            return Err(io::Error::other(format!(
                "it was handed over in version {}, with {needed:?}, which this release does not \
                 know (it writes version {VERSION})",
                state.version
            )));
        }
        if !unknown.is_empty() {
            let fields: Vec<_> = unknown.into_iter().collect();
            let (fields, version) = (fields.join(", "), state.version);
            tracing::warn!(
                socket = %name.display(), fields, version,
                "the card goes on; these fields of another release are passed over"
            );
        }
        Ok(state)
    }
}

/// A ring, in the order of its [`RingFiles`].
#[derive(Debug, Serialize, Deserialize)]
struct RingState {
    size: u32,
    parts: Option<Parts>,
    index: u16,
    stage: Stage,
    is_enabled: bool,
    /// Presence of each descriptor.
    descriptors: [bool; 3],
    #[serde(flatten)]
    others: Others,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    Stopped,
    Running,
    Broken,
}

/// Returns the state of a paused NIC.
///
/// # Errors
/// No further descriptor is available.
pub(crate) fn give(requests: &Requests, device: &Device, log: &Log) -> io::Result<Estate> {
    let mut descriptors = Vec::new();
    let mut keep = |descriptor: &dyn AsFd| {
        descriptors.push(descriptor.as_fd().try_clone_to_owned()?);
        io::Result::Ok(())
    };
    let listens = match &requests.endpoint {
        Endpoint::Server { listener, file } => {
            keep(listener)?;
            Some(*file)
        }
        Endpoint::Client => None,
    };
    if let Some(session) = &requests.session {
        keep(&session.stream)?;
    }
    let memory = device.memory.as_ref();
    for file in memory.iter().flat_map(|memory| memory.files()) {
        keep(file)?;
    }
    for index in 0..device.rings.len() {
        let RingFiles { kick, call, error } = files(device, index);
        kick.map_or(Ok(()), |kick| keep(kick))?;
        for told in [call, error].into_iter().flatten() {
            keep(&*told)?;
        }
    }
    let log = log.place()?.map(|(file, offset, len)| {
        keep(&file)?;
        io::Result::Ok((offset, len))
    });
    let state = CardState {
        version: VERSION,
        needs: Vec::new(),
        listens,
        monitor: requests.session.as_ref().map(Session::agreed),
        features: device.features.bits(),
        memory: memory.map(|memory| memory.places().to_vec()),
        rings: (0..device.rings.len())
            .map(|index| RingState::of(device, index))
            .collect(),
        log: log.transpose()?,
        touched: requests.touched(),
        others: Others::new(),
    };
    let state = serde_json::to_string(&state)?;
    Ok(Estate { state, descriptors })
}

impl RingState {
    fn of(device: &Device, index: usize) -> Self {
        let ring = &device.rings[index];
        let RingFiles { kick, call, error } = files(device, index);
        Self {
            size: ring.size,
            parts: ring.parts,
            index: ring.index(),
            stage: match ring.state {
                State::Stopped => Stage::Stopped,
                State::Running(_) => Stage::Running,
                State::Broken => Stage::Broken,
            },
            is_enabled: ring.is_enabled,
            descriptors: [kick.is_some(), call.is_some(), error.is_some()],
            others: Others::new(),
        }
    }

    /// The ring again, which does not run yet.
    fn take(
        &self,
        index: usize,
        next: &mut impl FnMut() -> io::Result<OwnedFd>,
        shared: &Shared,
    ) -> io::Result<Vring> {
        let mut file = |is_there: bool| is_there.then(|| next().map(File::from)).transpose();
        let [has_kick, has_call, has_error] = self.descriptors;
        let kick = file(has_kick)?;
        let (call, error) = (file(has_call)?, file(has_error)?);
        shared.change(|device| {
            device.caller.replace(Event::Call, index, call);
            device.caller.replace(Event::Error, index, error);
        });
        Ok(Vring {
            size: self.size,
            parts: self.parts,
            kick: kick.map(|kick| shared.watch(kick)).transpose()?,
            is_enabled: self.is_enabled,
            state: match self.stage {
                Stage::Stopped | Stage::Running => State::Stopped,
                Stage::Broken => State::Broken,
            },
            index: self.index,
        })
    }
}

/// The descriptors of a ring.
struct RingFiles<'d> {
    /// Kicks it.
    kick: Option<&'d File>,
    /// Calls its driver.
    call: Option<Arc<File>>,
    /// Reports its errors.
    error: Option<Arc<File>>,
}

fn files(device: &Device, index: usize) -> RingFiles<'_> {
    RingFiles {
        kick: device.rings[index].kick.as_ref().map(Kick::file),
        call: device.caller.file(Event::Call, index),
        error: device.caller.file(Event::Error, index),
    }
}

/// Continues the NIC of a configuration.
///
/// # Errors
/// The state belongs to another configuration, or is incomplete.
pub(crate) fn take(
    estate: Estate,
    config: VhostConfig<'_>,
    shared: &Arc<Shared>,
) -> io::Result<(Endpoint, Option<Session>)> {
    let pairs = config.pairs();
    let state = CardState::read(&estate.state, config.socket)?;
    if state.rings.len() != 2 * pairs {
        return Err(io::Error::other("it has another number of rings"));
    }
    let mut descriptors = estate.descriptors.into_iter();
    let mut next = || -> io::Result<OwnedFd> {
        let missing = || io::Error::other("a descriptor is missing");
        descriptors.next().ok_or_else(missing)
    };
    let endpoint = match state.listens {
        Some(file) => Endpoint::Server {
            listener: UnixListener::from(next()?),
            file,
        },
        None => Endpoint::Client,
    };
    let stream = state.monitor.map(|agreed| Ok((agreed, next()?)));
    let stream = stream.transpose().map_err(|error: io::Error| error)?;
    let session = stream.map(|(agreed, stream)| {
        let stream = UnixStream::from(stream);
        // It was let in by the configuration of another process.
        check_peer(&stream, config.user)?;
        let handler = Handler::new(Arc::clone(shared), pairs, agreed);
        io::Result::Ok(Session::new(stream, handler))
    });
    let session = session.transpose()?;
    let memory = state.memory.map(|places| {
        let files = places.into_iter().map(|place| Ok((place, next()?.into())));
        let regions: Vec<(Place, File)> = files.collect::<io::Result<_>>()?;
        Memory::map(regions, &shared.log).map_err(io::Error::other)
    });
    let memory = memory.transpose()?.map(Arc::new);
    let features = Features::choose(state.features).map_err(io::Error::other)?;
    let rings = state.rings.iter().enumerate();
    let rings = rings.map(|(index, ring)| ring.take(index, &mut next, shared));
    let rings = rings.collect::<io::Result<Vec<_>>>()?;
    if let Some((offset, len)) = state.log {
        let begun = shared.log.begin(next()?.into(), offset, len);
        begun.map_err(io::Error::other)?;
    }
    shared.log.switch(features.log_all());
    shared.part.touches.add(state.touched);
    let running = state.rings.iter().enumerate();
    let running = running.filter(|(_, ring)| ring.stage == Stage::Running);
    shared.change(|device| {
        device.features = features;
        device.memory = memory;
        device.rings = rings;
        for (index, ring) in running {
            let is_enabled = ring.is_enabled;
            device.start(index).map_err(io::Error::other)?;
            device.rings[index].is_enabled = is_enabled;
            // The other process may have ended before it called the driver.
            device.caller.post(Event::Call, index);
        }
        device.caller.wake();
        Ok::<_, io::Error>(())
    })?;
    Ok((endpoint, session))
}
