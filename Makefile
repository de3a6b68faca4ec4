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
# Benchmarks that use the lab, as seen from there.
LAB_BENCHES := ../benches/lab ../benches/gen ../benches/tune ../benches/replay ../benches/peers
# Those of them whose types are checked.
TYPED_BENCHES := ../benches/lab ../benches/replay ../benches/peers
# What `terrace demo` is given, for example `make run DEMO=--full`.
DEMO ?=
# How long `make fuzz` searches in each target, and which ones: all, unless some are named.
export FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?=
# How long `make soak` tries random histories.
SOAK_MINUTES ?= 60

help:
	@echo "make run    build terrace and watch a tiered store at work (DEMO=--full for more)"
	@echo "make test   every check and every test, as CI runs them"
	@echo "make check  the checks alone: layers, licences, links, format, lints, C examples"
	@echo "make bench  what a store can do and costs, beside its bars"
	@echo "make test-arm64  build for 64-bit ARM, and run the short tests in an emulator"
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

test: check
	cd bindings/python && $(PYTHON)/python -m pytest -q
	@# Tests send signals, which whoever started this may have ignored, as `nohup make test &` does.
	env --default-signal=INT,TERM,HUP TERRACE_PYTHON=$(PYTHON)/python cargo test --locked --workspace
	cargo test --locked --manifest-path examples/policies/write-buffer-rust/Cargo.toml
	cargo build --locked -p terrace-cli -p terrace-gen -p partdiff
	cd lab && PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" \
		env --default-signal=INT,TERM,HUP $(PYTHON)/python -m pytest -q
	PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" tools/run-tutorial.py docs/tutorial-policy.md
	PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" TERRACE_PYTHON=$(PYTHON)/python \
		env --default-signal=INT,TERM,HUP tools/run-tutorial.py docs/tutorial-python.md
	PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" tools/run-tutorial.py docs/tutorial-rules.md
	@echo "make test: everything passed"

check: setup-test
	tools/check-layers.py
	tools/check-spdx.py
	tools/check-names.py
	tools/check-links.py
	tools/check-licences.py
	cd bindings/python && $(PYTHON)/ruff check . $(PYTHON_FILES)
	cd bindings/python && $(PYTHON)/ruff format --check . $(PYTHON_FILES)
	cd bindings/python && $(PYTHON)/mypy . $(PYTHON_FILES)
	cd lab && $(PYTHON)/ruff check . $(LAB_BENCHES)
	cd lab && $(PYTHON)/ruff format --check . $(LAB_BENCHES)
	cd lab && $(PYTHON)/mypy
	cd lab && $(PYTHON)/mypy --scripts-are-modules $(TYPED_BENCHES)
	cargo fmt --all --check
	cargo fmt --check --manifest-path examples/policies/write-buffer-rust/Cargo.toml
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	@# `make fuzz` builds from this lock file, which nothing else here reads.
	cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	$(MAKE) --no-print-directory -B -C examples/policies/lru-c
	mkdir -p $(CARGO_TARGET_DIR)/debug
	$(MAKE) --no-print-directory -B -C examples/partdiff-mpi OUT=$(CARGO_TARGET_DIR)/debug
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --manifest-path examples/policies/write-buffer-rust/Cargo.toml \
		--all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	@echo "make check: everything passed"

setup-test:
	@tools/setup.sh --suites --python rustfmt clippy

fuzz:
	@tools/setup.sh --fuzz
	tools/fuzz.sh $(FUZZ_TARGETS)

soak: setup-test
	tools/soak.py --minutes $(SOAK_MINUTES)

test-arm64: setup-test
	@tools/setup.sh --arm64
	tools/test-arm64.sh

.PHONY: help run release bench test check setup-test fuzz soak test-arm64
