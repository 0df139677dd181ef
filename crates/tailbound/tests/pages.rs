//! Pages for readers: the commands of the tutorials run as they stand there, and what pages list is
//! what there is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tailbound_sys::probe::required::{Part, skipped};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The pages below `docs/`, by their paths in it.
fn pages() -> Vec<String> {
    let docs = root().join("docs");
    let mut ahead = vec![docs.clone()];
    let mut found = Vec::new();
    while let Some(directory) = ahead.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                ahead.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                let name = path.strip_prefix(&docs).unwrap();
                found.push(name.to_str().unwrap().to_owned());
            }
        }
    }
    found
}

/// Types the commands of a page, and checks what each prints and its exit code.
fn script(name: &str, prompt: &str) -> String {
    let output = Command::new(root().join("scripts/typed"))
        .arg(root().join("docs").join(name))
        .arg(prompt)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command as an ordinary user.
const ORDINARY: [&str; 5] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
];

/// Returns the user that must own the directory of such a command; `None` for the present user.
fn owner(inside: &[&str]) -> Option<u32> {
    inside.contains(&ORDINARY[1]).then_some(65_534)
}

/// Returns prefixes for the present user and, if that is root, for an ordinary user too.
fn users() -> Vec<&'static [&'static str]> {
    let is_root = rustix::process::geteuid().is_root();
    let ordinary = is_root.then_some(&ORDINARY[..]);
    std::iter::once(&["env"][..]).chain(ordinary).collect()
}

/// Runs the script by a shell in its own directory, with the program under test. The first command
/// that fails ends the script; its background processes end with it.
fn run(script: &str, inside: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), owner(inside), owner(inside)).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_tailbound"));
    let path = std::env::var("PATH").unwrap();
    let mut words = inside.to_vec();
    let whole = format!("set -eum\ntrap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n{script}");
    words.extend(["bash", "-c", &whole]);
    Command::new(words[0])
        .args(&words[1..])
        .current_dir(directory.path())
        .env(
            "PATH",
            format!(
                "{}:{path}:/usr/sbin:/sbin",
                program.parent().unwrap().display()
            ),
        )
        .env("HOME", directory.path())
        .output()
        .unwrap()
}

fn assert_runs(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{printed}");
}

#[test]
fn a_tenants_commands_run_as_they_stand_on_the_page() {
    for user in users() {
        let output = run(&script("how-to/tenant.md", "$ "), user);
        assert_runs(&output);
        let printed = String::from_utf8_lossy(&output.stdout);
        let verdicts = ["GOOD ", "BAD ", "UNSURE ", "INCONCLUSIVE "];
        assert!(
            verdicts.iter().any(|it| printed.starts_with(it)),
            "{printed}"
        );
        // There were enough calls for a verdict.
        assert!(!printed.contains("no 99.9th percentile"), "{printed}");
    }
}

#[test]
fn a_researchers_commands_run_as_they_stand_on_the_page() {
    for user in users() {
        let output = run(&script("how-to/researcher.md", "$ "), user);
        assert_runs(&output);
    }
}

#[test]
fn the_three_calls_of_a_script_run_as_they_stand_on_the_page() {
    let output = run(&script("how-to/place-libvirt.md", "$ "), &["env"]);
    assert_runs(&output);
}

#[test]
fn a_lost_store_comes_back_by_the_commands_of_the_drill() {
    let output = run(&script("how-to/operation.md", "$ "), &["env"]);
    assert_runs(&output);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.matches("HOLDS").count(), 2, "{said}");
}

