use super::*;
use Purpose::{Demo, Host, Lab, Vcpu};

fn findings() -> Vec<Finding> {
    let finding = |name, grade, needed_by, helps, mend: Option<&str>| Finding {
        name,
        grade,
        needed_by,
        helps,
        purpose: "what it is for",
        detail: "what was seen".into(),
        mend: mend.map(Into::into),
    };
    vec![
        finding("tap", Grade::Pass, &[], &[Host, Lab], None),
        finding(
            "sched-deadline",
            Grade::Warn,
            &[],
            &[Vcpu, Lab],
            Some("run as root"),
        ),
        finding(
            "htb",
            Grade::Fail,
            &[Demo, Lab],
            &[],
            Some("sudo modprobe sch_htb"),
        ),
        finding("sched-ext", Grade::Warn, &[], &[], Some("nothing to do")),
    ]
}

#[test]
fn each_purpose_is_judged_and_problems_come_first() {
    assert_eq!(
        Diagnosis::of(None, findings()).text(Paint(false)),
        "demo   not ready\n\
         host   ready\n\
         vcpu   ready, with one limit\n\
         look   ready\n\
         adopt  ready\n\
         probe  ready\n\
         place  ready\n\
         lab    not ready\n\
         \n\
         FAIL  htb: what it is for (demo, lab)\n      \
               what was seen\n      \
               sudo modprobe sch_htb\n\
         \n\
         WARN  sched-deadline: what it is for (vcpu, lab)\n      \
               what was seen\n      \
               run as root\n\
         \n\
         works: tap\n\
         \n\
         not there, and not used: sched-ext\n"
    );
}

#[test]
fn a_purpose_is_judged_by_its_own_findings_only() {
    let vcpu = Diagnosis::of(Some(Purpose::Vcpu), findings());
    assert!(vcpu.ready);
    assert_eq!(
        vcpu.text(Paint(false)),
        "vcpu   ready, with one limit\n\
         \n\
         WARN  sched-deadline: what it is for (vcpu)\n      \
               what was seen\n      \
               run as root\n"
    );
    for (purpose, ready) in [(Purpose::Demo, false), (Purpose::Host, true)] {
        assert_eq!(Diagnosis::of(Some(purpose), findings()).ready, ready);
    }
    // The lab lacks something as well, but is not what everybody wants.
    assert!(Diagnosis::of(None, findings()[..2].to_vec()).ready);
    assert!(!Diagnosis::of(None, findings()).ready);
}

#[test]
fn the_json_is_stable() {
    let diagnosis = Diagnosis::of(Some(Purpose::Demo), findings());
    assert_eq!(
        serde_json::to_value(&diagnosis).unwrap(),
        serde_json::json!({
            "ready": false,
            "purposes": [{
                "purpose": "demo", "ready": false, "in_this_build": true,
                "missing": ["htb"], "limits": [], "works": [],
            }],
            "findings": [{
                "name": "htb", "grade": "FAIL", "needed_by": ["demo", "lab"], "helps": [],
                "purpose": "what it is for", "detail": "what was seen",
                "mend": "sudo modprobe sch_htb",
            }]
        })
    );
}

#[test]
fn checks_not_tried_share_one_line() {
    let mut findings = findings();
    for name in ["veth", "bridge"] {
        findings.push(Finding {
            name,
            grade: Grade::Fail,
            needed_by: &[Demo],
            helps: &[],
            purpose: "what it is for",
            detail: "not tried: no network namespace can be made".into(),
            mend: Some("mend that first".into()),
        });
    }
    let text = Diagnosis::of(None, findings).text(Paint(false));
    let line = "\nnot tried: no network namespace can be made: veth, bridge\n";
    assert!(text.contains(line), "{text}");
    assert!(!text.contains("FAIL  veth"), "{text}");
    assert!(text.contains("FAIL  htb"), "{text}");
}

#[test]
fn a_purpose_that_this_build_lacks_is_not_ready() {
    let lacking = Readiness::of(Host, false, &findings());
    assert!(!lacking.ready);
    assert_eq!(lacking.verdict(Paint(false)), "not in this build");
    assert!(Readiness::of(Host, true, &findings()).ready);
}
