use super::scheduling::{RAISE, kernel_config, slice_given};
use super::*;
use crate::probe::required::{Part, skipped};
use tailbound_units::Nanos;

#[test]
fn the_kernel_configuration_is_read_if_there_is_one() {
    match kernel_config() {
        Some(config) => assert!(config.contains("\nCONFIG_"), "{config:.200}"),
        None => skipped(
            Part::KernelConfig,
            "no /proc/config.gz and nothing in /boot",
        ),
    }
}

/// Any process may set its own slice; a guest's threads belong to another user.
#[test]
fn a_slice_for_guests_requires_cap_sys_nice() {
    let asked = Nanos::from_micros(300);
    let given = |seen, may_raise| slice_given(asked, seen, may_raise);
    assert_eq!(
        given(Ok(asked), true),
        TrialResult::works("300us read back")
    );
    assert_eq!(
        given(Ok(asked), false),
        TrialResult::lacks(
            "300us read back, but this process has no CAP_SYS_NICE for others' threads",
            advice(RAISE)
        )
    );
    let old = given(Ok(Nanos::from_millis(3)), true);
    assert_eq!(
        old,
        TrialResult::lacks(
            "asked for 300us, 3ms read back",
            advice("use Linux >= 6.12")
        )
    );
    let refused = given(Err(io::Error::from(ErrorKind::InvalidInput)), true);
    assert_eq!(refused.remedy, old.remedy);
}

/// Every distribution opens the device by its group; the advice never opens it to all users.
#[test]
fn a_user_without_kvm_access_is_advised_to_join_its_group() {
    assert_eq!(
        machine_run(Ok(())),
        TrialResult::works("ran a machine of one instruction")
    );
    let closed = machine_run(Err(ErrorKind::PermissionDenied.into()));
    assert_eq!(closed.detail, "/dev/kvm: permission denied");
    assert_eq!(
        closed.remedy,
        Some(root("usermod -aG kvm $(id -un); newgrp kvm"))
    );
    let missing = machine_run(Err(ErrorKind::NotFound.into()));
    assert_eq!(missing.detail, "/dev/kvm is not there");
    let broken = machine_run(Err(io::Error::other("it ended for reason 17")));
    assert!(
        broken
            .detail
            .contains("no machine runs: it ended for reason 17")
    );
    for outcome in [missing, broken] {
        assert!(
            matches!(outcome.remedy, Some(Remedy::Advice(_))),
            "{outcome:?}"
        );
    }
}

/// Regression: a trial requested memory that nothing uses.
#[test]
fn no_trial_requests_huge_pages() {
    for text in [
        include_str!("../trials.rs"),
        include_str!("bpf.rs"),
        include_str!("network.rs"),
        include_str!("scheduling.rs"),
    ] {
        assert!(!text.contains("nr_hugepages"));
    }
}