#[test]
fn an_operators_commands_for_certificates_run_as_they_stand_on_the_page() {
    if Command::new("openssl").arg("version").output().is_err() {
        skipped(Part::Openssl, "it is not installed");
        return;
    }
    let page = script("reference/control.md", "$ ");
    assert_runs(&run(&page, &["env"]));
    // The authority's own certificate is refused with the remedy.
    let own = "printf 'frame = \"1538B\"\n[[host]]\nname = \"a\"\ncount = 2\nslots = 8\n\
         uplink = { rate = \"10Gbit/s\", buffer = \"300KB\" }\n' > dc.toml\n\
         openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 \
         -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout own.key -out own.pem\n\
         tailbound place token --role operator > tokens.toml 2> secret\n\
         tail -n 1 secret > token\n\
         tailbound place serve --listen 127.0.0.1:7444 --store sqlite:place.db \
         --topology dc.toml --tokens tokens.toml --tls-cert own.pem --tls-key own.key >out & sleep 2\n\
         tailbound place status --url https://127.0.0.1:7444 --ca own.pem --token-file token\n";
    let output = run(&format!("set +e\n{own}"), &["env"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("make a server certificate"), "{said}");
    assert!(!said.contains("the flag is --ca"), "{said}");
}

#[test]
fn an_operators_commands_for_containers_run_as_they_stand_on_the_page() {
    let namespaces = ["unshare", "--net", "--mount"];
    let of_a_user = ["unshare", "--net", "--mount", "--user", "--map-root-user"];
    let is_root = rustix::process::geteuid().is_root();
    let ways = if is_root {
        vec![
            namespaces.to_vec(),
            [&ORDINARY[..], &of_a_user[..]].concat(),
        ]
    } else {
        vec![of_a_user.to_vec()]
    };
    for inside in &ways {
        let tried = Command::new(inside[0])
            .args(&inside[1..])
            .arg("true")
            .output();
        if !tried.is_ok_and(|it| it.status.success()) {
            skipped(Part::NetworkNamespaces, "namespaces are not allowed");
            return;
        }
    }
    for (part, word) in [(Part::Ip, "ip"), (Part::Ping, "ping")] {
        if Command::new(word).arg("-V").output().is_err() {
            skipped(part, "it is not installed");
            return;
        }
    }
    // Names of namespaces and the daemon's lock are nobody else's.
    let before = "mount -t tmpfs none /run\n";
    let script = format!("{before}{}", script("how-to/containers.md", "# "));
    for inside in ways {
        let output = run(&script, &inside);
        assert_runs(&output);
    }
}

#[test]
fn an_operators_commands_to_adopt_containers_run_as_they_stand_on_the_page() {
    let inside = ["unshare", "--net", "--mount"];
    let is_root = rustix::process::geteuid().is_root();
    // The directories of journal and pins are the page's own.
    let before = "mount -t tmpfs none /run\nmount -t tmpfs none /var/lib\n\
         mount -t bpf bpf /sys/fs/bpf\n";
    let tried = Command::new(inside[0])
        .args(&inside[1..])
        .args(["sh", "-ec", before])
        .output();
    if !is_root || !tried.is_ok_and(|it| it.status.success()) {
        skipped(Part::BpfEdge, "no BPF file system can be mounted");
        return;
    }
    let page = script("how-to/adopt.md", "# ");
    assert_runs(&run(&format!("{before}{page}"), &inside));
}

#[test]
fn an_operators_first_ten_commands_name_missing_requirements() {
    let Some(ordinary) = users().pop() else {
        return;
    };
    let configuration = "cat > h.toml <<'END'\n[[guest]]\nname = \"web\"\n\
         mac = \"02:00:00:00:00:01\"\nip = [\"10.0.0.1\"]\n\
         port = { kind = \"tap\", interface = \"tap-web\" }\nEND\n";
    let no_daemon = "start one with `tailbound host --config ...`";
    for (command, code, said) in [
        ("tailbound --version", 0, "tailbound 0."),
        ("tailbound doctor host", 0, "host  "),
        ("tailbound check-config h.toml", 0, "h.toml: ok: 1 guest"),
        (
            "tailbound host --config h.toml",
            2,
            "it takes CAP_NET_ADMIN in the interface's network namespace",
        ),
        ("tailbound host show --config h.toml", 2, no_daemon),
        ("tailbound top --once --config h.toml", 2, no_daemon),
        ("tailbound vcpu list --interval 10ms --pid $$", 0, "GUEST"),
        (
            "tailbound vcpu apply --pid $$ --level top --state /proc/none",
            2,
            "/proc/none: ",
        ),
        (
            "tailbound vcpu restore --state none",
            0,
            "nothing to restore",
        ),
        (
            "tailbound place status --url http://127.0.0.1:9 --patience 100ms",
            2,
            "is it running (tailbound place serve)",
        ),
    ] {
        let output = run(&format!("{configuration}{command} 2>&1"), ordinary);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{command}: {printed}");
        assert!(printed.contains(said), "{command}: {printed}");
    }
}

#[test]
fn the_configuration_of_the_readme_is_right() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, block) = readme.split_once("```toml\n# host.toml").unwrap();
    let text = block.split_once("\n```").unwrap().0;
    let script =
        format!("cat > host.toml <<'END'\n#{text}\nEND\ntailbound check-config host.toml\n");
    assert_runs(&run(&script, &["env"]));
}

