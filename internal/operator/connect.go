package operator

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Address says where a Redis is and how to enter it. The zero value is localhost:6379.
type Address struct {
	// URL is as go-redis reads it: redis://user:password@host:port/db, rediss:// for TLS, unix://,
	// with parameters such as read_timeout=1s; redis+cluster:// or rediss+cluster:// with more nodes as
	// addr=host:port; redis+sentinel:// or rediss+sentinel:// with master_name=name. One without a scheme is a host
	// and port.
	URL string
	// Cluster says that URL is of a node of a cluster. A server that says so itself is taken for one, too.
	Cluster bool
	// User and Password are used where URL has none.
	User, Password string
	// CA, Cert and Key are files in PEM, for TLS. Any of them makes the connection one of TLS.
	CA, Cert, Key string
	// Timeout bounds each call, 5 s by default.
	Timeout time.Duration
}

// Connect returns a client for an address, once the server has answered.
func (a Address) Connect(ctx context.Context) (redis.UniversalClient, error) {
	rdb, err := a.client()
	if err != nil {
		return nil, err
	}
	if one, ok := rdb.(*redis.Client); ok && one.Options().Addr != "FailoverClient" {
		if rdb, err = clusterOf(ctx, one); err != nil {
			_ = one.Close()
			return nil, a.failed(err)
		}
	}
	if err := rdb.Ping(ctx).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		_ = rdb.Close()
		return nil, a.failed(err)
	}
	return rdb, nil
}

// failed says why there is no connection.
func (a Address) failed(err error) error {
	switch {
	case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
		return fmt.Errorf("redis at %s needs another user or password: %w; give them by redis://user:password@host:port, or by REDIS_USER and REDIS_PASSWORD", a.shown(), err)
	case isReply(err):
		return fmt.Errorf("redis at %s rejects the connection: %w", a.shown(), err)
	}
	return fmt.Errorf("redis at %s does not answer: %w", a.shown(), err)
}

// clusterOf returns a client of the cluster of which one is a node. A cluster that does not answer as one
// is examined by its node.
func clusterOf(ctx context.Context, one *redis.Client) (redis.UniversalClient, error) {
	info, err := one.Info(ctx, "cluster").Result()
	switch {
	case err != nil && !isReply(err):
		return nil, err
	case err != nil || infoOf(info)["cluster_enabled"] != "1":
		return one, nil
	}
	opt := one.Options()
	all := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{opt.Addr}, Username: opt.Username, Password: opt.Password, TLSConfig: opt.TLSConfig,
		ReadTimeout: opt.ReadTimeout, WriteTimeout: opt.WriteTimeout, DialTimeout: opt.DialTimeout, ContextTimeoutEnabled: true,
	})
	if all.Ping(ctx).Err() != nil {
		_ = all.Close()
		return one, nil
	}
	_ = one.Close()
	return all, nil
}

// shown is the address without its password, and without parameters: one is sentinel_password.
func (a Address) shown() string {
	u, err := url.Parse(a.url())
	if err != nil {
		return "that was given"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}

func (a Address) url() string {
	text := cmp.Or(a.URL, "redis://localhost:6379")
	if !strings.Contains(text, "://") {
		text = "redis://" + text
	}
	return text
}

// client returns the client for the scheme of the URL.
func (a Address) client() (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(a.url(), "://")
	scheme, kind, _ := strings.Cut(scheme, "+")
	if kind == "" && a.Cluster {
		kind = "cluster"
	}
	if !slices.Contains([]string{"redis", "rediss", "unix"}, scheme) || !slices.Contains([]string{"", "cluster", "sentinel"}, kind) {
		return nil, fmt.Errorf("the URL %s has an unknown scheme: must be redis, rediss, unix, redis+cluster, rediss+cluster, redis+sentinel or rediss+sentinel", a.shown())
	}
	text := scheme + "://" + rest
	config, err := a.tls()
	if err != nil {
		return nil, err
	}
	timeout := cmp.Or(a.Timeout, 5*time.Second)
	switch kind {
	case "cluster":
		o, err := redis.ParseClusterURL(text)
		if err != nil {
			return nil, a.bad(err)
		}
		o.Username, o.Password, o.TLSConfig = cmp.Or(o.Username, a.User), cmp.Or(o.Password, a.Password), a.secure(o.TLSConfig, config)
		o.ReadTimeout, o.WriteTimeout, o.DialTimeout = cmp.Or(o.ReadTimeout, timeout), cmp.Or(o.WriteTimeout, timeout), cmp.Or(o.DialTimeout, timeout)
		o.ContextTimeoutEnabled, o.DialerRetries = true, 1
		return redis.NewClusterClient(o), nil
	case "sentinel":
		o, err := redis.ParseFailoverURL(text)
		if err != nil {
			return nil, a.bad(err)
		}
		if o.MasterName == "" {
			return nil, fmt.Errorf("the URL %s names no master: add master_name=NAME", a.shown())
		}
		o.Username, o.Password, o.TLSConfig = cmp.Or(o.Username, a.User), cmp.Or(o.Password, a.Password), a.secure(o.TLSConfig, config)
		o.ReadTimeout, o.WriteTimeout, o.DialTimeout = cmp.Or(o.ReadTimeout, timeout), cmp.Or(o.WriteTimeout, timeout), cmp.Or(o.DialTimeout, timeout)
		o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
		return redis.NewFailoverClient(o), nil
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, a.bad(err)
	}
	o.Username, o.Password, o.TLSConfig = cmp.Or(o.Username, a.User), cmp.Or(o.Password, a.Password), a.secure(o.TLSConfig, config)
	o.ReadTimeout, o.WriteTimeout, o.DialTimeout = cmp.Or(o.ReadTimeout, timeout), cmp.Or(o.WriteTimeout, timeout), cmp.Or(o.DialTimeout, timeout)
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
	return redis.NewClient(o), nil
}

// bad is an error of a URL, in which go-redis may have put all of it: with the password, or that of a parameter.
func (a Address) bad(err error) error {
	if a.Password != "" || strings.Contains(a.url(), "@") || strings.Contains(a.url(), "password") {
		return fmt.Errorf("the URL %s cannot be read", a.shown())
	}
	return fmt.Errorf("the URL %s cannot be read: %w", a.shown(), err)
}

// secure adds the given certificates to what the URL says.
func (a Address) secure(of, config *tls.Config) *tls.Config {
	if config == nil {
		return of
	}
	if of != nil {
		config.ServerName, config.InsecureSkipVerify = of.ServerName, of.InsecureSkipVerify
	}
	return config
}

// tls returns what the files of the address say; nil without any.
func (a Address) tls() (*tls.Config, error) {
	if a.CA == "" && a.Cert == "" && a.Key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CA != "" {
		text, err := os.ReadFile(a.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the file %s has no certificate in PEM", a.CA)
		}
	}
	if a.Cert != "" || a.Key != "" {
		pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if u, err := url.Parse(a.url()); err == nil {
		config.ServerName = u.Hostname()
	}
	return config, nil
}

// infoOf reads what INFO says.
func infoOf(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}
