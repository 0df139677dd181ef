"""The guarantee that a flavor asks for.

A flavor has it by its extra specs:

    tailbound:bandwidth  rate of each server, such as `1Gbit/s`; without it the flavor has no guarantee
    tailbound:burst      bytes that a server may send at once, such as `100KB`
    tailbound:delay      largest delay of a packet, such as `1ms`

The placement service wants an exact number, so a value is a decimal number with its unit and no blank.
"""

import dataclasses
import hashlib
import re

PREFIX = "tailbound:"
# Begin of the names of nova's tenants.
TENANT_PREFIX = "nova-"

RATE = re.compile(
    r"[0-9]{1,19}bit/s|[0-9]{1,16}([.][0-9]{1,3})?kbit/s"
    r"|[0-9]{1,13}([.][0-9]{1,6})?Mbit/s|[0-9]{1,10}([.][0-9]{1,9})?Gbit/s"
)
SIZE = re.compile(
    r"[0-9]{1,19}B|[0-9]{1,16}([.][0-9]{1,3})?KB|[0-9]{1,13}([.][0-9]{1,6})?MB"
    r"|[0-9]{1,10}([.][0-9]{1,9})?GB|[0-9]{1,15}KiB|[0-9]{1,12}MiB|[0-9]{1,9}GiB"
)
TIME = re.compile(
    r"[0-9]{1,19}ns|[0-9]{1,16}([.][0-9]{1,3})?us|[0-9]{1,13}([.][0-9]{1,6})?ms|[0-9]{1,10}([.][0-9]{1,9})?s"
)


@dataclasses.dataclass(frozen=True)
class Key:
    """An extra spec: its name without `tailbound:`, its form, and what an error shows as a right one."""

    name: str
    form: re.Pattern
    example: str
    meaning: str


KEYS = (
    Key("bandwidth", RATE, "1Gbit/s", "rate that is guaranteed to each server of this flavor"),
    Key("burst", SIZE, "100KB", "bytes that a server may send at once, above its rate"),
    Key("delay", TIME, "1ms", "largest delay of a packet within its guarantee"),
)


class WrongSpec(ValueError):
    """An extra spec that cannot be read. Its text says which one, and what would be right."""


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What each server of a flavor is promised: texts with units, as the placement service reads them."""

    bandwidth: str
    burst: str | None = None
    delay: str | None = None

    def request(self) -> dict:
        """The `guarantee` of a request to the placement service."""
        return {name: text for name, text in dataclasses.asdict(self).items() if text is not None}

    def tenant(self) -> str:
        """The name of the tenant that has a project's servers with this guarantee.

        A tenant has one guarantee for all of its machines, so servers of a project that differ in it are
        two tenants.
        """
        return TENANT_PREFIX + hashlib.sha256(repr(sorted(self.request().items())).encode()).hexdigest()[:12]


def owner(project: str) -> str:
    """The owner of a project's tenants: the project's id, as far as the placement service takes it."""
    return re.sub(r"[^a-z0-9-]", "", project.lower())[:63].strip("-") or "nova"


def read(extra_specs: dict[str, str]) -> Guarantee | None:
    """The guarantee of a flavor, or None where it asks for none. Raises WrongSpec."""
    wanted = {key[len(PREFIX) :]: text for key, text in extra_specs.items() if key.startswith(PREFIX)}
    if not wanted:
        return None
    known = {key.name: key for key in KEYS}
    for name, text in sorted(wanted.items()):
        key = known.get(name)
        if key is None:
            names = ", ".join(PREFIX + key.name for key in KEYS)
            raise WrongSpec(f"{PREFIX}{name} is not known; the extra specs are {names}")
        if not key.form.fullmatch(text):
            raise WrongSpec(f"{PREFIX}{name} is {text!r}; it is a number with its unit, such as {key.example}")
    if "bandwidth" not in wanted:
        given = ", ".join(PREFIX + name for name in sorted(wanted))
        raise WrongSpec(f"{given} without {PREFIX}bandwidth, such as {PREFIX}bandwidth=1Gbit/s")
    return Guarantee(**wanted)