/// Runs a page of these lines of a block of the kind `console`.
fn run_lines(lines: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.md");
    fs::write(&page, format!("# Page\n```console\n{lines}```\n")).unwrap();
    run(&script(page.to_str().unwrap(), "$ "), &["env"])
}

#[test]
fn a_command_that_matches_its_page_passes() {
    let output = run_lines(
        "$ tailbound --version\ntailbound ...\n$ false   # exit code 1\n$ true\n\
         $ printf 'a\nb (c)\n'\na\nb (c)\n$ cat > f <<'END'\n$ x\nEND\n$ cat f\n$ x\n",
    );
    let said = String::from_utf8_lossy(&output.stderr);
    // The last line is another command, as it has the prompt.
    assert!(said.contains("page.md: cat f: prints something"), "{said}");
    let right =
        "$ echo one two \\\n  three\n... two ...\n$ ls none   # exit code 1 or 2\nls: ...\n";
    assert_runs(&run_lines(right));
}

#[test]
fn a_command_that_differs_from_its_page_fails_the_page() {
    for (lines, why) in [
        (
            "$ false\n$ echo on\non\n",
            "page.md: false: ends with 1 and not with 0",
        ),
        ("$ true  # exit code 2\n", "ends with 0 and not with 2"),
        (
            "$ echo one\n",
            "prints something, and the page shows nothing",
        ),
        ("$ echo one\ntwo\n", "prints no such line: ^two"),
        ("$ printf '1\n2\n'\n2\n1\n", "prints no such line: ^1"),
    ] {
        let output = run_lines(lines);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{lines}: {said}");
        assert!(said.contains(why), "{lines}: {said}");
    }
}

/// Pages whose commands run here or in another test, as they stand on the page.
const RUN: &[(&str, &str)] = &[
    ("how-to/adopt.md", "pages.rs"),
    ("how-to/containers.md", "pages.rs"),
    ("reference/control.md", "pages.rs"),
    ("how-to/kvm.md", "kvm.rs"),
    ("how-to/operation.md", "pages.rs"),
    ("how-to/place-libvirt.md", "pages.rs"),
    ("how-to/qemu.md", "kvm.rs"),
    ("how-to/researcher.md", "pages.rs"),
    ("how-to/tenant.md", "pages.rs"),
];

/// Pages whose commands do not run as they stand on the page, and why not.
const NOT_RUN: &[(&str, &str)] = &[
    ("README.md", "builds and runs the tests themselves"),
    ("reference/host.md", "asks a second host by ssh"),
    (
        "how-to/install.md",
        "installs, and starts a service of systemd",
    ),
    (
        "reference/kernel-bench.md",
        "boots Debian's kernels; `make kernel-bench` runs all experiments",
    ),
    (
        "reference/lab.md",
        "measures for ten minutes; lab.rs runs short ones",
    ),
    (
        "explanation/models.md",
        "simulates for minutes; sim.rs runs short ones",
    ),
    (
        "tutorials/quick-start.md",
        "builds, and measures for two minutes",
    ),
    (
        "how-to/openstack.md",
        "needs a cloud; `make openstack` boots the page's flavor in nova's fixtures",
    ),
    (
        "how-to/release.md",
        "builds a release, and has files of one",
    ),
    (
        "explanation/results.md",
        "shows a data centre of 400 hosts as it was on a day",
    ),
    (
        "reference/vcpu.md",
        "needs virtual machines, and root for their classes",
    ),
    (
        "how-to/why.md",
        "needs guests of a host; why.rs and watch.rs run the commands",
    ),
];

#[test]
fn commands_of_all_pages_run_or_are_listed_with_the_reason() {
    let docs = pages();
    let docs = docs.iter().map(|name| (&name[..], page(name)));
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut with_commands = Vec::new();
    for (name, text) in docs.chain([("README.md", readme)]) {
        assert!(
            !text.contains("|| true"),
            "{name}: `|| true` hides the exit code; write `# exit code 1` behind the command"
        );
        if text.contains("\n```console\n") {
            with_commands.push(name.to_owned());
        }
    }
    with_commands.sort_unstable();
    let mut listed: Vec<_> = RUN.iter().chain(NOT_RUN).map(|(name, _)| *name).collect();
    listed.sort_unstable();
    assert_eq!(with_commands, listed);
}

