use super::*;
use crate::ledger::tokens::{after, identify};
use tailbound_api::{AuditCaller, TokenRole};

/// One second after 1970.
const SECOND: Nanos = Nanos(1_000_000_000);

fn record(name: &str, owner: Option<&str>, expires: Option<u64>) -> TokenRecord {
    let mut hash = [0; 32];
    for (byte, letter) in hash.iter_mut().zip(name.bytes()) {
        *byte = letter;
    }
    // Two tokens of one name have two secrets.
    hash[31] = expires.map_or(0, |end| end as u8);
    TokenRecord {
        name: name.to_owned(),
        role: match owner {
            Some(_) => TokenRole::Tenant,
            None => TokenRole::Viewer,
        },
        owner: owner.map(str::to_owned),
        host: None,
        sha256: TokenHash(hash),
        expires,
        issued: 1,
        issued_by: AuditCaller::default(),
    }
}

fn issue(record: TokenRecord) -> Call {
    call(Command::IssueToken(Arc::new(record)))
}

fn revoke(owner: Option<&str>, name: &str) -> Call {
    Call {
        owner: owner.map(str::to_owned),
        ..call(Command::RevokeToken(name.to_owned()))
    }
}

fn names(ledger: &Ledger, owner: Option<&str>) -> Vec<String> {
    after(ledger, None, owner)
        .map(|token| token.name.clone())
        .collect()
}

#[test]
fn an_issued_token_is_found_by_its_hash_until_it_is_revoked() {
    let (mut ledger, _) = ledger();
    let token = record("ci", Some("acme"), None);
    let decision = ledger.decide(&issue(token.clone()), SECOND).unwrap();
    assert_eq!(decision.reply, Reply::Token(Arc::new(token.clone())));
    let found = identify(&ledger, token.sha256.0).unwrap();
    assert_eq!(**found, token);
    assert!(identify(&ledger, [9; 32]).is_none());

    // Another replica that applies the changes has the same tokens.
    let (mut follower, _) = super::ledger();
    follower.apply(&decision.changes).unwrap();
    assert_eq!(follower.snapshot().tokens, ledger.snapshot().tokens);
    let loaded = Ledger::load(ledger.snapshot()).unwrap();
    assert_eq!(loaded.snapshot(), ledger.snapshot());

    let again = ledger.decide(&issue(token.clone()), SECOND).unwrap_err();
    assert_eq!(again, LedgerError::TokenExists("ci".to_owned()));
    let foreign = ledger.decide(&revoke(Some("globex"), "ci"), SECOND);
    assert!(matches!(foreign, Err(LedgerError::NotFound(_))));
    let gone = ledger.decide(&revoke(Some("acme"), "ci"), SECOND).unwrap();
    assert!(identify(&ledger, token.sha256.0).is_none());
    ledger.undo(gone.undo).unwrap();
    assert!(identify(&ledger, token.sha256.0).is_some());
    follower.apply(&gone.changes).unwrap();
    assert!(identify(&follower, token.sha256.0).is_none());
}

#[test]
fn contradictory_or_expired_tokens_are_refused() {
    let (mut ledger, _) = ledger();
    let before = ledger.snapshot();
    let of = |role, owner: Option<&str>, host: Option<&str>| TokenRecord {
        role,
        host: host.map(str::to_owned),
        ..record("ci", owner, None)
    };
    for wrong in [
        of(TokenRole::Viewer, Some("acme"), None),
        of(TokenRole::Host, Some("acme"), Some("host-1")),
        of(TokenRole::Host, None, None),
        of(TokenRole::Tenant, None, None),
        record("-ci", None, None),
        record("a/b", None, None),
        record("ci", None, Some(1)),
    ] {
        let error = ledger.decide(&issue(wrong.clone()), SECOND).unwrap_err();
        assert!(
            matches!(error, LedgerError::Absurd(_)),
            "{wrong:?}: {error}"
        );
    }
    assert_eq!(ledger.snapshot(), before);
    let _ = ledger
        .decide(&issue(record("ci", None, Some(2))), SECOND)
        .unwrap();
}

#[test]
fn an_owner_has_a_limit_and_expired_tokens_do_not_count() {
    let (mut ledger, _) = ledger();
    for number in 0..MAX_OF_OWNER {
        let token = record(&format!("t{number}"), Some("acme"), Some(2 + number as u64));
        let _ = ledger.decide(&issue(token), SECOND).unwrap();
    }
    let more = |name: &str, owner| issue(record(name, Some(owner), None));
    let full = ledger.decide(&more("more", "acme"), SECOND).unwrap_err();
    assert!(matches!(full, LedgerError::Quota { .. }), "{full}");
    let _ = ledger.decide(&more("other", "globex"), SECOND).unwrap();
    // Ten have expired: eight of them go, and the names of the others are free.
    let later = Nanos(11 * SECOND.0);
    let decision = ledger.decide(&more("more", "acme"), later).unwrap();
    assert_eq!(names(&ledger, Some("acme")).len(), MAX_OF_OWNER - 8 + 1);
    let _ = ledger.decide(&more("t9", "acme"), later).unwrap();
    assert_eq!(names(&ledger, Some("globex")), ["other"]);
    assert_eq!(names(&ledger, None).len(), MAX_OF_OWNER - 10 + 2 + 1);
    assert!(decision.changes.len() > 8, "{:?}", decision.changes);
}
