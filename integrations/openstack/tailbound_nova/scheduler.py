"""nova's scheduler filter and weigher for guarantees of tailbound.

A boot asks the placement service once which of the hosts keep the flavor's guarantee, and reserves when nova
comes to a host. The reservation has the server's UUID. Nova may try several hosts for one boot: each attempt
moves the reservation, so that a boot never holds two. The host confirms it when the server starts there, and
what no host confirms ends by itself. So nothing has to be undone here, where nova would not tell.

What cannot be proved is not admitted: without an answer of the service no host passes.
"""

from nova import conf as nova_conf
from nova.scheduler import filters, utils, weights
from oslo_log import log as logging

from tailbound_nova import client, conf, guarantee

CONF = nova_conf.CONF
LOG = logging.getLogger(__name__)
conf.register(CONF)

# How many more servers fit on a host, as the filter heard; for the weigher.
ROOM = "tailbound_room"
# The instance for which a host was selected, in its request.
SELECTED = "tailbound_selected"


class Turn:
    """One instance's way through the scheduler: its place is reserved as nova comes to a host."""

    def __init__(self, service, tenant, wanted, spec_obj):
        self._service = service
        self._tenant = tenant
        self._request = {"guarantee": wanted.request()}
        self._spec_obj = spec_obj
        self._uuid = spec_obj.instance_uuid
        self._ended = False

    def follow(self, host_state, room):
        """Reserves on this host when nova comes to it. `room` is how many more servers fit there."""
        setattr(host_state, ROOM, room)
        host_state.allocation_candidates = Reserving(host_state.allocation_candidates, self, host_state)
        consume = type(host_state).consume_from_request

        def selected(spec_obj):
            self._ended = True
            setattr(self._spec_obj, SELECTED, self._uuid)
            consume(host_state, spec_obj)

        host_state.consume_from_request = selected

    def reserve(self, host_state):
        """Whether the instance has its place on this host. After nova has selected one, nothing changes."""
        if self._ended:
            return True
        try:
            self._service.reserve(
                self._tenant, self._request, _name(host_state), self._uuid, CONF.tailbound.reservation_seconds
            )
            return True
        except (client.Unavailable, client.Refused) as error:
            LOG.warning("Instance %s has no place on %s: %s", self._uuid, _name(host_state), error)
            return False


class Reserving(list):
    """Allocation candidates of a host, which are none where the place cannot be reserved.

    Nova goes through the hosts by weight, and asks of each whether it has allocation candidates just before
    it claims one (`if not host.allocation_candidates`). There the place is reserved. A host whose place
    another scheduler took meanwhile is so left out, and nova goes on with the next.
    """

    def __init__(self, candidates, turn, host_state):
        super().__init__(candidates)
        self._turn = turn
        self._host_state = host_state

    def __bool__(self):
        return len(self) > 0 and self._turn.reserve(self._host_state)


class TailboundFilter(filters.BaseHostFilter):
    """Lets the hosts through on which the flavor's guarantee holds beside all others.

    It has to be the last of `enabled_filters`, so that only hosts that pass all others are asked for, and no
    other filter replaces the allocation candidates.
    """

    def __init__(self):
        enabled = CONF.filter_scheduler.enabled_filters
        if enabled and enabled[-1] != type(self).__name__:
            raise ValueError(
                f"[filter_scheduler] enabled_filters: {type(self).__name__} must be the last one, "
                f"and the last one is {enabled[-1]}"
            )
        options = CONF.tailbound
        if not options.url:
            raise ValueError("[tailbound] url is missing: the address of the placement service")
        self._service = client.Client(options.url, options.token_file, options.ca_file, options.timeout)

    def filter_all(self, filter_obj_list, spec_obj):
        hosts = list(filter_obj_list)
        # A rebuild stays where it is. Nova filters once more for alternates of what it has selected.
        selected = getattr(spec_obj, SELECTED, None)
        if not hosts or utils.request_is_rebuild(spec_obj) or selected == spec_obj.instance_uuid is not None:
            return hosts
        try:
            wanted = guarantee.read(spec_obj.flavor.extra_specs or {})
            if wanted is None:
                return hosts
            tenant = client.Tenant(guarantee.owner(spec_obj.project_id), wanted.tenant())
            verdicts = self._service.candidates(
                tenant, {"guarantee": wanted.request()}, [_name(host) for host in hosts]
            )
        except guarantee.WrongSpec as error:
            LOG.error("No host for flavor %s: %s", spec_obj.flavor.name, error)
            return []
        except (client.Unavailable, client.Refused) as error:
            LOG.error("No host for instance %s, as its guarantee is not proved: %s", spec_obj.instance_uuid, error)
            return []
        turn = Turn(self._service, tenant, wanted, spec_obj)
        fit = []
        for host, verdict in zip(hosts, verdicts, strict=True):
            if verdict["fits"]:
                turn.follow(host, verdict["headroom"]["vms"])
                fit.append(host)
            else:
                LOG.info("%s does not fit on %s: %s", tenant.name, verdict["host"], verdict["refusal"]["sentence"])
        return fit


class TailboundWeigher(weights.BaseHostWeigher):
    """Prefers hosts on which more servers of the same flavor fit."""

    def weight_multiplier(self, host_state):
        return CONF.tailbound.weight_multiplier

    def _weigh_object(self, host_state, weight_properties):
        return float(getattr(host_state, ROOM, 0))


def _name(host_state):
    return host_state.host if CONF.tailbound.host_name == "host" else host_state.nodename
