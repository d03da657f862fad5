// Package holdfastotel reports to OpenTelemetry: metrics and traces of limiters, their
// breakers and fallbacks, of outbound and of inbound HTTP.
//
//	in, err := holdfastotel.New()
//	...
//	lim, err := limiter.New(rdb, limit, in.Limiter("per-customer"))
//	client, err := httpclient.NewClient(in.Client("payments"))
//	mw, err := middleware.New(lim, key, in.Middleware("api"))
//
// # Metrics
//
// Names and units follow the semantic conventions. Labels are the names given here, Redis
// servers, states, outcomes and reasons. Keys are never labels, because there would be as
// many series as customers.
//
//	holdfast.limiter.decisions           {decision}    counter: policy, outcome, source, error.type
//	holdfast.limiter.decision.duration   s             histogram: the same
//	holdfast.redis.call.duration         s             histogram: policy, server, error.type
//	holdfast.redis.overloaded            {call}        counter: policy, server; decided locally, see limiter.ServerHealth
//	holdfast.breaker.transitions         {transition}  counter: policy, server, breaker.state, cause
//	holdfast.breaker.state               {breaker}     gauge: policy, server, breaker.state
//	holdfast.limiter.share               1             gauge: policy, share.origin
//	holdfast.limiter.processes           {process}     gauge: policy
//	holdfast.fallback.keys               {key}         gauge: policy; stored in the process
//	holdfast.fallback.owed               {key}         gauge: policy; with local use that Redis has not charged
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
// The gauge of a breaker's state is 1 for the current state, and 0 for the others. Only
// decisions of 10 µs or more are in the histogram of durations.
//
// All labels except error.type and those of HTTP have the prefix holdfast. The outcome of a
// decision is allowed, denied, not_charged (it had room, but another part of a Multi denied)
// or error. The origin of a share is assumed, learnt or fixed. The outcome of a request is served, rejected, shadowed or error. Limiters with
// the same name are counted together; give them different names to see them separately.
// Prometheus gets all of it through its exporter.
//
// # Traces
//
// A decision within a recorded span becomes a child of it, holdfast.decide. Attempts,
// waits and give-ups of a client are events on the span of the request's context, and the
// decision of a middleware becomes attributes of it. Put otelhttp around the middleware,
// and under the client, for spans of their own.
//
// Programs that do not use this package link nothing of OpenTelemetry, and their decisions
// cost nothing more.
package holdfastotel
