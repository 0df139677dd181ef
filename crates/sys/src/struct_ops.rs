//! Programs as a set of operations of the kernel (`struct_ops`), such as those of a qdisc.
//!
//! Aya loads no such programs. Its parser, which is in the workspace with it, does most of the work: maps, types
//! and calls within an object. The rest is here by `bpf(2)`: libbpf would need a C compiler, libelf and zlib for
//! every target of a release.

mod types;

use crate::bpf::{bpf, bpf_fd};
use crate::bpf_program::{LoadError, kernel_types, refused, verdict};
use aya::maps::MapData;
use aya_obj::btf::BtfFeatures;
use aya_obj::generated::bpf_insn;
use aya_obj::maps::PinningType;
use aya_obj::{EbpfSectionKind, Function, Object};
use std::ffi::{CStr, CString, c_int};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use types::{Struct, Types};

/// A set of operations, and the programs that are its members.
pub(crate) struct Set<'a> {
    /// The kernel's struct.
    pub(crate) name: &'a str,
    /// Its member with the name of this set, and that name, of at most 15 bytes.
    pub(crate) id: (&'a str, &'a str),
    /// Other members, and the programs that they call.
    pub(crate) members: &'a [(&'a str, &'a str)],
    /// Functions of the kernel. The programs call the n-th of them as the helper [`FIRST_KFUNC`] + n.
    pub(crate) functions: &'a [&'a str],
}

/// The number of the first function of the kernel.
pub(crate) const FIRST_KFUNC: i32 = 0x1_0000;

const BTF_FILE: &str = "/sys/kernel/btf/vmlinux";

fn read_types() -> Result<Vec<u8>, LoadError> {
    std::fs::read(BTF_FILE).map_err(|error| LoadError::NoBtf(format!("{BTF_FILE}: {error}")))
}

/// The kernel's structs and functions for a set.
struct Kernel {
    operations: Struct,
    /// The value of the map by which operations are registered.
    value: Struct,
    functions: Vec<u32>,
}

impl Kernel {
    fn read(types: &Types<'_>, set: &Set<'_>) -> Result<Self, LoadError> {
        let lacks = |what: &str| LoadError::Refused(format!("this kernel has no {what}"));
        let structure = |name: &str| types.structure(name).ok_or_else(|| lacks(name));
        let functions = set.functions.iter();
        let functions = functions.map(|name| types.function(name).ok_or_else(|| lacks(name)));
        Ok(Self {
            operations: structure(set.name)?,
            value: structure(&format!("bpf_struct_ops_{}", set.name))?,
            functions: functions.collect::<Result<_, _>>()?,
        })
    }
}

/// Returns an error if the kernel lacks the set, or a function for it.
///
/// # Errors
/// [`LoadError::NoBtf`], [`LoadError::Refused`].
pub(crate) fn has(set: &Set<'_>) -> Result<(), LoadError> {
    Kernel::read(&Types::read(&read_types()?)?, set).map(drop)
}

/// Loads the programs of `object`, registers them as a set, and pins the registration at `pin`. Maps that the
/// object pins by name are those in `maps`, a directory.
///
/// # Errors
/// The kernel lacks the set or refuses a program; then nothing has changed.
pub(crate) fn register(
    object: &[u8],
    set: &Set<'_>,
    maps: &Path,
    pin: &Path,
) -> Result<(), LoadError> {
    let kernel = Kernel::read(&Types::read(&read_types()?)?, set)?;
    let mut object = Object::parse(object).map_err(|error| refused(&error))?;
    let all = BtfFeatures::new(true, true, true, true, true, true, true, true);
    let types = object
        .fixup_and_sanitize_btf(&all)
        .map_err(|error| refused(&error))?;
    let types = types.ok_or_else(|| LoadError::NoBtf("the object has none".to_owned()))?;
    let own_types = load_types(&types.to_bytes()).map_err(|error| refused(&error))?;
    object
        .relocate_btf(&kernel_types()?)
        .map_err(|error| refused(&error))?;
    let _maps = link_maps(&mut object, maps, own_types.as_fd())?;
    let mut value = vec![0; kernel.value.size as usize];
    let data = kernel.value.member("data")?.offset;
    let mut programs = Vec::new();
    for (member, name) in set.members {
        let member = kernel.operations.member(member)?;
        let program = load_program(&object, name, own_types.as_fd(), &kernel, member.index)?;
        let fd = u64::from(program.as_raw_fd().cast_unsigned());
        put(&mut value, data + member.offset, &fd.to_ne_bytes())?;
        programs.push(program);
    }
    let (member, id) = set.id;
    let member = kernel.operations.member(member)?;
    put(&mut value, data + member.offset, id.as_bytes())?;
    let map = create(&kernel.value, own_types.as_fd(), id).map_err(|error| refused(&error))?;
    update(map.as_fd(), &value).map_err(|error| refused(&error))?;
    let link = link(map.as_fd()).map_err(|error| refused(&error))?;
    obj_pin(link.as_fd(), pin).map_err(|error| refused(&error))
}

