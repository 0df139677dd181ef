#!/usr/bin/env python3
"""Makes experiments/networks/disco.jsonl: networks, and the delays that Disco bounds in them.

Needs Java, Maven and a network; the file that it makes is committed, and a test compares with it.
Each line is a network: ports as [rate in Mbit/s, latency in us], flows as [rate in Mbit/s, burst
in bytes, [ports]], and for each flow its delays in ns by Disco: FIFO TFA and SFA, arbitrary
multiplexing TFA, SFA and PMOO.
"""

import json
import pathlib
import random
import subprocess

VERSION = "de.tum.ei.lkn.eces:discodnc:2.4.3-lkn"
HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "experiments/networks/disco.jsonl"


def tandem(rng):
    """Servers in a row, one flow over all of them, and others over parts."""
    length = rng.randint(2, 6)
    paths = [list(range(length))]
    for _ in range(rng.randint(1, 7)):
        begin = rng.randrange(length)
        paths.append(list(range(begin, rng.randint(begin, length - 1) + 1)))
    return length, paths


def tree(rng):
    """A sink tree: each server feeds one other, and all flows go to the root."""
    count = rng.randint(3, 9)
    to = [None] + [rng.randrange(i) for i in range(1, count)]
    paths = []
    for _ in range(rng.randint(2, 9)):
        path = [rng.randrange(count)]
        while to[path[-1]] is not None:
            path.append(to[path[-1]])
        paths.append(path)
    return count, paths


def leaf_spine(rng):
    """Hosts below leaves, leaves below spines: up, over a spine and down."""
    leaves, spines, hosts = rng.randint(2, 3), rng.randint(1, 2), rng.randint(1, 2)
    ports = {}

    def port(*name):
        return ports.setdefault(name, len(ports))

    paths = []
    for _ in range(rng.randint(3, 9)):
        here, there = rng.sample(range(leaves), 2)
        spine = rng.randrange(spines)
        path = [
            port("host", here, rng.randrange(hosts)),
            port("up", here, spine),
            port("down", spine, there),
            port("to", there, rng.randrange(hosts)),
        ]
        paths.append(path)
    return len(ports), paths


def network(rng, shape):
    count, paths = shape(rng)
    flows = [[rng.randint(1, 20) * 10, rng.randint(1, 40) * 750, path] for path in paths]
    ports = []
    for port in range(count):
        load = sum(rate for rate, _, path in flows if port in path)
        rate = max(10, int(load * rng.uniform(1.05, 3)))
        ports.append([rate, rng.randrange(30)])
    return {"ports": ports, "flows": flows}


def jar():
    subprocess.run(["mvn", "-q", "dependency:get", f"-Dartifact={VERSION}"], check=True)
    home = pathlib.Path.home() / ".m2/repository"
    group, name, version = VERSION.split(":")
    ours = home / group.replace(".", "/") / name / version / f"{name}-{version}.jar"
    math = sorted((home / "org/apache/commons/commons-math3").glob("*/*.jar"))[-1]
    return f"{ours}:{math}"


def main():
    rng = random.Random(1)
    networks = []
    for name, shape in (("tandem", tandem), ("tree", tree), ("leaf-spine", leaf_spine)):
        for number in range(100):
            networks.append({"name": f"{name}-{number}", **network(rng, shape)})
    text = ""
    for one in networks:
        text += f"network {len(one['ports'])} {len(one['flows'])}\n"
        text += "".join(f"{rate} {latency}\n" for rate, latency in one["ports"])
        for rate, burst, path in one["flows"]:
            text += f"{rate} {burst * 8} {' '.join(map(str, path))}\n"
    run = ["java", "-cp", jar(), str(HERE / "Disco.java")]
    done = subprocess.run(run, input=text, text=True, capture_output=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(networks), done.stderr
    with open(OUT, "w") as out:
        for one, line in zip(networks, lines):
            delays = [list(map(int, flow.split(","))) for flow in line.split(" ")]
            assert len(delays) == len(one["flows"])
            out.write(json.dumps({**one, "disco": delays}, separators=(",", ":")) + "\n")


main()
