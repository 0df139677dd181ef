//! The kernel modules of a VM's NIC and channels, in the order of their loading.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Drivers of a VM's devices.
const WANTED: [&str; 3] = ["virtio_pci", "virtio_net", "virtio_console"];

/// Returns the directory of a kernel's modules: beside the file, as `scripts/guest-kernel` leaves
/// them, or the directory of a package.
///
/// # Errors
/// The file is no kernel, or its modules are missing; the text describes the remedy.
pub(super) fn directory(kernel: &Path) -> Result<PathBuf, String> {
    let image = fs::read(kernel).map_err(|error| format!("{}: {error}", kernel.display()))?;
    let version = version(&image)
        .ok_or_else(|| format!("{} is no kernel that x86 boots", kernel.display()))?;
    let beside = kernel.parent().unwrap_or(Path::new("/"));
    let places = [beside, Path::new("/"), Path::new("/usr")];
    let mut places = places.map(|place| place.join("lib/modules").join(&version).join("kernel"));
    let directory = places.iter_mut().find(|place| place.is_dir());
    directory.map(std::mem::take).ok_or_else(|| {
        format!(
            "{} is Linux {version}, whose modules are not in /lib/modules: scripts/guest-kernel \
             gets a kernel with its modules",
            kernel.display()
        )
    })
}

/// Parses the version of a kernel in its image (Documentation/arch/x86/boot.rst).
fn version(image: &[u8]) -> Option<String> {
    let at: &[u8; 2] = image.get(0x20e..)?.first_chunk()?;
    if image.get(0x202..0x206) != Some(b"HdrS") {
        return None;
    }
    let text = image.get(usize::from(u16::from_le_bytes(*at)) + 0x200..)?;
    let end = text.iter().position(|byte| *byte == b' ' || *byte == 0)?;
    let version = std::str::from_utf8(&text[..end]).ok()?;
    (!version.is_empty() && !version.contains('/')).then(|| version.to_owned())
}

/// Returns the files under `directory` to load, each after those that it needs. Missing modules are
/// part of the kernel itself.
///
/// # Errors
/// The directory cannot be read, or a module is compressed.
pub(super) fn in_order(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = BTreeMap::new();
    collect(directory, &mut files)?;
    let mut order = Vec::new();
    for name in WANTED {
        add(name, &files, &mut order)?;
    }
    Ok(order)
}

fn collect(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if let Some((name, _)) = entry.file_name().to_str().and_then(|n| n.split_once(".ko"))
        {
            files.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

fn add(name: &str, files: &BTreeMap<String, PathBuf>, order: &mut Vec<PathBuf>) -> io::Result<()> {
    let Some(path) = files.get(name).filter(|path| !order.contains(path)) else {
        return Ok(());
    };
    if path.extension().is_none_or(|extension| extension != "ko") {
        let message = format!(
            "{} is compressed: scripts/guest-kernel gets a kernel whose modules are not",
            path.display()
        );
        return Err(io::Error::other(message));
    }
    for needed in needs(&fs::read(path)?) {
        add(&needed, files, order)?;
    }
    order.push(path.clone());
    Ok(())
}

/// Returns the names of the modules that a module depends on.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let position = module.windows(KEY.len()).position(|window| window == KEY);
    let list = position.map_or(&[][..], |at| &module[at + KEY.len()..]);
    let list = list.split(|byte| *byte == 0).next().unwrap_or_default();
    let names = list
        .split(|byte| *byte == b',')
        .filter(|name| !name.is_empty());
    names
        .map(|name| String::from_utf8_lossy(name).replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(version: &str) -> Vec<u8> {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x300..0x300 + version.len()].copy_from_slice(version.as_bytes());
        image
    }

    #[test]
    fn the_modules_of_a_kernel_are_those_of_its_version() {
        let directory = tempfile::tempdir().unwrap();
        let kernel = directory.path().join("vmlinuz");
        fs::write(&kernel, image("1.2.3-no-such (builder) #1")).unwrap();
        let missing = super::directory(&kernel).unwrap_err();
        assert!(
            missing.contains("is Linux 1.2.3-no-such, whose"),
            "{missing}"
        );
        let modules = directory.path().join("lib/modules/1.2.3-no-such/kernel");
        fs::create_dir_all(&modules).unwrap();
        assert_eq!(super::directory(&kernel), Ok(modules));
        for other in [&b"short"[..], &[0; 0x400], &image("../../etc x")] {
            fs::write(&kernel, other).unwrap();
            assert!(
                super::directory(&kernel)
                    .unwrap_err()
                    .contains("is no kernel")
            );
        }
    }

    #[test]
    fn modules_go_in_after_those_that_they_need_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, depends: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("license=GPL\0depends={depends}\0name=x\0")).unwrap();
        };
        write("net/virtio_net.ko", "net_failover,virtio,virtio-ring");
        write("net/net_failover.ko", "failover");
        write("core/failover.ko", "");
        write("virtio/virtio_ring.ko", "virtio");
        write("virtio/virtio.ko", "");
        // Its bus is part of the kernel.
        write("char/virtio_console.ko", "virtio_ring");
        let order = in_order(directory.path()).unwrap();
        let names: Vec<_> = order.iter().map(|path| path.file_stem().unwrap()).collect();
        let expected = [
            "failover",
            "net_failover",
            "virtio",
            "virtio_ring",
            "virtio_net",
        ];
        assert_eq!(names[..5], expected);
        assert_eq!(names[5..], ["virtio_console"]);
        fs::remove_file(directory.path().join("char/virtio_console.ko")).unwrap();
        write("char/virtio_console.ko.xz", "");
        let compressed = in_order(directory.path()).unwrap_err().to_string();
        assert!(compressed.contains("is compressed"), "{compressed}");
    }
}
