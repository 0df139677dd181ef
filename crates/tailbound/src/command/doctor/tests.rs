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
fn one_purpose_is_judged_by_what_it_uses_alone() {
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
                "purpose": "demo", "ready": false,
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
