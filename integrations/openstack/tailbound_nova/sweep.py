"""Returns the places of servers that nova has no more.

The libvirt hook cannot tell a server that is stopped from one that is deleted, so it ends no place. This
command compares the machines of the placement service with nova's servers, and ends the places of those that
are gone. Run it from a timer; two runs at once do no harm.
"""

import argparse
import sys
from collections.abc import Callable, Iterable

from tailbound_nova import client, guarantee


def sweep(service: client.Client, servers: Callable[[], Iterable[str]]) -> list[str]:
    """Ends the places of nova's machines that are not among `servers()`, the UUIDs of all servers.

    A server that boots meanwhile keeps its place: the machines are read before the servers, and a
    reservation ends by its own time.
    """
    machines = [
        machine
        for machine in service.machines()
        if machine["state"] == "confirmed" and machine["tenant_name"].startswith(guarantee.TENANT_PREFIX)
    ]
    if not machines:
        return []
    present = set(servers())
    gone = [machine for machine in machines if machine["name"] not in present]
    for machine in gone:
        service.remove(machine["owner"], machine["name"], machine["host"])
    return [machine["name"] for machine in gone]


def _servers() -> Iterable[str]:
    # nova's command line has no list of all servers, so this needs the SDK, which nova needs, too.
    import openstack

    cloud = openstack.connect()
    return [server.id for server in cloud.compute.servers(details=False, all_projects=True)]


def main() -> int:
    """Exit code: 0 done; 2 the service or nova did not answer, and nothing more was changed."""
    parser = argparse.ArgumentParser(description="Returns the places of servers that nova has no more.")
    parser.add_argument("--config-file", default="/etc/nova/nova.conf", help="the file with the group [tailbound]")
    arguments = parser.parse_args()

    from oslo_config import cfg

    from tailbound_nova import conf

    options = cfg.ConfigOpts()
    conf.register(options)
    options(["--config-file", arguments.config_file], project="nova")
    service = options.tailbound
    try:
        gone = sweep(
            client.Client(service.url, service.token_file, service.ca_file, service.timeout), _servers
        )
    # The SDK has many errors; each of them means that the servers are not known.
    except Exception as error:  # noqa: BLE001
        print(f"tailbound-nova-sweep: {error}", file=sys.stderr)
        return 2
    for name in gone:
        print(f"{name}: its place is free")
    return 0
