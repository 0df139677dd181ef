//! BPF programs of this crate that are loaded by aya: one error for all of them, and the steps that
//! they share.

use aya::Btf;
#[cfg(any(feature = "departures", feature = "packets", feature = "waits"))]
use aya::Ebpf;
#[cfg(any(feature = "departures", feature = "packets", feature = "waits"))]
use aya::programs::BtfTracePoint;
use aya::programs::ProgramError;
#[cfg(any(feature = "edge", feature = "packets", feature = "waits"))]
use aya::programs::ProgramInfo;
#[cfg(any(feature = "packets", feature = "waits"))]
use aya::programs::tp_btf::BtfTracePointLink;
use std::io;
use std::os::fd::OwnedFd;
#[cfg(any(feature = "edge", feature = "packets", feature = "waits"))]
use tailbound_units::Nanos;

/// A program, or one of its tables, cannot be used in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel lacks a description of its types (BTF).
    #[error("the kernel has no BTF (requires CONFIG_DEBUG_INFO_BTF): {0}")]
    NoBtf(String),
    /// This process lacks a privilege.
    #[error(
        "this process may not load programs into the kernel (requires CAP_BPF and CAP_PERFMON \
         in the initial user namespace, and a kernel that is not locked down for confidentiality)"
    )]
    NotPermitted,
    /// The kernel is too old or too different.
    #[error("the kernel refuses the program (Linux 6.1 and later were tried): {0}")]
    Refused(String),
}

/// Converts an error of the loader or the kernel.
pub(crate) fn refused(error: &(dyn std::error::Error + 'static)) -> LoadError {
    if is_permission(error) {
        return LoadError::NotPermitted;
    }
    if let Some(ProgramError::LoadError {
        io_error,
        verifier_log,
    }) = error.downcast_ref()
    {
        let why = verdict(&verifier_log.to_string());
        return LoadError::Refused(format!("{io_error}; its verifier ends with: {why}"));
    }
    LoadError::Refused(chain(error))
}

/// The error for an object that was built of another source.
pub(crate) fn lacks(name: &str) -> LoadError {
    LoadError::Refused(format!("the program has no {name}"))
}

/// The kernel's types.
pub(crate) fn kernel_types() -> Result<Btf, LoadError> {
    Btf::from_sys_fs().map_err(|error| LoadError::NoBtf(chain(&error)))
}

/// Loads a part of a program and attaches it to a tracepoint, for as long as `programs` lives.
#[cfg(feature = "departures")]
pub(crate) fn attach(
    programs: &mut Ebpf,
    name: &str,
    tracepoint: &str,
    types: &Btf,
) -> Result<(), LoadError> {
    load(programs, name, tracepoint, types)?;
    let program = part(programs, name)?;
    program.attach().map_err(|error| refused(&error))?;
    Ok(())
}

/// Loads a part of a program, for a tracepoint that it is not attached to yet.
#[cfg(any(feature = "departures", feature = "packets", feature = "waits"))]
pub(crate) fn load(
    programs: &mut Ebpf,
    name: &str,
    tracepoint: &str,
    types: &Btf,
) -> Result<(), LoadError> {
    let program = part(programs, name)?;
    patiently(|| program.load(tracepoint, types)).map_err(|error| refused(&error))
}

/// Loads, again if a signal interrupted the kernel's verifier.
pub(crate) fn patiently(
    load: impl FnMut() -> Result<(), ProgramError>,
) -> Result<(), ProgramError> {
    again(load, |error| match error {
        ProgramError::LoadError { io_error, .. } => io_error.raw_os_error() == Some(libc::EAGAIN),
        _ => false,
    })
}

/// Calls up to five times, as libbpf does.
fn again<E>(
    mut call: impl FnMut() -> Result<(), E>,
    is_interrupted: impl Fn(&E) -> bool,
) -> Result<(), E> {
    const MORE: usize = 4;
    for _ in 0..MORE {
        match call() {
            Err(error) if is_interrupted(&error) => {}
            other => return other,
        }
    }
    call()
}

/// Attaches a part that is loaded, for as long as the link lives.
#[cfg(any(feature = "packets", feature = "waits"))]
pub(crate) fn link(programs: &mut Ebpf, name: &str) -> Result<BtfTracePointLink, LoadError> {
    let program = part(programs, name)?;
    let link = program.attach().map_err(|error| refused(&error))?;
    program.take_link(link).map_err(|error| refused(&error))
}

#[cfg(any(feature = "departures", feature = "packets", feature = "waits"))]
fn part<'p>(programs: &'p mut Ebpf, name: &str) -> Result<&'p mut BtfTracePoint, LoadError> {
    let program = programs.program_mut(name).ok_or_else(|| lacks(name))?;
    program.try_into().map_err(|error| refused(&error))
}

/// The cost of a BPF program since it was loaded, in the times in which a [`count_cost`] was held.
#[cfg(any(feature = "edge", feature = "packets", feature = "waits"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramCost {
    /// The program's name, of which the kernel keeps 15 characters, or the tracepoint of a part.
    pub name: String,
    /// The sum of its run times.
    pub time: Nanos,
    /// The number of its runs.
    pub runs: u64,
}

