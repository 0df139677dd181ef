//! The page as people use it: Chromium, the real service, clicks and keys.

mod browser;
mod devtools;
mod large;
mod service;

use browser::Page;
use serde_json::json;
use service::{Running, TWO_PODS};
use std::collections::BTreeMap;
use tailbound_api::MoveStep;
use tailbound_placement::{Spec, Spread, Uniform, UplinkSpec};
use tailbound_units::{Bytes, Rate};

/// Opens the page of a service, or skips the test.
macro_rules! page {
    ($running:expr) => {
        match Page::open(&$running.origin) {
            Some(page) => page,
            None => return,
        }
    };
}

/// Fills in what differs from a small request of `acme`.
fn request(page: &Page, fields: &[(&str, &str)]) {
    page.until("document.querySelector('main:not([hidden])') !== null");
    for (name, text) in [("owner", "acme"), ("name", "web")].iter().chain(fields) {
        page.fill(&format!("#request [name={name}]"), text);
    }
}

#[test]
fn a_tenant_is_created_and_is_in_the_list_and_on_the_map() {
    let running = Running::open();
    let page = page!(running);
    request(&page, &[("vms", "20")]);
    page.click("#create");
    page.says("#created", "acme/web has 20 machines");
    // The map shows all twenty, and where.
    let machines = "[...document.querySelectorAll('#map .cell')].reduce((sum, cell) => sum + Number(cell.dataset.marked), 0)";
    page.until(&format!("{machines} === 20"));
    page.says("#mark-text", "acme/web: 20 machines");
    page.says("#status [data-fact=slots]", "20 of 632");
    page.click("#tab-tenants");
    page.says("#tenants tbody", "acme/web");
    page.click("#tenants [data-tenant='1']");
    page.says("#tenant-facts", "250Mbit/s");
    page.says("#tenant-state", "pending");
    // A host says that it does not keep it, and is mended.
    let host = page.until("document.querySelector('#machines tbody th')?.textContent");
    let host = host.as_str().unwrap();
    running.say(host, "200Mbit/s");
    page.says("#tenant-state", "degraded");
    page.says("#tenant-state", "is above its link's 200Mbit/s");
    running.say(host, "10Gbit/s");
    page.says("#tenant-state", "pending");
    // Larger, then gone.
    page.fill("#resize-vms", "24");
    page.click("#resize");
    page.says("#mark-text", "24 machines");
    page.says("#status [data-fact=slots]", "24 of 632");
    page.click("#delete");
    page.click("#sure-yes");
    page.says("#tenant-list", "No tenants yet.");
    page.says("#status [data-fact=slots]", "0 of 632");
    page.until("document.querySelector('#mark').hidden");
    page.is_clean(&[]);
}

#[test]
fn the_page_shows_measured_delays_beside_the_promised_one() {
    let running = Running::open();
    // More machines than any host has slots for.
    running.create("web", 20);
    running.measured("a-1", (50_000, 40_000), (50_000, 90_000));
    running.measured("a-2", (50_000, 10_000), (2_000, 1_500_000));
    let page = page!(running);
    page.click("#tab-tenants");
    page.says("#tenants tbody", "99 % waited at most 1.5 ms at its host");
    page.click("#tenants [data-tenant='1']");
    // The worst of the two, of either kind; what is over the promise is said, not only coloured.
    page.says(
        "#tenant-measured",
        "a-1: 99.9 % of 50,000 packets in 60 s left late by at most 40 us",
    );
    page.says("#tenant-measured", "4 % of the promised 1ms");
    page.says(
        "#tenant-measured",
        "a-2: 99 % of 2,000 packets in 60 s waited for their machine at most 1.5 ms",
    );
    page.says(
        "#tenant-measured .over",
        "longer than the promised 1ms itself",
    );
    let meters = "[...document.querySelectorAll('#tenant-measured meter')].map((it) => it.value)";
    assert_eq!(page.eval(meters), json!([0.04, 1]));
    page.is_clean(&[]);
}

