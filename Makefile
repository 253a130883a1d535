# The commands of a working day. `make test` is what has to pass.

.PHONY: help setup fmt lint deny check-rules test test-counts instructions-renew test-docs test-http test-python test-drivers test-deploy release-check prove bench

# Most tests wait for a database, a disk or a clock: two of them for each core keep a computer busy.
THREADS := $(or $(NEXTEST_TEST_THREADS),$(shell expr $$(getconf _NPROCESSORS_ONLN) '*' 2))
BUILT := $(or $(CARGO_TARGET_DIR),target)/debug

help:
	@echo 'make setup        install what the tests need and is missing: cargo-nextest, PostgreSQL, pgbouncer, nats-server, Python, a C compiler'
	@echo 'make fmt          format the code'
	@echo 'make lint         check the format, clippy and the documentation'
	@echo 'make deny         check the dependencies with cargo-deny, if it is installed'
	@echo 'make check-rules  check that every rule has a test and that the walls stand'
	@echo 'make test         all of it: setup, lint, every test'
	@echo 'make test-counts  count the instructions of the hot operations, and compare them with those on record'
	@echo 'make instructions-renew  record the counts of today, in crates/instructions/counts.txt'
	@echo 'make test-docs    the examples of the documentation'
	@echo 'make test-http    schemathesis over the HTTP face of the real binary'
	@echo 'make test-python  the Python SDK against the real binary'
	@echo 'make test-drivers what else is linked beside abide: drivers with a SQLite of their own, and abide-sqlx'
	@echo 'make test-deploy  what deploy/ has, as far as it runs with the real binary alone'
	@echo 'make release-check  pack every published crate, build the release, and check the size of the binary'
	@echo 'make prove        break abide on purpose and run new simulations, for MINUTES=30 or SECONDS=300'
	@echo 'make bench        measure, optimised'

setup:
	@sh .ci/setup

fmt:
	cargo fmt --all

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features

deny:
	@sh .ci/deny

check-rules:
	cargo test -p abide-tidy

# One after the other, also under `make -j`: the linter and the tests would fight over the same build directory. What needs little
# of a computer runs side by side in the end. How long each part took is printed.
PART := @sh .ci/part
test:
	$(PART) --begin
	$(PART) setup $(MAKE) --no-print-directory setup
	$(PART) lint $(MAKE) --no-print-directory lint
	$(PART) deny $(MAKE) --no-print-directory deny
	$(PART) build cargo nextest run --workspace --all-features --no-run
	$(PART) tests $(BUILT)/abide-pgtest cargo nextest run --workspace --all-features --test-threads $(THREADS)
	MAKE='$(MAKE)' sh .ci/beside drivers counts docs python http deploy
	$(PART) --show

# With the features of the tests, so that nothing is built twice: those include the features of development dependencies only
# if a test is among the targets, so a small one is.
$(BUILT)/abide: FORCE
	cargo build --workspace --all-features --bins --test derive
FORCE:

test-counts: $(BUILT)/abide
	$(BUILT)/abide-instructions

instructions-renew: $(BUILT)/abide
	$(BUILT)/abide-instructions --renew
test-docs:
	cargo test --workspace --all-features --doc

test-http: $(BUILT)/abide
	bash crates/server/tests/schemathesis.sh $(abspath $(BUILT))/abide

test-python: $(BUILT)/abide
	bash sdk/python/test.sh $(abspath $(BUILT))/abide

test-drivers: $(BUILT)/abide
	bash crates/sqlite/tests/beside.sh $(abspath $(BUILT))/../drivers
	bash crates/sqlx/test.sh $(abspath $(BUILT))/abide $(abspath $(BUILT))/../drivers

test-deploy: $(BUILT)/abide
	bash deploy/test.sh $(abspath $(BUILT))/abide

release-check:
	bash .ci/release-check

prove: setup
	@sh .ci/prove $(or $(SECONDS),$(shell expr $(or $(MINUTES),30) '*' 60))

bench:
	cargo run --release -p abide-bench
