//! Commands of a page: in blocks of the kind `console`, after a prompt with the names of
//! hosts. Lines below a command are its output, as `scripts/typed` has them.

/// A command, and the hosts on which it is given.
pub(crate) struct Command {
    pub(crate) hosts: Vec<&'static str>,
    pub(crate) line: String,
    /// Lines that it prints, with anything in the place of `...`.
    shown: Vec<String>,
}

impl Command {
    /// The first line of the page that `printed` lacks, if it lacks one.
    pub(crate) fn lacks(&self, printed: &str) -> Option<&str> {
        let mut lines = printed.lines();
        let mut shown = self.shown.iter();
        let missing = shown.find(|line| !lines.any(|it| is_like(it.trim_end(), line)));
        missing.map(String::as_str)
    }
}

/// Returns true if a line has all parts of `pattern` in their order, and begins and ends as it does.
fn is_like(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The commands of the section of `page` that is headed by `heading`, in their order.
pub(crate) fn commands(page: &str, heading: &str) -> Vec<Command> {
    let (_, section) = page.split_once(&format!("\n{heading}\n")).expect(heading);
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("\n```console\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split_once("\n```").map(|(block, _)| block));
    let mut commands: Vec<Command> = Vec::new();
    for block in blocks {
        let mut goes_on = false;
        for line in block.lines() {
            if goes_on {
                let command = commands.last_mut().expect("it has begun");
                command.line.push('\n');
                command.line.push_str(line);
            } else if let Some((prompt, line)) = line.split_once("# ") {
                let hosts = match prompt {
                    "h1" => vec!["h1"],
                    "h2" => vec!["h2"],
                    "both" => vec!["h1", "h2"],
                    _ => continue,
                };
                let line = line.to_owned();
                commands.push(Command {
                    hosts,
                    line,
                    shown: Vec::new(),
                });
            } else {
                let command = commands.last_mut().expect("a line of no command");
                command.shown.push(line.to_owned());
                continue;
            }
            let command = commands.last().expect("it has begun");
            let open = command.line.matches('\'').count() % 2 == 1;
            goes_on = open || command.line.ends_with('\\');
        }
    }
    commands
}
