//! `tailbound support-bundle`: one file for support.

use super::{output, version};
use crate::exit::{Exit, Failure};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tailbound_agent::text::printable;
use tailbound_watch::past::read;

/// Arguments of `tailbound support-bundle`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The file is new, and its owner alone can read it. contents.txt in it lists the parts. \
    No configuration, environment, log, token or packet is in this file. A record has the names of \
    guests and programs, and the addresses of peers. Example: tailbound support-bundle --record \
    /var/lib/tailbound/record. Exit code: 0 written; 2 a file cannot be read or written."
)]
pub(crate) struct Args {
    /// The file to write, a tar compressed by gzip
    #[arg(long, value_name = "FILE", default_value = "tailbound-support.tar.gz")]
    output: PathBuf,
    /// A file of `tailbound watch --record`, which is added
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// A part of the bundle.
#[derive(Debug)]
struct Part {
    name: &'static str,
    about: &'static str,
    bytes: Vec<u8>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let record = self.record.as_deref().map(read).transpose();
        let record = record.map_err(Failure::new)?;
        let mut parts = vec![
            Part {
                name: "version.txt",
                about: "tailbound's version, and the kernel's",
                bytes: versions().into_bytes(),
            },
            Part {
                name: "doctor.json",
                about: "the findings of `tailbound doctor` on this machine",
                bytes: doctor()?,
            },
        ];
        if let Some((bytes, _)) = record {
            parts.push(Part {
                name: "record",
                about: "the last hour: names of guests and programs, addresses of peers, times of \
                    slow requests and waits; read it by `tailbound why GUEST --at TIME record`",
                bytes,
            });
        }
        let list = list(&parts);
        parts.insert(
            0,
            Part {
                name: "contents.txt",
                about: "",
                bytes: list.clone().into_bytes(),
            },
        );
        let named = |error| failure(&self.output, &error);
        let size = write(&self.output, &parts).map_err(named)?;
        let path = printable(&self.output.to_string_lossy());
        output::print(&format!("{path}, {} kB, has\n{list}", size.div_ceil(1_000)));
        Ok(Exit::Holds)
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", printable(&path.to_string_lossy())))
}

fn versions() -> String {
    let system = rustix::system::uname();
    format!(
        "tailbound {}\n{} {} {}\n",
        version(),
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy()
    )
}

/// Returns the doctor's document. The doctor exits with 1 if the computer lacks a feature.
fn doctor() -> Result<Vec<u8>, Failure> {
    let mut command = Command::new("/proc/self/exe");
    let command = command.args(["doctor", "--output", "json"]).env_clear();
    // It runs programs of the system.
    let output = command
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output();
    let output = output.map_err(|error| Failure::new(format!("tailbound doctor: {error}")))?;
    if output.stdout.is_empty() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Failure::new(format!("tailbound doctor: {}", error.trim())));
    }
    Ok(output.stdout)
}

fn list(parts: &[Part]) -> String {
    let mut list = String::new();
    for part in parts {
        // Writing to a String does not fail.
        let _ = writeln!(list, "  {:<12} {}", part.name, part.about);
    }
    list + "No configuration, environment, log, token or packet is in this file.\n"
}

/// Writes a new file, and returns its size.
fn write(path: &Path, parts: &[Part]) -> io::Result<u64> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for part in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(part.bytes.len() as u64);
        header.set_mode(0o600);
        tar.append_data(&mut header, part.name, part.bytes.as_slice())?;
    }
    let file = tar.into_inner()?.finish()?;
    Ok(file.metadata()?.len())
}
