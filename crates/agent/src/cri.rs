//! Queries the host's container runtime for the names of its pods, by the interface that the
//! kubelet uses (CRI, `runtime.v1`): gRPC on a socket of root's.
//!
//! Replies are bounded in time and bytes, and names are treated as plain text.

mod names;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use names::PodNames;

use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use prost::Message;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// Sockets of runtimes: those that the kubelet tries, in its order.
const SOCKETS: [&str; 3] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
];

/// Time limit of a query, during which the agent does not look at guests.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum size of a reply: about 300 bytes for each pod, of which a host has hundreds.
const LARGEST: usize = 4 << 20;

/// Maximum length of the runtime's error text.
const WORDS: usize = 200;

/// A pod, as its runtime knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

/// Reason why the names of pods are unknown.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// No container runtime listens.
    #[error("no container runtime listens at {}; set its socket (cri = \"PATH\")", SOCKETS.join(", "))]
    NoSocket,
    /// No runtime answers at the socket.
    #[error("{}: {source}", .socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The query timed out.
    #[error("{}: no answer within {} ms", .0.display(), QUERY_TIMEOUT.as_millis())]
    Slow(PathBuf),
    /// The answer is not one of the protocol.
    #[error("{}: its answer is not one of CRI (runtime.v1): {why}", .socket.display())]
    Answer {
        /// The socket.
        socket: PathBuf,
        /// The mistake.
        why: String,
    },
}

/// The part of `runtime.v1` that is asked for: the numbers are those of its `api.proto`.
mod v1 {
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct ListPodSandboxRequest {
        #[prost(message, optional, tag = "1")]
        pub(super) filter: Option<PodSandboxFilter>,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct PodSandboxFilter {
        #[prost(message, optional, tag = "2")]
        pub(super) state: Option<PodSandboxStateValue>,
    }

    /// 0 is ready.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(super) struct PodSandboxStateValue {
        #[prost(int32, tag = "1")]
        pub(super) state: i32,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct ListPodSandboxResponse {
        #[prost(message, repeated, tag = "1")]
        pub(crate) items: Vec<PodSandbox>,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct PodSandbox {
        #[prost(message, optional, tag = "2")]
        pub(crate) metadata: Option<PodSandboxMetadata>,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct PodSandboxMetadata {
        #[prost(string, tag = "1")]
        pub(crate) name: String,
        #[prost(string, tag = "2")]
        pub(crate) uid: String,
        #[prost(string, tag = "3")]
        pub(crate) namespace: String,
    }
}

/// Returns the running pods of this host from the runtime at `socket`, by default from the first
/// runtime that listens at a known socket.
///
/// # Errors
/// [`CriError`], within a second.
pub fn pods(socket: Option<&Path>) -> Result<Vec<Pod>, CriError> {
    let known = || SOCKETS.iter().map(Path::new).find(|path| path.exists());
    let socket = socket.or_else(known).ok_or(CriError::NoSocket)?;
    let connect = |source| CriError::Connect {
        socket: socket.to_owned(),
        source,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(connect)?;
    let query = async {
        let stream = UnixStream::connect(socket).await.map_err(connect)?;
        ask(stream).await.map_err(|why| CriError::Answer {
            socket: socket.to_owned(),
            why: why.chars().take(WORDS).collect(),
        })
    };
    let answer = runtime.block_on(async { tokio::time::timeout(QUERY_TIMEOUT, query).await });
    // What is still on its way waits for nobody.
    runtime.shutdown_background();
    answer.unwrap_or_else(|_| Err(CriError::Slow(socket.to_owned())))
}

/// Queries over one connection, which ends afterwards.
async fn ask(stream: UnixStream) -> Result<Vec<Pod>, String> {
    let words = |error: h2::Error| error.to_string();
    let handshake = h2::client::Builder::new()
        .max_header_list_size(16 << 10)
        .initial_window_size(1 << 20)
        .initial_connection_window_size(1 << 20)
        .handshake(stream);
    let (client, connection) = handshake.await.map_err(words)?;
    let mut sandboxes = std::pin::pin!(sandboxes(client));
    let answer = tokio::select! {
        answer = &mut sandboxes => answer?,
        ended = connection => {
            ended.map_err(words)?;
            return Err("it ended the connection".to_owned());
        }
    };
    let pods = answer
        .items
        .into_iter()
        .filter_map(|sandbox| sandbox.metadata);
    let pods = pods.map(|pod| Pod {
        uid: pod.uid,
        namespace: pod.namespace,
        name: pod.name,
    });
    Ok(pods.collect())
}

async fn sandboxes(client: SendRequest<Bytes>) -> Result<v1::ListPodSandboxResponse, String> {
    let words = |error: h2::Error| error.to_string();
    let request = http::Request::post("http://localhost/runtime.v1.RuntimeService/ListPodSandbox")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(|error| error.to_string())?;
    let mut client = client.ready().await.map_err(words)?;
    let (response, mut sender) = client.send_request(request, false).map_err(words)?;
    let ready = v1::PodSandboxStateValue { state: 0 };
    let filter = v1::PodSandboxFilter { state: Some(ready) };
    let filter = Some(filter);
    let message = v1::ListPodSandboxRequest { filter }.encode_to_vec();
    sender.send_data(framed(&message), true).map_err(words)?;
    let response = response.await.map_err(words)?;
    if response.status() != 200 {
        return Err(format!("HTTP {}", response.status()));
    }
    done(response.headers(), false)?;
    let mut body = response.into_body();
    let mut answer = BytesMut::new();
    while let Some(part) = body.data().await {
        let part = part.map_err(words)?;
        if answer.len() + part.len() > LARGEST {
            return Err(format!("it is longer than {LARGEST} bytes"));
        }
        let _ = body.flow_control().release_capacity(part.len());
        answer.extend_from_slice(&part);
    }
    let trailers = body.trailers().await.map_err(words)?.unwrap_or_default();
    done(&trailers, true)?;
    decode(&answer)
}

/// A message as gRPC sends it: not compressed, after its length.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.extend_from_slice(&[0]);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    framed.freeze()
}

/// Checks what a call ended with; headers have that only where there is no answer.
fn done(fields: &http::HeaderMap, at_end: bool) -> Result<(), String> {
    let text = |name| {
        fields
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
    };
    match text("grpc-status") {
        Some(status) if status != "0" => {
            let message = text("grpc-message").unwrap_or_default();
            Err(format!("gRPC status {status} {message}")
                .trim_end()
                .to_owned())
        }
        None if at_end => Err("it has no gRPC status".to_owned()),
        _ => Ok(()),
    }
}

fn decode(answer: &[u8]) -> Result<v1::ListPodSandboxResponse, String> {
    let cut = || "its message is cut short".to_owned();
    let (head, message) = answer.split_first_chunk::<5>().ok_or_else(cut)?;
    let [compressed, length @ ..] = *head;
    if compressed != 0 {
        return Err("its message is compressed".to_owned());
    }
    if u32::from_be_bytes(length) as usize != message.len() {
        return Err(cut());
    }
    v1::ListPodSandboxResponse::decode(message).map_err(|error| error.to_string())
}
