//! Queries a QEMU without vCPU names for its vCPU threads: QMP's `query-cpus-fast`.

use super::guest::VcpuThread;
use serde::Deserialize;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Timeout of the whole query. A socket accepts one client at a time, and libvirt uses its own.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The longest conversation, in bytes: more than any has.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "return")]
    cpus: Vec<Cpu>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cpu {
    cpu_index: u32,
    thread_id: u32,
}

/// Returns the vCPUs with their threads, as QEMU numbers them.
///
/// # Errors
/// No process listens, the process does not use QMP, or it is busy with another client (`TimedOut`,
/// `WouldBlock`).
pub(super) fn query_cpus(socket: &Path) -> io::Result<Vec<VcpuThread>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let answers = DeadlineStream {
        stream: stream.try_clone()?,
        end: Instant::now() + TIMEOUT,
    };
    let mut lines = BufReader::new(answers.take(MAX_BYTES));
    let mut line = String::new();
    // The greeting comes by itself; then nothing works before this.
    lines.read_line(&mut line)?;
    stream.write_all(b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"query-cpus-fast\"}\n")?;
    loop {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Events and the first command's empty answer come in between.
        if let Some(cpus) = parse(&line) {
            return Ok(cpus);
        }
    }
}

/// A stream that is read up to a moment, in however small pieces it comes.
struct DeadlineStream {
    stream: UnixStream,
    end: Instant,
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

/// Returns the vCPUs in a line, if that is the answer.
fn parse(line: &str) -> Option<Vec<VcpuThread>> {
    let answer: Answer = serde_json::from_str(line).ok()?;
    let vcpu = |cpu: Cpu| VcpuThread {
        number: cpu.cpu_index,
        tid: cpu.thread_id,
    };
    Some(answer.cpus.into_iter().map(vcpu).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_qmp_answer_is_parsed_as_vcpus() {
        assert_eq!(parse("{\"QMP\": {\"version\": {}}}"), None);
        assert_eq!(parse("{\"return\": {}}"), None);
        assert_eq!(parse("{\"event\": \"RESUME\"}"), None);
        let answer =
            "{\"return\": [{\"thread-id\": 71, \"cpu-index\": 0, \"target\": \"x86_64\"}]}";
        assert_eq!(parse(answer), Some(vec![VcpuThread { number: 0, tid: 71 }]));
    }

    #[test]
    fn a_silent_qmp_socket_is_an_error_after_the_timeout() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(query_cpus(&path).is_err());
    }

    proptest! {
        #[test]
        fn no_line_makes_the_reader_panic(line in "[ -~]{0,80}") {
            let _ = parse(&line);
        }
    }
}
