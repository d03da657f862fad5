.PHONY: demo test outage fuzz

# A fleet keeps to its limit while Redis is killed and comes back.
demo:
	@go run ./examples/outage

# What CI runs: every module, race detector on, against real Redis servers.
test:
	@scripts/ensure-redis
	@scripts/test

# Measures what callers see under faults, and writes docs/outage.md.
outage:
	@go run ./bench/outage -out docs/outage.md

# Each fuzz target for a while: make fuzz FUZZTIME=1m
FUZZTIME ?= 10s
fuzz:
	@scripts/fuzz $(FUZZTIME)
