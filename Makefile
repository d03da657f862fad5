.PHONY: demo test fuzz

# A fleet keeps to its limit while Redis is killed and comes back.
demo:
	@go run ./examples/outage

# What CI runs: every module, race detector on, against real Redis servers.
test:
	@scripts/ensure-redis
	@scripts/test

# Each fuzz target for a while: make fuzz FUZZTIME=1m
FUZZTIME ?= 10s
fuzz:
	@scripts/fuzz $(FUZZTIME)
