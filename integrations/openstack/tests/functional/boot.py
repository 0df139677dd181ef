"""Boots, retries, moves and failures, by nova's own code and a real placement service."""

import os
import sys
import time

from nova import exception
from nova.tests.functional.api.client import OpenStackApiException

from tailbound_nova import client

from tests import test_page
from tests.functional import base


class Boot(base.Base):
    def test_a_server_runs_where_its_guarantee_holds(self):
        flavor = self.flavor(bandwidth="4Gbit/s", burst="15KB")
        servers = [self.boot(flavor) for _ in range(4)]
        self.assertEqual(sum(self.service.machines().values()), 4)
        for server in servers:
            status, place = self.service.call("GET", f"/v1/machines/{server['id']}?owner={server['tenant_id']}")
            self.assertEqual(status, 200)
            self.assertEqual((place["host"], place["state"]), (server["OS-EXT-SRV-ATTR:host"], "confirmed"))
        self.assertEqual(self.service.reservations(), [])
        for server in servers:
            self._delete_server(server)
        self.assertEqual(sorted(self.sweep()), sorted(server["id"] for server in servers))
        self.assertEqual(self.service.machines(), {})

    def test_the_flavor_of_the_operators_page_boots(self):
        shown = dict(test_page.flavor())
        server = self.boot(self._create_flavor(vcpu=1, memory_mb=64, disk=1, extra_spec=shown))
        self.assertEqual(self.service.machines(), {server["OS-EXT-SRV-ATTR:host"]: 1})

    def test_what_no_uplink_has_is_not_booted_and_leaves_nothing(self):
        server = self.boot(self.flavor(bandwidth="11Gbit/s"), state="ERROR")
        self.assertIn("No valid host", server["fault"]["message"])
        self.sweep()
        self.assertEqual(self.service.reservations(), [])
        self.assertEqual(self.service.machines(), {})

    def test_a_flavor_without_a_guarantee_asks_nobody(self):
        self.service.end()
        self.boot(self.flavor())

    def test_without_an_answer_nothing_is_admitted(self):
        flavor = self.flavor(bandwidth="1Gbit/s")
        self.service.end()
        server = self.boot(flavor, state="ERROR")
        self.assertIn("No valid host", server["fault"]["message"])

    def test_a_wrong_unit_is_refused_when_the_flavor_is_written(self):
        flavor = self._create_flavor(vcpu=1, memory_mb=64, disk=1)
        error = self.assertRaises(
            OpenStackApiException,
            self.admin_api.post_extra_spec,
            flavor,
            {"extra_specs": {"tailbound:bandwidth": "1000"}},
        )
        self.assertIn("such as 1Gbit/s", str(error))


class Batch(base.Base):
    def test_each_server_of_a_batch_is_one_question(self):
        self.flags(instances=-1, cores=-1, ram=-1, group="quota")
        asked = []
        candidates = client.Client.candidates

        def counted(service, *arguments):
            asked.append(arguments)
            return candidates(service, *arguments)

        self.stub_out("tailbound_nova.client.Client.candidates", counted)
        server = self._build_server(flavor_id=self.flavor(bandwidth="100Mbit/s"), networks="none")
        self.api.post_server({"server": server | {"min_count": 50, "max_count": 50}})
        servers = self.api.get_servers(detail=False)
        self.assertEqual(len(servers), 50)
        for server in servers:
            self._wait_for_server_parameter(server, {"status": "ACTIVE"}, max_retries=120)
        self.assertEqual(len(asked), 50)
        self.assertEqual(sum(self.service.machines().values()), 50)
        self.assertEqual(self.service.reservations(), [])


class Retry(base.Base):
    """The first host fails; nova goes on with an alternate, and asks no scheduler for that."""

    failures = 1

    def started(self, host, instance):
        if self.failures:
            self.failures -= 1
            self.failed = host
            raise exception.ComputeResourcesUnavailable(reason="made to fail")

    def test_an_alternate_takes_the_reservation_with_it(self):
        server = self.boot(self.flavor(bandwidth="4Gbit/s"))
        host = server["OS-EXT-SRV-ATTR:host"]
        self.assertNotEqual(host, self.failed)
        self.assertEqual(self.service.machines(), {host: 1})
        self.assertEqual(self.service.reservations(), [])


