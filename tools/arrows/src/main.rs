//! Checks who imports whom in a workspace: `arrows DIRECTORY`. Between crates the
//! table in the directory's ARCHITECTURE.md decides ([`table`]), between modules
//! of a crate there is no circle ([`circles`]). Lists have all large types ([`sizes`]) and the
//! number of tuple parameters ([`tuples`]).

mod circles;
mod resolve;
mod sizes;
mod source;
mod table;
mod tuples;

use sizes::Sizes;
use source::Modules;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use table::Workspace;
use tuples::Functions;

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
    let mut sizes = Sizes::new();
    let mut found = Functions::new();
    let roots = workspace.roots.iter();
    for (name, root) in roots.flat_map(|(name, roots)| roots.iter().map(move |root| (name, root))) {
        let root = Path::new(root)
            .strip_prefix(&base)
            .unwrap_or(Path::new(root));
        let modules = Modules::of(root, &|file| read(&base.join(file)))?;
        sizes::measure(name, &modules, &mut sizes);
        tuples::measure(name, &modules, &mut found);
        for circle in circles::circles(&modules) {
            let members: Vec<_> = circle.members.into_iter().collect();
            let members = members.join(", ");
            wrong.push(format!("{}: import each other: {members}", root.display()));
            wrong.extend(circle.arrows.iter().map(|arrow| format!("    {arrow}")));
        }
    }
    let list = sizes::parse(&read(&directory.join(sizes::FILE))?)?;
    let bases = committed(directory, sizes::FILE, sizes::parse)?;
    wrong.extend(sizes::judge(&list, &sizes, &bases));
    let list = tuples::parse(&read(&directory.join(tuples::FILE))?)?;
    let bases = committed(directory, tuples::FILE, tuples::parse)?;
    wrong.extend(tuples::judge(&list, &found, &bases));
    Ok(wrong)
}

/// The content of a list in HEAD, its parent, and the merge bases with main, as far as they exist.
fn committed<T>(
    directory: &Path,
    file: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(String, T)>, String> {
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(directory).args(words);
        let output = command.output().ok()?;
        output.status.success().then_some(())?;
        String::from_utf8(output.stdout).ok()
    };
    let mut commits = vec![
        git(&["rev-parse", "-q", "--verify", "HEAD"]),
        git(&["rev-parse", "-q", "--verify", "HEAD^"]),
    ];
    commits.extend(["main", "origin/main"].map(|main| git(&["merge-base", "HEAD", main])));
    let commits: BTreeSet<_> = commits.into_iter().flatten().collect();
    let mut lists = Vec::new();
    for commit in &commits {
        let commit = commit.trim();
        if let Some(text) = git(&["show", &format!("{commit}:{file}")]) {
            let short = commit.get(..12).unwrap_or(commit);
            lists.push((short.to_owned(), parse(&text)?));
        }
    }
    Ok(lists)
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