#[test]
fn the_configuration_reference_matches_the_types() {
    let output = Command::new("python3")
        .arg(root().join("scripts/reference"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let made = String::from_utf8(output.stdout).unwrap();
    let is_same = made == page("reference/configuration.md");
    assert!(
        is_same,
        "run: scripts/reference > docs/reference/configuration.md"
    );
}

/// The keys of the table below a heading of the reference.
fn keys(heading: &str) -> BTreeSet<String> {
    let page = page("reference/configuration.md");
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).expect(heading);
    let section = rest.split("\n##").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split_once('`').unwrap().0.to_owned())
        .collect()
}

#[test]
fn the_reference_has_the_keys_that_the_program_knows() {
    let directory = tempfile::tempdir().unwrap();
    for (heading, text) in [
        ("## host.toml", "zzzzzzzz = 1\n"),
        ("### UplinkConfig", "[uplink]\nzzzzzzzz = 1\n"),
        ("### GuestConfig", "[[guest]]\nzzzzzzzz = 1\n"),
        ("### PacerConfig", "[uplink]\npacer = { zzzzzzzz = 1 }\n"),
        (
            "### PipelineConfig",
            "[uplink]\npipeline = { zzzzzzzz = 1 }\n",
        ),
        ("### HoseConfig", "[hose]\nzzzzzzzz = 1\n"),
        ("### GuestRule", "[[vcpu.guest]]\nzzzzzzzz = 1\n"),
    ] {
        let path = directory.path().join("host.toml");
        fs::write(&path, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_tailbound"))
            .arg("check-config")
            .arg(&path)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let (_, known) = said.split_once("`zzzzzzzz`; known here: ").expect(&said);
        let known = known.lines().next().unwrap().split(", ");
        let known: BTreeSet<_> = known.map(str::to_owned).collect();
        assert_eq!(keys(heading), known, "{heading}");
    }
}

/// All of the sources in one line, as texts that go on in the next line are one text.
fn sources() -> String {
    let mut all = String::new();
    let mut ahead = vec![root().join("crates")];
    while let Some(directory) = ahead.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                ahead.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                all += &fs::read_to_string(path).unwrap();
            }
        }
    }
    let words: Vec<_> = all
        .replace("\\\n", " ")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    words.join(" ")
}

/// The texts in code spans of the first column of a page's table of messages, in parts where `...` stands for
/// a value.
fn messages(name: &str) -> Vec<String> {
    let page = page(name);
    let (_, table) = page.split_once("\n| message |").expect(name);
    let rows = table.lines().take_while(|line| !line.is_empty());
    let cells = rows.filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let spans = cells.flat_map(|cell| cell.split('`').step_by(2));
    let parts = spans.flat_map(|span| span.split("..."));
    let parts = parts.map(|part| part.trim_matches([' ', ':', ';', ',']).to_owned());
    parts.filter(|part| part.split(' ').count() > 1).collect()
}

#[test]
fn the_messages_of_the_pages_on_trouble_are_messages_of_the_program() {
    let sources = sources();
    for name in ["how-to/operation.md", "reference/vcpu.md"] {
        let messages = messages(name);
        assert!(messages.len() > 3, "{messages:?}");
        for message in messages {
            assert!(
                sources.contains(&message),
                "{name}: no code says {message:?}"
            );
        }
    }
}

#[test]
fn each_page_stands_in_the_table_of_contents_once() {
    let summary = page("SUMMARY.md");
    let mut listed: Vec<_> = summary
        .split("](")
        .skip(1)
        .map(|rest| rest.split_once(')').unwrap().0.to_owned())
        .collect();
    listed.sort_unstable();
    let above = [
        "ARCHITECTURE",
        "CHANGELOG",
        "CONTRIBUTING",
        "README",
        "SECURITY",
        "SPECIFICATION",
    ];
    let mut there: Vec<_> = above.iter().map(|name| format!("{name}.md")).collect();
    there.extend(pages().into_iter().filter(|name| name != "SUMMARY.md"));
    there.sort_unstable();
    assert_eq!(listed, there);
}
