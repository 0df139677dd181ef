//! Choice of the processes that are killed, and of the times.

use crate::clients::Clients;
use crate::etcd::Etcd;
use crate::services::Services;
use std::ops::AddAssign;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Sleep of a paused leader: longer than its lease, so that another replica leads when it resumes.
const LEADER_PAUSE: Duration = Duration::from_millis(2500);

/// A process that is killed or paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The service that decides; killed.
    Leader,
    /// One that follows; killed.
    Follower,
    /// The leader of the etcd members; killed.
    Etcd,
    /// The service that decides; stopped, and awake again when another decides.
    Sleeper,
}

impl Victim {
    pub(crate) const ALL: [Self; 4] = [Self::Leader, Self::Etcd, Self::Follower, Self::Sleeper];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Etcd => "etcd",
            Self::Sleeper => "sleeper",
        }
    }
}

/// Number of kills for each kind of victim.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kills([usize; Victim::ALL.len()]);

impl Kills {
    pub(crate) fn of(&self, victim: Victim) -> usize {
        self.0[victim as usize]
    }
}

impl AddAssign for Kills {
    fn add_assign(&mut self, other: Self) {
        for (all, some) in self.0.iter_mut().zip(other.0) {
            *all += some;
        }
    }
}

/// Kills while the clients work, spread over it; restarts what was killed.
pub(crate) fn during(
    clients: &Clients,
    services: &mut Services,
    mut etcd: Option<&mut Etcd>,
    count: usize,
) -> Kills {
    /// The kinds take turns, over the rounds too.
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let mut kills = Kills::default();
    for number in 0..count {
        clients.wait_for(1000 * (number + 1) / (count + 1));
        let victim = match &etcd {
            Some(_) => Victim::ALL[TURN.fetch_add(1, Ordering::Relaxed) % Victim::ALL.len()],
            None => Victim::Leader,
        };
        kills.0[victim as usize] += 1;
        match (victim, &mut etcd) {
            (Victim::Etcd, Some(etcd)) => {
                let member = etcd.leader();
                etcd.kill(member);
                // The others elect one of themselves meanwhile.
                etcd.leader();
                etcd.restart(member);
            }
            (Victim::Sleeper, _) => {
                let leader = services.leader();
                signal(services, leader, "-STOP");
                sleep(LEADER_PAUSE);
                signal(services, leader, "-CONT");
            }
            (Victim::Follower, _) => {
                let follower = (services.leader() + 1) % services.count();
                end(services, follower);
            }
            (Victim::Leader | Victim::Etcd, _) => {
                let leader = services.leader();
                end(services, leader);
            }
        }
    }
    kills
}

fn end(services: &mut Services, service: usize) {
    services.kill(service);
    services.restart(service);
    services.wait_for(service);
}

fn signal(services: &Services, service: usize, signal: &str) {
    if let Some(pid) = services.pid(service) {
        let status = Command::new("kill")
            .args([signal, &pid.to_string()])
            .status();
        assert!(status.unwrap().success());
    }
}
