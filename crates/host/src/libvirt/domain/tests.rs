use super::*;
use crate::config::{Config, PortConfig};
use proptest::prelude::*;

/// A domain that is about to start, as libvirt hands it to a hook.
const WEB: &str = "<domain type='kvm' id='1'>
  <name>web</name>
  <metadata>
    <tailbound:guests xmlns:tailbound=\"https://github.com/tailbound/tailbound\">
      <guest>
        ip = [\"10.0.0.1\"]
        guarantee = { bandwidth = \"100Mbit/s\", burst = \"15KB\", burst_rate = \"1Gbit/s\" }
      </guest>
    </tailbound:guests>
  </metadata>
  <devices>
    <interface type='network'><mac address='52:54:00:00:00:09'/></interface>
    <interface type='vhostuser'>
      <mac address='52:54:00:00:00:01'/>
      <source type='unix' path='/run/tailbound-host/web' mode='client'>
        <reconnect enabled='yes' timeout='1'/>
      </source>
      <model type='virtio'/>
      <driver queues='2'/>
    </interface>
  </devices>
  <seclabel type='dynamic' model='apparmor' relabel='yes'/>
  <seclabel type='dynamic' model='dac' relabel='yes'>
    <label>+64055:+64055</label>
  </seclabel>
</domain>
";

fn second() -> String {
    let interface = "<interface type='vhostuser'><mac address='52:54:00:00:00:02'/>\
                     <source type='unix' path='/run/second' mode='server'/></interface></devices>";
    WEB.replace("</devices>", interface)
}

fn domain(xml: &str) -> Domain {
    Domain::read("web", xml).expect("it is right")
}

fn wrong(xml: &str) -> String {
    Domain::read("web", xml)
        .expect_err("it is wrong")
        .to_string()
}

/// Returns a domain's guests in a configuration.
fn config(domain: &Domain) -> Config {
    let uplink = "[uplink]\npacer = { link = \"10Gbit/s\" }\n\
                  port = { kind = \"af-packet\", interface = \"eth0\" }\n";
    let config = Config::parse(&format!("{uplink}{}", domain.sections()));
    config.expect("it is right")
}

#[test]
fn a_domain_is_a_guest_by_its_interface_and_its_metadata() {
    let web = domain(WEB);
    assert!(web.runs && web.name == "web");
    let config = config(&web);
    assert_eq!(config.guests.len(), 1);
    let guest = &config.guests[0];
    assert_eq!(guest.name, "web");
    assert_eq!(guest.mac.to_string(), "52:54:00:00:00:01");
    assert!(guest.guarantee.is_some() && guest.ip.len() == 1);
    let PortConfig::VhostUser { user, queues, .. } = guest.port else {
        panic!("{:?}", guest.port);
    };
    assert_eq!((user, queues), (Some(64055), 2));
    // What the daemon shows is compared with that.
    let at = format!("vhost-user {}", web.cards[0].socket);
    assert_eq!(guest.port.to_string(), at);
    assert!(!domain(&WEB.replace(" id='1'", "")).runs);
    let root = domain(&WEB.replace("+64055:", "+0:"));
    assert!(!root.sections().contains("user ="));
}

#[test]
fn metadata_of_other_programs_is_ignored() {
    let other = WEB.replace(
        "https://github.com/tailbound/tailbound",
        "http://libosinfo.org/",
    );
    assert_eq!(domain(&other).sections(), "");
    assert_eq!(domain(&other).cards.len(), 1);
    let none = "<domain type='qemu'><name>a</name></domain>";
    assert!(domain(none).cards.is_empty() && domain(none).sections().is_empty());
    // The second interface is another program's.
    let one = second().replace("<guest>", "<guest mac='52:54:00:00:00:01'>");
    assert_eq!(config(&domain(&one)).guests.len(), 1);
    // Elements may be written in the namespace or in none.
    let all = WEB.replace("<guest>", "<tailbound:guest>");
    let all = all.replace("</guest>", "</tailbound:guest>");
    assert_eq!(domain(&all).sections(), domain(WEB).sections());
}

#[test]
fn each_of_several_interfaces_has_a_guest_and_a_name_of_its_own() {
    let more = "</guest><guest mac='52:54:00:00:00:02' name='back'>anti_spoofing = false</guest>";
    let both = second().replace("<guest>", "<guest mac='52:54:00:00:00:01'>");
    let both = both.replacen("</guest>", more, 1);
    let names = |xml: &str| {
        let guests = config(&domain(xml)).guests;
        guests.into_iter().map(|it| it.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&both), ["web", "back"]);
    assert_eq!(names(&both.replace(" name='back'", "")), ["web", "web.1"]);
    let sections = domain(&both).sections();
    assert!(
        sections.contains("/run/second\", mode = \"client\""),
        "{sections}"
    );
}

/// The mistake in [`WEB`] after replacing the first text by the second, behind `domain web, line `.
const MISTAKES: [(&str, &str, &str); 12] = [
    (
        "tailbound:guests",
        "tailbound:guest",
        "4 of its XML: unknown element <guest>; write <guests> or <guarantee> there",
    ),
    (
        "guest>",
        "gest>",
        "5 of its XML: unknown element <gest>; write <guest> there",
    ),
    (
        "<guest>",
        "<guest ip='10.0.0.1'>",
        "5 of its XML: unknown attribute `ip` of <guest>; known here: name, mac; all else is \
         written inside of it, as in a [[guest]] section",
    ),
    (
        "<guest>",
        "<guest mac='52:54:00:00:00:09'>",
        "5 of its XML: no interface of type vhostuser has the MAC address 52:54:00:00:00:09; \
         name one that does",
    ),
    (
        "'vhostuser'",
        "'bridge'",
        "5 of its XML: the domain has no interface of type vhostuser; add one, or take \
         <guest> out",
    ),
    (
        "</guest>",
        "</guest><guest/>",
        "8 of its XML: the interface 52:54:00:00:00:01 has a <guest> already; leave one of \
         them out",
    ),
    (
        "ip = ",
        "mac = ",
        "5 of its XML: `mac` is taken from the domain; remove it, or set another name by <guest name='...'>",
    ),
    (
        "ip = [",
        "[[guest]]\nip = [",
        "5 of its XML: a <guest> is one section; leave [[guest]] out",
    ),
    (
        "ip = [",
        "<ip/>ip = [",
        "5 of its XML: <guest> has something else than text inside; write there what a \
         [[guest]] section has",
    ),
    (
        "path='/run/tailbound-host/web'",
        "",
        "13 of its XML: the interface has no <source type='unix' path='...' mode='client'/>; \
         add one",
    ),
    (
        "queues='2'",
        "queues='two'",
        "13 of its XML: \"two\" is no number of queues; use 1",
    ),
    (
        "+64055:+64055",
        "qemu:qemu",
        "24 of its XML: \"qemu:qemu\" names no user by number; write +UID:+GID",
    ),
];

#[test]
fn a_metadata_mistake_is_reported_with_its_line_in_the_xml() {
    let line = |message: &str| format!("domain web, line {message}");
    for (from, to, wanted) in MISTAKES {
        assert!(WEB.contains(from), "{from}");
        assert_eq!(wrong(&WEB.replace(from, to)), line(wanted), "{to}");
    }
}

#[test]
fn xml_that_describes_no_domain_is_refused() {
    let two = wrong(&second());
    assert!(
        two.contains("the domain has 2 interfaces of type vhostuser; select one"),
        "{two}"
    );
    for (xml, wanted) in [
        ("", "libvirt's input for domain web is not XML: "),
        ("<domain>", "libvirt's input for domain web is not XML: "),
        (
            "<domain/>",
            "libvirt's input for domain web is not a domain",
        ),
        (
            "<network><name>a</name></network>",
            "libvirt's input for domain web is not a domain",
        ),
        (
            "<!DOCTYPE d [<!ENTITY a 'b'>]><domain><name>&a;</name></domain>",
            "not XML",
        ),
    ] {
        assert!(wrong(xml).contains(wanted), "{xml}");
    }
}

#[test]
fn mistakes_found_by_a_daemon_are_reported_with_their_xml_line() {
    let both = second().replace("<guest>", "<guest mac='52:54:00:00:00:01'>");
    let both = both.replacen(
        "</guest>",
        "</guest>\n<guest mac='52:54:00:00:00:02'>vm = 1</guest>",
        1,
    );
    let both = both.replace("\"100Mbit/s\"", "\"100 apples\"");
    let domain = domain(&both);
    let mistakes = Config::parse(&domain.sections()).expect_err("it is wrong");
    let mistakes = mistakes.iter().map(|mistake| {
        domain.tell(&Wrong::of(
            std::path::Path::new(crate::config::REQUEST),
            mistake,
        ))
    });
    let mistakes: Vec<_> = mistakes.collect();
    let lines: Vec<_> = both.lines().collect();
    // Each in its own line of the XML, at its own column.
    for (told, at) in mistakes.iter().zip(["\"100 apples\"", "1</guest>"]) {
        let line = lines
            .iter()
            .position(|line| line.contains(at))
            .expect("it is there");
        let column = lines[line].find(at).expect("it is there");
        let place = format!("line {}, column {} of its XML: ", line + 1, column + 1);
        assert!(told.starts_with(&place), "{told} is not at {place}");
    }
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    let elsewhere = Wrong {
        file: Some("/etc/host.toml".into()),
        line: 3,
        column: 4,
        message: "no".to_owned(),
    };
    assert_eq!(domain.tell(&elsewhere), "/etc/host.toml:3:4: no");
    let head = Wrong {
        file: None,
        line: 2,
        ..elsewhere
    };
    assert_eq!(domain.tell(&head), "guest web: no");
}

proptest! {
    /// Any name, path and text result in exactly one guest and nothing else, or in an error.
    #[test]
    fn no_value_of_a_domain_becomes_another_key(
        name in "[ -~]{1,12}",
        path in "[ -~]{1,12}",
        text in "[ -~\\n]{0,40}",
        line in 1_usize..20,
    ) {
        let xml = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;");
        let whole = WEB
            .replace("<name>web<", &format!("<name>{}<", xml(&name)))
            .replace("/run/tailbound-host/web", &xml(&path))
            .replace("ip = [\"10.0.0.1\"]", &xml(&text));
        if let Ok(domain) = Domain::read("web", &whole) {
            prop_assert_eq!(domain.cards.len(), 1);
            let sections = domain.sections();
            let head: Vec<_> = sections.lines().take(HEAD).collect();
            let head: toml::Table = head.join("\n").parse().expect("TOML");
            let guest = &head["guest"][0];
            prop_assert_eq!(guest["name"].as_str(), Some(&*domain.name));
            prop_assert_eq!(guest["port"]["socket"].as_str(), Some(&*domain.cards[0].socket));
            let mistake = Wrong { file: None, line, column: 1, message: "no".to_owned() };
            prop_assert!(domain.tell(&mistake).ends_with("no"));
        }
    }

    /// Any bytes are a domain or an error.
    #[test]
    fn any_text_is_a_domain_or_refused(cut in 0..WEB.len(), noise in "\\PC{0,20}") {
        let _ = Domain::read("web", &noise);
        let _ = Domain::read("web", &format!("{}{noise}{}", &WEB[..cut], &WEB[cut..]));
        let _ = Domain::read("web", &format!("{}{noise}", &WEB[..cut]));
    }
}
