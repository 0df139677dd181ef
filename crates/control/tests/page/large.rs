//! The page where there is much: 10,000 hosts, and names of 28 letters.

use crate::browser::Page;
use crate::service::Running;
use tailbound_placement::{Spec, Spread, Uniform, UplinkSpec};
use tailbound_units::{Bytes, Rate};

/// Variable with the folder for the documentation's pictures, if they are wanted.
const PICTURES: &str = "TAILBOUND_PICTURES";

fn picture(page: &Page, name: &str) {
    if let Some(folder) = std::env::var_os(PICTURES) {
        page.picture(&std::path::Path::new(&folder).join(name));
    }
}

/// 10,000 hosts, of whose slots 813 tenants take some two fifths.
fn large() -> Running {
    let link = |gbit: u64, buffer| UplinkSpec {
        rate: Rate::from_mbit(gbit * 1_000),
        links: 1,
        spread: Spread::Flow,
        buffer: Bytes(buffer),
        up_buffer: None,
        shared_buffer: Bytes::ZERO,
    };
    let many = Uniform {
        pods: 10,
        racks: 25,
        hosts: 40,
        slots: 4,
        host_link: link(10, 800_000),
        rack_link: link(80, 800_000),
        pod_link: link(400, 800_000),
        frame: Bytes(1_538),
    };
    let running = Running::start(many.spec(), &[]);
    // Sizes and bandwidths that differ as tenants do: few are large. Four VMs of every fourth tenant take
    // nearly all of a host's link.
    let (mut admitted, mut random) = (0, 1_u32);
    while admitted < 813 {
        random = random.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let vms = 2 + (random >> 16) % 37;
        let (mbit, burst) = match (random >> 8) % 4 {
            0 => (2_400, 1_538),
            1 => (50, 60_000),
            _ => (250, 15_000),
        };
        // Where one does not fit, another comes.
        admitted += u32::from(running.admits(&format!(
            r#"{{"owner":"acme","name":"t{random}","vms":{vms},
                "guarantee":{{"bandwidth":"{mbit}Mbit/s","burst":"{burst}B"}}}}"#
        )));
    }
    running
}

#[test]
fn racks_that_are_tight_stand_out_among_ten_thousand_hosts() {
    let running = large();
    let Some(page) = Page::open(&running.origin) else {
        return;
    };
    page.screen(1400, 1000);
    page.until("document.querySelectorAll('#map .cell').length === 250");
    page.says("#status [data-fact=hosts]", "10,000");
    page.says("#status [data-fact=tenants]", "813");
    // How many racks are drawn in each class, and the share of hosts with headroom in each of them.
    let racks = page.eval(
        r"[0, 1, 2, 3, 4].map((step) => [...document.querySelectorAll(`#map .cell .box.step-${step}`)]
            .map((box) => Number(box.parentNode.dataset.share)))",
    );
    let racks = racks.as_array().expect("five classes");
    let used = racks
        .iter()
        .filter(|racks| **racks != serde_json::json!([]));
    assert!(used.count() >= 3, "{racks:?}");
    for (racks, range) in racks
        .iter()
        .zip([0..100, 100..250, 250..500, 500..750, 750..1_001])
    {
        let mut racks = racks.as_array().expect("a list").iter();
        assert!(racks.all(|share| range.contains(&share.as_u64().expect("a number"))));
    }
    // WCAG 2.2, 1.4.11: a tight rack and one with room differ by 3 to 1 in light and in dark.
    let contrast = r"(() => {
        const light = (step) => {
            const [red, green, blue] = getComputedStyle(document.querySelector(`#legend .step-${step}`))
                .fill.match(/[\d.]+/g).slice(0, 3).map(Number).map((part) => part / 255)
                .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
        };
        const [tight, wide] = [light(0), light(4)];
        return Math.max(tight, wide) / Math.min(tight, wide);
    })()";
    for scheme in ["dark", "light"] {
        page.scheme(scheme);
        let found = page.eval(contrast);
        assert!(found.as_f64() >= Some(3.0), "{scheme}: {found}");
    }
    picture(&page, "place-map-large.png");
    // By keys alone, to the tightest rack and into it.
    page.eval(
        r"[...document.querySelectorAll('#map .cell')]
            .sort((one, other) => one.dataset.share - other.dataset.share)[0].focus()",
    );
    page.press("Enter");
    page.until("document.querySelectorAll('#map .cell').length === 40");
    page.press("Escape");
    page.until("document.querySelectorAll('#map .cell').length !== 40");
    // On a phone nothing is wider than it, and every rack can be named.
    page.screen(380, 800);
    let wide = page.eval("document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(380), "{wide}");
    let unnamed = page.eval(
        "[...document.querySelectorAll('#map .cell')].filter((cell) => !cell.getAttribute('aria-label')).length",
    );
    assert_eq!(unnamed, 0);
    page.is_clean(&[]);
}

#[test]
fn long_names_leave_tables_whole() {
    let tree = r#"
        frame = "1538B"
        [[group]]
        name = "rack-in-the-second-hall-left"
        uplink = { rate = "40Gbit/s", buffer = "500KB" }
        [[host]]
        name = "host-of-twenty-eight-letters"
        group = "rack-in-the-second-hall-left"
        count = 2
        slots = 4
        uplink = { rate = "10Gbit/s", buffer = "300KB" }
    "#;
    let running = Running::start(Spec::from_toml(tree).expect("a topology"), &[]);
    running.create("a-tenant-of-twenty-eight-let", 6);
    let Some(page) = Page::open(&running.origin) else {
        return;
    };
    page.until("document.querySelector('#map .cell') !== null");
    page.click("#map [data-node='host-of-twenty-eight-letters-1']");
    page.until("document.querySelector('table.ports') !== null");
    for width in [1_400, 1_024, 380] {
        page.screen(width, 900);
        let cut = page.eval(
            r"[...document.querySelectorAll('table.ports')].filter((table) => {
                const box = table.parentNode;
                const [inner, outer] = [table.getBoundingClientRect(), box.getBoundingClientRect()];
                return inner.width > 0 && (inner.right > outer.right + 0.5 || box.scrollWidth > box.clientWidth);
            }).map((table) => table.innerText)",
        );
        // On a phone it may be scrolled within its own frame, and the page may not.
        if width > 380 {
            assert_eq!(cut, serde_json::json!([]), "at {width}");
        }
        let wide = page.eval("document.documentElement.scrollWidth");
        assert!(
            wide.as_u64() <= Some(u64::from(width)),
            "at {width}: {wide}"
        );
        picture(&page, &format!("long-names-{width}.png"));
    }
    page.is_clean(&[]);
}