#[test]
fn a_refused_request_is_explained_and_a_nearest_one_passes() {
    let running = Running::open();
    let page = page!(running);
    request(
        &page,
        &[("vms", "60"), ("burst", "60KB"), ("burst_rate", "10Gbit/s")],
    );
    page.click("#create");
    page.until("document.querySelector('#verdict')?.dataset.fits === 'false'");
    let port = page.eval("document.querySelector('#overload').dataset.port");
    let port = port.as_str().unwrap();
    assert!(page.text("#overload").contains(port));
    // The port is marked on the map, by more than a colour.
    let marked = page.eval("document.querySelector('#map .refused').dataset.ports");
    assert_eq!(marked, port);
    assert!(page.text("#map .refused").contains(['▲', '▼']));
    page.says("#mark-text", port);
    // All curves are drawn, and somewhere it is too much.
    assert_eq!(
        page.eval("document.querySelectorAll('#curves .chart .curve').length"),
        5
    );
    assert!(
        page.eval("Number(document.querySelector('#curves .chart').dataset.over)")
            .as_u64()
            > Some(0)
    );
    // A nearest request fills the form, and passes.
    let change = page.text("#nearest button");
    assert!(change.contains("machines"), "{change}");
    page.click("#nearest button");
    page.until("document.querySelector('#verdict')?.dataset.fits === 'true'");
    let vms = page.eval("document.querySelector('#request [name=vms]').value");
    assert!(change.starts_with(vms.as_str().unwrap()), "{change}: {vms}");
    page.click("#create");
    page.says("#created", "acme/web");
    page.is_clean(&[409]);
}

#[test]
fn the_page_shows_the_services_error_for_a_wrong_request() {
    let running = Running::open();
    let page = page!(running);
    for (field, text, said) in [
        ("bandwidth", "fast", "does not start with a number"),
        ("vms", "0", "at least 1 machine"),
        ("name", "No Name", "name"),
    ] {
        request(
            &page,
            &[("bandwidth", "250Mbit/s"), ("vms", "20"), (field, text)],
        );
        page.click("#create");
        page.says("#answer .problem", said);
        // For people: the field, and nothing of the JSON that was sent.
        let text = page.text("#answer .problem");
        assert!(!text.contains("line 1") && !text.contains("body"), "{text}");
        let marked = page.eval("document.querySelector('#request [aria-invalid]')?.name ?? ''");
        assert_eq!(marked, if field == "bandwidth" { field } else { "" });
        page.eval("document.querySelector('#answer').replaceChildren()");
    }
    page.says("#status [data-fact=tenants]", "0");
    page.is_clean(&[400, 422]);
}

#[test]
fn the_bound_of_a_pair_is_the_sum_over_its_path() {
    let running = Running::open();
    running.create("web", 40);
    let page = page!(running);
    page.click("#tab-tenants");
    page.click("#tenants [data-tenant='1']");
    page.click("[data-machine='0']");
    page.click("#machines tr:last-child [data-machine]");
    page.says("#bound-text", "Promised: 1ms");
    assert_eq!(page.text("#bound .tag"), "holds");
    let path = page
        .eval("[...document.querySelectorAll('#bound .path li')].map((item) => item.innerText)");
    let path: Vec<String> = serde_json::from_value(path).unwrap();
    assert!(path[0].starts_with("0 on "), "{path:?}");
    assert!(
        path[1].ends_with(" up") && path[path.len() - 2].ends_with(" down"),
        "{path:?}"
    );
    // The queues' capacities add up to what is said.
    let sum = "[...document.querySelectorAll('#bound tbody tr')].map((row) => Number(row.cells[3].innerText.match(/of ([0-9.]+) us/)[1])).reduce((one, other) => one + other)";
    let sum = page.eval(sum).as_f64().unwrap();
    page.says("#bound-text", &format!("At most {sum} us"));
    // The way is on the map.
    let ports = page.eval("[...document.querySelectorAll('#map .port')].flatMap((node) => node.dataset.ports.split(',')).sort()");
    let mut queues = path[1..path.len() - 1].to_vec();
    queues.sort();
    assert_eq!(ports, json!(queues));
    // Numbers do as well as clicks; a machine that is not there is said.
    page.click("#pair-swap");
    page.until("document.querySelector('#pair-to').value === '0'");
    page.fill("#pair-from", "99");
    page.press("Tab");
    page.says("#alert", "acme/web/99");
    page.is_clean(&[404]);
}

