.PHONY: bench-watch bench-simulated counter recipes discovery simulate mutants soak sdks help check lint cross api demo outage-demo shares return scale screenshots client worker tokens permits priorities sampled server test outage bench bench-http bench-redis bench-local bench-beyond bench-inbound bench-cluster fuzz test-servers cluster-changes

# Lists the targets.
help:
	@awk '/^# / { if (!text) text = substr($$0, 3); next } /^[a-z-]+:/ && text { sub(/:.*/, ""); printf "%-14s %s\n", $$0, text } { text = "" }' Makefile

# Half a minute before each commit: format, vet, lint, tests without servers.
check:
	@scripts/check

# Runs the linter that .golangci.yml configures on every module.
lint:
	@scripts/lint

# Vets for other systems, and tests what computes in 32 bits.
cross:
	@scripts/cross

# Writes down in api what the packages export, which a test compares.
api:
	@cd scripts && GOWORK=off go run ./api

# A page at http://localhost:8080: the algorithms, and a Redis that you can kill.
demo:
	@echo "building the page; the first time takes about a minute ..."
	@# After Ctrl-C "go run" fails, whatever the program says.
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && trap : INT && go build -o "$$dir/demo" ./examples/demo && "$$dir/demo"

# The same in a terminal: a fleet keeps to its limit while Redis is killed.
outage-demo:
	@go run ./examples/outage

# What each style of rejection makes a client do.
client:
	@go run ./examples/client

# A queue of jobs is done while Redis is killed and comes back.
worker:
	@go run ./examples/worker

# An estimate is reserved under two limits and settled at the real cost.
tokens:
	@go run ./examples/tokens

# A few at a time, in turn, also when one of them dies.
permits:
	@go run ./examples/permits

# The last part of a limit is for critical calls, and a limit changes while it is used.
priorities:
	@go run ./examples/priorities

# A fleet keeps to a limit without a call per decision.
sampled:
	@go run ./examples/sampled

# An API with plans, its metrics, and the keys that are denied most.
server:
	@go run ./examples/server

# What CI runs: every module, race detector on, against real Redis servers.
test:
	@scripts/ensure-redis
	@scripts/ensure-chromium
	@scripts/test

# Simulates fleets in virtual time for a minute: make simulate SIM=10m SEED=7; or many short lives: FLEETS=10000
simulate:
	@cd internal/sim && GOWORK=off go test -count=1 -timeout 0 -run 'TestSimulate$$'

# Emulates clients that learn a limit from headers; writes docs/discovery.md and its picture.
discovery:
	@cd httpclient && GOWORK=off DISCOVERY=$(CURDIR)/docs go test -count=1 -timeout 0 -run 'TestEmulation$$' .

# Tests on seven Redis and Valkey of Debian; writes docs/servers.md: COST=1, too, on a quiet machine
test-servers:
	@cd scripts && GOWORK=off go run ./servers $(if $(COST),-cost) -skips skips.txt -out ../docs/servers.md

# Counts what a fleet decides while its cluster changes; writes docs/cluster-changes.md.
cluster-changes:
	@cd limiter && HOLDFAST_LONG=1 HOLDFAST_CHANGES=$(CURDIR)/docs/cluster-changes.md GOWORK=off go test -count=1 -timeout 0 -run 'TestClusterChanges$$' .

# Runs SDKs above the transport, and counts what they send; compiles for minutes.
sdks:
	@cd bench/sdks && GOWORK=off go test -count=1 ./...

# Runs the recipes, and compiles and runs the adapters for routers and queues.
recipes:
	@scripts/ensure-redis
	@cd docs/recipes && GOWORK=off go test -count=1 .
	@cd docs/recipes/adapters && GOWORK=off go test -count=1 .

# Takes protections out, or changes a package (PKG=./retry), and shows what finds that.
mutants:
	@cd scripts && GOWORK=off go run ./mutants $(if $(PKG),-pkg $(PKG),-tests -out ../docs/protections.md)

# Hours: long traces, real kills, every fuzz target, fleets and mutants; SOAK=10 is ten times that.
soak:
	@scripts/soak $(SOAK)

# Writes the pictures of the demo's page in docs, by chromium.
screenshots:
	@scripts/ensure-chromium
	@cd examples && HOLDFAST_SCREENSHOTS=$(CURDIR)/docs HOLDFAST_REQUIRE_CHROMIUM=1 GOWORK=off go test -count=1 -run TestScreenshots ./demo

# Measures callers under faults, and fleets in an outage; writes docs/outage.md and docs/fleets.md.
outage:
	@go run ./bench/outage -out docs/outage.md -fleets docs/fleets.md

# Computes how much of a limit a fleet can use in an outage; writes docs/shares.md.
shares:
	@GOWORK=off go test -count=1 -run 'TestUsablePart$$' ./internal/inprocess -args -usable.out=$(CURDIR)/docs/shares.md

# Computes how often the window counter decides otherwise than a log; writes docs/counter.md.
counter:
	@GOWORK=off go test -count=1 -run 'TestCounterAgainstLog$$' ./internal/algo -args -counter.out=$(CURDIR)/docs/counter.md

# Simulates how a fleet returns after an outage; draws docs/return.svg.
return:
	@cd internal/sim && GOWORK=off RETURN=$(CURDIR)/docs/return.svg go test -count=1 -run 'TestPictureOfAReturn$$' .

# Simulates fleets of 100 to 100,000 processes, for minutes; writes tables of docs/scale.md and draws docs/scale.svg.
scale:
	@SCALE=$(CURDIR)/docs/scale.md GOWORK=off go test -count=1 -timeout 1h -p 1 -run 'TestScale$$' . ./internal/redislink ./sampled

# What the transport adds to a request, next to others; writes docs/http.md.
bench-http:
	@go run ./bench/http -out docs/http.md

# bench-redis, bench-local, bench-beyond and bench-inbound: decisions next to those of others; and what the simulator costs.
bench: bench-redis bench-local bench-beyond bench-inbound bench-simulated

# What a middleware and observing it add to a handler; writes docs/inbound.md.
bench-inbound:
	@go run ./bench/inbound -out docs/inbound.md

# Decisions of a cluster that is 8 ms away; writes docs/cluster.md.
bench-cluster:
	@cd bench && GOWORK=off go run ./cluster -out ../docs/cluster.md

# What WATCH and MULTI cost beside a script on one key; writes docs/watch.md.
bench-watch:
	@cd bench && GOWORK=off go run ./watch -out ../docs/watch.md

# Decisions through Redis; writes docs/redis.md, docs/throughput.md and docs/redis.svg.
bench-redis:
	@go run ./bench/redis -out docs

# What the simulator of fleets costs; writes docs/simulated.md.
bench-simulated:
	@cd bench && GOWORK=off go run ./simulated -out ../docs/simulated.md

# Decisions in one process; writes docs/local.md, by benchstat.
bench-local:
	@scripts/bench-local docs/local.md

# Several limits at once, permits, reservations and sampled fleets; writes docs/beyond.md.
bench-beyond:
	@go run ./bench/beyond -out docs/beyond.md

simulate: export SIM ?= 1m

FUZZTIME ?= 10s

# Each fuzz target for a while: make fuzz FUZZTIME=1m
fuzz:
	@scripts/fuzz $(FUZZTIME)
