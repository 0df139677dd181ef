//! The agent's configuration: how often it looks, and for whom.

use super::journal::DEFAULT_STATE;
use super::offer::OfferConfig;
use super::path::PathConfig;
use super::rule::GuestRule;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tailbound_document::{Document, DocumentError, Mistake, Problem, Step};
use tailbound_units::Nanos;

/// The vCPU agent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    /// Address of the metrics of `tailbound vcpu watch`; none. Not in `tailbound host`.
    pub metrics: Option<SocketAddr>,
    /// Interval of scans for guests, threads and drift; 1 s.
    pub every: Nanos,
    /// Interval of reading late waits or their sums; 100 ms.
    pub sample: Nanos,
    /// Measures each wait by BPF if the kernel permits; true.
    pub bpf: bool,
    /// Wait from which causes are measured; 1 ms, at least 100 us.
    pub late: Nanos,
    /// Metrics of each thread, with the finest buckets; false.
    pub detail: bool,
    /// Settings to restore; `/run/tailbound/vcpu.json`.
    pub state: PathBuf,
    /// Permits other agents on this host, with other guests and state files; false.
    pub beside_others: bool,
    /// CRI socket of the container runtime, for names of pods; a known one.
    pub cri: Option<PathBuf>,
    /// Reaction to a thread or weight that another program changed; `"reapply"`, at most three
    /// times an hour.
    pub drift: OnDrift,
    /// Class and CPUs of the packet loop; unchanged.
    pub path: Option<PathConfig>,
    /// CPU offered to the placement service; none.
    pub offer: Option<OfferConfig>,
    /// Rules; the first match of a guest applies.
    #[serde(rename = "guest")]
    pub rules: Vec<GuestRule>,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            metrics: None,
            every: Nanos::from_secs(1),
            sample: Nanos::from_millis(100),
            bpf: true,
            late: Nanos::from_millis(1),
            detail: false,
            state: DEFAULT_STATE.into(),
            beside_others: false,
            cri: None,
            drift: OnDrift::default(),
            path: None,
            offer: None,
            rules: Vec::new(),
        }
    }
}

/// The treatment of drifted threads, which another program has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDrift {
    /// Drifted threads are counted and changed back: each at most three times an hour. Then the
    /// thread stays as it is until the first of these changes is an hour old.
    #[default]
    Reapply,
    /// Drifted threads are counted and stay as they are.
    Report,
}

impl AgentConfig {
    /// Reads a file of the agent's own, for `tailbound vcpu`.
    ///
    /// # Errors
    /// All mistakes found, as [`DocumentError`] prints them.
    pub fn load(path: &Path) -> Result<Self, DocumentError> {
        DocumentError::load(path, Self::parse)
    }

    /// Reads the text of a file of the agent's own.
    ///
    /// # Errors
    /// All mistakes found, in the order of their place; at least one.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let document = Document::parse(text)?;
        let config: Self = document.whole()?;
        let problems = config.check(&[]);
        if problems.is_empty() {
            return Ok(config.with_path(None));
        }
        Err(document.locate(problems))
    }

    /// Returns this configuration with a rule for the host's own packet path before those of
    /// guests: for the process `daemon`, if that is the agent's own, otherwise for the daemon's
    /// control group.
    #[must_use]
    pub fn with_path(mut self, daemon: Option<u32>) -> Self {
        let rule = self.path.as_ref().map(|path| path.rule(daemon));
        self.rules.splice(0..0, rule);
        self
    }

    /// Returns everything wrong with it; `at` is its path in the document.
    pub fn check(&self, at: &[Step]) -> Vec<Problem> {
        let mut wrong = Vec::new();
        if let Some(Err(error)) = self.metrics.map(tailbound_metrics::check_address) {
            wrong.push(Problem::new(
                &[at, &[Step::Key("metrics")]].concat(),
                error.to_string(),
            ));
        }
        for (key, value, least) in [
            ("every", self.every, Nanos::from_millis(10)),
            ("sample", self.sample, Nanos::from_millis(10)),
        ] {
            if value < least {
                wrong.push(Problem {
                    path: [at, &[Step::Key(key)]].concat(),
                    message: format!(
                        "looking every {value} would itself be load; use at least {least}"
                    ),
                });
            }
        }
        if let Some(path) = &self.path {
            wrong.extend(path.check(&[at, &[Step::Key("path")]].concat()));
        }
        if let Some(offer) = &self.offer {
            wrong.extend(offer.check(&[at, &[Step::Key("offer")]].concat()));
        }
        let least = Nanos::from_micros(100);
        if self.late < least {
            wrong.push(Problem {
                path: [at, &[Step::Key("late")]].concat(),
                message: format!(
                    "to look at each wait of {} would itself be load; use at least {least}",
                    self.late
                ),
            });
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let place = [at, &[Step::Key("guest"), Step::Index(index)]].concat();
            wrong.extend(rule.check(&place));
        }
        wrong
    }
}

