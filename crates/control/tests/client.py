"""Uses a client that openapi-python-client made of the service's document; see generated.rs.

Usage: client.py DIRECTORY URL TOKEN. The client is the package `client` in the directory.
"""

import datetime
import json
import sys

directory, url, token = sys.argv[1:]
sys.path.insert(0, directory)

from client import AuthenticatedClient
from client.api.service import issue_token, list_tokens, revoke_token, status
from client.api.tenants import change_tenant, create_tenant, delete_tenant, list_tenants, stream_tenants
from client.models import (
    Guarantee,
    IssuedToken,
    NewTenant,
    NewToken,
    Problem,
    Tenant,
    TenantLine,
    TenantPatch,
    TokenRole,
)

service = AuthenticatedClient(base_url=url, token=token)
before = status.sync(client=service)
assert before.tenants == 0, before

# An admission, its retry, and a refusal with its rule.
guarantee = Guarantee(bandwidth="100Mbit/s", burst="15KB", delay="1ms", burst_rate="1Gbit/s")
new = NewTenant(name="web", owner="acme", vms=2, guarantee=guarantee)
made = create_tenant.sync(client=service, body=new, idempotency_key="1")
assert isinstance(made, Tenant) and made.request.vms == 2, made
again = create_tenant.sync(client=service, body=new, idempotency_key="1")
assert again == made, again
refused = create_tenant.sync(client=service, body=NewTenant(name="all", owner="acme", vms=99))
assert isinstance(refused, Problem) and refused.code.value == "refused", refused
assert refused.refusal.rule.value == "slots", refused

# The streams have no method of their own: httpx reads the lines, and the models parse them.
request = stream_tenants._get_kwargs(since=before.revision)
with service.get_httpx_client().stream(**request) as answer:
    assert answer.status_code == 200, answer
    lines = (TenantLine.from_dict(json.loads(line)) for line in answer.iter_lines() if line)
    line = next(line for line in lines if isinstance(line.tenant, Tenant))
    assert (line.tenant.id, line.tenant.name) == (made.id, "web"), line

changed = change_tenant.sync(client=service, id=made.id, body=TenantPatch(vms=3))
assert changed.request.vms == 3, changed
end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
body = NewToken(name="ci", role=TokenRole.TENANT, owner="acme", expires=end)
issued = issue_token.sync(client=service, body=body)
assert isinstance(issued, IssuedToken), issued
own = AuthenticatedClient(base_url=url, token=issued.secret)
assert [tenant.name for tenant in list_tenants.sync(client=own).items] == ["web"]
assert [token.name for token in list_tokens.sync(client=own).items] == ["ci"]
assert revoke_token.sync_detailed("ci", client=service).status_code == 204
assert isinstance(list_tenants.sync(client=own), Problem)
assert delete_tenant.sync_detailed(made.id, client=service).status_code == 204
print("all answers are as the client expects")
