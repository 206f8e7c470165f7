MODULE := github.com/kubelet-cert-auditor/kubelet-cert-auditor
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO ?= go

.DEFAULT_GOAL := help

# The directories with a go.mod of their own.
MODULES := . internal/tools internal/tools/promtool internal/tools/helm internal/tools/crds internal/tools/cyclonedx test/kubernetes

# What generate and manifests write.
GENERATED := docs/field-cases.md api/v1alpha1/zz_generated.deepcopy.go config/crd/bases config/rbac/role.yaml config/webhook/role.yaml dist

# What the chart has as it stands in config/, since it takes no values.
CHART_FILES := rbac/service_account.yaml rbac/role.yaml rbac/role_binding.yaml rbac/metrics_reader_role.yaml \
	manager/service.yaml manager/pod_disruption_budget.yaml \
	webhook/service.yaml webhook/webhook.yaml webhook/secret.yaml webhook/role.yaml webhook/role_binding.yaml \
	prometheus/service_monitor.yaml prometheus/prometheus_rule.yaml apiserver-flags/rbac.yaml

##@ Develop

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## "; print "usage: make TARGET..." } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build bin/kubelet-cert-auditor.
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X $(MODULE)/internal/cli.version=$(VERSION)' -o bin/kubelet-cert-auditor .

.PHONY: generate
generate: bin/controller-gen ## Regenerate the deepcopy code and the list of field cases.
	bin/controller-gen object paths=./api/...
	$(GO) generate ./test/fieldcases

