//! `tailbound man` and `tailbound completions`: the command line, for readers and for shells.
//!
//! Both are generated from the declaration of `--help`.

use super::output;
use crate::Cli;
use crate::exit::{Exit, Failure};
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `tailbound man`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The page has the format of man(1): `tailbound man place serve | man -l -`. \
    Exit code: 0 printed or written; 2 not written."
)]
pub(crate) struct Man {
    /// The command, such as `place serve` [default: tailbound]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
    /// Write the pages of all commands to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Arguments of `tailbound completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "For bash, add to ~/.bashrc: source <(tailbound completions bash). The \
    packages contain the files for bash, fish and zsh. Exit code: 0."
)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Man {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let root = commands();
        let Some(directory) = &self.out else {
            let page = page(find(&root, &self.command)?)?;
            output::print(&String::from_utf8_lossy(&page));
            return Ok(Exit::Holds);
        };
        fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
        write_all(&root, directory)?;
        Ok(Exit::Holds)
    }
}

impl Completions {
    pub(crate) fn run(self) -> Exit {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tailbound", &mut script);
        output::print(&String::from_utf8_lossy(&script));
        Exit::Holds
    }
}

/// The whole command line, with the full names of all commands.
fn commands() -> Command {
    let mut root = Cli::command();
    root.build();
    root
}

/// Returns the subcommands of a command that have a page.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

fn find<'a>(root: &'a Command, words: &[String]) -> Result<&'a Command, Failure> {
    let mut current = root;
    for word in words {
        current = shown(current)
            .find(|command| command.get_name() == word)
            .ok_or_else(|| {
                let known: Vec<_> = shown(current).map(Command::get_name).collect();
                let known = match known.as_slice() {
                    [] => "it has no commands".to_owned(),
                    known => format!("it has {}", known.join(", ")),
                };
                Failure::wrong_arguments(format!(
                    "{} has no command {word:?}; {known}",
                    current.get_bin_name().unwrap_or("tailbound")
                ))
            })?;
    }
    Ok(current)
}

/// Returns a command's page, in roff.
fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .source(concat!("tailbound ", env!("CARGO_PKG_VERSION")))
        .manual("tailbound")
        .render(&mut page)?;
    Ok(page)
}

fn write_all(command: &Command, directory: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or("tailbound");
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, page(command)?).map_err(|error| failed(&path, &error))?;
    shown(command).try_for_each(|below| write_all(below, directory))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects a command and all its subcommands.
    fn all<'a>(command: &'a Command, found: &mut Vec<&'a Command>) {
        found.push(command);
        for below in shown(command) {
            all(below, found);
        }
    }

    #[test]
    fn each_page_names_its_command_and_all_its_flags() {
        let root = commands();
        let mut found = Vec::new();
        all(&root, &mut found);
        assert!(found.len() > 40, "{}", found.len());
        for command in found {
            let page = String::from_utf8(page(command).unwrap()).unwrap();
            // In roff, \- is a hyphen without a line break.
            let page = page.replace("\\-", "-");
            let name = command.get_display_name().unwrap_or("tailbound");
            assert!(page.contains(&format!(".SH NAME\n{name}")), "{page}");
            for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
                if let Some(long) = flag.get_long() {
                    assert!(page.contains(&format!("--{long}")), "{name}: --{long}");
                }
            }
        }
    }

    #[test]
    fn all_pages_are_written_and_one_is_found_by_its_words() {
        let directory = tempfile::tempdir().unwrap();
        let root = commands();
        write_all(&root, directory.path()).unwrap();
        let written = directory.path().join("tailbound-place-serve.1");
        let words = ["place", "serve"].map(str::to_owned);
        let printed = page(find(&root, &words).unwrap()).unwrap();
        assert_eq!(fs::read(written).unwrap(), printed);
        assert!(!directory.path().join("tailbound-help.1").exists());
        let hidden = directory.path().join("tailbound-lab-guest.1");
        assert!(!hidden.exists());
        let failure = find(&root, &["place".into(), "serv".into()]).unwrap_err();
        assert_eq!(failure.report(), Exit::WrongArguments);
    }
}
