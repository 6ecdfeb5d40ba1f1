# `make` lists the targets. `make test` is what has to pass; .ci/run calls it.

.DEFAULT_GOAL := help
# Stages run in the order in which they are named, also under `make -j`.
.NOTPARALLEL:
.PHONY: help test lint doc loom bench long tools fmt clippy unit doctest examples integration ignored helgrind tsan

STARTED := $(shell date +%s)
STAGE := .ci/stage
TARGET := $(or $(CARGO_TARGET_DIR),target)
EXAMPLES := $(basename $(notdir $(wildcard examples/*.rs)))
TESTS := cargo test --workspace --all-features --profile stress --test '*'

# RUSTFLAGS would take the place of the `--cfg loom` in `cargo loom`, and the
# others would cut short what a model explores.
unexport RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
unexport LOOM_MAX_PREEMPTIONS LOOM_MAX_BRANCHES LOOM_MAX_DURATION LOOM_MAX_PERMUTATIONS LOOM_CHECKPOINT_FILE

help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: tools lint doc unit doctest examples integration loom ## Runs what has to pass, each stage with its time
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

examples: ## Builds and runs every example
	@$(STAGE) "examples, build" cargo build --workspace --profile stress --examples
	@set -e; for example in $(EXAMPLES); do \
		$(STAGE) "example $$example" cargo run --quiet --profile stress --example $$example; \
	done

integration: ## Runs the integration tests, the long ones in their short form
	@$(STAGE) integration $(TESTS) -- --show-output

loom: ## Explores the concurrency models; each prints its number of executions
	@$(STAGE) "loom, build" cargo loom --no-run
	@test "$$(cargo loom -- --list 2>/dev/null | grep -c ': test$$')" -gt 0 || \
		{ echo "no loom model was found" >&2; exit 1; }
	@RUST_BACKTRACE=0 $(STAGE) loom cargo loom -- --nocapture

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
	@$(STAGE) bench cargo bench --workspace --bench '*' $(if $(QUICK),-- --quick)
	@$(STAGE) "compare, build" cargo build --release --manifest-path benches/compare/Cargo.toml --target-dir $(COMPARE)
	@rm -f $(COMPARE)/table.md $(COMPARE)/checks.svg
	@$(STAGE) compare $(COMPARE)/release/compare $(if $(QUICK),--quick) --out $(COMPARE)/table.md --svg $(COMPARE)/checks.svg
	@$(if $(QUICK),echo "== a quick run: benches/README.md stays as it is",$(PUBLISH))

long: tools ignored helgrind tsan ## Runs the long forms: stress and flood at full length, helgrind, ThreadSanitizer
	@echo "== all long stages ended ($$(( $$(date +%s) - $(STARTED) )) s)"

ignored: ## Runs the tests that are too long for `make test`
	@$(STAGE) "ignored tests" $(TESTS) -- --ignored --nocapture

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