/// Ends a registration. One that is not there is no error.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn unregister(pin: &Path) -> io::Result<()> {
    match obj_get(pin) {
        Ok(link) => {
            // The last reference may go later; the name must be free now.
            match detach(link.as_fd()) {
                Err(error) if error.raw_os_error() != Some(libc::ENOLINK) => Err(error),
                _ => std::fs::remove_file(pin),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn put(value: &mut [u8], at: usize, bytes: &[u8]) -> Result<(), LoadError> {
    let place = value.get_mut(at..at + bytes.len());
    let wrong = || LoadError::Refused("the kernel's struct is shorter than its members".to_owned());
    place.ok_or_else(wrong)?.copy_from_slice(bytes);
    Ok(())
}

/// Makes the object's own maps, opens the others, and resolves references to maps and between functions.
fn link_maps(
    object: &mut Object,
    directory: &Path,
    types: BorrowedFd<'_>,
) -> Result<Vec<MapData>, LoadError> {
    let mut maps = Vec::new();
    for (name, map) in std::mem::take(&mut object.maps) {
        if map.section_kind() != EbpfSectionKind::BtfMaps {
            continue;
        }
        let data = match map.pinning() {
            PinningType::ByName => MapData::from_pin(directory.join(&name)),
            PinningType::None => MapData::create(map.clone(), &name, Some(types)),
        };
        maps.push((name, map, data.map_err(|error| refused(&error))?));
    }
    let text = object.functions.keys().map(|(section, _)| *section);
    let text = text.collect();
    let all = maps
        .iter()
        .map(|(name, map, data)| (name.as_str(), data.fd().as_fd().as_raw_fd(), map));
    object
        .relocate_maps(all, &text)
        .map_err(|error| refused(&error))?;
    object
        .relocate_calls(&text)
        .map_err(|error| refused(&error))?;
    Ok(maps.into_iter().map(|(_, _, data)| data).collect())
}

/// Names functions of the kernel by their identifiers.
fn call_kernel(instructions: &mut [bpf_insn], functions: &[u32]) -> Result<(), LoadError> {
    const CALL: u8 = 0x85;
    const KFUNC: u8 = 2;
    for instruction in instructions {
        let is_helper = instruction.code == CALL && instruction.src_reg() == 0;
        if !is_helper || instruction.imm < FIRST_KFUNC {
            continue;
        }
        let number = (instruction.imm - FIRST_KFUNC) as usize;
        let function = functions.get(number);
        let unknown = || LoadError::Refused(format!("the program calls the unknown {number}"));
        instruction.imm = function.ok_or_else(unknown)?.cast_signed();
        instruction.set_src_reg(KFUNC);
    }
    Ok(())
}

fn load_program(
    object: &Object,
    name: &str,
    types: BorrowedFd<'_>,
    kernel: &Kernel,
    member: u32,
) -> Result<OwnedFd, LoadError> {
    let lacks = || crate::bpf_program::lacks(name);
    let program = object.programs.get(name).ok_or_else(lacks)?;
    let function = object.functions.get(&program.function_key());
    let mut function = function.ok_or_else(lacks)?.clone();
    call_kernel(&mut function.instructions, &kernel.functions)?;
    let plan = Plan {
        function: &function,
        name,
        licence: &program.license,
        types,
        operations: kernel.operations.id,
        member,
    };
    match plan.load(None) {
        Ok(fd) => Ok(fd),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err(LoadError::NotPermitted),
        Err(_) => {
            let mut log = vec![0; 1 << 24];
            match plan.load(Some(&mut log)) {
                Ok(fd) => Ok(fd),
                Err(error) => Err(LoadError::Refused(format!(
                    "{name}: {error}; its verifier ends with: {}",
                    verdict(&text(&log))
                ))),
            }
        }
    }
}

fn text(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&log[..end.unwrap_or(log.len())]).into_owned()
}

/// A program to load.
struct Plan<'a> {
    function: &'a Function,
    name: &'a str,
    licence: &'a CStr,
    types: BorrowedFd<'a>,
    /// The identifier of the struct of operations, and the place of the member that the program is.
    operations: u32,
    member: u32,
}

/// A name for the kernel, cut to its length.
fn short_name(name: &str) -> [u8; 16] {
    let mut short = [0; 16];
    for (to, from) in short[..15].iter_mut().zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() {
            from
        } else {
            b'_'
        };
    }
    short
}

