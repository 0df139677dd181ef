"""Calls of the placement service that a scheduler needs."""

import http.client
import json
import ssl
import typing
import urllib.error
import urllib.request
from collections.abc import Iterator


class Unavailable(Exception):
    """The service did not answer, or not as it should: nothing is known about what it did."""


class Refused(Exception):
    """The service answered that it will not do it. `code` is its word for programs, the text says why."""

    def __init__(self, status: int, code: str, detail: str):
        super().__init__(detail)
        self.status = status
        self.code = code


class Tenant(typing.NamedTuple):
    """A tenant of the placement service."""

    owner: str
    name: str


class Client:
    """A placement service at `url`, with the token in `token_file` and certificates signed by `ca_file`.

    The token is read for each call, so a new one needs no restart. A call takes at most `timeout` seconds.
    """

    def __init__(self, url: str, token_file: str | None, ca_file: str | None, timeout: float):
        self._url = url.rstrip("/")
        self._token_file = token_file
        self._timeout = timeout
        self._tls = ssl.create_default_context(cafile=ca_file) if self._url.startswith("https:") else None

    def candidates(self, tenant: Tenant, request: dict, hosts: list[str]) -> list[dict]:
        """The service's verdict on one machine more of a tenant on each of `hosts`, in their order.

        The tenant need not exist.
        """
        question = {"tenant": f"{tenant.owner}/{tenant.name}", "request": request | {"vms": 1}, "vms": 1}
        answer = self._call("POST", "/v1/candidates", {"requests": [question | {"hosts": hosts}]})
        try:
            found = {one["host"]: one for one in answer["answers"][0]["candidates"]}
            return [found[host] for host in hosts]
        except (KeyError, IndexError, TypeError) as error:
            raise Unavailable(f"{self._url} answered about other hosts than asked: {error!r}") from error

    def reserve(self, tenant: Tenant, request: dict, host: str, machine: str, seconds: int) -> None:
        """Reserves a place for `machine` on `host`. What it had reserved elsewhere moves there."""
        reservation = {
            "owner": tenant.owner,
            "tenant": tenant.name,
            "request": request,
            "placement": [{"host": host, "vms": 1}],
            "machines": [machine],
            "replace": True,
            "ttl": f"{seconds}s",
        }
        self._call("POST", "/v1/reservations", reservation)

    def machines(self) -> Iterator[dict]:
        """All machines that have names: their `owner`, `tenant_name`, `name`, `host` and `state`."""
        after = ""
        while True:
            page = self._call("GET", "/v1/machines?limit=1000" + after)
            yield from page["items"]
            if not page.get("next"):
                return
            after = "&after=" + urllib.parse.quote(page["next"], safe="")

    def remove(self, owner: str, machine: str, host: str) -> None:
        """Ends the place of a machine on a host. One that is not there is no error."""
        name = urllib.parse.quote(machine, safe="")
        query = urllib.parse.urlencode({"owner": owner, "host": host})
        self._call("DELETE", f"/v1/machines/{name}?{query}")

    def _call(self, method: str, path: str, body: dict | None = None):
        headers = {"Accept": "application/json"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            if self._token_file:
                with open(self._token_file, encoding="ascii") as file:
                    headers["Authorization"] = "Bearer " + file.read().strip()
            request = urllib.request.Request(self._url + path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=self._timeout, context=self._tls) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(f"{method} {self._url}{path}: {error}") from error

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        try:
            problem = json.loads(error.read(65536))
            refused = Refused(error.code, problem["code"], problem["detail"])
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            return Unavailable(f"{error.url}: HTTP {error.code} without an explanation")
        # The service's own words for "try later".
        if error.code >= 500 or error.code == 429:
            return Unavailable(f"{error.url}: {refused}")
        return refused
