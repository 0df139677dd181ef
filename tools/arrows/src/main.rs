//! Checks who imports whom in a workspace: `arrows DIRECTORY`. Between crates the
//! table in the directory's ARCHITECTURE.md decides ([`table`]), between modules
//! of a crate there is no circle ([`circles`]).

mod circles;
mod resolve;
mod source;
mod table;

use source::Modules;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use table::Workspace;

fn main() -> ExitCode {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    match check(Path::new(&directory)) {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            for line in wrong {
                eprintln!("{line}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("arrows: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns the mistakes, a line each; an error if the check is impossible.
fn check(directory: &Path) -> Result<Vec<String>, String> {
    let document = read(&directory.join("ARCHITECTURE.md"))?;
    let workspace = Workspace::parse(&metadata(directory)?)?;
    let mut wrong = table::judge(&table::parse(&document)?, &workspace);
    let base = directory
        .canonicalize()
        .map_err(|error| error.to_string())?;
    for root in workspace.roots.values().flatten() {
        let root = Path::new(root)
            .strip_prefix(&base)
            .unwrap_or(Path::new(root));
        let modules = Modules::of(root, &|file| read(&base.join(file)))?;
        for circle in circles::circles(&modules) {
            let members: Vec<_> = circle.members.into_iter().collect();
            let members = members.join(", ");
            wrong.push(format!("{}: import each other: {members}", root.display()));
            wrong.extend(circle.arrows.iter().map(|arrow| format!("    {arrow}")));
        }
    }
    Ok(wrong)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn metadata(directory: &Path) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(directory)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
