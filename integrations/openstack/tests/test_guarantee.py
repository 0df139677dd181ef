import unittest

from tailbound_nova import guarantee


class Read(unittest.TestCase):
    def test_a_flavor_without_extra_specs_of_ours_asks_for_nothing(self):
        self.assertIsNone(guarantee.read({}))
        self.assertIsNone(guarantee.read({"hw:cpu_policy": "dedicated", "quota:vif_outbound_average": "10"}))

    def test_a_request_has_exactly_what_the_flavor_has(self):
        specs = {"tailbound:bandwidth": "1Gbit/s", "tailbound:burst": "100KB", "hw:numa_nodes": "1"}
        self.assertEqual(
            guarantee.read(specs).request(), {"bandwidth": "1Gbit/s", "burst": "100KB"}
        )
        specs |= {"tailbound:delay": "0.5ms"}
        self.assertEqual(
            guarantee.read(specs).request(),
            {"bandwidth": "1Gbit/s", "burst": "100KB", "delay": "0.5ms"},
        )

    def test_an_error_says_which_one_and_what_would_be_right(self):
        for specs, words in (
            ({"tailbound:bandwidth": "1 Gbit/s"}, "'1 Gbit/s'; it is a number with its unit, such as 1Gbit/s"),
            ({"tailbound:bandwidth": "1Gb"}, "such as 1Gbit/s"),
            ({"tailbound:bandwidth": "-1Gbit/s"}, "such as 1Gbit/s"),
            ({"tailbound:bandwidth": "1Gbit/s\n"}, "such as 1Gbit/s"),
            ({"tailbound:bandwidth": "1e3Mbit/s"}, "such as 1Gbit/s"),
            ({"tailbound:bandwidth": "1Gbit/s", "tailbound:burst": "100"}, "such as 100KB"),
            ({"tailbound:bandwidth": "1Gbit/s", "tailbound:delay": "1"}, "such as 1ms"),
            ({"tailbound:burst": "100KB"}, "tailbound:burst without tailbound:bandwidth"),
            ({"tailbound:rate": "1Gbit/s"}, "tailbound:rate is not known; the extra specs are tailbound:bandwidth,"),
        ):
            with self.subTest(specs), self.assertRaises(guarantee.WrongSpec) as raised:
                guarantee.read(specs)
            self.assertIn(words, str(raised.exception))


class Tenant(unittest.TestCase):
    def test_servers_with_the_same_guarantee_are_one_tenant(self):
        one = guarantee.read({"tailbound:bandwidth": "1Gbit/s", "tailbound:burst": "100KB"})
        same = guarantee.read({"tailbound:burst": "100KB", "tailbound:bandwidth": "1Gbit/s", "os:x": "y"})
        other = guarantee.read({"tailbound:bandwidth": "1Gbit/s", "tailbound:burst": "99KB"})
        self.assertEqual(one.tenant(), same.tenant())
        self.assertNotEqual(one.tenant(), other.tenant())

    def test_names_are_ones_that_the_service_takes(self):
        form = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
        self.assertRegex(guarantee.read({"tailbound:bandwidth": "1Gbit/s"}).tenant(), form)
        for project in ("6f70656e73746163", "6f70656e-7374-4163-8b20-70726f6a6563", "A/of €", "x" * 200, "", "--"):
            with self.subTest(project):
                self.assertRegex(guarantee.owner(project), form)
        self.assertEqual(guarantee.owner("6f70656e-7374"), "6f70656e-7374")


if __name__ == "__main__":
    unittest.main()
