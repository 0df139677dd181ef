//! Hosts that follow their guarantees, and the age of what they have.

use crate::clients::{History, agent};
use crate::cluster::{Cluster, REPLICAS};
use crate::network::Node;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::thread::sleep;
use std::time::Duration;
use tailbound_units::Rate;
use ureq::Agent;
use ureq::http::Request;

/// Silence after which a host changes over, and the pause before the next replica, as the daemon has them.
const SILENCE: Duration = Duration::from_secs(12);
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// One host and its connection to the replicas.
pub(crate) struct Follower {
    host: String,
    /// The replica that it takes first.
    first: usize,
    agent: Agent,
    authorization: String,
}

impl Follower {
    pub(crate) fn new(host: &str, first: usize, cluster: &Cluster) -> Self {
        Self {
            host: host.to_owned(),
            first,
            agent: agent(cluster),
            authorization: cluster.authorization(),
        }
    }

    /// Follows the guarantees until the history ends. Returns the greatest age that they had.
    pub(crate) fn run(self, history: &History) -> Duration {
        let mut age = Age::new(history);
        let replicas = REPLICAS.iter().cycle().skip(self.first);
        for replica in replicas.take_while(|_| !history.is_over()) {
            for line in self.lines(*replica).take_while(|_| !history.is_over()) {
                age.read(&serde_json::from_str(&line).unwrap());
            }
            sleep(RETRY_PAUSE);
        }
        // A host without a line would have no age.
        assert!(age.limit > 0, "no guarantees came to {}", self.host);
        age.greatest
    }

    /// The lines of one stream, which are none if the replica refuses it.
    fn lines(&self, replica: Node) -> impl Iterator<Item = String> {
        let (url, host) = (Cluster::url(replica), &self.host);
        let request = Request::get(format!("{url}/v1/hosts/{host}/guarantees/stream"))
            .header("authorization", &self.authorization)
            .body(())
            .unwrap();
        let request = self.agent.configure_request(request);
        let answer = self
            .agent
            .run(request.timeout_per_read(Some(SILENCE)).build());
        let answer = answer.ok().filter(|answer| answer.status() == 200);
        let body = answer.map(|answer| BufReader::new(answer.into_body().into_reader()));
        body.into_iter()
            .flat_map(|body| body.lines().map_while(Result::ok))
    }
}

/// The age of a host's guarantees, by the limit of the beacon in them.
struct Age<'h> {
    history: &'h History,
    /// The limit that the host has; 0 before the first one.
    limit: usize,
    greatest: Duration,
}

impl<'h> Age<'h> {
    fn new(history: &'h History) -> Self {
        Self {
            history,
            limit: 0,
            greatest: Duration::ZERO,
        }
    }

    fn read(&mut self, line: &Value) {
        // Until now the host had the last line.
        let old = self.history.since_when_old(self.limit).elapsed();
        self.greatest = self.greatest.max(old);
        let rate = line["vms"][0]["limit"]["out"]["rate"].as_str();
        if let Some(rate) = rate {
            let rate: Rate = rate.parse().unwrap();
            self.limit = usize::try_from(rate.as_bit_s() / 1_000_000).unwrap();
        }
    }
}
