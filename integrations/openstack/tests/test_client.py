import socket
import tempfile
import unittest

from tailbound_nova import client

from tests.service import service

TENANT = client.Tenant("acme", "nova-1")
REQUEST = {"guarantee": {"bandwidth": "1Gbit/s"}}


def fits(host):
    return {"host": host, "fits": True, "headroom": {"vms": 3}}


def connect(url, token_file=None, timeout=5.0):
    return client.Client(url, token_file, None, timeout)


class Candidates(unittest.TestCase):
    def test_verdicts_are_in_the_order_of_the_hosts(self):
        asked = []

        def answer(method, path, body, headers):
            asked.append((method, path, body))
            return 200, {"revision": 7, "answers": [{"candidates": [fits("b"), fits("a")]}]}

        with service(answer) as url:
            verdicts = connect(url).candidates(TENANT, REQUEST, ["a", "b"])
        self.assertEqual([one["host"] for one in verdicts], ["a", "b"])
        question = {"tenant": "acme/nova-1", "request": REQUEST | {"vms": 1}, "vms": 1, "hosts": ["a", "b"]}
        self.assertEqual(asked, [("POST", "/v1/candidates", {"requests": [question]})])

    def test_an_answer_about_other_hosts_proves_nothing(self):
        for answer in ({"answers": [{"candidates": [fits("x")]}]}, {"answers": []}, {}, [], None, b"{"):
            with self.subTest(answer), service(lambda *_: (200, answer)) as url:
                with self.assertRaises(client.Unavailable):
                    connect(url).candidates(TENANT, REQUEST, ["a"])

    def test_the_token_is_read_for_each_call(self):
        tokens = []

        def answer(method, path, body, headers):
            tokens.append(headers["Authorization"])
            return 200, {"answers": [{"candidates": []}]}

        with service(answer) as url, tempfile.NamedTemporaryFile("w") as file:
            for token in ("one\n", "two"):
                file.seek(0)
                file.truncate()
                file.write(token)
                file.flush()
                connect(url, file.name).candidates(TENANT, REQUEST, [])
        self.assertEqual(tokens, ["Bearer one", "Bearer two"])


class Failures(unittest.TestCase):
    def test_a_refusal_has_the_services_words(self):
        problem = {"code": "refused", "status": 409, "detail": "pod-1: its queue would be 1KB too long"}
        with service(lambda *_: (409, problem)) as url, self.assertRaises(client.Refused) as raised:
            connect(url).reserve(TENANT, REQUEST, "a", "uuid", 60)
        self.assertEqual(raised.exception.code, "refused")
        self.assertEqual(str(raised.exception), "pod-1: its queue would be 1KB too long")

    def test_a_machine_moves_its_reservation(self):
        asked = []
        with service(lambda method, path, body, _: (asked.append((method, path, body)), (201, {}))[1]) as url:
            connect(url).reserve(TENANT, REQUEST, "a", "uuid", 60)
        wanted = {"owner": "acme", "tenant": "nova-1", "request": REQUEST, "machines": ["uuid"], "replace": True}
        wanted |= {"placement": [{"host": "a", "vms": 1}], "ttl": "60s"}
        self.assertEqual(asked, [("POST", "/v1/reservations", wanted)])

    def test_trouble_of_the_service_is_no_refusal(self):
        problem = {"code": "unavailable", "status": 503, "detail": "no leader"}
        for status, body in ((503, problem), (429, problem | {"code": "too-many"}), (502, b"<html>"), (404, b"")):
            with self.subTest(status), service(lambda *_: (status, body)) as url:
                with self.assertRaises(client.Unavailable):
                    connect(url).reserve(TENANT, REQUEST, "a", "uuid", 60)

    def test_a_service_that_does_not_answer_ends_with_the_timeout(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            with self.assertRaises(client.Unavailable) as raised:
                connect(url, timeout=0.2).candidates(TENANT, REQUEST, ["a"])
        self.assertIn("timed out", str(raised.exception))
        with self.assertRaises(client.Unavailable):
            connect(url).candidates(TENANT, REQUEST, ["a"])

    def test_a_missing_token_file_says_so(self):
        with self.assertRaises(client.Unavailable) as raised:
            connect("http://127.0.0.1:1", "/nonexistent/token").candidates(TENANT, REQUEST, [])
        self.assertIn("/nonexistent/token", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
