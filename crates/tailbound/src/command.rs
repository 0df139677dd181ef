//! Subcommands, one file each.

#[cfg(any(feature = "host", feature = "place"))]
mod address;
#[cfg(feature = "host")]
mod adopt;
#[cfg(feature = "advise")]
mod advise;
#[cfg(feature = "calc")]
mod calc;
#[cfg(feature = "host")]
mod check_config;
#[cfg(feature = "host")]
pub(crate) mod cni;
#[cfg(feature = "host")]
mod doctor;
#[cfg(all(test, feature = "all"))]
mod documented;
mod elsewhere;
#[cfg(any(feature = "lab", feature = "sim"))]
mod experiment;
#[cfg(feature = "host")]
mod host;
#[cfg(feature = "look")]
mod interval;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "manual")]
mod manual;
mod output;
#[cfg(feature = "place")]
mod place;
#[cfg(feature = "probe")]
mod probe;
#[cfg(feature = "host")]
mod release;
#[cfg(feature = "report")]
mod report;
#[cfg(feature = "sim")]
mod reproduce;
#[cfg(feature = "look")]
mod screen;
#[cfg(feature = "probe")]
mod select;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "look")]
mod support_bundle;
#[cfg(feature = "look")]
mod top;
#[cfg(feature = "host")]
mod trace;
#[cfg(feature = "host")]
mod vcpu;
mod version;
#[cfg(feature = "look")]
mod views;
#[cfg(feature = "look")]
mod watch;
#[cfg(feature = "look")]
mod why;

use crate::exit::{Exit, Failure};
pub(crate) use elsewhere::absent;
#[cfg(any(feature = "host", feature = "place"))]
pub(crate) use output::paints_log;
pub(crate) use output::{Color, help, lost, print};
#[cfg(any(feature = "lab", feature = "sim"))]
pub(crate) use version::commit;
pub(crate) use version::version;

/// The commands of `tailbound`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Find the cause of a guest's slow periods: CPU, host, network, its own limits, or itself
    #[cfg(feature = "look")]
    Why(why::Args),
    /// Show the guests of this host, the slowest first, each with the cause
    #[cfg(feature = "look")]
    Watch(watch::Args),
    /// Protect a guest in the network that it has: guard, tag, limits, guarantee
    #[cfg(feature = "host")]
    Adopt(Box<adopt::Args>),
    /// Undo the adoption of a guest
    #[cfg(feature = "host")]
    Release(release::Args),
    /// Adopt containers as a plugin of their runtime (CNI)
    #[cfg(feature = "host")]
    Cni(cni::Args),
    /// Run the host daemon, which forwards and paces the packets of this host's guests
    #[cfg(feature = "host")]
    Host(host::Args),
    /// Check a host configuration without applying it
    #[cfg(feature = "host")]
    CheckConfig(check_config::Args),
    /// Show rates, guarantees, backlogs, queueing delays and drops of a daemon's guests
    #[cfg(feature = "look")]
    Top(top::Args),
    /// Set and restore the scheduling class of vCPU threads
    #[cfg(feature = "host")]
    Vcpu(vcpu::Args),
    /// Record CPU waits and frame delays of a guest, for Perfetto
    #[cfg(feature = "host")]
    Trace(trace::Args),
    /// Test from inside a guest whether neighbours delay its vCPUs
    #[cfg(feature = "probe")]
    Probe(Box<probe::Args>),
    /// Choose the best of many probed instances
    #[cfg(feature = "probe")]
    Select(select::Args),
    /// Run experiments in network namespaces on this computer
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    /// Run experiments in network namespaces on this computer (package tailbound-lab)
    #[cfg(all(feature = "operator", not(feature = "lab")))]
    #[command(disable_help_flag = true)]
    Lab(elsewhere::Args),
    /// Run simulations, with the papers' figures beside them
    #[cfg(feature = "sim")]
    Sim(sim::Args),
    /// Run simulations, with the papers' figures beside them (package tailbound-lab)
    #[cfg(all(feature = "operator", not(feature = "sim")))]
    #[command(disable_help_flag = true)]
    Sim(elsewhere::Args),
    /// Compare every table and figure of the papers with results from this computer
    #[cfg(feature = "sim")]
    Reproduce(reproduce::Args),
    /// Compare every table and figure of the papers with results from this computer (package
    /// tailbound-lab)
    #[cfg(all(feature = "operator", not(feature = "sim")))]
    #[command(disable_help_flag = true)]
    Reproduce(elsewhere::Args),
    /// Compute bounds of delay and backlog for a network of queues (network calculus)
    #[cfg(feature = "calc")]
    Calc(calc::Args),
    /// Advise on a tenant's guarantee and its price, from recorded traffic
    #[cfg(feature = "advise")]
    Advise(Box<advise::Args>),
    /// Advise on a tenant's guarantee and its price, from recorded traffic (package tailbound-lab)
    #[cfg(all(feature = "operator", not(feature = "advise")))]
    #[command(disable_help_flag = true)]
    Advise(elsewhere::Args),
    /// Run and use the placement service, which admits tenants with guarantees
    #[cfg(feature = "place")]
    Place(place::Args),
    /// Show and compare the results of experiments
    #[cfg(feature = "report")]
    Report(report::Args),
    /// Check what this computer supports, and show how to fix problems
    #[cfg(feature = "host")]
    Doctor(doctor::Args),
    /// Write a file with facts about this computer, for a support request
    #[cfg(feature = "look")]
    SupportBundle(support_bundle::Args),
    /// Print the manual page of a command, or write all pages
    #[cfg(feature = "manual")]
    Man(manual::Man),
    /// Print the completion script for a shell
    #[cfg(feature = "manual")]
    Completions(manual::Completions),
}

