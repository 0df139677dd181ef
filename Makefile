# The one front door. `make` alone lists the six targets whose comment begins with `##!`,
# `make help` all that have a comment.

CARGO ?= cargo
# Which experiment `make demo` runs: see `tailbound lab list`.
EXPERIMENT ?= traps
# More options for it, such as ARGUMENTS='--duration 5s'.
ARGUMENTS ?=
# Where reports go.
OUT ?= out
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60
# Must match the `gungraun` dependency.
GUNGRAUN := $(shell sed -n 's/^gungraun = "\(.*\)"/\1/p' Cargo.toml)

# Where cargo puts what it builds.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# The profile of Cargo.toml that a target builds with: `release`, or `static` for static files. PROFILE=dev is the
# quickest for all of them.
PROFILE ?=
# SHARED=1 has all targets build the program with all features, and all tests with it: cargo builds crates that
# the tests do not share differently, and all that depends on them a second time.
SHARED ?=
program = $(if $(SHARED),--workspace --lib --bins --tests,-p tailbound --bin tailbound --no-default-features --features $(1))
profile = $(or $(PROFILE),$(1))
built = $(TARGET)/$(patsubst dev,debug,$(call profile,$(1)))/tailbound
TAILBOUND := $(call built,release)
# Builds with progress: COMPILE MEGABYTES CARGO OPTION...
COMPILE := scripts/compile

# The pinned Rust under another name, where it has one here.
TOOLCHAIN := $(shell scripts/toolchain)
ifneq ($(TOOLCHAIN),)
export RUSTUP_TOOLCHAIN ?= $(TOOLCHAIN)
endif

# The commit, for `--version` and results: of no use to tests, which would be built again for it.
ifeq ($(SHARED),)
build build-all stage demo static look-static probe-static: export TAILBOUND_COMMIT ?= $(shell scripts/commit)
endif

.PHONY: menu
menu:
	@sed -n 's/^\([a-z0-9-]*\):.*##! \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: help
help: ##! List all targets
	@sed -n 's/^\([a-z0-9-]*\):.*##!\{0,1\} \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 28

.PHONY: demo
demo: ##! Build the lab and run it: small answers with and without tailbound on this computer (three minutes, then two)
	@scripts/need compile lab
	@echo "The demo puts real packets through a data centre of network namespaces on this computer."
	@$(TAILBOUND) lab list >/dev/null 2>&1 || echo "  build: 205 crates, three minutes on two quiet cores, this once; they need 1 GB of disk in $(TARGET)/"
	@echo "  run:   two minutes; it needs no root, shows its progress, and leaves nothing but $(OUT)/"
	@echo "  end:   eight lines, the verdict first. On a busy computer that is NOISY, and nothing is judged."
	@$(COMPILE) 1000 "$(CARGO)" --profile $(call profile,release) --locked $(call program,lab)
	$(TAILBOUND) lab run $(EXPERIMENT) --out $(OUT) $(ARGUMENTS)

.PHONY: experiments
experiments: build-all ## Run thirteen experiments of the lab, all but snoop-throughput and snoop-close (twenty-three minutes)
	@scripts/need lab memcached
	@scripts/experiments $(TAILBOUND) $(OUT)

.PHONY: sim
sim: build-all ## Run all simulations: the papers' figures, bounds against packets (ten minutes)
	$(TAILBOUND) sim vcpu run all --out $(OUT)
	$(TAILBOUND) sim net run all --out $(OUT)
	$(TAILBOUND) sim pacer run all --out $(OUT)
	$(TAILBOUND) sim shaper run all --out $(OUT)
	$(TAILBOUND) sim packets run all --out $(OUT)
	$(TAILBOUND) sim flows run all --out $(OUT)

.PHONY: reproduce
reproduce: build-all ## Hold every table and figure of the papers against what comes out here: docs/reference/reproduction.md (an hour)
	@scripts/need lab memcached
	@scripts/reproduce $(TAILBOUND) $(OUT)/reproduce

.PHONY: grid-clusters
grid-clusters: build-all ## Run a grid on two nodes of Slurm and with GNU parallel: the same byte by byte (root)
	@scripts/need clusters
	scripts/grid-clusters $(TAILBOUND)

# Where `make place` listens.
LISTEN ?= 127.0.0.1:7070

