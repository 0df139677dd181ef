use super::*;
use std::collections::BTreeSet;
use std::time::Instant;
use tokio::net::UnixListener;

/// Behaviour of an emulated container runtime.
#[derive(Debug, Clone)]
enum Runtime {
    /// Answers with this message.
    Says(Vec<u8>),
    /// Ends the call with this status.
    Refuses(&'static str),
    /// Accepts the connection, and sends nothing.
    Hangs,
    /// Sends bytes that are not HTTP/2.
    Babbles,
    /// Sends without end.
    Floods,
}

/// A runtime on a socket, until it is dropped.
struct StandIn {
    directory: tempfile::TempDir,
    runtime: Option<tokio::runtime::Runtime>,
}

impl StandIn {
    fn start(does: Runtime) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let socket = directory.path().join("cri.sock");
        let listener = runtime.block_on(async { UnixListener::bind(socket).unwrap() });
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, does.clone()));
            }
        });
        Self {
            directory,
            runtime: Some(runtime),
        }
    }

    fn ask(&self) -> Result<Vec<Pod>, CriError> {
        pods(Some(&self.directory.path().join("cri.sock")))
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(stream: UnixStream, does: Runtime) {
    use tokio::io::AsyncWriteExt as _;
    let mut stream = stream;
    match does {
        Runtime::Hangs => std::future::pending().await,
        Runtime::Babbles => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            return;
        }
        _ => {}
    }
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond, does.clone()));
    }
}

async fn answer(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    does: Runtime,
) {
    assert_eq!(
        request.uri().path(),
        "/runtime.v1.RuntimeService/ListPodSandbox"
    );
    assert_eq!(request.headers()["content-type"], "application/grpc");
    // A filter with a state that is the first one: ready.
    let asked = request.into_body().data().await.unwrap().unwrap();
    assert_eq!(asked[..], [0, 0, 0, 0, 4, 0x0a, 2, 0x12, 0]);
    let head = http::Response::builder().header("content-type", "application/grpc");
    match does {
        Runtime::Says(message) => {
            let mut body = respond
                .send_response(head.body(()).unwrap(), false)
                .unwrap();
            body.send_data(framed(&message), false).unwrap();
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            body.send_trailers(trailers).unwrap();
        }
        Runtime::Refuses(status) => {
            let head = head
                .header("grpc-status", status)
                .header("grpc-message", "unknown service runtime.v1.RuntimeService");
            respond.send_response(head.body(()).unwrap(), true).unwrap();
        }
        Runtime::Floods => {
            let mut body = respond
                .send_response(head.body(()).unwrap(), false)
                .unwrap();
            loop {
                body.reserve_capacity(1 << 16);
                match std::future::poll_fn(|context| body.poll_capacity(context)).await {
                    Some(Ok(room)) => {
                        if body.send_data(vec![0; room].into(), false).is_err() {
                            return;
                        }
                    }
                    _ => return,
                }
            }
        }
        Runtime::Hangs | Runtime::Babbles => unreachable!(),
    }
}

fn list(pods: &[(&str, &str, &str)]) -> Vec<u8> {
    let items = pods.iter().map(|(uid, namespace, name)| v1::PodSandbox {
        metadata: Some(v1::PodSandboxMetadata {
            name: (*name).to_owned(),
            uid: (*uid).to_owned(),
            namespace: (*namespace).to_owned(),
        }),
    });
    let items = items.collect();
    v1::ListPodSandboxResponse { items }.encode_to_vec()
}

