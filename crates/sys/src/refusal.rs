//! Why the kernel refuses a BPF program, in one line.

use aya::programs::ProgramError;
use std::io;

/// Why the loader, or the kernel, refuses a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// This process lacks a privilege.
    NotPermitted,
    /// Anything else, in words.
    Other(String),
}

impl From<&(dyn std::error::Error + 'static)> for Refusal {
    fn from(error: &(dyn std::error::Error + 'static)) -> Self {
        if is_permission(error) {
            return Self::NotPermitted;
        }
        if let Some(ProgramError::LoadError {
            io_error,
            verifier_log,
        }) = error.downcast_ref()
        {
            let why = verdict(&verifier_log.to_string());
            return Self::Other(format!("{io_error}; its verifier ends with: {why}"));
        }
        Self::Other(chain(error))
    }
}

/// An error and what led to it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
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

/// Returns what decided in the verifier's log, in one line: the last lines, which come after the
/// instructions that it had followed until then, and before its statistics.
fn verdict(log: &str) -> String {
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
    fn a_refusal_says_the_verifiers_last_words_and_not_its_first() {
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