#[cfg(any(feature = "edge", feature = "packets", feature = "waits"))]
impl ProgramCost {
    pub(crate) fn of(name: &str, info: &ProgramInfo) -> Self {
        let time = u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX);
        Self {
            name: name.to_owned(),
            time: Nanos(time),
            runs: info.run_count(),
        }
    }
}

/// The cost of parts of a program, by tracepoint, while a [`count_cost`] is held.
#[cfg(any(feature = "packets", feature = "waits"))]
pub(crate) fn cost(
    programs: &Ebpf,
    parts: impl Iterator<Item = (&'static str, &'static str)>,
) -> Result<Vec<ProgramCost>, LoadError> {
    let cost = parts.map(|(name, tracepoint)| {
        let program = programs.program(name).ok_or_else(|| lacks(name))?;
        let info = program.info().map_err(|error| refused(&error))?;
        Ok(ProgramCost::of(tracepoint, &info))
    });
    cost.collect()
}

/// Makes the kernel count the cost of BPF programs (`bpf_stats`) until the descriptor is closed;
/// that itself costs some 50 ns per run.
///
/// # Errors
/// This process lacks a privilege.
pub fn count_cost() -> Result<OwnedFd, LoadError> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(|error| refused(&error))
}

/// Returns the cost of all programs that the kernel has loaded, of other owners, too, while a [`count_cost`] is held.
///
/// # Errors
/// This process lacks a privilege.
#[cfg(feature = "edge")]
pub fn costs() -> Result<Vec<ProgramCost>, LoadError> {
    let all = aya::programs::loaded_programs();
    let all =
        all.filter(|it| !matches!(it, Err(ProgramError::SyscallError(error)) if is_gone(error)));
    let cost = all.map(|info| {
        let info = info.map_err(|error| refused(&error))?;
        Ok(ProgramCost::of(
            info.name_as_str().unwrap_or_default(),
            &info,
        ))
    });
    cost.collect()
}

/// True for a program that ended while the list was read.
#[cfg(feature = "edge")]
fn is_gone(error: &aya::sys::SyscallError) -> bool {
    error.io_error.raw_os_error() == Some(libc::ENOENT)
}

/// Returns an error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = error.source();
    }
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(300).collect()
}

fn is_permission(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    let denied = io.is_some_and(|error| error.raw_os_error() == Some(libc::EPERM));
    denied || error.source().is_some_and(is_permission)
}

/// Returns the reason in the verifier's log, in one line: the last lines, which follow the
/// instructions that it had checked, and precede its statistics.
pub(crate) fn verdict(log: &str) -> String {
    /// The last instruction, and what is wrong with it.
    const LINES: usize = 3;
    const OWN_WORK: [&str; 3] = ["verification time ", "stack depth ", "processed "];
    let said = log.lines().map(str::trim).filter(|line| {
        let is_own_work = OWN_WORK.iter().any(|start| line.starts_with(start));
        !line.is_empty() && !is_own_work
    });
    let said: Vec<String> = said.map(|line| line.chars().take(200).collect()).collect();
    if said.is_empty() {
        return "nothing".to_owned();
    }
    said[said.len().saturating_sub(LINES)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_load_is_tried_again_and_others_are_not() {
        let calls_until = |end: u32, error: &'static str| {
            let mut calls = 0;
            let call = || {
                calls += 1;
                if calls < end { Err(error) } else { Ok(()) }
            };
            let is_done = again(call, |error| *error == "interrupted").is_ok();
            (is_done, calls)
        };
        assert_eq!(calls_until(1, "interrupted"), (true, 1));
        assert_eq!(calls_until(5, "interrupted"), (true, 5));
        assert_eq!(calls_until(6, "interrupted"), (false, 5));
        assert_eq!(calls_until(3, "refused"), (false, 1));
    }

    #[test]
    fn a_refusal_quotes_the_last_lines_of_the_verifier_log() {
        // Of Linux 6.1, on what it cannot see to be within bounds.
        let log = "reg type unsupported for arg#0 function on_switch#44\n\
                   0: R1=ctx(off=0,imm=0) R10=fp0\n\
                   ; meter->counts[kind][at]++;\n\
                   288: (0f) r5 += r2                    ; R2_w=scalar(umin=8,umax=1864)\n\
                   289: (61) r2 = *(u32 *)(r5 +48)\n\
                   invalid access to map value, value_size=3776 off=3776 size=4\n\
                   R5 max value is outside of the allowed memory range\n\
                   verification time 122873 usec\nstack depth 56\n\
                   processed 6299 insns (limit 1000000) max_states_per_insn 11\n\n";
        assert_eq!(
            verdict(log),
            "289: (61) r2 = *(u32 *)(r5 +48) | invalid access to map value, value_size=3776 \
             off=3776 size=4 | R5 max value is outside of the allowed memory range"
        );
        assert_eq!(verdict("\n"), "nothing");
    }
}
