# `make` lists the targets. `make test` is what has to pass; .ci/run calls it.

.DEFAULT_GOAL := help
# Stages run in the order in which they are named, also under `make -j`.
.NOTPARALLEL:
.PHONY: help test lint doc loom count mutants mutants-arithmetic bench long tools fmt clippy unit doctest examples integration ignored helgrind tsan
.PHONY: bench-http bench-cluster header capi capi-redis install install-redis c c-hooks c-loops c-long c-asan c-fuzz
.PHONY: elixir elixir-long elixir-bench python python-long python-bench python-bench-asgi server typescript clients-bench

STARTED := $(shell date +%s)
STAGE := .ci/stage
TARGET := $(or $(CARGO_TARGET_DIR),target)
EXAMPLES := $(basename $(notdir $(wildcard examples/*.rs)))
TESTS := cargo test --workspace --all-features --profile stress --test '*'
# What the tests start as programs, built as they are, so that no stage builds the crates once more.
BUILD := cargo build --workspace --all-features --profile stress --examples --bins

# RUSTFLAGS would take the place of the `--cfg loom` in `cargo loom`, and the
# others would cut short what a model explores.
unexport RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
unexport LOOM_MAX_PREEMPTIONS LOOM_MAX_BRANCHES LOOM_MAX_DURATION LOOM_MAX_PERMUTATIONS LOOM_CHECKPOINT_FILE
# A test that lacks a tool fails. Under plain `cargo test` it says so and passes.
export TOLLGATE_ALL := 1

help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: tools lint doc unit doctest examples integration c elixir python typescript loom ## Runs what has to pass, each stage with its time
	@echo "== all stages passed ($$(( $$(date +%s) - $(STARTED) )) s)"

tools: ## Looks for what the stages need; installs what is missing when run as root
	@$(STAGE) tools .ci/tools

lint: fmt clippy ## Checks the formatting and the lints

fmt:
	@$(STAGE) fmt cargo fmt --all --check

# The models exist under `--cfg loom` alone, so they are linted apart.
clippy:
	@$(STAGE) clippy cargo clippy --workspace --all-targets -- -D warnings
	@$(STAGE) "clippy of the features" cargo clippy --workspace --all-targets --all-features -- -D warnings
	@RUSTFLAGS="--cfg loom" $(STAGE) "clippy of the models" \
		cargo clippy --package tollgate --lib --profile test --target-dir target/loom -- -D warnings

doc: ## Builds the documentation, warnings denied
	@RUSTDOCFLAGS="-D warnings" $(STAGE) doc cargo doc --workspace --all-features --no-deps

unit: ## Runs the unit tests
	@$(STAGE) unit cargo test --workspace --all-features --lib

doctest: ## Runs the examples in the documentation and in the README
	@$(STAGE) doctest cargo test --workspace --all-features --doc

# With all features, as the integration tests, and run as they were built: each other way builds the crate once more.
examples: ## Builds and runs every example
	@$(STAGE) "examples, build" $(BUILD)
	@set -e; for example in $(EXAMPLES); do \
		$(STAGE) "example $$example" $(TARGET)/stress/examples/$$example; \
	done

integration: ## Runs the integration tests, the long ones in their short form
	@$(STAGE) integration $(TESTS) -- --show-output

loom: ## Explores the concurrency models; each prints its number of executions
	@$(STAGE) "loom, build" cargo loom --no-run
	@test "$$(cargo loom -- --list 2>/dev/null | grep -c ': test$$')" -gt 0 || \
		{ echo "no loom model was found" >&2; exit 1; }
	@RUST_BACKTRACE=0 $(STAGE) loom cargo loom -- --nocapture

count: ## Prints the house in numbers: methods, names, C functions, lines
	@cargo test --quiet --package tollgate --test tidy -- --nocapture the_house_grows_no_wider

# MUTANTS=part: only those with this in their name, and none of the arithmetic.
# SHARD=k/n: of the mutants of the arithmetic the k-th of n parts, from 0.
mutants: ## Plants mistakes in a copy of the tree, one by one: each must be noticed (a quarter of an hour; the arithmetic takes hours)
	@$(STAGE) mutants cargo test --package tollgate --features config,persist,shared --test mutants -- --ignored --nocapture
	@$(if $(MUTANTS),:,$(MAKE) --no-print-directory mutants-arithmetic)

# .cargo/mutants.toml says which files, which tests, and what is left out and why.
mutants-arithmetic: ## Lets cargo-mutants change operators and results in the arithmetic, if it is installed
	@if cargo mutants --version >/dev/null 2>&1; then \
		CARGO_PROFILE_DEV_DEBUG=0 $(STAGE) "mutants of the arithmetic" cargo mutants --package tollgate --output $(TARGET) \
			--timeout 300 --no-shuffle $(if $(SHARD),--shard $(SHARD)); \
	else \
		echo "== stage mutants of the arithmetic NOT RUN: there is no cargo-mutants (cargo install --locked cargo-mutants)"; \
	fi

# --- The C ABI.

VERSION := $(shell sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# What a program is bound to: the major number, before 1.0 the minor one too.
ABI := $(shell echo $(VERSION) | sed 's/^\(0\.[0-9]*\)\..*/\1/; s/^\([1-9][0-9]*\)\..*/\1/')
SONAME := libtollgate.so.$(ABI)
PREFIX ?= /usr/local
# What is built into the C libraries, the C ABI aside: policies as TOML text,
# assignments kept in a file, limiters that processes share.
FEATURES ?= capi,config,persist,shared
C_LIB := $(abspath $(TARGET))/capi
C_HOOKS := $(abspath $(TARGET))/stress
C_BUILD := $(abspath $(TARGET))/c
# What bindings/c/Makefile wants to know.
C_ENV := BUILD=$(C_BUILD) LIB=$(C_LIB) HOOKS=$(C_HOOKS) SONAME=$(SONAME) PREFIX=$(C_BUILD)/prefix
C_ENV += STORES="redis-server $(abspath $(TARGET))/valkey/bin/valkey-server"
C_MAKE := $(MAKE) --no-print-directory -C bindings/c

# The manifest has a Rust library alone, so that Rust users never link a C one,
# and so that a C one can be optimised as a whole.
C_RUSTC := cargo rustc --package tollgate --lib --crate-type cdylib --crate-type staticlib

header: ## Writes include/tollgate.h and include/tollgate_redis.h anew from their sources
	@set -e; out=$$(cargo build --package tollgate-redis-capi --features header,tollgate/header --message-format json \
		| sed -n 's|.*"out_dir":"\([^"]*/build/tollgate-[^"]*\)".*|\1|p'); \
		for header in tollgate tollgate_redis; do \
			for made in $$out; do test ! -f $$made/$$header.h || cp $$made/$$header.h include/$$header.h; done; \
		done

capi: ## Builds libtollgate.so and libtollgate.a
	@mkdir -p $(C_LIB)
	@$(C_RUSTC) --profile capi --features $(FEATURES) -- -C link-arg=-Wl,-soname,$(SONAME) \
		--print native-static-libs=$(C_LIB)/tollgate.static-libs
	@ln -sf libtollgate.so $(C_LIB)/$(SONAME)

# Everything of libtollgate and the engine, to be linked in its place. Built as a Rust library under another name,
# since the crate of the engine has this one.
C_RUSTC_REDIS := cargo rustc --package tollgate-redis-capi --lib --crate-type cdylib --crate-type staticlib

capi-redis: ## Builds libtollgate_redis.so and libtollgate_redis.a
	@mkdir -p $(C_LIB)
	@$(C_RUSTC_REDIS) --profile capi -- -C link-arg=-Wl,-soname,$(subst libtollgate,libtollgate_redis,$(SONAME)) \
		--print native-static-libs=$(C_LIB)/tollgate_redis.static-libs
	@ln -f $(C_LIB)/libtollgate_redis_capi.so $(C_LIB)/libtollgate_redis.so
	@ln -f $(C_LIB)/libtollgate_redis_capi.a $(C_LIB)/libtollgate_redis.a
	@ln -sf libtollgate_redis.so $(C_LIB)/$(subst libtollgate,libtollgate_redis,$(SONAME))

install: capi ## Puts libtollgate, its headers and its packages under PREFIX
	@bindings/c/package/install $(C_LIB) $(PREFIX) $(VERSION) $(ABI) tollgate

install-redis: capi-redis ## The same with libtollgate_redis, which takes its place
	@bindings/c/package/install $(C_LIB) $(PREFIX) $(VERSION) $(ABI) tollgate_redis

c: ## Tests the C ABI: the header, the libraries, the tests in C, the packages
	@$(STAGE) "C, build" $(MAKE) --no-print-directory capi c-hooks
	@$(STAGE) "C with an engine, build" $(MAKE) --no-print-directory capi-redis
	@$(STAGE) "C, unit" cargo test --package tollgate --features header,config,persist,shared --lib ffi
	@$(STAGE) "C, headers as generated" cargo test --package tollgate --package tollgate-redis-capi \
		--features tollgate/header,tollgate-redis-capi/header --test header
	@$(STAGE) "C, calls at random" cargo test --package tollgate --features $(FEATURES) --profile stress --test ffi -- --show-output
	@DESTDIR= $(STAGE) "C, install" bindings/c/package/install $(C_LIB) $(C_BUILD)/prefix $(VERSION) $(ABI) \
		tollgate tollgate_redis
	@set -e; export $(C_ENV); for stage in header symbols size plain sanitized valgrind misuse redis examples consumers; do \
		$(STAGE) "C, $$stage" $(C_MAKE) $$stage; \
	done
	@export $(C_ENV); $(C_MAKE) churn
	@TOLLGATE_CHURN=$(C_BUILD)/churn $(STAGE) "C and Rust, killed" cargo test --workspace --all-features --profile stress \
		--test shared -- --show-output killed::no_kill_in_two_languages

# Debug assertions on, and a panic on demand.
c-hooks:
	@$(C_RUSTC) --profile stress --features $(FEATURES) -- --cfg tollgate_test_hooks

# The loops that `benches/ffi.rs` measures, over the library that is shipped.
C_LOOPS := $(C_BUILD)/loops.so
c-loops: capi
	@mkdir -p $(C_BUILD)
	@gcc -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -Iinclude bindings/c/bench/loops.c \
		-L$(C_LIB) -ltollgate -Wl,-rpath,$(C_LIB) -o $(C_LOOPS)

# --- The Elixir package.

# Without LANG Elixir takes file names for Latin-1. Mix builds the NIF by itself; the registry of its dependencies is out
# of reach, and a warning that a user would only see is an error here.
MIX := cd bindings/elixir && LANG=C.UTF-8 TOLLGATE_NO_DEPS=1 CFLAGS=-Werror CARGO_TARGET_DIR=$(abspath $(TARGET)) mix

elixir: ## Builds and tests the Elixir package
	@$(STAGE) "Elixir, build" sh -c '$(MIX) compile --warnings-as-errors'
	@$(STAGE) "Elixir, format" sh -c '$(MIX) format --check-formatted'
	@$(STAGE) "Elixir, test" sh -c '$(MIX) test --warnings-as-errors'

elixir-long: ## Runs the long forms of the tests of the Elixir package, and checks its types
	@$(STAGE) "Elixir, long" sh -c '$(MIX) test --only long'
	@$(STAGE) "Elixir, build" sh -c '$(MIX) compile'
	@$(STAGE) "Elixir, types" bindings/elixir/check-types $(abspath $(TARGET))/elixir/dialyzer.plt

# Schedulers that wait busily would be counted as work.
elixir-bench: ## Measures the Elixir package; writes bindings/elixir/README.md (QUICK=1: a short look, writes nothing)
	@$(STAGE) "Elixir, bench" sh -c '$(MIX) compile'
	@$(STAGE) "Elixir, bench" sh -c 'export ELIXIR_ERL_OPTIONS="+sbwt none +sbwtdcpu none +sbwtdio none"; \
		$(if $(QUICK),export QUICK=1;) $(MIX) run bench/check.exs'

# --- The Python package.

PYTHON := $(abspath $(TARGET))/python
PYTHON_CARGO := --manifest-path bindings/python/Cargo.toml --target-dir $(PYTHON)/cargo
# The source distribution, built as users build it, but for the profile. Unpacked at one place, so that Cargo knows it
# again, and with the present time, since in the archive every file has the same: cargo would not see a change.
define PYTHON_WHEEL
set -e; rm -rf $(PYTHON)/sdist $(2); mkdir -p $(PYTHON)/sdist; cd bindings/python; PATH=$(PYTHON)/newest/bin:$$PATH; \
maturin sdist --out $(PYTHON)/sdist; tar -C $(PYTHON)/sdist -xmzf $(PYTHON)/sdist/*.tar.gz; \
export MATURIN_PEP517_ARGS="--profile $(1) --locked --compatibility linux --target-dir $(PYTHON)/cargo"; \
pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index -w $(2) $(PYTHON)/sdist/*/
endef

# One wheel for every version: it is built once, and tested with the lowest and the newest.
python: server ## Builds and tests the Python package
	@$(STAGE) "Python, venvs" python3 bindings/python/venvs $(PYTHON)
	@$(STAGE) "Python, fmt" cargo fmt --manifest-path bindings/python/Cargo.toml --check
	@$(STAGE) "Python, clippy" cargo clippy --quiet $(PYTHON_CARGO) --profile checked -- -D warnings
	@$(STAGE) "Python, build" sh -c '$(call PYTHON_WHEEL,checked,$(PYTHON)/wheels)'
	@set -e; for python in newest lowest; do \
		$(PYTHON)/$$python/bin/pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall \
			$(PYTHON)/wheels/*.whl; \
		TOLLGATE_SERVER=$(SERVER) $(STAGE) "Python, test with the $$python" \
			sh -c 'cd bindings/python && exec $(PYTHON)/'$$python'/bin/python -m pytest'; \
	done
	@$(STAGE) "Python, types" sh -c 'cd bindings/python && export PATH=$(PYTHON)/newest/bin:$$PATH && \
		mypy --cache-dir $(PYTHON)/mypy -p tollgate_limiter && mypy --cache-dir $(PYTHON)/mypy tests && \
		MYPY_CACHE_DIR=$(PYTHON)/mypy stubtest --mypy-config-file pyproject.toml tollgate_limiter'

# With the wheel that `make python` has installed.
python-long: python ## Floods four workers of uvicorn 20 times in a row, killing workers in between
	@TOLLGATE_RUNS=20 $(STAGE) "Python, long" sh -c 'cd bindings/python && $(PYTHON)/newest/bin/python -m pytest tests/test_workers.py'

# The page is complete before it takes the place of the old one.
python-bench: ## Measures the Python package beside `limits`; writes bindings/python/README.md (QUICK=1: a short look, writes nothing)
	@$(STAGE) "Python, venvs" python3 bindings/python/venvs $(PYTHON) bench
	@$(STAGE) "Python, build" sh -c '$(call PYTHON_WHEEL,release,$(PYTHON)/release)'
	@$(PYTHON)/bench/bin/pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall $(PYTHON)/release/*.whl
	@$(STAGE) "Python, bench" sh -c '$(PYTHON)/bench/bin/python bindings/python/bench/check.py $(if $(QUICK),--quick) \
		| tee $(PYTHON)/bench.md'
	@$(if $(QUICK),echo "== a quick run: bindings/python/README.md stays as it is",set -e; page=bindings/python/README.md; \
		sed '/^<!-- make python-bench writes/q' $$page >$$page.new; { echo; cat $(PYTHON)/bench.md; } >>$$page.new; mv $$page.new $$page)

python-bench-asgi: ## Measures what the ASGI middleware adds, beside slowapi's; writes docs/python/fastapi.md (QUICK=1: a short look, writes nothing)
	@$(STAGE) "Python, venvs" python3 bindings/python/venvs $(PYTHON)
	@$(STAGE) "Python, build" sh -c '$(call PYTHON_WHEEL,release,$(PYTHON)/asgi)'
	@$(PYTHON)/newest/bin/pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall $(PYTHON)/asgi/*.whl
	@$(STAGE) "ASGI, bench" sh -c '$(PYTHON)/newest/bin/python bindings/python/bench/asgi.py $(if $(QUICK),--quick) \
		| tee $(PYTHON)/asgi.md'
	@$(if $(QUICK),echo "== a quick run: docs/python/fastapi.md stays as it is",set -e; page=docs/python/fastapi.md; \
		sed '/^<!-- make python-bench-asgi writes/q' $$page >$$page.new; { echo; cat $(PYTHON)/asgi.md; } >>$$page.new; mv $$page.new $$page)

# --- The TypeScript client.

# The program that the clients send requests to.
SERVER := $(abspath $(TARGET))/stress/tollgate
server:
	@$(STAGE) "server, build" $(BUILD) --quiet

TYPESCRIPT := $(abspath $(TARGET))/typescript
TSC := $(TYPESCRIPT)/node_modules/.bin/tsc --project bindings/typescript --outDir $(TYPESCRIPT)/dist \
	--typeRoots $(TYPESCRIPT)/node_modules/@types

typescript: server ## Builds and tests the TypeScript client
	@$(STAGE) "TypeScript, packages" bindings/typescript/packages $(TYPESCRIPT)
	@rm -rf $(TYPESCRIPT)/dist
	@$(STAGE) "TypeScript, build" $(TSC)
	@TOLLGATE_SERVER=$(SERVER) $(STAGE) "TypeScript, test" \
		sh -c 'cd bindings/typescript && exec node --test $(TYPESCRIPT)/dist/test/*.test.js'

# In real time: a run takes 9 s at best.
clients-bench: server ## Measures the paced clients beside clients that retry, against the real server
	@$(STAGE) "Python, venvs" python3 bindings/python/venvs $(PYTHON)
	@TOLLGATE_SERVER=$(SERVER) $(STAGE) "Python client" \
		env PYTHONPATH=bindings/python/python $(PYTHON)/newest/bin/python bindings/python/bench/client.py
	@$(STAGE) "TypeScript, packages" bindings/typescript/packages $(TYPESCRIPT)
	@$(STAGE) "TypeScript, build" $(TSC)
	@TOLLGATE_SERVER=$(SERVER) $(STAGE) "TypeScript client" node $(TYPESCRIPT)/dist/bench/client.js

COMPARE := $(TARGET)/compare
# Both files are complete before either takes the place of the old one.
define PUBLISH
set -e; page=benches/README.md; plot=benches/checks.svg; \
trap 'rm -f "$$page.new" "$$plot.new"' EXIT; \
grep -q '^<!-- make bench writes' "$$page" || \
	{ echo "$$page lacks the line '<!-- make bench writes what follows -->': put it where the table begins" >&2; exit 1; }; \
{ sed '/^<!-- make bench writes/q' "$$page"; \
	printf '\n![ns per check against the number of agents](checks.svg)\n\n'; \
	cat $(COMPARE)/table.md; } > "$$page.new"; \
cp $(COMPARE)/checks.svg "$$plot.new"; \
mv "$$plot.new" "$$plot"; mv "$$page.new" "$$page"; \
echo "== wrote $$page and $$plot"
endef

bench: ## Measures our benches, then the peers; writes benches/README.md (QUICK=1: a short look, writes nothing)
	@$(STAGE) "C loops, build" $(MAKE) --no-print-directory c-loops
	@TOLLGATE_LOOPS=$(C_LOOPS) $(STAGE) bench cargo bench --workspace --bench '*' $(if $(QUICK),-- --quick)
	@$(STAGE) "compare, build" cargo build --release --manifest-path benches/compare/Cargo.toml --target-dir $(COMPARE)
	@rm -f $(COMPARE)/table.md $(COMPARE)/checks.svg
	@$(STAGE) compare $(COMPARE)/release/compare $(if $(QUICK),--quick) --out $(COMPARE)/table.md --svg $(COMPARE)/checks.svg
	@$(if $(QUICK),echo "== a quick run: benches/README.md stays as it is",$(PUBLISH))

# The peer is built for this alone, and kept in the target directory.
PEERS := $(abspath $(TARGET))/peers
bench-http: ## Measures the server beside throttlecrab-server, Envoy's calls, and what the tower layer adds (QUICK=1: a short look)
	@command -v protoc >/dev/null || \
		{ echo "protoc is missing, which the peer needs to build: apt-get install protobuf-compiler" >&2; exit 1; }
	@$(STAGE) "throttlecrab-server, build" cargo install --quiet --locked --version 0.4.40 --root $(PEERS) \
		--target-dir $(PEERS)/target throttlecrab-server
	@TOLLGATE_PEER=$(PEERS)/bin/throttlecrab-server $(STAGE) "HTTP" \
		cargo bench --package tollgate-server --bench http $(if $(QUICK),-- --quick)
	@$(STAGE) "Envoy" cargo bench --package tollgate-server --bench envoy $(if $(QUICK),-- --quick)
	@$(STAGE) "tower layer" cargo bench --package tollgate-tower --bench layer

# limitador does not compile as released: benches/cluster/peer says why, and puts what does into the target directory.
CLUSTER := $(abspath $(TARGET))/bench-cluster
CLUSTER_PAGE := docs/machines.md
bench-cluster: ## Measures limits over Redis beside limitador and a script; writes docs/machines.md (QUICK=1: a short look, writes nothing)
	@$(STAGE) "limitador" benches/cluster/peer $(CLUSTER)/peer
	@$(STAGE) "cluster, build" cargo build --release --manifest-path benches/cluster/Cargo.toml --target-dir $(CLUSTER) \
		--config 'patch.crates-io.limitador.path="$(CLUSTER)/peer/limitador"'
	@rm -f $(CLUSTER)/table.md
	@$(STAGE) "cluster" $(CLUSTER)/release/bench-cluster $(if $(QUICK),--quick) --out $(CLUSTER)/table.md
	@$(if $(QUICK),echo "== a quick run: $(CLUSTER_PAGE) stays as it is",set -e; \
		grep -q '^<!-- make bench-cluster writes' $(CLUSTER_PAGE); \
		{ sed '/^<!-- make bench-cluster writes/q' $(CLUSTER_PAGE); echo; cat $(CLUSTER)/table.md; } > $(CLUSTER)/page.md; \
		cp $(CLUSTER)/page.md $(CLUSTER_PAGE); echo "== wrote $(CLUSTER_PAGE)")

long: tools ignored helgrind tsan c-long elixir-long python-long http-fuzz ## Runs the long forms: stress and flood at full length, helgrind, ThreadSanitizer
	@echo "== all long stages ended ($$(( $$(date +%s) - $(STARTED) )) s)"

# The kill harness also kills processes in C, and BEAMs.
ignored: ## Runs the tests that are too long for `make test`
	@$(STAGE) "C, build" $(MAKE) --no-print-directory capi
	@export $(C_ENV); $(C_MAKE) churn
	@$(STAGE) "Elixir, build" sh -c '$(MIX) compile'
	@TOLLGATE_CHURN=$(C_BUILD)/churn TOLLGATE_BEAM=$(abspath bindings/elixir/_build/dev/lib/tollgate/ebin) \
		$(STAGE) "ignored tests" $(TESTS) -- --ignored --nocapture --skip every_mutant_is_killed

http-fuzz: server ## Sends the server requests at random, by its openapi.json, and compares what it answers
	@$(STAGE) "HTTP, fuzz" bindings/server/tests/fuzz/run $(SERVER) $(abspath $(TARGET))/schemathesis

# Calls of each form: fewer than the example makes by itself, since helgrind is slow.
HELGRIND_CALLS := 20000
# Unoptimised, so that the suppressions find the functions they name.
helgrind: ## Runs the stress example under valgrind's helgrind
	@$(STAGE) "helgrind, build" cargo build --example stress
	@$(STAGE) helgrind valgrind --tool=helgrind --error-exitcode=9 --suppressions=.ci/helgrind.supp \
		$(TARGET)/debug/examples/stress $(HELGRIND_CALLS)

# Needs a nightly toolchain. Without one there is nothing to run, and it says so.
TSAN_TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
tsan: ## Runs the stress example under ThreadSanitizer, if there is a nightly toolchain
	@if cargo +nightly --version >/dev/null 2>&1; then \
		set -e; \
		RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" $(STAGE) "ThreadSanitizer, build" \
			cargo +nightly build --release --target $(TSAN_TARGET) --target-dir $(TARGET)/tsan --example stress; \
		$(STAGE) ThreadSanitizer $(TARGET)/tsan/$(TSAN_TARGET)/release/examples/stress; \
	else \
		echo "== stage ThreadSanitizer NOT RUN: there is no nightly toolchain (rustup toolchain install nightly)"; \
	fi

c-long: c-asan c-fuzz ## Runs the long forms of the C tests
	@export $(C_ENV); $(STAGE) "C, build of the long forms" $(C_MAKE) $(C_BUILD)/plain/test_threads $(C_BUILD)/plain/test_fork
	@$(STAGE) "C, a million sequences of calls" \
		cargo test --package tollgate --features $(FEATURES) --profile stress --test ffi -- --ignored --show-output
	@$(STAGE) "C, threads" env TOLLGATE_ROUNDS=20000 $(C_BUILD)/plain/test_threads
	@$(STAGE) "C, forks" env TOLLGATE_FORKS=20000 $(C_BUILD)/plain/test_fork

# Needs a nightly toolchain, like the next. Here Rust itself is sanitized, not the C side alone.
C_ASAN := $(abspath $(TARGET))/asan
c-asan: capi ## Runs the C tests with AddressSanitizer in C and in Rust, if there is a nightly toolchain
	@if cargo +nightly --version >/dev/null 2>&1; then \
		set -e; \
		RUSTFLAGS=-Zsanitizer=address $(STAGE) "C, sanitized Rust, build" \
			cargo +nightly $(wordlist 2,99,$(C_RUSTC)) --profile stress --features $(FEATURES) \
			--target $(TSAN_TARGET) --target-dir $(C_ASAN) -- --cfg tollgate_test_hooks; \
		export $(C_ENV) BUILD=$(C_ASAN)/c HOOKS=$(C_ASAN)/$(TSAN_TARGET)/stress; \
		$(STAGE) "C, sanitized Rust" $(C_MAKE) sanitized; \
	else \
		echo "== stage C, sanitized Rust NOT RUN: there is no nightly toolchain (rustup toolchain install nightly)"; \
	fi

FUZZ_SECONDS ?= 600
c-fuzz: ## Fuzzes the C ABI under AddressSanitizer, if there is cargo-fuzz and a nightly toolchain
	@if cargo +nightly fuzz --version >/dev/null 2>&1; then \
		set -e; for target in calls shown; do \
			corpus=$(abspath $(TARGET))/fuzz/corpus-$$target; mkdir -p $$corpus; \
			CARGO_TARGET_DIR=$(abspath $(TARGET))/fuzz $(STAGE) "C, cargo-fuzz of $$target" cargo +nightly fuzz run \
				--fuzz-dir bindings/c/fuzz $$target $$corpus -- -max_total_time=$(FUZZ_SECONDS) -max_len=2048; \
		done; \
	else \
		echo "== stage C, cargo-fuzz NOT RUN: there is no cargo-fuzz, or no nightly toolchain (cargo install cargo-fuzz)"; \
	fi
