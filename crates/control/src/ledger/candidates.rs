//! Verdicts on hosts for more machines, without a change.

use super::{Ledger, LedgerError, intake, pinned};
use tailbound_api::{
    Candidate, CandidateAnswer, CandidateAnswers, CandidateQuestion, CandidateQuestions, Headroom,
    MAX_QUESTIONS, PlacementRefusal,
};
use tailbound_placement::NodeId;
use tailbound_placement::pinned::Refusal;
use tailbound_placement::pinned::candidates::{Candidates, spare};

/// Limit on the ports that one call looks at, so that it takes at most some seconds.
const MAX_LOOKS: usize = 20_000_000;

/// Answers questions for candidates.
///
/// # Errors
/// A question makes no sense, names an unknown tenant, or all together take too long.
pub fn candidates(
    ledger: &Ledger,
    owner: Option<&str>,
    questions: &CandidateQuestions,
) -> Result<CandidateAnswers, LedgerError> {
    let count = questions.requests.len();
    if !(1..=MAX_QUESTIONS).contains(&count) {
        let message = format!("{count} requests are not between 1 and {MAX_QUESTIONS}");
        return Err(LedgerError::Absurd(message));
    }
    let mut looks = MAX_LOOKS;
    let answers = questions.requests.iter();
    let answers = answers.map(|question| answer(ledger, owner, question, &mut looks));
    Ok(CandidateAnswers {
        revision: ledger.revision(),
        answers: answers.collect::<Result<_, _>>()?,
    })
}

fn answer(
    ledger: &Ledger,
    owner: Option<&str>,
    question: &CandidateQuestion,
    looks: &mut usize,
) -> Result<CandidateAnswer, LedgerError> {
    let absurd = |message: &str| Err(LedgerError::Absurd(message.to_owned()));
    if question.vms == 0 {
        return absurd("vms is at least 1");
    }
    let dc = ledger.datacentre();
    let tenant = match (&question.tenant, &question.request) {
        (None, _) => None,
        (Some(tenant), None) => Some(pinned::find(ledger, owner, tenant)?),
        (Some(tenant), Some(request)) => {
            let id = pinned::find_any(ledger, owner, tenant)?;
            if let Some(id) = id {
                intake::check_request(ledger, id, request)?;
            }
            id
        }
    };
    let (mut verdicts, ports) = match (tenant, &question.request) {
        (None, None) => return absurd("a question has a tenant, a request, or both"),
        (Some(id), _) => {
            let ports = dc.tenant(id).map_or(0, |it| it.placement.hosts().len());
            let verdicts = Candidates::of_tenant(dc, id);
            let missing = || LedgerError::NotFound(format!("tenant {}", id.0));
            (verdicts.ok_or_else(missing)?, 4 * ports)
        }
        (None, Some(request)) => {
            let request = dc.topology().with_class(request.with_default_bursts());
            request.check()?;
            if question.vms > request.vms {
                return absurd("vms is above the number of machines of the request");
            }
            (Candidates::of_request(dc, &request), 0)
        }
    };
    let all = dc.topology().hosts();
    let hosts = question.hosts.as_ref().map_or(all.len(), Vec::len);
    let needed = hosts.saturating_mul(10 + ports);
    *looks = looks.checked_sub(needed).ok_or_else(|| {
        let message =
            "the requests have too many hosts; name fewer, or divide them into several calls";
        LedgerError::Absurd(message.to_owned())
    })?;
    let verdict = |host| verdict(ledger, &mut verdicts, host, question.vms);
    let candidates = match &question.hosts {
        None => all.iter().copied().map(verdict).collect(),
        Some(names) => {
            let mut verdict = verdict;
            let names = names.iter();
            names
                .map(|name| match ledger.host_node(name) {
                    Some(host) => verdict(host),
                    None => refused(name, Headroom::default(), pinned::unknown_host(name)),
                })
                .collect()
        }
    };
    Ok(CandidateAnswer { candidates })
}

fn verdict(ledger: &Ledger, verdicts: &mut Candidates<'_>, host: NodeId, vms: u32) -> Candidate {
    let dc = ledger.datacentre();
    let name = dc.topology().name(host);
    let spare = spare(dc, host);
    let checked = verdicts.check(host, vms);
    let headroom = Headroom {
        vms: match &checked {
            Ok(()) => verdicts.most(host, vms),
            Err(_) if vms == 1 => 0,
            Err(_) => verdicts.most(host, 0),
        },
        bandwidth: spare.bandwidth,
        burst: spare.burst,
    };
    match checked {
        Ok(()) => Candidate {
            host: name.to_owned(),
            fits: true,
            headroom,
            refusal: None,
        },
        Err(refusal) => refused(name, headroom, refusal),
    }
}

fn refused(host: &str, headroom: Headroom, refusal: Refusal) -> Candidate {
    Candidate {
        host: host.to_owned(),
        fits: false,
        headroom,
        refusal: Some(PlacementRefusal {
            rule: refusal.rule,
            port: refusal.port,
            sentence: refusal.sentence,
        }),
    }
}
