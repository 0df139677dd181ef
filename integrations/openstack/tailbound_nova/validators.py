"""Checks of extra specs when a flavor is written: `openstack flavor set` says at once what is wrong.

nova finds this module by its entry point, and checks from API version 2.86 on.
"""

from nova import exception
from nova.api.validation.extra_specs import base

from tailbound_nova import guarantee


class Validator(base.ExtraSpecValidator):
    """nova's own validator, but its error shows a right value in place of a pattern."""

    def _validate_str(self, value):
        if not self.value["form"].fullmatch(value):
            raise exception.ValidationError(
                f"Validation failed; {self.name} is '{value}'; it is a number with its unit, "
                f"such as {self.value['example']}."
            )


def register():
    """The validators of all extra specs that begin with `tailbound:`."""
    return [
        Validator(
            name=guarantee.PREFIX + key.name,
            description=f"The {key.meaning}, such as {key.example}.",
            value={"type": str, "form": key.form, "example": key.example},
        )
        for key in guarantee.KEYS
    ]
