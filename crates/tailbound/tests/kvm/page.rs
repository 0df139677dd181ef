//! Commands of a page: in blocks of the kind `console`, after a prompt that says where.

/// A command, and the hosts on which it is given.
pub(crate) struct Command {
    pub(crate) hosts: Vec<&'static str>,
    pub(crate) line: String,
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
                commands.push(Command { hosts, line });
            } else {
                continue;
            }
            let command = commands.last().expect("it has begun");
            let open = command.line.matches('\'').count() % 2 == 1;
            goes_on = open || command.line.ends_with('\\');
        }
    }
    commands
}