.PHONY: place
place: build ##! Start the placement service with a sample data centre, and open its map
	@mkdir -p $(OUT)
	$(TAILBOUND) place serve --listen $(LISTEN) --insecure-loopback \
		--topology experiments/topologies/two-pods.toml --store sqlite:$(OUT)/place.db --open

.PHONY: build
build: ##! Build the program of an operator: all of tailbound but `lab` and `sim`
	@scripts/need compile
	@$(COMPILE) 2000 "$(CARGO)" --profile $(call profile,release) --locked $(call program,operator)
	@echo "$(TAILBOUND)"

.PHONY: build-all
build-all: ## Build the whole program, with `lab` and `sim`
	@scripts/need compile
	@$(COMPILE) 3000 "$(CARGO)" --profile $(call profile,release) --locked $(call program,all)

# More than this is too much to copy into every guest.
PROBE_BYTES := 5000000

.PHONY: probe-static
probe-static: ## Build tailbound probe and select alone as a static binary of less than 5 MB
	@scripts/need compile
	@scripts/build-static probe $(PROBE_BYTES) $(call profile,static) "$(CARGO)"

# One file that is copied to a host and run.
LOOK_BYTES := 15000000

.PHONY: look-static
look-static: ## Build tailbound watch, why, probe and doctor as one static file of less than 15 MB: target/static/tailbound-look
	@scripts/need compile
	@scripts/build-static look,probe $(LOOK_BYTES) $(call profile,static) "$(CARGO)"

# As the package's program.
OPERATOR_BYTES := 30000000

.PHONY: static
static: ## Build the program of the package tailbound as one static file for any Linux
	@scripts/need compile
	@scripts/build-static operator $(OPERATOR_BYTES) $(call profile,release) "$(CARGO)"

.PHONY: static-musl
static-musl: ## Build the probe with musl where rustc has none, in a bare root of Debian's sid (root; half an hour the first time)
	@scripts/need roots
	@scripts/musl-root probe $(PROBE_BYTES)

# Where `make install` puts things, and below what: PREFIX=$$HOME/.local for one user alone.
PREFIX ?= /usr/local
DESTDIR ?=
PACKAGES := target/packages

# Builds nothing, so that nothing is compiled as root and no file of root's is left.
.PHONY: install
install: ## Install what `make build` or `make build-all` built, its pages, completions and units below PREFIX (/usr/local)
	@test -x $(TAILBOUND) || { echo "There is no $(TAILBOUND): run make build first" >&2; exit 1; }
	@scripts/need package
	@if $(TAILBOUND) lab list >/dev/null 2>&1; then scripts/stage $(TAILBOUND) $(TAILBOUND) && scripts/install $(PREFIX) "$(DESTDIR)"; \
	else scripts/stage $(TAILBOUND) && scripts/install $(PREFIX) "$(DESTDIR)" tailbound; fi
	@rm -r target/package

# What packages are made of: the program without `lab` and `sim`, and the whole one.
.PHONY: stage
stage:
	@scripts/need compile package
	@$(COMPILE) 3000 "$(CARGO)" --profile $(call profile,release) --locked $(call program,operator)
	cp $(TAILBOUND) $(TAILBOUND)-operator
	@$(COMPILE) 3000 "$(CARGO)" --profile $(call profile,release) --locked $(call program,all)
	@scripts/stage $(TAILBOUND)-operator $(TAILBOUND)

.PHONY: deb
deb: stage ## Make the Debian packages tailbound and tailbound-lab, and look at them with lintian
	@scripts/need deb
	@scripts/package deb $(PACKAGES)

.PHONY: rpm
rpm: stage ## Make the RPMs tailbound and tailbound-lab, and look at them with rpmlint
	@scripts/need rpm
	@scripts/package rpm $(PACKAGES)

.PHONY: tarball
tarball: stage ## Make a tarball of what `make install` installs, to be unpacked in /
	@scripts/package tarball $(PACKAGES)

.PHONY: image
image: stage ## Make an OCI image of the service and the daemon, from nothing but their files
	@scripts/need image
	@scripts/package image $(PACKAGES)

# Paths of this machine are in none of its programs.
release: export RUSTFLAGS := $(shell scripts/reproducible rust)
release: export CFLAGS := $(shell scripts/reproducible c)

.PHONY: release
release: stage static probe-static ## Make the files of a release, byte for byte the same for a commit: target/release-files (docs/how-to/release.md)
	@scripts/need deb rpm image
	@scripts/release target/release-files