/// The start of the attributes of `BPF_PROG_LOAD`, in groups without a gap between them.
#[repr(C)]
struct LoadAttributes {
    code: Code,
    log: Log,
    identity: Identity,
    debugging: DebugInfo,
}

const _: () = assert!(size_of::<LoadAttributes>() == 112);

#[repr(C)]
struct Code {
    kind: u32,
    instructions: u32,
    first: u64,
    licence: u64,
}

#[repr(C)]
struct Log {
    level: u32,
    size: u32,
    start: u64,
}

#[repr(C)]
struct Identity {
    version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    member: u32,
}

/// Descriptions of types, functions and lines: number of entries, and bytes of each. Then the identifier of the struct
/// of operations.
#[repr(C)]
struct DebugInfo {
    types: u32,
    function_size: u32,
    functions: u64,
    function_number: u32,
    line_size: u32,
    lines: u64,
    line_number: u32,
    operations: u32,
}

impl Plan<'_> {
    fn load(&self, log: Option<&mut Vec<u8>>) -> io::Result<OwnedFd> {
        const PROG_LOAD: c_int = 5;
        const STRUCT_OPS: u32 = 27;
        let Function {
            instructions,
            func_info,
            line_info,
            ..
        } = self.function;
        let (functions, lines) = (func_info.func_info_bytes(), line_info.line_info_bytes());
        let log = log.map_or(
            Log {
                level: 0,
                size: 0,
                start: 0,
            },
            |log| Log {
                level: 1,
                size: log.len() as u32,
                start: log.as_mut_ptr() as u64,
            },
        );
        let attributes = LoadAttributes {
            code: Code {
                kind: STRUCT_OPS,
                instructions: instructions.len() as u32,
                first: instructions.as_ptr() as u64,
                licence: self.licence.as_ptr() as u64,
            },
            log,
            identity: Identity {
                version: 0,
                flags: 0,
                name: short_name(self.name),
                ifindex: 0,
                member: self.member,
            },
            debugging: DebugInfo {
                types: self.types.as_raw_fd().cast_unsigned(),
                function_size: 8,
                functions: functions.as_ptr() as u64,
                function_number: func_info.len() as u32,
                line_size: 16,
                lines: lines.as_ptr() as u64,
                line_number: line_info.line_info.len() as u32,
                operations: self.operations,
            },
        };
        // SAFETY: this is the start of what BPF_PROG_LOAD reads; all addresses are of vectors and of the log, with
        // their lengths, which live until it returns.
        unsafe { bpf_fd(PROG_LOAD, &attributes) }
    }
}

