import unittest

from tailbound_nova import client, sweep

from tests.service import service


def machine(name, **more):
    return {"owner": "acme", "tenant_name": "nova-1", "name": name, "host": "a", "state": "confirmed"} | more


class Sweep(unittest.TestCase):
    def run_with(self, machines, servers):
        """What a sweep removes, and the calls of the service in their order."""
        calls = []

        def answer(method, path, body, headers):
            calls.append((method, path))
            if method == "DELETE":
                return 204, b""
            if "after" in path:
                return 200, {"items": machines[1:]}
            return 200, {"items": machines[:1], "next": "x/y"}

        def listed():
            calls.append("servers")
            return servers

        with service(answer) as url:
            return sweep.sweep(client.Client(url, None, None, 5.0), listed), calls

    def test_places_of_servers_that_are_gone_end(self):
        gone, calls = self.run_with([machine("one"), machine("two"), machine("th/ree")], ["one"])
        self.assertEqual(gone, ["two", "th/ree"])
        self.assertEqual(
            calls,
            [
                ("GET", "/v1/machines?limit=1000"),
                ("GET", "/v1/machines?limit=1000&after=x%2Fy"),
                "servers",
                ("DELETE", "/v1/machines/two?owner=acme&host=a"),
                ("DELETE", "/v1/machines/th%2Free?owner=acme&host=a"),
            ],
        )

    def test_others_machines_and_reservations_stay(self):
        machines = [machine("one", tenant_name="web"), machine("two", state="reserved")]
        self.assertEqual(self.run_with(machines, [])[0], [])

    def test_without_nova_nothing_is_removed(self):
        def fails():
            raise OSError("keystone is away")

        with service(lambda *_: (200, {"items": [machine("one")]})) as url, self.assertRaises(OSError):
            sweep.sweep(client.Client(url, None, None, 5.0), fails)


if __name__ == "__main__":
    unittest.main()
