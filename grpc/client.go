package holdfastgrpc

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/internal/cooldown"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// maxTargets bounds the targets whose budgets are remembered, at about 1 kB each.
const maxTargets = 4096

// Client keeps limits and cooldowns for the calls of gRPC connections, and retries. Make
// one with [NewClient]; the zero value is not usable. It is safe for concurrent use, runs
// no goroutine between calls, and needs no closing. What it learns is its own: use one
// for all connections of a process.
type Client struct {
	cfg     clientConfig
	gates   *cooldown.Gates
	budgets *cooldown.Table[retry.Budget]
	block   blocker // nil if the limiter can't
}

// blocker is what limiters implement that can deny a key for the whole fleet.
type blocker interface {
	Block(ctx context.Context, key string, d time.Duration, opts ...limiter.CallOption) error
}

// NewClient returns a Client. The error is a *limiter.ConfigError.
func NewClient(opts ...ClientOption) (*Client, error) {
	cfg, err := newClientConfig(opts)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, gates: cooldown.NewGates(cfg.maxGates)}
	c.budgets = cooldown.NewTable(cfg.maxTargets, func(*retry.Budget) bool { return false })
	c.block, _ = cfg.limiter.(blocker)
	return c, nil
}

// Unary is the interceptor for unary calls: see grpc.WithUnaryInterceptor and
// grpc.WithChainUnaryInterceptor.
//
// Its error is the one of the last attempt, with its status, or an [*Error] when nothing
// could be sent. When the call's context ends a wait it is codes.Canceled or
// codes.DeadlineExceeded. A wait that the deadline does not allow is not begun.
func (c *Client) Unary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		x := c.begin(ctx, cc, method)
		var told attempt
		opts = told.options(opts)
		err := x.run(&told, func() error { return invoke(ctx, method, req, reply, cc, opts...) })
		if err == nil {
			x.budget.Deposit()
		}
		return err
	}
}

// begin is a call of a connection.
func (c *Client) begin(ctx context.Context, cc *grpc.ClientConn, method string) *call {
	target := ""
	if cc != nil {
		target = cc.Target()
	}
	x := &call{
		c:      c,
		ctx:    ctx,
		target: target,
		method: method,
		key:    target,
		allow:  cooldown.Allowance{Each: c.cfg.maxWait, Total: c.cfg.maxTotal},
		budget: c.budget(target),
	}
	if c.cfg.key != nil {
		x.key = c.cfg.key(ctx, target, method)
	}
	return x
}

// budget is that of a target.
func (c *Client) budget(target string) *retry.Budget {
	if c.cfg.budget != nil {
		return c.cfg.budget
	}
	return c.budgets.GetOrAdd(target, func() *retry.Budget {
		b, _ := retry.NewBudget(retry.BudgetSettings{}) // the defaults are valid
		return b
	})
}

// learn closes the gate of a call's key, and the fleet's, when the server has named a
// wait.
func (x *call) learn(code codes.Code, h hint) {
	if x.key == "" || h.wait <= 0 || code != codes.ResourceExhausted && code != codes.Unavailable {
		return
	}
	c, d := x.c, min(h.wait, cooldown.Max)
	wasOpen, longer := c.gates.Close(x.key, h.wait)
	if longer <= 0 {
		return
	}
	if wasOpen {
		c.cfg.logger.LogAttrs(x.ctx, slog.LevelInfo, "holdfast: cooling down",
			slog.String("target", x.target), slog.Duration("for", d),
			slog.Time("until", time.Now().Add(d)), slog.String("source", h.source))
	}
	if f := c.cfg.hooks.Cooldown; f != nil {
		f(x.ctx, CooldownInfo{x.target, x.method, x.key, d, h.source})
	}
	if c.block != nil && cooldown.Prolongs(longer, d) {
		// If Redis can't be reached this process still heeds the gate, which is all
		// that can be done.
		_ = c.block.Block(x.ctx, x.key, d)
	}
}
