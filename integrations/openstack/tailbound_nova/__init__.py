"""Guarantees of network latency for nova servers, from flavor extra specs.

`guarantee` reads extra specs, `client` calls the placement service: both need only the standard library.
`scheduler` has nova's filter and weigher, `validators` the checks of extra specs when a flavor is written,
`conf` the options in nova.conf.
"""
