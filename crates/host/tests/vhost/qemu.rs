//! A VM of QEMU that boots from the network, and its DHCP.

use crate::cards::Cards;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tailbound_dataplane::testing::frames::{ethernet, ipv4, udp};
use tailbound_sys::probe::required::{Part, skipped};

/// A machine that boots from the network, by emulation: the firmware of its card alone
/// drives the rings.
pub(crate) struct Qemu(Child, PathBuf);

impl Qemu {
    /// Starts QEMU; `None` if it is not installed.
    pub(crate) fn start(cards: &Cards, number: usize) -> Option<Self> {
        let log = cards.0.path().join("qemu");
        let out = std::fs::File::create(&log).expect("created");
        let socket = cards.socket(number);
        let child = Command::new("qemu-system-x86_64")
            .args([
                "-accel", "tcg", "-m", "64", "-display", "none", "-boot", "n",
            ])
            .args([
                "-no-user-config",
                "-nodefaults",
                "-serial",
                "stdio",
                "-monitor",
                "none",
            ])
            .args(["-object", "memory-backend-memfd,id=mem,size=64M,share=on"])
            .args(["-machine", "pc,memory-backend=mem"])
            .arg("-chardev")
            .arg(format!(
                "socket,id=card,path={},reconnect=1",
                socket.display()
            ))
            .args(["-netdev", "vhost-user,id=net,chardev=card"])
            .arg("-device")
            .arg(format!(
                "virtio-net-pci,netdev=net,mac=02:00:00:00:00:{number:02x}"
            ))
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("cloned"))
            .stderr(out)
            .spawn();
        match child {
            Ok(child) => Some(Self(child, log)),
            Err(error) => {
                skipped(Part::Qemu, error);
                None
            }
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.1);
            eprintln!("QEMU said:\n{}", log.unwrap_or_default());
        }
    }
}

/// Returns the kind and the content of a client's DHCP message (RFC 2131).
pub(crate) fn dhcp(frame: &[u8]) -> Option<(u8, &[u8])> {
    const OPTIONS: usize = 240;
    // UDP over IPv4 without options, to the port of servers.
    let is_for_server = frame.get(12..15)? == [8, 0, 0x45]
        && frame.get(23)? == &17
        && frame.get(36..38)? == [0, 67];
    let message = frame.get(42..).filter(|_| is_for_server)?;
    let mut options = message.get(OPTIONS..)?;
    while let [code, len, rest @ ..] = options {
        if *code == 53 {
            return Some((*rest.first()?, message));
        }
        options = rest.get(usize::from(*len)..)?;
    }
    None
}

/// The answer of a server at 10.0.0.1 that offers 10.0.0.9.
pub(crate) fn offer(discover: &[u8]) -> Vec<u8> {
    let mut message = vec![2, 1, 6, 0];
    message.extend_from_slice(&discover[4..12]);
    message.extend([0, 0, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1, 0, 0, 0, 0]);
    message.extend_from_slice(&discover[28..44]);
    message.resize(236, 0);
    message.extend([
        99, 130, 83, 99, 53, 1, 2, 54, 4, 10, 0, 0, 1, 51, 4, 0, 0, 14, 16,
    ]);
    message.extend([1, 4, 255, 255, 255, 0, 255]);
    message.resize(300, 0);
    let packet = ipv4(
        [10, 0, 0, 1].into(),
        [255; 4].into(),
        17,
        &udp(67, 68, &message),
    );
    ethernet([255; 6], [2, 0, 0, 0, 0, 2], 0x0800, &packet)
}