impl Command {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self {
            #[cfg(feature = "look")]
            Self::Why(args) => args.run(),
            #[cfg(feature = "look")]
            Self::Watch(args) => args.run(views::open),
            #[cfg(feature = "host")]
            Self::Adopt(args) => args.run(),
            #[cfg(feature = "host")]
            Self::Release(args) => args.run(),
            #[cfg(feature = "host")]
            Self::Cni(cni::Args {}) => cni::run(),
            #[cfg(feature = "host")]
            Self::Host(args) => args.run(),
            #[cfg(feature = "host")]
            Self::CheckConfig(args) => args.run(),
            #[cfg(feature = "look")]
            Self::Top(args) => args.run(views::open),
            #[cfg(feature = "host")]
            Self::Vcpu(args) => args.run(
                #[cfg(feature = "look")]
                views::open,
            ),
            #[cfg(feature = "host")]
            Self::Trace(args) => args.run(),
            #[cfg(feature = "probe")]
            Self::Probe(args) => args.run(),
            #[cfg(feature = "probe")]
            Self::Select(args) => args.run(),
            #[cfg(feature = "lab")]
            Self::Lab(args) => args.run(),
            #[cfg(all(feature = "operator", not(feature = "lab")))]
            Self::Lab(args) => args.run(&["lab"]),
            #[cfg(feature = "sim")]
            Self::Sim(args) => args.run(),
            #[cfg(feature = "sim")]
            Self::Reproduce(args) => args.run(),
            #[cfg(all(feature = "operator", not(feature = "sim")))]
            Self::Sim(args) => args.run(&["sim"]),
            #[cfg(all(feature = "operator", not(feature = "sim")))]
            Self::Reproduce(args) => args.run(&["reproduce"]),
            #[cfg(feature = "calc")]
            Self::Calc(args) => args.run(),
            #[cfg(feature = "advise")]
            Self::Advise(args) => args.run(),
            #[cfg(all(feature = "operator", not(feature = "advise")))]
            Self::Advise(args) => args.run(&["advise"]),
            #[cfg(feature = "place")]
            Self::Place(args) => args.run(),
            #[cfg(feature = "report")]
            Self::Report(args) => args.run(),
            #[cfg(feature = "host")]
            Self::Doctor(args) => args.run(),
            #[cfg(feature = "look")]
            Self::SupportBundle(args) => args.run(),
            #[cfg(feature = "manual")]
            Self::Man(args) => args.run(),
            #[cfg(feature = "manual")]
            Self::Completions(args) => Ok(args.run()),
        }
    }
}

#[cfg(all(test, feature = "all"))]
mod tests {
    use crate::Cli;
    use clap::CommandFactory as _;

    /// Commands without `--output json`, because they print no table and no list, each with its
    /// output.
    const WITHOUT: &[(&str, &str)] = &[
        ("cni", "the JSON of CNI"),
        ("completions", "a script for a shell"),
        (
            "host",
            "runs until it is ended; `host show` says what it does",
        ),
        ("host add-guest", "says nothing but errors"),
        ("host change-guest", "says nothing but errors"),
        ("host drain", "says nothing but errors"),
        ("host libvirt-hook", "libvirt's protocol"),
        ("host libvirt-watch", "runs until it is ended"),
        ("host migrate-prepare", "says nothing but errors"),
        ("host remove-guest", "says nothing but errors"),
        ("lab show", "a file in TOML"),
        ("man", "a page for man(1)"),
        ("place openapi", "is JSON"),
        ("place serve", "runs until it is ended"),
        ("probe serve", "runs until it is ended"),
        ("report export", "writes a log of histograms"),
        ("report show", "shows a file that is JSON"),
        ("sim flows show", "a file in TOML"),
        ("sim net network", "a file in TOML"),
        ("sim net show", "a file in TOML"),
        ("sim pacer show", "a file in TOML"),
        ("sim packets show", "a file in TOML"),
        ("sim placement show", "a file in TOML"),
        ("sim shaper show", "a file in TOML"),
        ("sim vcpu show", "a file in TOML"),
        ("support-bundle", "writes a file"),
        ("top", "a terminal; `host show` has the same"),
        ("trace", "writes a file that is JSON"),
        ("vcpu watch", "runs until it is ended"),
    ];

    /// Finds the commands without subcommands, in words as on the command line, and whether each
    /// has `--output`.
    fn walk(command: &clap::Command, name: &str, found: &mut Vec<(String, bool)>) {
        let below: Vec<_> = command
            .get_subcommands()
            .filter(|it| !it.is_hide_set() && it.get_name() != "help")
            .collect();
        let does = below.is_empty() || !command.is_subcommand_required_set();
        if does && !name.is_empty() {
            let has = command.get_arguments().any(|arg| {
                let json = |value: &clap::builder::PossibleValue| value.get_name() == "json";
                arg.get_long() == Some("output") && arg.get_possible_values().iter().any(json)
            });
            found.push((name.to_owned(), has));
        }
        for it in below {
            let name = format!("{name} {}", it.get_name());
            walk(it, name.trim(), found);
        }
    }

    #[test]
    fn every_command_with_a_table_offers_json_output() {
        let mut found = Vec::new();
        walk(&Cli::command(), "", &mut found);
        assert!(found.len() > 50, "{found:?}");
        for (name, has) in &found {
            let without = WITHOUT.iter().any(|(it, _)| it == name);
            assert_ne!(*has, without, "{name}");
        }
        for (name, why) in WITHOUT {
            assert!(found.iter().any(|(it, _)| it == name), "{name}: {why}");
        }
    }
}
