//! The location of an etcd store: one text, so that it fits one flag.

use std::path::PathBuf;
use std::str::FromStr;

/// The prefix of all keys when the text names none.
const PREFIX: &str = "/tailbound/place";

/// An etcd cluster and the keys in it.
///
/// `etcd://HOST:PORT[,HOST:PORT...][/PREFIX]`, and `etcds://` for TLS, which
/// needs `?ca=FILE`. Further parameters, joined with `&`: `cert=FILE` and
/// `key=FILE` (the client's certificate), `user=NAME` and `password-file=FILE`.
/// Secrets are in files, because every user can read a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The members' URLs.
    pub endpoints: Vec<String>,
    /// The prefix of all keys, without `/` at its end.
    pub prefix: String,
    /// The TLS files, if the members speak TLS.
    pub tls: Option<Tls>,
    /// The user to log in as, if there is one.
    pub user: Option<User>,
}

/// The files that TLS needs, all PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The CA that signed the members' certificates.
    pub ca: PathBuf,
    /// The client's own certificate and its key, if the members require one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The file with the password; white space at its end does not count.
    pub password_file: PathBuf,
}

/// Reason why a text is not a location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The scheme is neither `etcd` nor `etcds`.
    #[error("expected etcd://HOST:PORT[,HOST:PORT...][/PREFIX] or etcds://...")]
    Scheme,
    /// A member has no host or no port.
    #[error("{0:?}: expected HOST:PORT")]
    Endpoint(String),
    /// A parameter is unknown.
    #[error("{0:?}: expected ca, cert, key, user or password-file, each with =VALUE")]
    Parameter(String),
    /// `etcds` has no `ca`, or `etcd` has one.
    #[error("etcds:// needs ?ca=FILE, and only etcds:// takes ca, cert and key")]
    Authority,
    /// One of two parameters that belong together is missing.
    #[error("{0} and {1} go together")]
    Pair(&'static str, &'static str),
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let (scheme, rest) = text.split_once("://").ok_or(LocationError::Scheme)?;
        let secure = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(LocationError::Scheme),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, prefix) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let http = if secure { "https" } else { "http" };
        let endpoints = hosts
            .split(',')
            .map(|host| endpoint(host).map(|host| format!("{http}://{host}")))
            .collect::<Result<_, _>>()?;
        let prefix = match prefix.trim_end_matches('/') {
            "" => PREFIX,
            prefix => prefix,
        };
        let mut parameters = Parameters::default();
        for parameter in query.split('&').filter(|p| !p.is_empty()) {
            parameters.set(parameter)?;
        }
        let (tls, user) = parameters.finish(secure)?;
        Ok(Self {
            endpoints,
            prefix: prefix.to_owned(),
            tls,
            user,
        })
    }
}

/// Returns the text if it is `HOST:PORT`.
fn endpoint(text: &str) -> Result<&str, LocationError> {
    let right = text.rsplit_once(':').is_some_and(|(host, port)| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        !host.is_empty() && host.chars().all(plain) && port.parse::<u16>().is_ok()
    });
    if right {
        Ok(text)
    } else {
        Err(LocationError::Endpoint(text.to_owned()))
    }
}

#[derive(Default)]
struct Parameters {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
}

impl Parameters {
    fn set(&mut self, parameter: &str) -> Result<(), LocationError> {
        let unknown = || LocationError::Parameter(parameter.to_owned());
        let (name, value) = parameter.split_once('=').ok_or_else(unknown)?;
        if value.is_empty() {
            return Err(unknown());
        }
        match name {
            "ca" => self.ca = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "user" => self.user = Some(value.to_owned()),
            "password-file" => self.password_file = Some(value.into()),
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn finish(self, secure: bool) -> Result<(Option<Tls>, Option<User>), LocationError> {
        let identity = match (self.cert, self.key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(LocationError::Pair("cert", "key")),
        };
        let tls = match (secure, self.ca, identity) {
            (true, Some(ca), identity) => Some(Tls { ca, identity }),
            (false, None, None) => None,
            _ => return Err(LocationError::Authority),
        };
        let user = match (self.user, self.password_file) {
            (Some(name), Some(password_file)) => Some(User {
                name,
                password_file,
            }),
            (None, None) => None,
            _ => return Err(LocationError::Pair("user", "password-file")),
        };
        Ok((tls, user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn several_members_and_a_prefix() {
        let location: Location = "etcd://a:2379,10.0.0.2:2379/dc/one/".parse().unwrap();
        assert_eq!(
            location.endpoints,
            ["http://a:2379", "http://10.0.0.2:2379"]
        );
        assert_eq!(location.prefix, "/dc/one");
        assert_eq!((location.tls, location.user), (None, None));
    }

    #[test]
    fn an_etcd_url_without_a_prefix_uses_the_default() {
        for text in ["etcd://[::1]:2379", "etcd://[::1]:2379/"] {
            let location: Location = text.parse().unwrap();
            assert_eq!(location.endpoints, ["http://[::1]:2379"]);
            assert_eq!(location.prefix, "/tailbound/place");
        }
    }

    #[test]
    fn tls_and_a_user_come_from_files() {
        let location: Location =
            "etcds://a:1/p?ca=/ca.pem&cert=c.pem&key=k.pem&user=place&password-file=/pw"
                .parse()
                .unwrap();
        assert_eq!(location.endpoints, ["https://a:1"]);
        assert_eq!(
            location.tls,
            Some(Tls {
                ca: "/ca.pem".into(),
                identity: Some(("c.pem".into(), "k.pem".into())),
            })
        );
        assert_eq!(
            location.user,
            Some(User {
                name: "place".into(),
                password_file: "/pw".into(),
            })
        );
    }

    #[test]
    fn each_location_mistake_has_its_own_error() {
        let error = |text: &str| text.parse::<Location>().unwrap_err();
        assert_eq!(error("sqlite:x"), LocationError::Scheme);
        assert_eq!(error("http://a:1"), LocationError::Scheme);
        assert_eq!(error("etcd://"), LocationError::Endpoint(String::new()));
        assert_eq!(error("etcd://a"), LocationError::Endpoint("a".into()));
        assert_eq!(
            error("etcd://a:99999"),
            LocationError::Endpoint("a:99999".into())
        );
        assert_eq!(
            error("etcd://u:p@a:1"),
            LocationError::Endpoint("u:p@a:1".into())
        );
        assert_eq!(
            error("etcd://a:1?x=1"),
            LocationError::Parameter("x=1".into())
        );
        assert_eq!(error("etcds://a:1"), LocationError::Authority);
        assert_eq!(error("etcd://a:1?ca=f"), LocationError::Authority);
        assert_eq!(
            error("etcds://a:1?ca=f&cert=c"),
            LocationError::Pair("cert", "key")
        );
        assert_eq!(
            error("etcd://a:1?user=u"),
            LocationError::Pair("user", "password-file")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_location_or_an_error(text in "(etcds?://)?[ -~]{0,60}") {
            if let Ok(location) = text.parse::<Location>() {
                prop_assert!(!location.endpoints.is_empty());
                prop_assert!(location.prefix.starts_with('/'));
                prop_assert!(!location.prefix.ends_with('/'));
            }
        }
    }
}