#[test]
fn a_runtime_lists_its_pods_names() {
    let mut message = list(&[
        ("u1", "tenant", "virt-launcher-web"),
        ("u2", "kube-system", "dns"),
    ]);
    // What is not asked for, such as another runtime's fields, is no mistake.
    message.extend([0x4a, 3, b'a', b'b', b'c']);
    let pods = StandIn::start(Runtime::Says(message)).ask().unwrap();
    let names: Vec<_> = pods
        .iter()
        .map(|pod| (&*pod.uid, &*pod.namespace, &*pod.name))
        .collect();
    assert_eq!(
        names,
        [
            ("u1", "tenant", "virt-launcher-web"),
            ("u2", "kube-system", "dns")
        ]
    );
    assert!(
        StandIn::start(Runtime::Says(Vec::new()))
            .ask()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_faulty_runtime_is_one_error_line_within_the_timeout() {
    for (does, why) in [
        (Runtime::Hangs, "no answer within 500 ms"),
        (
            Runtime::Babbles,
            "its answer is not one of CRI (runtime.v1): ",
        ),
        (Runtime::Floods, "it is longer than 4194304 bytes"),
        (
            Runtime::Refuses("12"),
            "gRPC status 12 unknown service runtime.v1.RuntimeService",
        ),
        // A string whose length is beyond the message.
        (
            Runtime::Says(vec![0x0a, 4, 0x12, 9, 0x0a, 1]),
            "CRI (runtime.v1): ",
        ),
        // A name that is no text.
        (
            Runtime::Says(vec![0x0a, 5, 0x12, 3, 0x0a, 1, 0xff]),
            "CRI (runtime.v1): ",
        ),
    ] {
        let runtime = StandIn::start(does.clone());
        let said = runtime.ask().unwrap_err().to_string();
        // Beside much else half a second may be too short for a flood, too.
        let slow = matches!(does, Runtime::Floods) && said.contains("no answer within");
        assert!(said.contains(why) || slow, "{does:?}: {said}");
        assert!(
            said.contains("cri.sock") && said.lines().count() == 1,
            "{said}"
        );
    }
    let nowhere = pods(Some(Path::new("/nonexistent/cri.sock"))).unwrap_err();
    assert_eq!(
        nowhere.to_string(),
        "/nonexistent/cri.sock: No such file or directory (os error 2)"
    );
}

#[test]
fn truncated_or_compressed_cri_answers_are_refused() {
    let whole = framed(&list(&[("u", "n", "p")]));
    assert_eq!(decode(&whole).unwrap().items.len(), 1);
    for end in 0..whole.len() {
        assert_eq!(
            decode(&whole[..end]).unwrap_err(),
            "its message is cut short"
        );
    }
    let mut compressed = whole.to_vec();
    compressed[0] = 1;
    assert_eq!(
        decode(&compressed).unwrap_err(),
        "its message is compressed"
    );
}

#[test]
fn pod_names_are_queried_once_and_failures_are_retried_later() {
    let pod = |uid: &str, name: &str| Pod {
        uid: uid.to_owned(),
        namespace: "tenant".to_owned(),
        name: name.to_owned(),
    };
    let uids = |all: &[&str]| {
        all.iter()
            .map(|uid| (*uid).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let never = || -> Result<Vec<Pod>, CriError> { panic!("nobody is to be asked") };
    let now = Instant::now();
    let later = now + Duration::from_secs(31);
    let mut names = PodNames::default();
    names.look(&uids(&[]), now, never);
    names.look(&uids(&["a"]), now, || Err(CriError::NoSocket));
    assert_eq!(
        names.missing().unwrap(),
        "the names of pods are not known: no container runtime listens at /run/containerd/containerd.sock, /run/crio/crio.sock, /run/cri-dockerd.sock; set its socket (cri = \"PATH\")"
    );
    names.look(&uids(&["a"]), now + Duration::from_secs(29), never);
    names.look(&uids(&["a"]), later, || {
        Ok(vec![
            pod("a", "web\x1b[2J\nroot"),
            pod("b", "other"),
            pod("c", ""),
        ])
    });
    assert_eq!(names.of("a"), Some(r"tenant/web\u{1b}[2J\u{a}root"));
    assert_eq!((names.of("b"), names.missing()), (None, None));
    names.look(&uids(&["a"]), later, never);
    // A new pod is asked for at once, and one without a name not again and again.
    names.look(&uids(&["a", "c"]), later, || Ok(vec![pod("c", "")]));
    assert_eq!(names.of("c"), None);
    names.look(&uids(&["a", "c"]), later + Duration::from_secs(1), never);
    // Whoever has gone is forgotten.
    names.look(&uids(&[]), later, never);
    assert_eq!(names.of("a"), None);
}
