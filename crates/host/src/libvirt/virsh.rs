//! Requests to libvirt by its command `virsh`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use tailbound_sys::process::{Child, Spawn, program_path};

/// The name of the command.
pub(super) const VIRSH: &str = "virsh";

/// An event of libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A domain has changed.
    Changed(String),
    /// An unknown domain has changed.
    Unclear,
    /// libvirt sends no more events.
    Ended,
}

/// The libvirt at a URI.
#[derive(Debug)]
pub(super) struct Virsh<'u> {
    pub(super) uri: &'u str,
}

impl Virsh<'_> {
    /// Returns the names of all domains, running or not.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let text = self.run(&["list", "--all", "--name"])?;
        let names = text.lines().filter(|name| !name.is_empty());
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns the XML of a domain.
    ///
    /// # Errors
    /// libvirt does not answer, or has no such domain.
    pub(super) fn xml(&self, domain: &str) -> io::Result<String> {
        self.run(&["dumpxml", "--domain", domain])
    }

    fn run(&self, arguments: &[&str]) -> io::Result<String> {
        let output = Command::new(program_path(VIRSH))
            .args(["-q", "-c", self.uri])
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return String::from_utf8(output.stdout).map_err(io::Error::other);
        }
        let message = String::from_utf8_lossy(&output.stderr);
        let message = message.trim().trim_start_matches("error: ");
        Err(io::Error::other(message.replace('\n', "; ")))
    }

    /// Starts to send events, until libvirt is away or the child is dropped. Call this from the
    /// main thread: the child ends with the thread that called it.
    pub(super) fn events(&self, tell: Sender<Event>) -> io::Result<Child> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let writer = File::from(writer);
        let errors = File::options().write(true).open("/dev/null")?;
        // A keepalive, so that a libvirt that hangs is noticed, too.
        let child = Spawn::new(VIRSH)
            .args(["-q", "-k", "5", "-c", self.uri, "event", "--all", "--loop"])
            .env("LC_ALL", "C")
            .output(writer, errors)
            .start()?;
        let reading = std::thread::Builder::new().name("events".to_owned());
        reading.spawn(move || {
            let lines = BufReader::new(File::from(reader)).lines();
            let events = lines.map_while(Result::ok).filter_map(|line| event(&line));
            for event in events.chain([Event::Ended]) {
                if tell.send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(child)
    }
}

/// Reads the event in a line: `event 'lifecycle' for domain 'web': Started Booted`. `None` for an
/// event without an effect on guests.
fn event(line: &str) -> Option<Event> {
    let rest = line.strip_prefix("event '")?;
    let (kind, rest) = rest.split_once('\'')?;
    let is_ours = match kind {
        "lifecycle" => true,
        "metadata-change" => rest.ends_with(super::NAMESPACE),
        _ => false,
    };
    if !is_ours {
        return None;
    }
    // Names may have any letter but a slash.
    let name = rest.strip_prefix(" for domain '").and_then(|rest| {
        let mut ends = rest.match_indices("': ");
        let (end, _) = ends.next()?;
        ends.next().is_none().then(|| rest[..end].to_owned())
    });
    Some(name.map_or(Event::Unclear, Event::Changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_libvirt_event_is_parsed_to_its_domain() {
        let changed = |name: &str| Some(Event::Changed(name.to_owned()));
        for (line, wanted) in [
            (
                "event 'lifecycle' for domain 'web': Started Booted",
                changed("web"),
            ),
            (
                "event 'metadata-change' for domain 'my vm': type element, uri \
                 https://github.com/tailbound/tailbound",
                changed("my vm"),
            ),
            (
                "event 'metadata-change' for domain 'web': type element, uri http://libosinfo.org/",
                None,
            ),
            (
                "event 'metadata-change' for domain 'web': type title, uri N/A",
                None,
            ),
            ("event 'balloon-change' for domain 'web': 131072KiB", None),
            (
                "event 'lifecycle' for domain 'a': b': Started Booted",
                Some(Event::Unclear),
            ),
            (
                "event 'lifecycle' for domain web: Started Booted",
                Some(Event::Unclear),
            ),
            ("events received: 1", None),
            ("", None),
        ] {
            assert_eq!(event(line), wanted, "{line}");
        }
    }
}