.PHONY: manifests
manifests: bin/controller-gen bin/kustomize ## Regenerate the CRD, the RBAC roles, dist/install.yaml and the chart's copies.
	bin/controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	bin/controller-gen rbac:roleName=kubelet-cert-auditor paths=./controllers/... output:rbac:dir=config/rbac
	bin/controller-gen rbac:roleName=kubelet-cert-auditor-webhook paths=./internal/cli/... output:rbac:dir=config/webhook
	rm -rf dist/chart/files dist/chart/crds
	mkdir -p dist/chart/crds dist/chart/files/grafana
	cp config/crd/bases/*.yaml dist/chart/crds/
	@for f in $(CHART_FILES); do mkdir -p dist/chart/files/$$(dirname $$f) && cp config/$$f dist/chart/files/$$f || exit 1; done
	cp config/overlays/cert-manager/certificate.yaml dist/chart/files/webhook/
	bin/kustomize build config/grafana -o dist/chart/files/grafana/config_map.yaml
	bin/kustomize build config/default -o dist/install.yaml

##@ Check

# A package is on the API server if its tests import test/controlplane. Such
# packages run one after another, and uncached: what they test is partly YAML
# and binaries, which Go's cache does not know of.
on_server = {{$$s := false}}{{range .TestImports}}{{if eq . "$(MODULE)/test/controlplane"}}{{$$s = true}}{{end}}{{end}}{{range .XTestImports}}{{if eq . "$(MODULE)/test/controlplane"}}{{$$s = true}}{{end}}{{end}}
server_packages = $(GO) list -f '$(on_server){{if $$s}}{{.ImportPath}}{{end}}' ./... | grep -v '$(apart)'
other_packages = $(GO) list -f '$(on_server){{if not $$s}}{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}{{end}}' ./... | grep -v '$(apart)'

# These have targets of their own, for what they need besides.
apart = /test/\(alerts\|browser\|chart\|dashboard\|e2e\|ha\)$$

# The kube-apiserver that oracle asks: the pinned one, or that of K8S_VERSION.
K8S_VERSION ?=
other_assets = $(if $(K8S_VERSION),KUBEBUILDER_ASSETS='$(CURDIR)/bin/k8s/$(K8S_VERSION)')

# How many combinations oracle asks about.
COMBINATIONS ?= 3000

# The race detector needs a C compiler; without one, Go turns cgo off.
RACE = $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race,$(warning no C compiler: testing without the race detector))

.PHONY: test
test: control-plane ## Run all tests, those on the real API server last.
	@set -e; race='$(RACE)'; other=$$($(other_packages)); server=$$($(server_packages)); \
	$(GO) test $$race $$other; \
	$(GO) test $$race -p 1 -count=1 -timeout 20m $$server

.PHONY: oracle
oracle: control-plane ## Compare verdicts with kube-apiserver's on COMBINATIONS generated inputs.
ifneq ($(K8S_VERSION),)
	@$(GO) run -C test/kubernetes . -version '$(K8S_VERSION)'
endif
	$(other_assets) $(GO) test -count=1 -timeout 60m -v ./test/oracle -args -combinations $(COMBINATIONS)

.PHONY: e2e
e2e: control-plane ## Test with a real kubelet and kube-controller-manager, as root.
ifeq ($(KUBEBUILDER_ASSETS),)
	@$(GO) run -C test/kubernetes . kubelet kube-controller-manager fakecri
endif
	$(GO) test $(RACE) -count=1 -timeout 20m ./test/e2e

.PHONY: alerts
alerts: bin/promtool ## Check the alerts in config/prometheus with promtool.
	$(GO) test -count=1 ./test/alerts

.PHONY: dashboard
dashboard: control-plane ## Ask a Prometheus server that scrapes the demo for every panel of config/grafana.
	$(GO) test -count=1 -timeout 20m ./test/dashboard

.PHONY: chart
chart: control-plane bin/helm bin/kustomize ## Hold dist/ to config/, and have the API server take every result.
	$(GO) test -count=1 -timeout 20m ./test/chart

.PHONY: report-test
report-test: ## Look at the HTML report in a headless Chromium.
	$(GO) test -count=1 -timeout 10m ./test/browser

.PHONY: ha
ha: control-plane ## Kill, cut off and starve two managers, as root, and look whether anybody notices.
	$(GO) test $(RACE) -count=1 -timeout 30m -v ./test/ha

# How long each fuzz target runs.
FUZZTIME ?= 60s

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME.
	@set -e; for file in $$(git ls-files -co --exclude-standard '*_test.go' | xargs grep -l '^func Fuzz'); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' $$file); do \
			echo "$$(dirname $$file) $$target"; \
			$(GO) test ./$$(dirname $$file) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s; \
		done; \
	done

# The sizes of the clusters that bench measures a manager with.
BENCH_NODES ?= 1000,5000,15000,50000

.PHONY: bench
bench: control-plane ## Measure probes next to bare handshakes, and managers of BENCH_NODES; writes docs/performance/.
	$(GO) run ./test/bench -sizes '$(BENCH_NODES)' -out docs/performance

.PHONY: vet
vet: ## Run go vet.
	$(GO) vet ./...
	$(GO) vet -C test/kubernetes ./...

.PHONY: lint
lint: vet bin/golangci-lint ## Run go vet and golangci-lint.
	bin/golangci-lint run ./...
	cd test/kubernetes && ../../bin/golangci-lint run ./...

.PHONY: verify
verify: generate manifests ## Fail if generated files, go.mod files or formatting are not up to date.
	@set -e; changed=$$(git diff --name-only -- $(GENERATED)); new=$$(git ls-files --others --exclude-standard -- $(GENERATED)); \
	if [ -n "$$changed$$new" ]; then \
		git --no-pager diff -- $(GENERATED); \
		echo "verify: add to git what was generated:" $$changed $$new >&2; exit 1; \
	fi
	@for m in $(MODULES); do \
		$(GO) mod tidy -C $$m -diff || { echo "verify: run go mod tidy in $$m" >&2; exit 1; }; \
	done
	@files=$$(gofmt -l .) && [ -z "$$files" ] || { echo "verify: run gofmt -w on:" $$files >&2; exit 1; }

##@ Run

.PHONY: demo
demo: ## Audit a simulated cluster on the real API server, until Ctrl-C.
	@echo "Building a first look: half a minute with cold caches."
	@$(GO) run ./test/demo/preview
	@$(GO) run ./test/demo

.PHONY: demo-once
demo-once: ## The same, checking each answer, and exit.
	@echo "Building a first look: half a minute with cold caches."
	@$(GO) run ./test/demo/preview
	@$(GO) run ./test/demo --once

##@ Release

# The systems that the command line is built for; the manager runs on Linux.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64

.PHONY: release
release: bin/helm bin/kustomize bin/cyclonedx-gomod ## Write dist/release: binaries, chart, manifests, bills of materials, checksums, of VERSION.
	hack/release.sh '$(VERSION)' '$(PLATFORMS)'

.PHONY: release-test
release-test: bin/helm bin/kustomize bin/cyclonedx-gomod ## Make a release of HEAD twice, and compare the bytes.
	hack/release-test.sh '$(PLATFORMS)'

##@ Prepare

.PHONY: control-plane
control-plane: ## Build etcd, kube-apiserver and kubectl once into bin/k8s/, unless KUBEBUILDER_ASSETS is set.
ifeq ($(KUBEBUILDER_ASSETS),)
	@$(GO) run -C test/kubernetes .
endif

.PHONY: tools
tools: bin/controller-gen bin/golangci-lint bin/kustomize bin/promtool bin/helm bin/cyclonedx-gomod ## Build the pinned development tools into bin/.

# A build that changes nothing may leave the old time on the file: hence touch.
bin/controller-gen: internal/tools/go.mod
	CGO_ENABLED=0 $(GO) build -C internal/tools -trimpath -o '$(CURDIR)/bin/' sigs.k8s.io/controller-tools/cmd/controller-gen
	@touch $@

bin/golangci-lint: internal/tools/go.mod
	CGO_ENABLED=0 $(GO) build -C internal/tools -trimpath -o '$(CURDIR)/bin/' github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

bin/promtool: internal/tools/promtool/go.mod
	CGO_ENABLED=0 $(GO) build -C internal/tools/promtool -trimpath -o '$(CURDIR)/bin/' github.com/prometheus/prometheus/cmd/promtool
	@touch $@

bin/kustomize: internal/tools/go.mod
	CGO_ENABLED=0 $(GO) build -C internal/tools -trimpath -o '$(CURDIR)/bin/' sigs.k8s.io/kustomize/kustomize/v5
	@touch $@

bin/helm: internal/tools/helm/go.mod
	CGO_ENABLED=0 $(GO) build -C internal/tools/helm -trimpath -o '$(CURDIR)/bin/' helm.sh/helm/v4/cmd/helm
	@touch $@

bin/cyclonedx-gomod: internal/tools/cyclonedx/go.mod
	CGO_ENABLED=0 $(GO) build -C internal/tools/cyclonedx -trimpath -o '$(CURDIR)/bin/' github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
	@touch $@