# Debian's suites whose systemd runs as PID 1.
SUITES ?= bookworm trixie

.PHONY: pid1
pid1: ## Have the systemd of Debian 12 and 13 run the units as PID 1 of emulated machines, after make deb (root; ten minutes)
	@scripts/need roots pid1
	@for suite in $(SUITES); do scripts/pid1-root $$suite $(PACKAGES) || exit 1; done

.PHONY: bpf-guest
bpf-guest: ## Have the kernel of this machine's Debian (12: Linux 6.1), emulated, take the BPF program and measure by it
	@scripts/need compile bpf-guest
	@scripts/bpf-guest "$$($(CARGO) test --locked -p tailbound-sys --features packets,waits --lib --no-run \
	    --message-format json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')"

# Suites of Debian for CPU partitions: Linux 6.1, 6.12, and the newest of its backports.
KERNELS ?= bookworm trixie trixie-backports

.PHONY: cpuset-guest
cpuset-guest: ## Try CPU partitions of cgroup version 2 on emulated machines with Debian's kernels (KERNELS=trixie)
	@scripts/need compile bpf-guest
	@$(COMPILE) 2000 "$(CARGO)" --locked -p tailbound --bin tailbound --no-default-features --features host
	@scripts/cpuset-guest "$$($(CARGO) test --locked -p tailbound-agent --test path --no-run \
	    --message-format json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')" $(TARGET)/debug/tailbound $(KERNELS)

.PHONY: kernel-bench
kernel-bench: ## Compare all experiments of docs/reference/kernel-bench.md on Debian's kernels with their record (KERNELS=trixie)
	@scripts/need compile kernel-bench
	@CARGO="$(CARGO)" scripts/kernel-bench-check $(KERNELS)

.PHONY: kernel-bench-short
kernel-bench-short: ## Compare one experiment on one kernel with its record (half a minute)
	@scripts/need compile kernel-bench
	@CARGO="$(CARGO)" scripts/kernel-bench-check --experiment departures bookworm

.PHONY: edge-guest
edge-guest: ## Test the programs on interfaces on Debian's kernels, emulated (KERNELS=trixie)
	@scripts/need compile kernel-bench
	@for suite in $(KERNELS); do PATIENCE=$${PATIENCE:-3600} scripts/kernel-bench $$suite run "$$($(CARGO) test --locked \
	    -p tailbound-sys --features edge,departures --lib --no-run --message-format json | \
	    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')" edge::tests --test-threads=1 || exit 1; done

.PHONY: why-guest
why-guest: ## Try tailbound why on Debian's kernels with veths, Open vSwitch, vhost-net and netkit, emulated (KERNELS=trixie)
	@scripts/need compile kernel-bench why-guest
	@$(COMPILE) 2000 "$(CARGO)" --locked -p tailbound --bin tailbound --no-default-features --features look
	@scripts/why-guest $(TARGET)/debug/tailbound "$(KERNELS)"

.PHONY: adopt-guest
adopt-guest: ## Try limits and exchanged rates of tailbound adopt on Debian's kernels with veths, Open vSwitch, vhost-net and CNI, emulated (KERNELS=trixie)
	@scripts/need compile kernel-bench adopt-guest
	@$(COMPILE) 2000 "$(CARGO)" --locked -p tailbound --bin tailbound --no-default-features --features look,place
	@scripts/adopt-guest $(TARGET)/debug/tailbound "$(KERNELS)"

.PHONY: adopt-real
adopt-real: ## Adopt guests of a real Docker and of Open vSwitch's userspace datapath, as root
	@scripts/need compile adopt-real
	@$(COMPILE) 2000 "$(CARGO)" --locked -p tailbound --bin tailbound --no-default-features --features look
	@scripts/adopt-real $(TARGET)/debug/tailbound

.PHONY: cri-pod
cri-pod: ## Adopt real pods by the CNI plugin, with containerd, runc and CRI, as root
	@scripts/need compile cri
	@$(COMPILE) 2000 "$(CARGO)" --locked -p tailbound --bin tailbound --no-default-features --features look
	@scripts/cri-pod $(TARGET)/debug/tailbound

# The integration with Kubernetes: two Go modules, of which only `cluster` needs k8s.io/kubernetes. Compiling that
# takes ten CPU minutes and 2 GB of cache once; GOGC spares a third of it.
# Tests of these names alone.
GO_TESTS ?= .

