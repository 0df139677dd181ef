"""Holds the operators' page against the code: an extra spec or an option that it shows exists."""

import ast
import configparser
import pathlib
import re
import unittest

from tailbound_nova import guarantee

HERE = pathlib.Path(__file__).parent
PAGE = (HERE / "../../../docs/how-to/openstack.md").read_text(encoding="utf-8")


def flavor():
    """The extra specs of the page's flavor."""
    return re.findall(r"--property (tailbound:\w+)=(\S+)", PAGE)


class Page(unittest.TestCase):
    def test_the_flavor_of_the_page_has_a_guarantee(self):
        self.assertEqual(
            guarantee.read(dict(flavor())).request(), {"bandwidth": "1Gbit/s", "burst": "100KB", "delay": "1ms"}
        )

    def test_the_table_has_each_extra_spec_with_its_example(self):
        rows = dict(re.findall(r"^\| `tailbound:(\w+)` \| `([^`]+)` \|", PAGE, re.MULTILINE))
        self.assertEqual(rows, {key.name: key.example for key in guarantee.KEYS})

    def test_each_option_of_the_page_is_one(self):
        shown = configparser.ConfigParser(strict=False, interpolation=None)
        shown.read_string(re.search(r"```ini\n(.*?)```", PAGE, re.DOTALL).group(1))
        tree = ast.parse((HERE / "../tailbound_nova/conf.py").read_text(encoding="utf-8"))
        known = {
            call.args[0].value
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "").endswith("Opt")
        }
        self.assertIn("url", known)
        self.assertLessEqual(set(shown["tailbound"]), known)


if __name__ == "__main__":
    unittest.main()
