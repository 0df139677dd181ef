//! TLS, and reloads of certificates and tokens.

use crate::api_support::{OPERATOR, Place, Setup, agent, sha256, tokens_file};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tailbound_control::server::TlsFiles;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Writes a certificate for 127.0.0.1 by a new authority, and returns the authority (PEM).
fn certificate(dir: &Path) -> (TlsFiles, Vec<u8>) {
    certificate_until(dir, Duration::from_hours(24 * 30))
}

/// The same with an end of its validity, `validity` from now.
pub(crate) fn certificate_until(dir: &Path, validity: Duration) -> (TlsFiles, Vec<u8>) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_after = (std::time::SystemTime::now() + validity).into();
    let signed = params.signed_by(&key, &authority).unwrap();
    let files = TlsFiles {
        cert: dir.join("cert.pem"),
        key: dir.join("key.pem"),
    };
    std::fs::write(&files.cert, signed.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    (files, authority.pem().into_bytes())
}

fn status_by(place: &Place, authority: &[u8]) -> Result<u16, String> {
    let root = Certificate::from_pem(authority).unwrap().to_owned();
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[root]));
    let answer = agent(tls.build())
        .get(format!("{}/v1/status", place.url))
        .header("authorization", format!("Bearer {OPERATOR}"))
        .call();
    answer
        .map(|answer| answer.status().as_u16())
        .map_err(|error| error.to_string())
}

#[test]
fn a_reload_replaces_the_served_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (files, first) = certificate(dir.path());
    let place = Place::with(Setup {
        tls: Some(files.clone()),
        ..Setup::default()
    });
    assert_eq!(status_by(&place, &first), Ok(200));
    let (_, second) = certificate(dir.path());
    assert!(status_by(&place, &second).is_err());
    place.server.reload().unwrap();
    assert_eq!(status_by(&place, &second), Ok(200));
    assert!(status_by(&place, &first).is_err());
}

/// Browsers leave `Host` out in HTTP/2, by which is known that `Origin` is this
/// service's own page.
#[test]
fn the_protocol_behind_tls_has_a_host_header() {
    let dir = tempfile::tempdir().unwrap();
    let (files, authority) = certificate(dir.path());
    let place = Place::with(Setup {
        tls: Some(files),
        ..Setup::default()
    });
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(&authority).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = "127.0.0.1".try_into().unwrap();
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let address = place.url.strip_prefix("https://").unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    tls.complete_io(&mut connection).unwrap();
    assert_eq!(tls.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[test]
fn a_reload_takes_tokens_and_certificate_both_or_neither() {
    let dir = tempfile::tempdir().unwrap();
    let (files, first) = certificate(dir.path());
    let place = Place::with(Setup {
        tls: Some(files.clone()),
        ..Setup::default()
    });
    // The tokens are right, the key belongs to another certificate.
    let fewer = format!(
        "[[token]]\nname = \"new\"\nrole = \"operator\"\nsha256 = \"{}\"\n",
        sha256("new")
    );
    std::fs::write(&place.tokens, &fewer).unwrap();
    let key = KeyPair::generate().unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    let error = place.server.reload().unwrap_err().to_string();
    assert!(error.contains("cannot be used together"), "{error}");
    assert_eq!(status_by(&place, &first), Ok(200));

    let (_, second) = certificate(dir.path());
    for (tokens, why) in [
        ("", "there are no tokens"),
        ("[[token]]\nname = 1", "invalid type"),
        (
            "[[token]]\nname = \"a\"\nrole = \"king\"\nsha256 = \"\"",
            "king",
        ),
        (
            "[[token]]\nname = \"a\"\nrole = \"operator\"\nsha256 = \"abc\"",
            "64 hexadecimal digits",
        ),
        (
            "[[token]]\nname = \"a\"\nrole = \"tenant\"\nsha256 = \"\"",
            "has an owner",
        ),
        (
            "[[token]]\nname = \"a\"\nrole = \"tenant\"\nowner = \"A\"\nsha256 = \"\"",
            "owner",
        ),
        (
            "[[token]]\nname = \"a\"\nrole = \"host\"\nsha256 = \"\"",
            "has a host",
        ),
        (
            "[[token]]\nname = \"a\"\nrole = \"operator\"\nhost = \"b\"\nsha256 = \"\"",
            "only the roles tenant and host have",
        ),
        (
            &(tokens_file() + &tokens_file()),
            "two tokens named \"ops\"",
        ),
        (
            &(fewer.clone() + &fewer.replace("\"new\"", "\"newer\"")),
            "this is the token \"new\" again",
        ),
        (&fewer.replace("sha256", "sha512"), "unknown key"),
    ] {
        std::fs::write(&place.tokens, tokens).unwrap();
        let error = place.server.reload().unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
        assert_eq!(status_by(&place, &first), Ok(200), "{why}");
    }
    std::fs::write(&place.tokens, &fewer).unwrap();
    place.server.reload().unwrap();
    assert_eq!(status_by(&place, &second), Ok(401));
}