.PHONY: kubernetes-short
kubernetes-short: ## Test the parts of the integration with Kubernetes that need only its types (a CPU minute the first time)
	@scripts/need go
	scripts/kubernetes short

.PHONY: kubernetes
kubernetes: ## Test the integration with the API server, scheduler and claim controller of Kubernetes, and its chart (quarter of an hour the first time)
	@scripts/need compile go
	@$(COMPILE) 2000 "$(CARGO)" --locked -p tailbound --bin tailbound --no-default-features --features operator
	TAILBOUND=$(abspath $(TARGET))/debug/tailbound scripts/kubernetes whole '$(GO_TESTS)'

.PHONY: pod-guest
pod-guest: ## Bring a claim of Kubernetes to the wire: API server, scheduler, driver, then containerd and CNI on an emulated kernel
	@scripts/need compile go kernel-bench cri
	@$(COMPILE) 2000 "$(CARGO)" --locked -p tailbound --bin tailbound --no-default-features --features operator
	TAILBOUND=$(abspath $(TARGET))/debug/tailbound TAILBOUND_POD_GUEST=$(CURDIR)/scripts/pod-guest scripts/kubernetes wire

.PHONY: kubernetes-programs
kubernetes-programs: ## Build the DRA driver and the scheduler for the image of integrations/kubernetes/Containerfile
	@scripts/need go
	scripts/kubernetes programs

# The tool for who imports whom is not of the workspace: see its Cargo.toml.
ARROWS := --locked --manifest-path tools/arrows/Cargo.toml --target-dir target/tools/arrows

# The tool that tries tests with mutants, likewise.
MUTANTS := --locked --manifest-path tools/mutants/Cargo.toml --target-dir target/tools/arrows

# A filter of nextest, for some tests alone, such as TESTS='package(tailbound-hose)'.
TESTS ?=

.PHONY: test
test: ##! Run all tests; with TAILBOUND_REQUIRE=all none may skip
	@scripts/need compile lab test
	$(CARGO) test $(ARROWS) --quiet
	$(CARGO) test $(MUTANTS) --quiet
	@scripts/skips scripts/tests $(CARGO) $(if $(TESTS),-E '$(TESTS)')
	$(if $(TESTS),,$(CARGO) test --workspace --locked --doc --quiet)
	$(if $(TESTS),,cd integrations/openstack && python3 -m unittest)

# Seconds for each fuzz target at night.
NIGHTLY_FUZZ_SECONDS ?= 300

.PHONY: nightly
nightly: build-all ## Run all tests with a fresh seed, ignored ones, golden records, fuzzing, packages, bare roots (a night)
	@scripts/need lab memcached iperf3 qemu bpf-guest libvirt etcd page api golden linux-codel dpdk alerts hlog collector clusters deb rpm roots kernel-bench why-guest adopt-guest adopt-real cni cri go
	@scripts/guest-image >/dev/null
	@scripts/linux-codel >/dev/null
	@CARGO="$(CARGO)" scripts/nightly $(TAILBOUND) $(NIGHTLY_FUZZ_SECONDS)

.PHONY: alerts
alerts: ## Try the alerts: a day of greedy tenants raises none, and each fault its own
	@scripts/need alerts
	promtool check rules contrib/prometheus/tailbound.rules.yml
	promtool test rules contrib/prometheus/tailbound.test.yml

.PHONY: release-check
release-check: ## Try on a clean clone what a release promises; what cannot be tried fails (two hours)
	@scripts/need compile lab
	@scripts/release-check

# The program with a part of it alone, on what is checked already for the whole: with one test,
# so that libraries have the features that tests need, too, as they had then.
PART := --workspace --lib --bins --test units --locked --no-default-features --features tailbound

# The fuzz targets, with a name in place of a libFuzzer that nothing links.
FUZZ := --locked --manifest-path fuzz/Cargo.toml --target-dir target

# The documentation of the crates that clippy has checked, with all that it was told, so that none is checked
# anew; with one example, so that they have the features that tests need, as they had then.
CHECKED := RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver" \
	CLIPPY_ARGS=--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

# An exception that nothing needs any longer fails.
DENY := -D unmatched-skip -D unnecessary-skip -D license-not-encountered

