//! Guests and verdicts as JSON.

use serde::{Serialize, Serializer};
use std::sync::Arc;
use tailbound_agent::inventory::Guest;
use tailbound_look::{Basis, Doubt, Finding, Share, Verdict};

/// The facts about a guest that a document has.
#[derive(Debug, Clone, Serialize)]
pub struct GuestDocument {
    #[serde(serialize_with = "text")]
    key: Arc<str>,
    name: String,
    kind: &'static str,
    processes: usize,
    threads: usize,
    threads_left_out: usize,
    containers: Vec<ContainerDocument>,
    interfaces: Vec<InterfaceDocument>,
    notes: Vec<String>,
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

#[derive(Debug, Clone, Serialize)]
struct ContainerDocument {
    id: String,
    name: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
struct InterfaceDocument {
    index: u32,
    name: String,
}

impl GuestDocument {
    /// A guest of which nothing else is known.
    pub fn new(key: Arc<str>, name: String, kind: &'static str) -> Self {
        Self {
            key,
            name,
            kind,
            processes: 0,
            threads: 0,
            threads_left_out: 0,
            containers: Vec::new(),
            interfaces: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The facts about a guest.
    pub fn of(guest: &Guest) -> Self {
        let containers = guest.containers.iter().map(|(id, name)| ContainerDocument {
            id: id.clone(),
            name: name.clone(),
        });
        let interfaces = guest.interfaces.iter().map(|it| InterfaceDocument {
            index: it.index,
            name: it.name.clone(),
        });
        Self {
            key: Arc::clone(&guest.key),
            name: guest.name.clone(),
            kind: guest.identity.kind(),
            processes: guest.processes.len(),
            threads: guest.threads.len(),
            threads_left_out: guest.beyond,
            containers: containers.collect(),
            interfaces: interfaces.collect(),
            notes: guest.notes.clone(),
        }
    }

    /// The guest's key.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The guest's kind in one word.
    pub const fn kind(&self) -> &'static str {
        self.kind
    }

    /// The facts about the guest that are not known, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// A finding.
#[derive(Debug, Serialize)]
pub(crate) struct FindingDocument {
    /// `cause`, `nothing-slow` or `unknown`.
    finding: &'static str,
    /// The kind of cause.
    cause: Option<&'static str>,
    /// The guest, program, peer or limit.
    by: Option<String>,
    /// The reason why no cause is named.
    doubt: Option<&'static str>,
}

impl FindingDocument {
    pub(crate) fn of(finding: &Finding) -> Self {
        let (finding, cause, doubt) = match finding {
            Finding::Because(cause) => ("cause", Some(cause), None),
            Finding::NothingSlow => ("nothing-slow", None, None),
            Finding::Unknown(doubt) => ("unknown", None, Some(*doubt)),
        };
        Self {
            finding,
            cause: cause.map(|cause| cause.kind.name()),
            by: cause.and_then(|cause| cause.by.as_ref().map(ToString::to_string)),
            doubt: doubt.map(|doubt| match doubt {
                Doubt::NoCause => "no-cause",
                Doubt::Mixed => "mixed",
                Doubt::TooFew => "too-few",
                Doubt::Lost => "lost",
                Doubt::SmallSample => "small-sample",
                Doubt::Nothing => "not-examined",
            }),
        }
    }
}

/// A verdict.
#[derive(Debug, Serialize)]
pub struct VerdictDocument {
    window_ns: u64,
    #[serde(flatten)]
    finding: FindingDocument,
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
    /// The causes with the largest times.
    shares: Vec<ShareDocument>,
    /// The number of other causes, and their time.
    shares_left_out: usize,
    shares_left_out_ns: u64,
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
pub(crate) struct ShareDocument {
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
    pub(crate) fn of(share: &Share) -> Self {
        Self {
            cause: share.cause.kind.name(),
            by: share.cause.by.as_ref().map(ToString::to_string),
            time_ns: share.time.0,
            periods: share.periods,
        }
    }
}

impl VerdictDocument {
    /// A verdict on the last window, with at most `max_shares` causes.
    pub fn of(verdict: &Verdict, max_shares: usize) -> Self {
        Self::with(verdict, verdict.sentence(), max_shares)
    }

    /// A verdict on a window that `when` puts into words, with all causes.
    pub fn when(verdict: &Verdict, when: &str) -> Self {
        Self::with(verdict, verdict.sentence_in(when), usize::MAX)
    }

    fn with(verdict: &Verdict, sentence: String, max_shares: usize) -> Self {
        let unexamined = verdict.unexamined.iter();
        let shown = verdict.shares.len().min(max_shares);
        let (shown, left_out) = verdict.shares.split_at(shown);
        Self {
            window_ns: verdict.window.0,
            finding: FindingDocument::of(&verdict.finding),
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
            shares: shown.iter().map(ShareDocument::of).collect(),
            shares_left_out: left_out.len(),
            shares_left_out_ns: left_out.iter().map(|share| share.time.0).sum(),
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
