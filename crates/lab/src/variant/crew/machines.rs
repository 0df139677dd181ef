//! The guests of a variant that are VMs: starts them, and returns the commands that run programs in
//! them.

use super::Crew;
use crate::LabError;
use crate::guest::command as task_command;
use crate::hosts;
use crate::processes::{POLL, Rank, Start};
use crate::topology::{Guest, GuestKind};
use crate::vm::{self, Boot, Card, GuestCommand};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tailbound_units::Nanos;

/// Time limit for the boot of a VM, beside others that boot as well.
const OUTCOME_TIMEOUT: Duration = Duration::from_mins(1);
/// Time limit for QEMU to make its sockets.
const SOCKETS: Duration = Duration::from_secs(10);

/// A started VM.
#[derive(Debug)]
pub(super) struct RunningVm {
    /// The `ip` commands for its links.
    links: String,
    /// Number of orders that were sent to it.
    orders: usize,
    /// Largest error of its clock; `None` until it has booted.
    clock_error: Option<Nanos>,
}

impl<'a> Crew<'a> {
    /// Starts all VMs of a variant with a network in parallel, and waits until they accept orders.
    pub(in crate::variant) fn start_machines(&mut self) -> Result<(), LabError> {
        if self.variant.pipeline.is_none() {
            return Ok(());
        }
        let topology = self.context.topology;
        let directory = self.context.session.directory();
        let guests = topology.guests.iter();
        for guest in guests.filter(|guest| guest.kind == GuestKind::Machine) {
            let socket = hosts::card(directory, &guest.name);
            let mac = guest.mac_text();
            let card = Card {
                socket: &socket,
                mac: &mac,
            };
            self.start_machine(guest, Some(&card))?;
        }
        self.finish_boots()
    }

    /// Starts a guest's VM.
    pub(in crate::variant) fn start_machine(
        &mut self,
        guest: &'a Guest,
        card: Option<&Card<'_>>,
    ) -> Result<(), LabError> {
        let Some(machines) = &self.context.machines else {
            return Err(LabError::io("machines")(
                std::io::ErrorKind::NotFound.into(),
            ));
        };
        let directory = self.context.session.directory();
        // Sockets of the previous variant.
        for number in 0..=vm::ORDERS {
            let _ = std::fs::remove_file(vm::channel(directory, &guest.name, number));
        }
        let session = self.context.session;
        let cpus = if self.shares_core(guest) {
            session.cpus.shared()
        } else {
            session.cpus.others
        };
        let name = format!("guest {}'s machine", guest.name);
        let child = self.supervisor.start(Start {
            args: machines.arguments(&guest.name, directory, card),
            policy: session.policy(Rank::Tested),
            ..Start::new(name, vm::QEMU, &guest.name, cpus)
        })?;
        self.inside.entry(&guest.name).or_default().push(child);
        let links = card.map_or_else(String::new, |_| self.context.topology.guest_links(guest));
        let started = RunningVm {
            links,
            orders: 0,
            clock_error: None,
        };
        self.machines.insert(&guest.name, started);
        Ok(())
    }

    /// Waits until all started VMs accept orders.
    pub(in crate::variant) fn finish_boots(&mut self) -> Result<(), LabError> {
        let directory = self.context.session.directory();
        for (name, machine) in &mut self.machines {
            if machine.clock_error.is_some() {
                continue;
            }
            let end = Instant::now() + SOCKETS;
            let boot = loop {
                self.supervisor.look()?;
                match Boot::begin(directory, name) {
                    Ok(boot) => break boot,
                    Err(_) if Instant::now() < end => std::thread::sleep(POLL),
                    Err(error) => return Err(failed(name)(error)),
                }
            };
            let booted = boot.finish(&machine.links, OUTCOME_TIMEOUT);
            // The reason of its end is a better message than the end.
            self.supervisor.look()?;
            machine.clock_error = Some(booted.map_err(failed(name))?);
        }
        Ok(())
    }

    /// Returns the largest error of any VM's clock; `None` without VMs.
    pub(in crate::variant) fn clock_error(&self) -> Option<Nanos> {
        let machines = self.machines.values();
        machines.filter_map(|machine| machine.clock_error).max()
    }

    /// Returns the program that executes `command` in a guest, and its arguments.
    pub(super) fn command(
        &mut self,
        guest: &Guest,
        command: GuestCommand,
    ) -> Result<(PathBuf, Vec<String>), LabError> {
        let program = self.context.session.program.clone();
        let Some(machine) = self.machines.get_mut(guest.name.as_str()) else {
            return Ok(match command {
                GuestCommand::Task(path) => (program, task_command(&path)),
                GuestCommand::Program(mut words) => {
                    let arguments = words.split_off(1.min(words.len()));
                    (PathBuf::from(words.concat()), arguments)
                }
            });
        };
        if machine.orders == vm::ORDERS {
            let message = format!("starting more than {} programs in a machine", vm::ORDERS);
            return Err(LabError::io(message)(
                std::io::ErrorKind::QuotaExceeded.into(),
            ));
        }
        machine.orders += 1;
        let directory = self.context.session.directory();
        let socket = vm::channel(directory, &guest.name, machine.orders);
        let mut args = ["lab", "machine", "do"].map(str::to_owned).to_vec();
        args.push(socket.display().to_string());
        match command {
            GuestCommand::Task(path) => args.extend(["--task".into(), path.display().to_string()]),
            GuestCommand::Program(words) => {
                args.push("--".into());
                args.extend(words);
            }
        }
        Ok((program, args))
    }
}

fn failed(guest: &str) -> impl Fn(std::io::Error) -> LabError {
    let action = format!("booting guest {guest}'s machine");
    move |error| LabError::io(action.clone())(error)
}
