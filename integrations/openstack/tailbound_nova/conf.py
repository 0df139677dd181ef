"""The options of the group `[tailbound]` in nova.conf of schedulers."""

from oslo_config import cfg

GROUP = cfg.OptGroup("tailbound", title="Guarantees of network latency")

OPTIONS = [
    cfg.URIOpt(
        "url",
        schemes=["https", "http"],
        help="Address of tailbound's placement service, such as https://place.example:7070.",
    ),
    cfg.StrOpt("token_file", help="File with the scheduler's token."),
    cfg.StrOpt("ca_file", help="Certificates that sign the service's; the system's by default."),
    cfg.FloatOpt("timeout", default=5.0, min=0.1, max=60.0, help="Seconds that a call may take."),
    cfg.IntOpt(
        "reservation_seconds",
        default=300,
        min=10,
        max=3600,
        help="Seconds for which a place is reserved until the server runs on its host. More than a build "
        "takes, with its retries on other hosts: a reservation that has ended is refused by the host.",
    ),
    cfg.StrOpt(
        "host_name",
        default="host",
        choices=["host", "node"],
        help="The name of a host in the service's topology: nova's host, or its node.",
    ),
    cfg.FloatOpt(
        "weight_multiplier",
        default=1.0,
        help="Weight of how many more servers of the flavor fit. Positive spreads, negative packs.",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Registers the options. More than once does no harm."""
    conf.register_group(GROUP)
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts():
    """The options for oslo.config's generator of sample files."""
    return [(GROUP, OPTIONS)]
