//! Short experiments.

pub(crate) const PROBE: &str = r#"
name = "short"
title = "the probe, shortly"
source = "-"
duration = "1s"
warmup = "100ms"
hosts = { A = ["A1", "N1"] }
shared_core = { guests = ["A1", "N1"], periodic = { guests = ["A1"], runtime = "1ms", deadline = "4ms", period = "4ms" } }
probe = [
    { name = "process", guest = "A1", place = "process", samples = 5000, low_mark = 0, time_limit = "20s", series = "sleep" },
    { name = "machine", guest = "A1", place = "machine", samples = 5000, low_mark = 0, time_limit = "20s", series = "sleep" },
]
duty = [{ name = "held", guests = ["N1"], busy = "11ms", period = "100ms", uninterrupted = true, value = "cpu" }]
variant = [
    { name = "alone", loads = ["process"] },
    { name = "held", loads = ["process", "held"] },
    { name = "machine", loads = ["machine"] },
]
"#;

pub(crate) const WORKFLOWS: &str = r#"
name = "short"
title = "workflows, shortly"
source = "-"
duration = "400ms"
warmup = "1500ms"
hosts = { A = ["A1", "A2", "A3", "N1"], E = ["C1"] }
shared_core = { guests = ["A3", "N1"], periodic = { guests = ["A3"], runtime = "1ms", deadline = "4ms", period = "4ms" } }
pipeline = { plain = { nic_queue = "300us", config = { segment = true, queue = { kind = "fq-codel" } } } }
duty = [{ name = "held", guests = ["N1"], busy = "20ms", period = "100ms", uninterrupted = true, value = "cpu" }]
nodes = { client = "C1", guests = ["A1", "A2", "A3"] }
selection = [{ name = "selection", keep = 1, sleep = "2ms", samples = 250, low_mark = 1 }]
workflow = [
    { name = "sequences", kind = "sequential", group = 1, rate = 500, series = "sequences" },
    { name = "fan-outs", kind = "fan-out", group = 1, rate = 200, series = "fan_outs" },
]
variant = [{ name = "selected", pipeline = "plain", loads = ["held", "selection", "sequences", "fan-outs"] }]
"#;

pub(crate) const PLACED: &str = r#"
name = "placed"
title = "a tenant of the placement service, shortly"
source = "-"
duration = "500ms"
warmup = "100ms"
link_rate = "50Mbit/s"
switch_buffer = "50KB"
wire = "ethernet"
hosts = { A = ["A1"], B = ["B1"] }
tenant = { app = ["A1", "B1"] }
pipeline.paced.config = { meter = {} }
pipeline.paced.pacer = { hose = "20ms", beside = "1Mbit/s", batch = "2ms", catch_up = "2ms" }
message = [
    { name = "messages", from = ["A1"], to = ["B1"], size = "6152B", every = "20ms", series = "latency" },
]
variant = [
    { name = "admitted", pipeline = "paced", guarantees = "app", guarantees_by = "service", loads = ["messages"], switch = "tags-honoured" },
    { name = "refused", pipeline = "paced", guarantees = "soon", guarantees_by = "service", loads = ["messages"], switch = "tags-honoured" },
]
guarantee.app = [{ tenant = "app", bandwidth = "10Mbit/s", burst = "6152B", delay = "20ms" }]
guarantee.soon = [{ tenant = "app", bandwidth = "10Mbit/s", burst = "6152B", delay = "1ms" }]
"#;

pub(crate) const TOOLS: &str = r#"
name = "tools"
title = "iperf3 and memcached as load"
source = "-"
duration = "1s"
hosts = { A = ["A1", "A2"], B = ["B1"] }
pipeline.p = { nic_queue = "300us", config = { segment = true, queue = { kind = "fq-codel" } } }
iperf = [{ name = "iperf", from = "A2", to = "B1", rate = "1Mbit/s", payload = "1000B", value = "jitter" }]
etc = [{ name = "etc", server = "B1", clients = ["A1"], mean_gap = "10ms", largest = "1KB", series = "fct", value = "rate" }]
variant = [{ name = "all", pipeline = "p", loads = ["iperf", "etc"] }]
"#;