#[test]
fn a_drained_host_has_a_pattern_and_lists_its_tenants() {
    let running = Running::open();
    running.create("web", 40);
    let page = page!(running);
    let host = page.until("[...document.querySelectorAll('#map .cell')].find((cell) => cell.querySelector('.used'))?.dataset.node");
    let host = host.as_str().unwrap();
    let cell = format!("#map [data-node='{host}']");
    page.click(&cell);
    page.says("#place-name", &format!("host {host}"));
    page.says("#place-machines", "acme/web");
    page.says("#place-following", "it has never reported");
    running.say(host, "200Mbit/s");
    page.says(
        "#place-following",
        "refuses revision 7, keeps 200Mbit/s in all",
    );
    page.says("#place-cpu", "0.000 of 1.000 CPUs, for 0 of 6 vCPUs");
    page.says(
        "#place-following",
        "beyond what is promised: own: it has 0.500 of a CPU",
    );
    page.says(
        "#place-following",
        "a bandwidth of 250Mbit/s is above its link's 200Mbit/s",
    );
    page.until(&format!(
        "document.querySelector({:?}) !== null",
        format!("{cell}.trouble[data-troubled='1']")
    ));
    page.click("#drain");
    page.click("#sure-yes");
    page.says("#affected", "1 tenant affected");
    page.says("#affected tbody", "acme/web");
    page.says("#place-state", "drained");
    page.until(&format!(
        "document.querySelector({:?}) !== null && document.querySelector({:?}).dataset.state === 'drained'",
        format!("{cell} .hatch[fill='url(#drained)']"),
        cell
    ));
    page.says("#status [data-fact=hosts]", "73 of 74 open");
    page.click("#fail");
    page.click("#sure-yes");
    page.until(&format!(
        "document.querySelector({:?}) !== null",
        format!("{cell} .hatch[fill='url(#failed)']")
    ));
    // The answer replaces the list, and a click on a button that is replaced is lost.
    page.says("#place-state", "failed");
    page.says("#affected", "1 tenant affected");
    // Its machines move where they fit, and it comes back.
    page.click("#affected [data-relocate]");
    page.says("#tenant-name", "acme/web");
    page.click("#tab-place");
    page.says("#place", "No machines here.");
    page.click("#restore");
    page.click("#sure-yes");
    page.says("#place-state", "open");
    page.until(&format!(
        "document.querySelector({:?}) === null",
        format!("{cell} .hatch")
    ));
    // Asked and not wanted: nothing happens.
    page.click("#drain");
    page.click("#sure-no");
    page.says("#place-state", "open");
    page.is_clean(&[]);
}

#[test]
fn the_map_is_walked_with_keys_and_with_the_browsers_way_back() {
    let running = Running::open();
    let page = page!(running);
    let focused = "document.activeElement.dataset.node";
    page.until("document.querySelector('#map .cell') !== null");
    page.eval("document.querySelector('#map [data-node=\"a-1\"]').focus()");
    page.press("ArrowRight");
    page.until(&format!("{focused} === 'a-2'"));
    page.says("#tip", "host a-2");
    page.press("PageUp");
    page.until(&format!("{focused} === 'rack1'"));
    page.press("Enter");
    page.until("document.querySelector('#trail [aria-current]').innerText === 'rack1'");
    page.until("document.querySelectorAll('#map .cell').length === 10");
    page.says("#place-name", "rack rack1");
    assert_eq!(page.text("#trail"), "corepod1rack1");
    page.click("#trail [data-zoom=pod1]");
    page.until("document.querySelectorAll('#map .cell').length === 40");
    page.eval("history.back()");
    page.until("document.querySelectorAll('#map .cell').length === 10");
    page.eval("document.querySelector('#map .cell').focus()");
    page.press("Escape");
    page.until("document.querySelectorAll('#map .cell').length === 40");
    // An address leads to a place, and one that is not there to the core.
    page.reload_at("rack8");
    page.until("document.querySelectorAll('#map .cell').length === 4");
    page.reload_at("nowhere");
    page.until("document.querySelectorAll('#map .cell').length === 74");
    assert_eq!(page.eval("location.hash"), "");
    page.reload_at("rack8");
    page.until("document.querySelectorAll('#map .cell').length === 4");
    // The table says the same, for those who do not see the map.
    page.click("#map-table summary");
    assert_eq!(
        page.eval("document.querySelectorAll('#map-rows tbody tr').length"),
        4
    );
    page.is_clean(&[404]);
}

#[test]
fn a_change_from_elsewhere_appears_by_itself() {
    let running = Running::open();
    let page = page!(running);
    page.click("#tab-tenants");
    page.says("#tenant-list", "No tenants yet.");
    running.create("db", 12);
    page.says("#tenants tbody", "acme/db");
    page.says("#status [data-fact=slots]", "12 of 632");
    page.is_clean(&[]);
}

