"""A nova of API, conductor, scheduler and hosts in one process, by nova's own fixtures, beside a real placement
service of tailbound. No hypervisor runs: nova's fake driver says when a server starts, and does there
what the libvirt hook does on a host."""

import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from nova import conf as nova_conf
from nova import exception
from nova.tests.functional import integrated_helpers
from nova.virt import fake

from tailbound_nova import client, guarantee, sweep

CONF = nova_conf.CONF

# Two racks of three hosts with 10 Gbit/s each; a rack has 20 Gbit/s.
TOPOLOGY = """
frame = "1538B"
{racks}
"""
RACK = """
[[group]]
name = "rack{rack}"
uplink = {{ rate = "20Gbit/s", buffer = "1MB" }}
"""
HOST = """
[[host]]
name = "host{host}"
group = "rack{rack}"
slots = 16
uplink = {{ rate = "10Gbit/s", buffer = "500KB" }}
"""


def topology(racks, hosts):
    """A topology as text: `hosts` in each rack, named host0 and so on."""
    parts = []
    for rack in range(racks):
        parts.append(RACK.format(rack=rack))
        parts += [HOST.format(rack=rack, host=rack * hosts + host) for host in range(hosts)]
    return TOPOLOGY.format(racks="".join(parts))


class Service:
    """A placement service in a process of its own, with what a test reads and a host says."""

    def __init__(self, test, text):
        program = os.environ.get("TAILBOUND")
        if not program:
            raise RuntimeError("TAILBOUND is missing: the path of the program tailbound")
        directory = tempfile.TemporaryDirectory()
        test.addCleanup(directory.cleanup)
        path = os.path.join(directory.name, "topology.toml")
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        log = open(os.path.join(directory.name, "log"), "w", encoding="utf-8")
        test.addCleanup(log.close)
        self._process = subprocess.Popen(
            [program, "place", "serve", "--listen", "127.0.0.1:0", "--insecure-loopback", "--topology", path]
            + ["--store", f"sqlite:{directory.name}/place.db"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        test.addCleanup(self.end)
        self.url = self._process.stdout.readline().split()[-1].rstrip("/")

    def end(self):
        """Ends the service. More than once does no harm."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def call(self, method, path, body=None):
        """The answer's status and body."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def reservations(self):
        """What is reserved and not confirmed."""
        return self.call("GET", "/v1/reservations")[1]["items"]

    def machines(self):
        """How many machines all tenants have on each host, of what is confirmed."""
        found = {}
        for tenant in self.call("GET", "/v1/tenants")[1]["items"]:
            for run in tenant["runs"]:
                found[run["host"]] = found.get(run["host"], 0) + run["count"]
        return found


class Base(integrated_helpers.ProviderUsageBaseTestCase):
    """Six hosts, the filter and the weigher, and the hook in nova's fake driver."""

    compute_driver = "fake.MediumFakeDriver"
    RACKS, HOSTS = 2, 3

    def setUp(self):
        self.service = Service(self, topology(self.RACKS, self.HOSTS))
        enabled = [name for name in CONF.filter_scheduler.enabled_filters if name != "TailboundFilter"]
        self.flags(
            available_filters=["nova.scheduler.filters.all_filters", "tailbound_nova.scheduler.TailboundFilter"],
            enabled_filters=enabled + ["TailboundFilter"],
            weight_classes=["tailbound_nova.scheduler.TailboundWeigher"],
            group="filter_scheduler",
        )
        import tailbound_nova.scheduler  # noqa: F401 - registers the options that the next line sets

        self.flags(url=self.service.url, group="tailbound")
        # nova as installed has its file there, nova as a checkout where its fixtures look.
        self.flags(api_paste_config=os.path.join(sys.prefix, "etc/nova/api-paste.ini"), group="wsgi")
        self._hook()
        super().setUp()
        for host in range(self.RACKS * self.HOSTS):
            self._start_compute(f"host{host}")

    def _hook(self):
        """Has each host say what the libvirt hook says before a server starts."""
        spawn = fake.FakeDriver.spawn
        service = self.service

        def starts(driver, context, instance, *rest, **more):
            name = urllib.parse.quote(instance.uuid, safe="")
            wanted = guarantee.read(instance.flavor.extra_specs)
            if wanted:
                body = {
                    "owner": guarantee.owner(instance.project_id),
                    "tenant": wanted.tenant(),
                    "host": driver._host,
                    "request": {"guarantee": wanted.request()},
                }
                status, answer = service.call("PUT", f"/v1/machines/{name}", body)
                if status >= 300:
                    raise exception.ComputeResourcesUnavailable(reason=answer["detail"])
            self.started(driver._host, instance)
            return spawn(driver, context, instance, *rest, **more)

        self.stub_out("nova.virt.fake.FakeDriver.spawn", starts)

    def sweep(self):
        """Runs tailbound-nova-sweep beside this nova."""

        def servers():
            return [server["id"] for server in self.api.get_servers(detail=False, search_opts={"all_tenants": 1})]

        return sweep.sweep(client.Client(self.service.url, None, None, 10.0), servers)

    def started(self, host, instance):
        """Called when a server is about to start on a host. A test may raise what a driver raises."""

    def flavor(self, **specs):
        """A flavor with these extra specs, such as bandwidth="1Gbit/s"."""
        return self._create_flavor(vcpu=1, memory_mb=64, disk=1, extra_spec={f"tailbound:{k}": v for k, v in specs.items()})

    def boot(self, flavor, state="ACTIVE"):
        return self._create_server(flavor_id=flavor, networks="none", expected_state=state)