class Moves(base.Base):
    def test_a_live_migration_ends_with_one_place(self):
        server = self.boot(self.flavor(bandwidth="4Gbit/s"))
        before = server["OS-EXT-SRV-ATTR:host"]
        self._live_migrate(server, "completed")
        server = self.admin_api.get_server(server["id"])
        after = server["OS-EXT-SRV-ATTR:host"]
        self.assertNotEqual(before, after)
        self.assertEqual(self.service.machines(), {after: 1})

    def test_a_resize_moves_a_server_to_the_tenant_of_its_new_guarantee(self):
        server = self.boot(self.flavor(bandwidth="1Gbit/s"))
        self._resize_server(server, self.flavor(bandwidth="4Gbit/s"))
        server = self._confirm_resize(server)
        tenants = self.service.call("GET", "/v1/tenants")[1]["items"]
        self.assertEqual([one["request"]["guarantee"]["bandwidth"] for one in tenants], ["4Gbit/s"])
        self.assertEqual(self.service.machines(), {server["OS-EXT-SRV-ATTR:host"]: 1})

    def test_an_evacuation_ends_with_one_place(self):
        server = self.boot(self.flavor(bandwidth="4Gbit/s"))
        lost = server["OS-EXT-SRV-ATTR:host"]
        self.computes[lost].stop()
        self.admin_api.put_service_force_down(self.computes[lost].service_ref.uuid, True)
        server = self._evacuate_server(server, expected_state="SHUTOFF")
        self.assertEqual(self.service.machines(), {server["OS-EXT-SRV-ATTR:host"]: 1})


class Failures(base.Base):
    """Boots in batches, as one request of `max_count` servers costs a fraction of as many requests."""

    # Hosts and racks have room for a whole batch, so that each boot fails where it starts.
    BATCH = 40

    def setUp(self):
        super().setUp()
        self.flags(instances=-1, cores=-1, ram=-1, group="quota")
        self.attempts = 0

    def started(self, host, instance):
        self.attempts += 1
        # Nova gives up one half of the boots there, and looks for an alternate for the others. It has none for a
        # batch that is on all hosts; class Retry has one.
        if int(instance.uuid[-1], 16) % 2:
            raise exception.BuildAbortException(instance_uuid=instance.uuid, reason="made to fail")
        raise exception.ComputeResourcesUnavailable(reason="made to fail")

    def _count(self, **options):
        return len(self.api.get_servers(detail=False, search_opts=options))

    def _until(self, what, holds):
        end = time.monotonic() + 300
        while not holds():
            self.assertLess(time.monotonic(), end, f"not yet: {what}")
            # A list costs as much CPU as some boots.
            time.sleep(1)

    def _fail(self, flavor, count):
        """Boots servers that fail, and deletes them."""
        server = self._build_server(flavor_id=flavor, networks="none")
        self.api.post_server({"server": server | {"min_count": count, "max_count": count}})
        self._until("all boots fail", lambda: self._count(status="ERROR") == count)
        for server in self.api.get_servers(detail=False):
            self.api.delete_server(server["id"])
        self._until("all servers are deleted", lambda: not self._count())

    def test_failed_boots_leak_nothing(self):
        flavor = self.flavor(bandwidth="100Mbit/s")
        boots = int(os.environ.get("TAILBOUND_BOOTS", "20"))
        for first in range(0, boots, self.BATCH):
            self._fail(flavor, min(self.BATCH, boots - first))
            self.sweep()
            self.assertEqual(self.service.reservations(), [])
            self.assertEqual(self.service.machines(), {})
        # None failed because the service refused it.
        self.assertGreaterEqual(self.attempts, boots)
        print(f"{boots} failed boots: 0 reservations leaked", file=sys.__stderr__)