#[test]
fn reservations_are_listed_with_their_end_and_cancelled() {
    let running = Running::open();
    let page = page!(running);
    page.click("#tab-reservations");
    page.says("#reservation-list", "No reservations.");
    running.reserve("db", "a-1");
    page.says("#reservations tbody", "acme/db");
    page.says("#reservations tbody", "open until");
    page.says("#reservations tbody", "a-1");
    page.says("#status [data-fact=slots]", "1 of 632");
    page.click("#reservations [data-cancel]");
    page.says("#sure-text", "1 machine of acme/db");
    page.click("#sure-yes");
    page.says("#reservation-list", "No reservations.");
    page.says("#status [data-fact=slots]", "0 of 632");
    page.is_clean(&[]);
}

#[test]
fn a_machine_on_its_way_is_on_the_map_at_both_ends_until_it_is_there() {
    let running = Running::open();
    running.create("db", 2);
    let page = page!(running);
    page.click("#tab-tenants");
    page.click("#tenants [data-tenant='1']");
    let marked = |page: &Page| {
        let cells = "[...document.querySelectorAll('#map .cell')]";
        let marked = page.eval(&format!(
            "{cells}.filter((cell) => cell.dataset.marked > 0).map((cell) => [cell.dataset.node, cell.dataset.marked])"
        ));
        serde_json::from_value::<Vec<(String, String)>>(marked)
            .unwrap()
            .into_iter()
            .collect::<BTreeMap<_, _>>()
    };
    page.says("#mark-text", "acme/db: 2 machines on 1 host");
    let before = marked(&page);
    let (from, count) = before.first_key_value().unwrap();
    assert_eq!((before.len(), count.as_str()), (1, "2"));
    // Another one that has room.
    let to = page.eval("[...document.querySelectorAll('#map .cell')].find((cell) => cell.dataset.marked === '0').dataset.node");
    let to = to.as_str().unwrap();
    running.move_vm(1, 1, MoveStep::Begin { to: to.to_owned() });
    page.says("#tenant-moving", &format!("machine 1 to {to}"));
    page.says("#mark-text", &format!("machine 1 on its way to {to}"));
    page.says("#tenants tbody", "moving");
    page.says("#status [data-fact=slots]", "3 of 632");
    page.until(&format!(
        "document.querySelector(\"#map .cell[data-node='{to}']\").dataset.marked === '1'"
    ));
    assert_eq!(marked(&page)[from], "2");
    running.move_vm(1, 1, MoveStep::Done);
    page.says("#mark-text", "acme/db: 2 machines on 2 hosts");
    page.until("document.querySelector('#tenant-moving') === null");
    page.says("#status [data-fact=slots]", "2 of 632");
    let ends = [from.as_str(), to].map(|host| (host.to_owned(), "1".to_owned()));
    assert_eq!(marked(&page), BTreeMap::from(ends));
    page.is_clean(&[]);
}

#[test]
fn the_page_keeps_its_data_when_the_service_is_unreachable() {
    let running = Running::open();
    running.create("db", 12);
    let page = page!(running);
    page.says("#connection", "live");
    drop(running);
    page.says("#connection", "not updated since");
    page.says("#alert", "does not answer");
    page.click("#fit");
    page.says("#answer .problem", "does not answer");
    page.says("#status [data-fact=slots]", "12 of 632");
}

#[test]
fn a_token_is_asked_for_and_a_tenants_own_shows_no_map() {
    let spec = Spec::from_toml(TWO_PODS).unwrap();
    let running = Running::start(
        spec,
        &[
            ("operators-token", "role = \"operator\""),
            ("acmes-token", "role = \"tenant\"\nowner = \"acme\""),
        ],
    );
    running.create("web", 20);
    let page = page!(running);
    page.says(
        "#token[open] #token-why",
        "The operator of this service creates tokens",
    );
    page.fill("#token-text", "wrong");
    page.click("#token-use");
    page.says("#token[open] #token-why", "not known");
    page.fill("#token-text", "acmes-token");
    page.click("#token-use");
    page.until("document.querySelector('main.no-map:not([hidden])') !== null");
    assert_eq!(
        page.eval("document.querySelector('#map-section').hidden"),
        true
    );
    assert_eq!(
        page.eval("document.querySelector('#request [name=owner]').checkVisibility()"),
        false
    );
    // Its own tenants, requests and bounds are there.
    page.fill("#request [name=name]", "db");
    page.click("#fit");
    page.says("#verdict", "20 machines");
    page.click("#create");
    page.says("#created", "acme/db");
    page.click("#tab-tenants");
    page.click("#tenants [data-tenant='2']");
    page.click("[data-machine='0']");
    page.click("#machines tr:last-child [data-machine]");
    page.says("#bound-text", "Promised: 1ms");
    // The token is kept for this tab, and nowhere else.
    assert_eq!(
        page.eval("Object.values(sessionStorage)"),
        json!(["acmes-token"])
    );
    assert_eq!(
        page.eval("[Object.keys(localStorage).length, document.cookie]"),
        json!([0, ""])
    );
    page.click("#sign-out");
    page.says("#token[open] #token-why", "token");
    page.fill("#token-text", "operators-token");
    page.click("#token-use");
    page.until("document.querySelector('#map .cell') !== null");
    page.is_clean(&[401, 403]);
}

