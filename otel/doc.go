// Package holdfastotel reports to OpenTelemetry: metrics and traces of limiters, their
// breakers and fallbacks, of outbound and of inbound HTTP.
//
//	in, err := holdfastotel.New()
//	...
//	lim, err := limiter.New(rdb, limit, in.Limiter("per-customer"))
//	stop, err := in.Observe("per-customer", lim) // gauges of its state
//	client, err := httpclient.NewClient(in.Client("payments"))
//	mw, err := middleware.New(lim, key, in.Middleware("api"))
//
// # Metrics
//
// Names and units follow the semantic conventions. Labels are the names that are given
// here, servers of Redis, states, outcomes and reasons; never keys, which would be as
// many as there are customers.
//
//	holdfast.limiter.decisions           {decision}    counter: policy, outcome, source, error.type
//	holdfast.limiter.decision.duration   s             histogram: the same
//	holdfast.redis.call.duration         s             histogram: policy, server, error.type
//	holdfast.breaker.transitions         {transition}  counter: policy, server, breaker.state, cause
//	holdfast.breaker.state               {breaker}     gauge: policy, server, breaker.state
//	holdfast.limiter.share               1             gauge: policy
//	holdfast.limiter.processes           {process}     gauge: policy
//	holdfast.fallback.keys               {key}         gauge: policy; remembered in the process
//	holdfast.fallback.owed               {key}         gauge: policy; with use that Redis is yet to hear of
//	holdfast.fallback.reconciled         {key}         counter: policy; charged in Redis after an outage
//	holdfast.client.attempt.duration     s             histogram: policy, http.request.method,
//	                                                   http.response.status_code, error.type
//	holdfast.client.wait.duration        s             histogram: policy, reason
//	holdfast.client.cooldowns            {cooldown}    counter: policy
//	holdfast.client.give_ups             {request}     counter: policy, reason
//	holdfast.client.throttle.transitions {transition}  counter: policy, throttling
//	holdfast.server.requests             {request}     counter: policy, outcome, denied_by,
//	                                                   http.response.status_code
//
// The gauge of a breaker's state is 1 for the one that it is in. The durations of
// decisions are those of 10 µs or more.
//
// All labels but error.type and those of HTTP have the prefix holdfast. The outcome of a
// decision is allowed, denied, not_charged (it had room, but another part of a Multi denied)
// or error; that of a request served, refused, shadowed or error. Limiters of one name are
// counted together; those whose state is to be told apart need different names.
// Prometheus gets all of it through its exporter.
//
// # Traces
//
// A decision that is made within a span that is recorded becomes a child of it,
// holdfast.decide. Attempts, waits and give-ups of a client are events on the span of
// the request's context, and what a middleware decided are attributes of it: put
// otelhttp around the middleware, and beneath the client, for spans of their own.
//
// Where this package is not used, nothing of OpenTelemetry is linked in, and a decision
// costs nothing more.
package holdfastotel
