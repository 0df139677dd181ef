//! Starts the loads of tenants: memcached with its clients, and shuffles.

use super::super::{Output, Role, Run, Source};
use super::{INITIAL_WINDOW, PASSAGES};
use crate::LabError;
use crate::arrivals::seed_for;
use crate::experiment::{Etc, Shuffle};
use crate::guest::{Requests, Work};
use crate::tools;
use crate::topology::Guest;
use crate::vm::Asked;
use std::net::SocketAddrV4;
use tailbound_experiment::Name;

impl<'a> Run<'a> {
    pub(super) fn start_memcached(
        &mut self,
        guest: &Name,
    ) -> Result<(SocketAddrV4, usize), LabError> {
        let guest = self.guest(guest)?;
        let port = self.port();
        let asked = Asked::Program(tools::memcached(port));
        let role = Role::Foreign { ends: false };
        let place = self.start(guest, "memcached", asked, role)?;
        Ok((SocketAddrV4::new(guest.ip, port), place))
    }

    pub(super) fn start_etc(
        &mut self,
        etc: &'a Etc,
        (server, place): (SocketAddrV4, usize),
    ) -> Result<(), LabError> {
        let mut on_path = self.daemons_of(std::iter::once(&etc.server).chain(&etc.clients));
        on_path.extend(self.unless_tested(self.guest(&etc.server)?, place));
        let mut outcomes = Vec::new();
        for (number, name) in etc.clients.iter().enumerate() {
            let guest = self.guest(name)?;
            let load = format!("{} {number}", etc.name.get_ref());
            let work = Work::Etc(Requests {
                server,
                workers: etc.workers,
                mean_gap: etc.mean_gap,
                largest: etc.largest,
                seed: seed_for(self.context.seed, &load),
            });
            let what = format!("client of {}", etc.name.get_ref());
            let (place, outcome) = self.start_task(guest, &what, work, Role::Measures)?;
            on_path.extend(self.unless_tested(guest, place));
            outcomes.push(outcome);
        }
        let answered = Output::Value(etc.value.clone(), "op/s");
        self.load(answered, Source::Own(outcomes.clone()), Vec::new());
        let series = Output::Series(etc.series.clone());
        let passages = (etc.largest <= INITIAL_WINDOW).then_some(PASSAGES);
        self.requests(series, Source::Own(outcomes), on_path, passages);
        Ok(())
    }

    /// Starts a process for each guest of a shuffle. The process must listen before others connect:
    /// they connect when the load starts.
    pub(super) fn start_shuffle(&mut self, shuffle: &'a Shuffle) -> Result<(), LabError> {
        let port = self.port();
        let mut guests: Vec<&Guest> = Vec::new();
        for name in &shuffle.guests {
            guests.push(self.guest(name)?);
        }
        let mut outcomes = Vec::new();
        for guest in &guests {
            let elsewhere = guests.iter().filter(|peer| peer.host != guest.host);
            let peers = elsewhere
                .map(|peer| SocketAddrV4::new(peer.ip, port))
                .collect();
            let work = Work::Shuffle { port, peers };
            outcomes.push(self.start_task(guest, "shuffle", work, Role::Serves)?.1);
        }
        let rate = Output::Value(shuffle.value.clone(), "bit/s");
        self.load(rate, Source::Own(outcomes), Vec::new());
        Ok(())
    }
}