#[test]
fn maps_with_too_many_hosts_are_drawn_by_racks() {
    let link = |rate| UplinkSpec {
        rate: Rate(rate),
        links: 1,
        spread: Spread::Flow,
        buffer: Bytes(800_000),
        up_buffer: Some(Bytes(62_500)),
        shared_buffer: Bytes::ZERO,
    };
    let many = Uniform {
        pods: 8,
        racks: 25,
        hosts: 40,
        slots: 4,
        host_link: link(10_000_000_000),
        rack_link: link(40_000_000_000),
        pod_link: link(100_000_000_000),
        frame: Bytes(1538),
    };
    let running = Running::start(many.spec(), &[]);
    running.create("web", 40);
    let page = page!(running);
    page.until("document.querySelectorAll('#map .cell').length === 200");
    page.says("#status [data-fact=hosts]", "8,000");
    // Machines are found on hosts that are not drawn.
    page.click("#tab-tenants");
    page.click("#tenants [data-tenant='1']");
    page.until("document.querySelector('#map [data-node=\"pod1-rack1\"]').dataset.marked === '40'");
    // A rack that is drawn whole has the colour of the share of its hosts with headroom, not that of
    // the scarcest port in it.
    let tight = page.eval(
        r#"(() => {
            const cell = document.querySelector('#map [data-node="pod1-rack1"]');
            const { least, headroom, share } = cell.dataset;
            const step = [0, 100, 250, 500, 750].findLastIndex((from) => Number(share) >= from);
            const drawn = cell.querySelector(`.box.step-${step}`) !== null;
            return Number(least) < Number(share) && Number(share) <= Number(headroom) && drawn;
        })()"#,
    );
    assert_eq!(tight, true);
    page.eval("document.querySelector('#map [data-node=\"pod1-rack1\"]').focus()");
    page.press("Enter");
    page.until("document.querySelectorAll('#map .cell').length === 40");
    page.is_clean(&[]);
}

#[test]
fn degraded_tenants_are_counted_and_filtered_and_a_host_is_found_by_its_name() {
    let running = Running::open();
    running.create("web", 20);
    running.create("db", 1);
    let page = page!(running);
    page.says("#status [data-fact=pending]", "2");
    page.click("#tab-tenants");
    page.click("#tenants [data-tenant='2']");
    let host = page.until("document.querySelector('#machines tbody th')?.textContent");
    let host = host.as_str().unwrap().to_owned();
    running.say(&host, "200Mbit/s");
    page.until("document.querySelector('#status .wrong[data-fact=degraded]') !== null");
    page.click("#tab-request");
    page.click("#tab-tenants");
    page.eval("document.querySelector('#filter [name=state]').value = 'pending'");
    page.eval("document.querySelector('#filter').requestSubmit()");
    let listed = "[...document.querySelectorAll('#tenants tbody tr')].map((row) => row.innerText)";
    page.until(&format!("{listed}.every((row) => row.includes('pending'))"));
    page.eval("document.querySelector('#filter [name=state]').value = 'degraded'");
    page.eval("document.querySelector('#filter').requestSubmit()");
    page.until(&format!(
        "{listed}.length > 0 && {listed}.every((row) => row.includes('degraded'))"
    ));
    // The map shows the host's rack, and the place is the host.
    page.fill("#find [name=host]", &host);
    page.eval("document.querySelector('#find').requestSubmit()");
    page.says("#place-name", &host);
    page.says("#place-following", "refuses");
    page.until(&format!(
        "document.querySelector('#map [data-node=\"{host}\"]') !== null"
    ));
    page.fill("#find [name=host]", "nowhere");
    page.eval("document.querySelector('#find').requestSubmit()");
    page.says("#alert", "There is no host, rack or pod \"nowhere\".");
    page.is_clean(&[]);
}