/// Loads the description of an object's types.
fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    const BTF_LOAD: c_int = 18;
    #[repr(C)]
    struct Attributes {
        types: u64,
        log: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        unused: u32,
    }
    let attributes = Attributes {
        types: types.as_ptr() as u64,
        log: 0,
        size: types.len() as u32,
        log_size: 0,
        log_level: 0,
        unused: 0,
    };
    // SAFETY: this is the start of what BPF_BTF_LOAD reads, and `types` has as many bytes.
    unsafe { bpf_fd(BTF_LOAD, &attributes) }
}

/// Makes the map by whose only value operations are registered.
fn create(value: &Struct, types: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    const MAP_CREATE: c_int = 0;
    const STRUCT_OPS: u32 = 26;
    /// `BPF_F_LINK`: a link registers it.
    const LINK: u32 = 1 << 13;
    #[repr(C)]
    struct Attributes {
        kind: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
        flags: u32,
        inner: u32,
        node: u32,
        name: [u8; 16],
        ifindex: u32,
        types: u32,
        key_type: u32,
        value_type: u32,
        kernel_value_type: u32,
    }
    let attributes = Attributes {
        kind: STRUCT_OPS,
        key_size: 4,
        value_size: value.size,
        entries: 1,
        flags: LINK,
        inner: 0,
        node: 0,
        name: short_name(name),
        ifindex: 0,
        types: types.as_raw_fd().cast_unsigned(),
        key_type: 0,
        value_type: 0,
        kernel_value_type: value.id,
    };
    // SAFETY: this is the start of what BPF_MAP_CREATE reads.
    unsafe { bpf_fd(MAP_CREATE, &attributes) }
}

/// Sets the only value.
fn update(map: BorrowedFd<'_>, value: &[u8]) -> io::Result<()> {
    const MAP_UPDATE_ELEM: c_int = 2;
    #[repr(C)]
    struct Attributes {
        map: u32,
        unused: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let key = 0_u32;
    let attributes = Attributes {
        map: map.as_raw_fd().cast_unsigned(),
        unused: 0,
        key: std::ptr::from_ref(&key) as u64,
        value: value.as_ptr() as u64,
        flags: 0,
    };
    // SAFETY: this is what BPF_MAP_UPDATE_ELEM reads; the map was made with this key's and value's sizes.
    unsafe { bpf(MAP_UPDATE_ELEM, &attributes) }.map(drop)
}

/// Registers the operations of a map.
fn link(map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const LINK_CREATE: c_int = 28;
    const STRUCT_OPS: u32 = 44;
    #[repr(C)]
    struct Attributes {
        map: u32,
        target: u32,
        kind: u32,
        flags: u32,
    }
    let attributes = Attributes {
        map: map.as_raw_fd().cast_unsigned(),
        target: 0,
        kind: STRUCT_OPS,
        flags: 0,
    };
    // SAFETY: this is the start of what BPF_LINK_CREATE reads.
    unsafe { bpf_fd(LINK_CREATE, &attributes) }
}

fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    const LINK_DETACH: c_int = 34;
    let attributes = link.as_raw_fd().cast_unsigned();
    // SAFETY: this is what BPF_LINK_DETACH reads.
    unsafe { bpf(LINK_DETACH, &attributes) }.map(drop)
}

/// The attributes of `BPF_OBJ_PIN` and `BPF_OBJ_GET`.
#[repr(C)]
struct PinAttributes {
    path: u64,
    fd: u32,
    flags: u32,
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn obj_pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    const OBJ_PIN: c_int = 6;
    let path = c_path(path)?;
    let attributes = PinAttributes {
        path: path.as_ptr() as u64,
        fd: object.as_raw_fd().cast_unsigned(),
        flags: 0,
    };
    // SAFETY: this is the start of what BPF_OBJ_PIN reads; the path ends with a zero and lives until it returns.
    unsafe { bpf(OBJ_PIN, &attributes) }.map(drop)
}

fn obj_get(path: &Path) -> io::Result<OwnedFd> {
    const OBJ_GET: c_int = 7;
    let path = c_path(path)?;
    let attributes = PinAttributes {
        path: path.as_ptr() as u64,
        fd: 0,
        flags: 0,
    };
    // SAFETY: as above, for BPF_OBJ_GET.
    unsafe { bpf_fd(OBJ_GET, &attributes) }
}
