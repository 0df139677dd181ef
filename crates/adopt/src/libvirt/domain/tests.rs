use super::*;

/// A domain that is about to start, as libvirt hands it to a hook.
const WEB: &str = "<domain type='kvm' id='1'>
  <name>web</name>
  <uuid>3f0c7ad2-9b1e-4c55-8d7a-444455556666</uuid>
  <metadata>
    <tailbound:guarantee xmlns:tailbound='https://github.com/tailbound/tailbound'
      bandwidth='100Mbit/s' burst='30KB' ip='10.0.0.1, fd00::1'/>
  </metadata>
  <devices>
    <interface type='vhostuser'><mac address='52:54:00:00:00:09'/></interface>
    <interface type='bridge'>
      <mac address='52:54:00:00:00:01'/>
      <source bridge='br0'/>
      <target dev='vnet3'/>
    </interface>
  </devices>
</domain>
";

/// A domain of nova's.
const NOVA_WEB: &str = "<domain type='kvm' id='1'>
  <name>instance-00000885</name>
  <uuid>629b29b9-b0fb-4766-b27d-f4a686d5cbda</uuid>
  <metadata>
    <nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>
      <nova:flavor name='fast'>
        <nova:extraSpecs>
          <nova:extraSpec name='hw:cpu_policy'>dedicated</nova:extraSpec>
          <nova:extraSpec name='tailbound:bandwidth'>50Mbit/s</nova:extraSpec>
          <nova:extraSpec name='tailbound:burst'>16KB</nova:extraSpec>
          <nova:extraSpec name='tailbound:delay'>1ms</nova:extraSpec>
        </nova:extraSpecs>
      </nova:flavor>
    </nova:instance>
  </metadata>
  <devices>
    <interface type='bridge'><mac address='fa:16:3e:00:00:01'/><target dev='tap6f1'/></interface>
    <interface type='bridge'><mac address='fa:16:3e:00:00:02'/><target dev='tap6f2'/></interface>
  </devices>
</domain>
";

fn wish_of(xml: &str) -> Wish {
    let domain = Domain::read("web", xml).expect("it is right");
    domain.wish.expect("it has metadata")
}

#[test]
fn a_server_of_nova_has_its_project_and_its_id() {
    let owned = |project: &str| {
        let owner =
            format!("<nova:owner><nova:project uuid='{project}'>p</nova:project></nova:owner>");
        NOVA_WEB.replace("</nova:flavor>", &format!("</nova:flavor>{owner}"))
    };
    for (project, owner) in [
        (
            "6f70656e737461636b20342065766572",
            "6f70656e737461636b20342065766572",
        ),
        ("6f70656e-7374", "6f70656e-7374"),
        ("A/of \u{20ac}", "aof"),
        ("--", "nova"),
    ] {
        let found = server("web", &owned(project)).unwrap().unwrap();
        assert_eq!(found.owner, owner);
        assert_eq!(found.machine, "629b29b9-b0fb-4766-b27d-f4a686d5cbda");
    }
    // A server without a guarantee, and a domain that nova did not make.
    let plain = owned("p").replace("tailbound:", "quota:");
    assert_eq!(server("web", &plain), Ok(None));
    assert_eq!(server("web", WEB), Ok(None));
    assert!(server("web", "<domain").is_err());
}

#[test]
fn a_domains_guarantee_is_that_of_its_metadata() {
    let domain = Domain::read("web", WEB).unwrap();
    assert_eq!(domain.key(), "domain/3f0c7ad2-9b1e-4c55-8d7a-444455556666");
    let Wish {
        interface,
        mac,
        request,
    } = wish_of(WEB);
    assert_eq!(
        (interface.as_str(), mac.to_string().as_str()),
        ("vnet3", "52:54:00:00:00:01")
    );
    assert_eq!(
        request.guarantee.unwrap().to_string(),
        "100Mbit/s with a burst of 30KB"
    );
    assert_eq!(
        (request.ips.len(), request.allowance),
        (2, Allowance::default())
    );
    assert!(request.guard && request.outward.is_none());
    let counted = wish_of(&WEB.replace("burst='30KB'", "lateness='100us' packet='2KB'"));
    let allowance = Allowance {
        packet: Some(Bytes(2_000)),
        lateness: Some(Nanos::from_micros(100)),
    };
    assert_eq!(counted.request.allowance, allowance);
    // Without a bandwidth it is guarded.
    let guarded = wish_of(&WEB.replace("bandwidth='100Mbit/s' burst='30KB'", "dscp='46'"));
    assert_eq!(
        (guarded.request.guarantee, guarded.request.dscp),
        (None, Some(46))
    );
    let without = WEB.replace("github.com/tailbound/tailbound", "libosinfo.org");
    assert_eq!(Domain::read("web", &without).unwrap().wish, None);
}

#[test]
fn a_flavors_extra_specs_are_the_guarantee_of_the_first_interface() {
    let Wish {
        interface, request, ..
    } = wish_of(NOVA_WEB);
    assert_eq!(interface, "tap6f1");
    assert_eq!(
        request.guarantee.unwrap().to_string(),
        "50Mbit/s with a burst of 16KB"
    );
    assert!(!request.guard, "neutron has its own");
    let plain = NOVA_WEB.replace("tailbound:", "other:");
    assert_eq!(Domain::read("web", &plain).unwrap().wish, None);
}

#[test]
fn a_mistake_is_named_with_its_line() {
    let second = "</devices>";
    let more = "<interface type='network'><mac address='52:54:00:00:00:02'/><target dev='vnet4'/>\
                </interface></devices>";
    for (xml, from, to, said) in [
        (
            WEB,
            "100Mbit/s",
            "100Mb",
            "line 5 of its XML: bandwidth: \"100Mb\" has the unknown unit",
        ),
        (WEB, "30KB", "30Kb", "burst: "),
        (WEB, "30KB", "10B", "a burst below one frame"),
        (WEB, "bandwidth=", "bandwith=", "did you mean `bandwidth`?"),
        (WEB, "bandwidth='100Mbit/s'", "", "burst without bandwidth"),
        (WEB, "burst='30KB'", "dscp='64'", "use 0 to 63"),
        (WEB, "burst=", "lateness='soon' burst=", "lateness: "),
        (WEB, "burst=", "packet='1KB' burst=", "packet: 1KB is not"),
        (WEB, "10.0.0.1,", "10.0.0,", "\"10.0.0\" is no IP address"),
        (
            WEB,
            "burst=",
            "mac='52:54:00:00:00:07' burst=",
            "it has 52:54:00:00:00:01",
        ),
        (WEB, "bridge'>", "vhostuser'>", "no interface on a bridge"),
        (WEB, second, more, "select one by mac"),
        (
            NOVA_WEB,
            "50Mbit/s",
            "50mbps",
            "line 9 of its XML: bandwidth: \"50mbps\"",
        ),
        (
            NOVA_WEB,
            "1ms",
            "1 fortnight",
            "line 11 of its XML: delay: ",
        ),
        (
            NOVA_WEB,
            "tailbound:burst",
            "tailbound:bursts",
            "did you mean `burst`?",
        ),
        (WEB, "<name>web</name>", "", "not its XML"),
    ] {
        let changed = xml.replace(from, to);
        let error = Domain::read("web", &changed).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
        assert!(!error.contains(". "), "one sentence: {error}");
    }
    // The end of a domain is no place for an error about its metadata.
    let changed = WEB.replace("100Mbit/s", "100Mb");
    assert!(Domain::identify("web", &changed).is_ok());
    assert!(Domain::identify("web", "<domain>").is_err());
}
