//! `tailbound doctor --switch`: test of the switch with void frames, and its result in words.

use super::super::output::{self, Output};
use crate::exit::{Exit, Failure};
use tailbound_host::void_test::{Answer, Counts, Question, Verdict};

/// Runs the test, prints the result, and returns whether void frames are dropped.
pub(super) fn ask(question: &Question, form: Output) -> Result<Exit, Failure> {
    let answer = Answer::find(question)?;
    output::print(&match form {
        Output::Text => text(&answer),
        Output::Json => output::json("doctor-switch", 1, &answer),
    });
    Ok(exit(answer.verdict))
}

const fn exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Dropped | Verdict::NotBack => Exit::Holds,
        Verdict::ComeBack | Verdict::Flooded => Exit::DoesNotHold,
        Verdict::Blind => Exit::CouldNotRun,
    }
}

const fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Dropped => "PASS: the switch drops void frames",
        Verdict::NotBack => {
            "PASS: no void frame came back; name an interface on another port of the switch \
             with --witness to see whether they flood"
        }
        Verdict::ComeBack => {
            "FAIL: void frames come back; they would take the receiving side of this link: \
             pace without voids, or by launch times"
        }
        Verdict::Flooded => {
            "FAIL: void frames flood to other ports and would load all links: pace without \
                voids, or by launch times"
        }
        Verdict::Blind => {
            "UNKNOWN: the witness did not see the control frames either; is it on the same \
             switch and VLAN, and does that flood unknown addresses?"
        }
    }
}

fn text(answer: &Answer) -> String {
    let line = |label: &str, counts: Counts| {
        let witness = counts.at_witness.map_or_else(String::new, |came| {
            format!(
                ", {came} came to {}",
                answer.witness.as_deref().unwrap_or_default()
            )
        });
        format!(
            "{label}: {} sent by {}, {} came back{witness}\n",
            counts.sent, answer.interface, counts.came_back
        )
    };
    format!(
        "{}\n{}{}",
        words(answer.verdict),
        line("void frames", answer.voids),
        line("frames to an unknown station", answer.controls),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_voids_that_stay_away_are_a_good_end() {
        for (verdict, end) in [
            (Verdict::Dropped, Exit::Holds),
            (Verdict::NotBack, Exit::Holds),
            (Verdict::ComeBack, Exit::DoesNotHold),
            (Verdict::Flooded, Exit::DoesNotHold),
            (Verdict::Blind, Exit::CouldNotRun),
        ] {
            assert_eq!(exit(verdict), end);
        }
    }

    #[test]
    fn the_text_reports_counts_at_sender_and_witness() {
        let counts = |at_witness| Counts {
            sent: 100,
            came_back: 0,
            at_witness: Some(at_witness),
        };
        let answer = Answer {
            verdict: Verdict::Dropped,
            interface: "eth0".into(),
            witness: Some("eth1".into()),
            voids: counts(0),
            controls: counts(100),
        };
        assert_eq!(
            text(&answer),
            "PASS: the switch drops void frames\nvoid frames: 100 sent by eth0, 0 came back, 0 came to eth1\nframes to an unknown station: 100 sent by eth0, 0 came back, 100 came to eth1\n"
        );
    }
}