/// The source of the agent's configuration.
#[derive(Debug, Clone)]
pub enum ConfigSource {
    /// A file, which can be read again.
    File(PathBuf),
    /// The command line.
    Given(Box<AgentConfig>),
}

impl ConfigSource {
    /// Returns the configuration, with `state` instead of its own state file, if set.
    ///
    /// # Errors
    /// All mistakes in the file.
    pub fn load(&self, state: Option<&Path>) -> Result<AgentConfig, DocumentError> {
        let mut config = match self {
            Self::File(path) => AgentConfig::load(path)?,
            Self::Given(config) => (**config).clone(),
        };
        if let Some(state) = state {
            state.clone_into(&mut config.state);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let mistakes = AgentConfig::parse(text).unwrap_err().into_iter();
        mistakes.map(|mistake| mistake.to_string()).collect()
    }

    #[test]
    fn a_file_of_rules_is_read() {
        let text = r#"
            metrics = "127.0.0.1:9465"
            every = "2s"
            [[guest]]
            name = "web*"
            class = { kind = "periodic", runtime = "500us", deadline = "3ms", period = "3ms" }
            helpers = { kind = "aperiodic" }
            affinity = "keep"
            [[guest]]
            container = "4fa6"
            level = "high"
        "#;
        let config = AgentConfig::parse(text).unwrap();
        assert_eq!(
            config.rules[0].class().to_string(),
            "periodic 500us/3ms/3ms"
        );
        assert_eq!(config.rules[0].helpers(), config.rules[1].class());
        assert_eq!(config.state, PathBuf::from(DEFAULT_STATE));
    }

    #[test]
    fn reclaiming_requires_a_longest_excess() {
        let rule = |more: &str| {
            let text = format!("[[guest]]\nname = \"a\"\n{more}\n");
            AgentConfig::parse(&text).map_err(|_| mistakes(&text).join("\n"))
        };
        let whole = "level = \"top\"\nexcess = \"reclaim\"\nlongest_excess = \"160ms\"";
        rule(whole).unwrap();
        rule("level = \"top\"\nexcess = \"none\"").unwrap();
        for (more, why) in [
            (
                "level = \"top\"\nexcess = \"reclaim\"",
                "the longest time that other threads may wait",
            ),
            (
                "level = \"top\"\nlongest_excess = \"1s\"",
                "has no effect without `excess",
            ),
            (
                &whole.replace("top", "high"),
                "has no reservation to go beyond",
            ),
        ] {
            let said = rule(more).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn every_mistake_has_its_place() {
        let text = "[[guest]]\nname = \"a\"\npid = 3\nlevel = \"high\"\n\
            [[guest]]\nname = \"b\"\nclass = { kind = \"periodic\", runtime = \"4ms\", deadline = \"3ms\", period = \"2ms\" }\n\
            [[guest]]\ncontainer = \"xyz\"\n";
        let found = mistakes(text);
        let starts = [
            "1:1: the rule matches no guest",
            "7:40: a runtime of 4ms",
            "7:58: a deadline of 3ms",
            "8:1: use either",
            "9:13: \"xyz\"",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
        assert_eq!(
            mistakes("[[guest]]\nnam = \"a\"\n"),
            ["2:1: unknown key `nam`; did you mean `name`?"]
        );
        for (key, remedy) in [
            (
                "uuid = \"web\"",
                "2:8: \"web\" is not a UUID; use what `virsh domuuid",
            ),
            (
                "vmid = 7",
                "2:8: 7 is not a VMID; use 100 to 999999999, as `qm list`",
            ),
        ] {
            let found = mistakes(&format!("[[guest]]\n{key}\nlevel = \"high\"\n"));
            assert!(found[0].starts_with(remedy), "{found:?}");
        }
        assert!(mistakes("every = \"1ms\"\n")[0].starts_with("1:9: looking every 1ms"));
        assert_eq!(
            mistakes("[[guest]]\nname = \"a\"\nclass = \"high\"\n"),
            [
                "3:9: invalid type: string \"high\"; expected a table with a `kind`, such as \
                 { kind = \"aperiodic\" }, or `level` in its place (normal, high, top)"
            ]
        );
        assert!(mistakes("metrics = \"0.0.0.0:1\"\n")[0].contains("other machines"));
    }
}
