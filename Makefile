# `make demo` runs the demo, and `make test` runs all tests. Both download their dependencies.

CARGO ?= cargo
IMAGE ?= ghcr.io/kubevirt/ifo-apiserver:latest
BINDIR ?= $(HOME)/.local/bin
MANDIR ?= $(HOME)/.local/share/man
TARGET = $$($(CARGO) metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
CONTROL_PLANE = $$(tests/control-plane/build)

# End-to-end tests wait for most of their time. So three times as many tests run as there are processors.
export RUST_TEST_THREADS ?= $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN))))

.PHONY: help build demo test browser bench-ui pictures test-full monitoring attack simulate soak soak-memory test-e2e setup-test-e2e cleanup-test-e2e lint fmt manifests docs bench instructions cel-answers fuzz docker-build install-plugin

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

build: ## Build both binaries (release)
	$(CARGO) build --locked --release --bins

demo: ## Run the demo: no cluster needed
	$(CARGO) run --locked --profile demo --package ifo --bin ifo-apiserver -- demo

test: ## Run all tests, end-to-end ones on a real kube-apiserver included
	$(CARGO) test --locked

test-full: ## Run the end-to-end tests that have a size with their full size, and Helm's with Helm 3
	IFO_FULL_SIZE=1 IFO_HELM=3 $(CARGO) test --locked --package ifo --test e2e -- \
		helm::

monitoring: ## Check the alerts and the queries of the dashboard with Prometheus
	$(CARGO) test --locked --features prometheus-tests --package ifo --test monitoring

soak-memory: ## Measure the memory of 60 targets with 5,000 objects of 20 KB each (6 GB, some minutes)
	SOAK_OBJECTS=5000 $(CARGO) test --locked --package ifo --test pipeline -- --nocapture sixty_targets

simulate: ## Simulate replicas under faults: SEEDS=FROM..TO; a failure prints its seed and trace
	IFO_SEEDS=$(SEEDS) $(CARGO) test --locked --profile simulate --package ifo --lib replicate::tests::random_replicas

browser: ## Test the page of kubectl ifo ui in headless Chromium; needs chromium and chromedriver
	$(CARGO) build --locked --bins
	IFO_REQUIRE_BROWSER=1 RUST_TEST_THREADS=2 $(CARGO) test --locked --package kubectl-ifo --test cli browser::

bench-ui: ## Measure the page with 2,000 and 10,000 operations in headless Chromium
	IFO_REQUIRE_BROWSER=1 IFO_MEASURE_PAGE=1 $(CARGO) test --locked --release --package kubectl-ifo --test cli \
		-- --nocapture the_page_shows_ten_thousand

pictures: ## Make the pictures of the documentation; those of the page need headless Chromium
	$(CARGO) build --locked --bins
	IFO_REQUIRE_BROWSER=1 UPDATE_PICTURES=1 $(CARGO) test --locked --package kubectl-ifo --test cli the_recording_shows

test-e2e: ## Run the end-to-end tests, and those of the plugin's binary, which they use
	$(CARGO) test --locked --test e2e --test replicas --test cli

# The names of the tests in SECURITY.md.
ATTACKS := hostile access:: admission:: error_texts errors_contain_no_values while_a_rule_fails status_conditions baseline_store tables limits connection_limit \
	concurrency_limit front_proxy visibility a_watch_ends_with_403 \
	evaluator::command evaluation_time slow_rules interruptions stored_objects many_operations operation_bounds two_components compile_limits work_groups transcript::rules

attack: ## Attack a server and a real kube-apiserver, as SECURITY.md describes: minutes, not hours
	$(CARGO) test --locked --lib --test e2e --test pipeline --test cli -- $(ATTACKS)

soak: ## Disturb three replicas under load thirty times, or DISTURBANCES times
	IFO_DISTURBANCES=$(or $(DISTURBANCES),30) $(CARGO) test --locked --package ifo --test replicas -- --nocapture

setup-test-e2e: ## Start the test control plane and print its kubeconfig
	@$(CONTROL_PLANE) run --detach

cleanup-test-e2e: ## Stop what setup-test-e2e started
	@$(CONTROL_PLANE) stop

lint: ## rustfmt, clippy, cargo-deny and gofmt/vet
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) deny --config .deny.toml check bans licenses sources
	cd tests/control-plane && test -z "$$(gofmt -l .)" && go vet -tags external ./...

fmt: ## Format the code
	$(CARGO) fmt --all

manifests: ## Generate the CRD from the Rust types; the catalogue's ClusterRoles and table from its rule sets
	$(CARGO) run --locked --example manifests

docs: ## Write the present output of commands into README.md and docs/
	$(CARGO) build --locked --package kubectl-ifo
	IFO_UPDATE_DOCS=1 $(CARGO) test --locked --package ifo --lib documentation

bench: ## Run the benchmarks
	$(CARGO) bench --locked

instructions: ## Count the instructions of two paths, and compare them with the recorded counts
	$(CARGO) bench --locked --profile instructions --bench instructions -- compare

cel-answers: ## Record Kubernetes' answers to the expressions of the CEL tests again
	tests/cel-oracle/update

fuzz: ## Run each fuzz target for a minute, or FOR=seconds
	.ci/fuzz $(or $(FOR),60)

docker-build: ## Build the image
	docker build -t $(IMAGE) .

install-plugin: ## Install kubectl-ifo and its completion into BINDIR, its man pages into MANDIR
	$(CARGO) build --locked --release --package kubectl-ifo
	install -d "$(BINDIR)" "$(MANDIR)/man1"
	install -m 0755 "$(TARGET)/release/kubectl-ifo" deploy/plugin/kubectl_complete-ifo "$(BINDIR)"
	"$(BINDIR)/kubectl-ifo" __man "$(MANDIR)/man1"