.PHONY: lint
lint: ## Check formatting, lints, documentation, who imports whom, sizes of types, and licences
	@scripts/need compile lint
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path tools/arrows/Cargo.toml --check
	$(CARGO) fmt --manifest-path tools/mutants/Cargo.toml --check
	$(CARGO) run $(ARROWS) --quiet -- .
	scripts/words
	scripts/paths
	scripts/headlines
	scripts/seeds --check
	scripts/bpf check
	scripts/cargo-deny --locked check $(DENY) licenses bans sources
	$(CARGO) clippy $(ARROWS) --all-targets -- --deny warnings
	$(CARGO) clippy $(MUTANTS) --all-targets -- --deny warnings
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	$(CARGO) clippy $(PART)/probe -- --deny warnings
	$(CARGO) clippy $(PART)/lab -- --deny warnings
	CUSTOM_LIBFUZZER_PATH=/nowhere/libfuzzer.a $(CARGO) clippy $(FUZZ) -- --deny warnings
	scripts/crates-of tailbound-switch 45 ureq rustls axum tailbound-serve tailbound-api tailbound-placement
	$(CHECKED) RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --lib --bins --example port_check --locked --quiet

# Each crate with records of its own has tests named `golden...`; a long one of
# them is `#[ignore]`d.
GOLDEN_TESTS := tailbound-agent tailbound-hose tailbound-switch

.PHONY: golden
golden: ## Compare parts of all simulations, and the papers' verdicts, with their records (two minutes)
	@scripts/need compile golden
	@$(COMPILE) 3000 "$(CARGO)" --profile $(call profile,release) --locked $(call program,all)
	@scripts/golden $(TAILBOUND)
	@scripts/verdicts $(TAILBOUND)

.PHONY: golden-all
golden-all: build-all ## Hold everything that has golden records against them (half an hour)
	@scripts/need golden
	@scripts/golden --all $(TAILBOUND)
ifneq ($(GOLDEN_TESTS),)
	$(CARGO) test --locked $(GOLDEN_TESTS:%=-p %) golden -- --include-ignored
endif

.PHONY: bench
bench: bench-instructions bench-pacer bench-snoop bench-vcpu bench-placement bench-control bench-forward bench-cards bench-uplink ## Measure: instructions per packet, models and the agent, placement and its service, forwarding

.PHONY: bench-instructions
bench-instructions: ## Count instructions per packet
	@scripts/need compile bench-instructions
	@scripts/gungraun-runner $(GUNGRAUN)
	PATH="$(CURDIR)/target/tools/bin:$$PATH" scripts/counted $(CARGO) bench --locked -p tailbound-dataplane -p tailbound-switch -p tailbound-vhost --bench instructions --bench pacer --bench snoop --bench ways

.PHONY: instructions
instructions: ## Compare instructions per packet with their record: 1 % more is an error
	@scripts/need compile bench-instructions
	@scripts/gungraun-runner $(GUNGRAUN)
	PATH="$(CURDIR)/target/tools/bin:$$PATH" scripts/instructions $(CARGO)

.PHONY: bench-pacer
bench-pacer: ## Time the pacer
	@scripts/need compile
	$(CARGO) run --release --locked -p tailbound-dataplane --example pacer

.PHONY: bench-snoop
bench-snoop: ## Time early acknowledgement with 100 and with a million connections
	@scripts/need compile
	$(CARGO) run --release --locked -p tailbound-dataplane --example snoop

.PHONY: bench-vcpu
bench-vcpu: ## Time 1000 simulated seconds, and a plan for 1000 threads (root)
	@scripts/need compile
	$(CARGO) run --release --locked -p tailbound-hypervisor --example speed
	$(CARGO) run --release --locked -p tailbound-agent --example plan_1000

.PHONY: bench-placement
bench-placement: build-all ## Time decisions in data centres of up to 1,000,000 hosts, and the curves under them
	$(CARGO) run --release --locked -p tailbound-netcalc --example port_check
	$(TAILBOUND) sim placement run all --out $(OUT)

.PHONY: bench-forward
bench-forward: build-all ## Compare forwarding with a Linux bridge and Open vSwitch (root)
	@scripts/need lab bench-forward
	$(TAILBOUND) lab forward --out $(OUT)

.PHONY: bench-cards
bench-cards: build-all ## Compare machines' cards with TAPs and a Linux bridge, DPDK being the machines (root)
	@scripts/need lab dpdk
	$(TAILBOUND) lab cards --out $(OUT)