#[test]
fn areas_are_in_proportion_and_no_box_covers_another() {
    let running = Running::open();
    let page = page!(running);
    let measure = r#"import("/page/treemap.js").then(({ cut }) => {
        let random = 12345;
        const next = (most) => { random = (random * 1103515245 + 12345) % 2147483648; return 1 + (random % most); };
        let worst = { area: 0, overlap: 0, outside: 0, shape: 1 };
        for (let round = 0; round < 200; round += 1) {
            const box = { x: next(50), y: next(50), width: 100 + next(1000), height: 100 + next(700) };
            const weights = Array.from({ length: next(60) }, () => next(round % 3 ? 40 : 1));
            const total = weights.reduce((one, other) => one + other);
            const boxes = cut(weights, box);
            boxes.forEach((one, index) => {
                const area = (box.width * box.height * weights[index]) / total;
                worst.area = Math.max(worst.area, Math.abs(one.width * one.height / area - 1));
                worst.outside = Math.max(worst.outside, box.x - one.x, box.y - one.y,
                    one.x + one.width - box.x - box.width, one.y + one.height - box.y - box.height);
                if (round % 3 === 0 && weights.length > 5) worst.shape = Math.max(worst.shape, one.width / one.height, one.height / one.width);
                for (const other of boxes.slice(index + 1)) {
                    const wide = Math.min(one.x + one.width, other.x + other.width) - Math.max(one.x, other.x);
                    const high = Math.min(one.y + one.height, other.y + other.height) - Math.max(one.y, other.y);
                    if (wide > 0 && high > 0) worst.overlap = Math.max(worst.overlap, Math.min(wide, high));
                }
            });
        }
        return worst;
    })"#;
    let worst = page.eval(measure);
    for (what, most) in [
        ("area", 1e-9),
        ("overlap", 1e-6),
        ("outside", 1e-6),
        ("shape", 4.0),
    ] {
        assert!(worst[what].as_f64().unwrap() <= most, "{what}: {worst}");
    }
    page.is_clean(&[]);
}

#[test]
fn the_page_is_readable_on_phones_and_in_dark_mode() {
    let running = Running::open();
    running.create("web", 40);
    let page = page!(running);
    page.until("document.querySelector('#map .cell') !== null");
    for (width, height) in [(1280, 900), (390, 844), (320, 640)] {
        page.screen(width, height);
        for tab in ["request", "tenants", "place"] {
            page.click(&format!("#tab-{tab}"));
            let wide = page.eval("document.documentElement.scrollWidth");
            assert!(
                wide.as_u64() <= Some(u64::from(width)),
                "{tab} at {width}: {wide}"
            );
        }
    }
    let contrasts = r##"(() => {
        const light = (colour) => {
            const [red, green, blue] = colour.match(/[\d.]+/g).slice(0, 3).map(Number)
                .map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        };
        const contrast = (one, other) => {
            const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
            return (high + 0.05) / (low + 0.05);
        };
        const steps = [0, 1, 2, 3, 4].map((step) => {
            const swatch = document.querySelector(`#legend .step-${step}`);
            const { fill, color } = getComputedStyle(swatch);
            return { light: light(fill), contrast: contrast(fill, color) };
        });
        const { color, backgroundColor } = getComputedStyle(document.body);
        const soft = getComputedStyle(document.querySelector("#legend")).color;
        return { steps, text: contrast(color, backgroundColor), soft: contrast(soft, backgroundColor) };
    })()"##;
    for scheme in ["light", "dark"] {
        page.scheme(scheme);
        let found = page.eval(contrasts);
        // WCAG 2.2, 1.4.3: 4.5 to 1. Every class is told from the next by its
        // lightness alone.
        for what in ["text", "soft"] {
            assert!(
                found[what].as_f64() >= Some(4.5),
                "{scheme} {what}: {found}"
            );
        }
        let steps = found["steps"].as_array().unwrap();
        assert!(
            steps
                .iter()
                .all(|step| step["contrast"].as_f64() >= Some(4.5)),
            "{scheme}: {found}"
        );
        let lights: Vec<f64> = steps
            .iter()
            .map(|step| step["light"].as_f64().unwrap())
            .collect();
        let rising = lights.is_sorted_by(|one, other| one * 1.2 < *other);
        let falling = lights.is_sorted_by(|one, other| *one > other * 1.2);
        assert!(rising || falling, "{scheme}: {lights:?}");
    }
    page.is_clean(&[]);
}
