//! Guests and verdicts as JSON.

use serde::Serialize;
use tailbound_agent::inventory::Guest;
use tailbound_look::{Basis, Doubt, Finding, Share, Verdict};

/// A guest.
#[derive(Debug, Serialize)]
pub(crate) struct GuestDocument<'g> {
    key: &'g str,
    name: &'g str,
    kind: &'static str,
    processes: usize,
    threads: usize,
    threads_left_out: usize,
    containers: Vec<ContainerDocument<'g>>,
    interfaces: Vec<InterfaceDocument<'g>>,
    notes: &'g [String],
}

#[derive(Debug, Serialize)]
struct ContainerDocument<'g> {
    id: &'g str,
    name: Option<&'g str>,
}

#[derive(Debug, Serialize)]
struct InterfaceDocument<'g> {
    index: u32,
    name: &'g str,
}

impl<'g> GuestDocument<'g> {
    pub(crate) fn of(guest: &'g Guest) -> Self {
        let containers = guest.containers.iter().map(|(id, name)| ContainerDocument {
            id,
            name: name.as_deref(),
        });
        let interfaces = guest.interfaces.iter().map(|it| InterfaceDocument {
            index: it.index,
            name: &it.name,
        });
        Self {
            key: &guest.key,
            name: &guest.name,
            kind: guest.identity.kind(),
            processes: guest.processes.len(),
            threads: guest.threads.len(),
            threads_left_out: guest.beyond,
            containers: containers.collect(),
            interfaces: interfaces.collect(),
            notes: &guest.notes,
        }
    }
}

/// A verdict.
#[derive(Debug, Serialize)]
pub(crate) struct VerdictDocument {
    window_ns: u64,
    /// `cause`, `nothing-slow` or `unknown`.
    finding: &'static str,
    /// The kind of cause.
    cause: Option<&'static str>,
    /// The guest, program, peer or limit.
    by: Option<String>,
    /// The reason why no cause is named.
    doubt: Option<&'static str>,
    sentence: String,
    evidence: [String; 3],
    remedy: Option<RemedyDocument>,
    /// `requests`, `packets`, `windows` or `waits`.
    basis: &'static str,
    slow_periods: usize,
    delay_ns: u64,
    ranked_delay_ns: u64,
    judged_periods: usize,
    judged_delay_ns: u64,
    longest_ns: u64,
    affected_periods: usize,
    shares: Vec<ShareDocument>,
    requests_answered: u64,
    lost_waits: u64,
    throttled_periods: u64,
    throttled_ns: u64,
    /// The part of the window in which packets and interrupts were examined.
    examined_ns: u64,
    unexamined: Vec<UnexaminedDocument>,
}

#[derive(Debug, Serialize)]
struct RemedyDocument {
    command: Option<String>,
    cost: String,
}

#[derive(Debug, Serialize)]
struct ShareDocument {
    cause: &'static str,
    by: Option<String>,
    time_ns: u64,
    periods: usize,
}

#[derive(Debug, Serialize)]
struct UnexaminedDocument {
    part: &'static str,
    why: String,
}

impl ShareDocument {
    fn of(share: &Share) -> Self {
        Self {
            cause: share.cause.kind.name(),
            by: share.cause.by.as_ref().map(ToString::to_string),
            time_ns: share.time.0,
            periods: share.periods,
        }
    }
}

impl VerdictDocument {
    /// A verdict on the last window.
    pub(crate) fn of(verdict: &Verdict) -> Self {
        Self::with(verdict, verdict.sentence())
    }

    /// A verdict on a window that `when` puts into words.
    pub(crate) fn when(verdict: &Verdict, when: &str) -> Self {
        Self::with(verdict, verdict.sentence_in(when))
    }

    fn with(verdict: &Verdict, sentence: String) -> Self {
        let (finding, cause, doubt) = match &verdict.finding {
            Finding::Because(cause) => ("cause", Some(cause), None),
            Finding::NothingSlow => ("nothing-slow", None, None),
            Finding::Unknown(doubt) => ("unknown", None, Some(*doubt)),
        };
        let unexamined = verdict.unexamined.iter();
        Self {
            window_ns: verdict.window.0,
            finding,
            cause: cause.map(|cause| cause.kind.name()),
            by: cause.and_then(|cause| cause.by.as_ref().map(ToString::to_string)),
            doubt: doubt.map(|doubt| match doubt {
                Doubt::NoCause => "no-cause",
                Doubt::Mixed => "mixed",
                Doubt::TooFew => "too-few",
                Doubt::Lost => "lost",
                Doubt::Nothing => "not-examined",
            }),
            sentence,
            evidence: verdict.evidence(),
            remedy: verdict.remedy().map(|remedy| RemedyDocument {
                command: remedy.command,
                cost: remedy.cost,
            }),
            basis: match verdict.basis {
                Basis::Requests => "requests",
                Basis::Packets => "packets",
                Basis::Windows => "windows",
                Basis::Waits => "waits",
            },
            slow_periods: verdict.slow,
            delay_ns: verdict.delay.0,
            ranked_delay_ns: verdict.ranked_delay.0,
            judged_periods: verdict.judged,
            judged_delay_ns: verdict.judged_delay.0,
            longest_ns: verdict.longest.0,
            affected_periods: verdict.affected,
            shares: verdict.shares.iter().map(ShareDocument::of).collect(),
            requests_answered: verdict.answered,
            lost_waits: verdict.lost_waits,
            throttled_periods: verdict.limits.throttled_periods,
            throttled_ns: verdict.limits.throttled.0,
            examined_ns: verdict.examined.unwrap_or(verdict.window).0,
            unexamined: unexamined
                .map(|(part, why)| UnexaminedDocument {
                    part,
                    why: why.clone(),
                })
                .collect(),
        }
    }
}