.PHONY: bench-uplink
bench-uplink: ## Compare sending by AF_XDP and by AF_PACKET: packets a second, CPU a packet (root)
	@scripts/need compile lab
	$(CARGO) run --release --locked -p tailbound-ports --example uplink

.PHONY: bench-control
bench-control: ## Time the placement service's store, verdicts on hosts, an adoption, and admissions over HTTP
	@scripts/need compile
	$(CARGO) run --release --locked -p tailbound-control --example store_bench
	$(CARGO) run --release --locked -p tailbound-control --example scheduling_bench
	$(CARGO) run --release --locked -p tailbound-control --example http_bench -- --seconds 10 --clients 8

# For example ARGUMENTS='--rounds 1 --seconds 2'.
.PHONY: bench-peers
bench-peers: build-all ## Measure durable changes per second beside etcd's puts, PostgreSQL's inserts and Placement's claims, five rounds
	@scripts/need etcd
	@scripts/bench-peers $(TAILBOUND) $(ARGUMENTS)

.PHONY: bench-fairness
bench-fairness: ## Measure an owner's waits beside another owner at its limits, in a data centre that is nearly full
	@scripts/need compile
	$(CARGO) run --release --locked -p tailbound-control --example fairness_bench
	$(CARGO) run --release --locked -p tailbound-control --example fairness_bench -- --full 70

# For how long, by how many clients.
SECONDS ?= 600
CLIENTS ?= 64

.PHONY: bench-service
bench-service: ## Admit and delete durably over HTTP for ten minutes: rate, waits, memory (SECONDS=600 CLIENTS=64)
	@scripts/need compile
	$(CARGO) run --release --locked -p tailbound-control --example http_bench -- --seconds $(SECONDS) --clients $(CLIENTS)

# Seed, and a part of the names of the cells.
NS3_SEED ?= 1
CELLS ?=

.PHONY: compare-ns3
compare-ns3: ## Compare the simulator of messages with ns-3 in a matrix: times, losses, timeouts, events a second (NS3_SEED=1 CELLS=)
	@scripts/need compile ns3
	$(CARGO) run --release --locked -p tailbound-sim --example ns3 -- "$$(scripts/ns3)" $(NS3_SEED) "$(CELLS)"

# Lab runs of each case, and how long flows begin in each, in seconds.
RUNS ?= 5
STAR_SECONDS ?= 10

.PHONY: compare-kernel
compare-kernel: ## Compare the simulator's TCP with the kernel's: the same star and flows, times (RUNS=5 STAR_SECONDS=10)
	@scripts/need compile lab
	$(CARGO) run --release --locked -p tailbound-lab --example star -- $(RUNS) $(STAR_SECONDS)

.PHONY: faults
faults: ## Kill services, replicas and etcd members amid 2 x 50 x 10,000 admissions (twenty minutes)
	@scripts/need compile etcd
	$(CARGO) test --release --locked -p tailbound --test place_faults -- --ignored --nocapture --test-threads 1

.PHONY: openstack
openstack: ## Try the filter for nova in nova's own fixtures beside a real placement service (five minutes the first time)
	@scripts/need compile test
	@$(COMPILE) 3000 "$(CARGO)" --locked --workspace --bin tailbound --test rig
	@scripts/openstack $(TARGET)/debug/tailbound

.PHONY: ansible
ansible: ## Check the Ansible role by ansible-lint, and run it in namespaces of its own (root; three minutes the first time)
	@scripts/need compile test lab
	@$(COMPILE) 3000 "$(CARGO)" --locked --workspace --bin tailbound --test rig
	@scripts/ansible $(TARGET)/debug/tailbound

.PHONY: fuzz
fuzz: ## Fuzz every parser for FUZZ_SECONDS each
	@scripts/need compile
	@scripts/fuzz $(FUZZ_SECONDS)

.PHONY: docs
docs: ##! Build the site of all pages, and check its links
	@scripts/need docs
	@scripts/book target/book

.PHONY: api-docs
api-docs: ## Build the documentation of the crates
	$(CARGO) doc --workspace --no-deps --locked
	@echo "target/doc/tailbound_dataplane/index.html"

.PHONY: clean
clean: ## Remove what was built and what a crashed lab left
	-@test ! -x $(TAILBOUND) || $(TAILBOUND) lab clean
	$(CARGO) clean
	rm -rf $(OUT)
