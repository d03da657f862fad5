package operator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// connection is what a client was told of its connections, whatever kind of client it is.
type connection struct {
	kind                 string
	addr, user, password string
	db, retries, dials   int
	times                [3]time.Duration // to read, to write, to dial
	deadlines            bool             // of contexts
	config               *tls.Config
}

func connectionOf(t *testing.T, a Address) connection {
	t.Helper()
	rdb, err := a.client()
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	if c, ok := rdb.(*redis.ClusterClient); ok {
		o := c.Options()
		return connection{"cluster", strings.Join(o.Addrs, " "), o.Username, o.Password, 0, o.MaxRetries, o.DialerRetries, [3]time.Duration{o.ReadTimeout, o.WriteTimeout, o.DialTimeout}, o.ContextTimeoutEnabled, o.TLSConfig}
	}
	o := rdb.(*redis.Client).Options()
	return connection{"one", o.Addr, o.Username, o.Password, o.DB, o.MaxRetries, o.DialerRetries, [3]time.Duration{o.ReadTimeout, o.WriteTimeout, o.DialTimeout}, o.ContextTimeoutEnabled, o.TLSConfig}
}

// TestClients: what an address says, and what it does not, of each kind of client: what a URL says comes first,
// each call has its time, and none is sent twice.
func TestClients(t *testing.T) {
	five, url := [3]time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}, [3]time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
	const times = "read_timeout=1s&write_timeout=2s&dial_timeout=3s"
	for _, c := range []struct {
		a    Address
		want connection
		tls  bool
	}{
		{Address{}, connection{kind: "one", addr: "localhost:6379", times: five}, false},
		{Address{URL: "host:7"}, connection{kind: "one", addr: "host:7", times: five}, false},
		{Address{URL: "host:7", User: "u", Password: "p", Timeout: time.Second}, connection{kind: "one", addr: "host:7", user: "u", password: "p", times: [3]time.Duration{time.Second, time.Second, time.Second}}, false},
		{Address{URL: "redis://a:b@host:7/3?" + times, User: "u", Password: "p"}, connection{kind: "one", addr: "host:7", user: "a", password: "b", db: 3, times: url}, false},
		{Address{URL: "rediss://host:7"}, connection{kind: "one", addr: "host:7", times: five}, true},
		{Address{URL: "unix:///tmp/redis.sock"}, connection{kind: "one", addr: "/tmp/redis.sock", times: five}, false},
		{Address{URL: "host:7", Cluster: true, User: "u", Password: "p"}, connection{kind: "cluster", addr: "host:7", user: "u", password: "p", times: five}, false},
		{Address{URL: "rediss+cluster://a:b@host:7?addr=other:8&" + times}, connection{kind: "cluster", addr: "host:7 other:8", user: "a", password: "b", times: url}, true},
		{Address{URL: "redis+sentinel://host:7?master_name=m&" + times, User: "u", Password: "p", Cluster: true}, connection{kind: "one", addr: "FailoverClient", user: "u", password: "p", times: url}, false},
		{Address{URL: "redis+sentinel://host:7?master_name=m", Timeout: time.Second}, connection{kind: "one", addr: "FailoverClient", times: [3]time.Duration{time.Second, time.Second, time.Second}}, false},
		{Address{URL: "host:7", Cluster: true, Timeout: time.Second}, connection{kind: "cluster", addr: "host:7", times: [3]time.Duration{time.Second, time.Second, time.Second}}, false},
		{Address{URL: "rediss+sentinel://host:7?master_name=m&username=a&password=b", User: "u", Password: "p"}, connection{kind: "one", addr: "FailoverClient", user: "a", password: "b", times: five}, true},
	} {
		got := connectionOf(t, c.a)
		if c.want.deadlines, c.want.dials = true, 1; got.kind == "cluster" {
			c.want.retries = got.retries // redirects are retries
		}
		if (got.config != nil) != c.tls {
			t.Errorf("%+v: TLS %v", c.a, got.config != nil)
		}
		got.config = nil
		if got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.a, got, c.want)
		}
	}
}

// TestBadAddresses: errors say what is wrong, and no secret.
func TestBadAddresses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.pem")
	text := filepath.Join(t.TempDir(), "text.pem")
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a     Address
		words string
	}{
		{Address{URL: "http://host:7"}, "unknown scheme"}, {Address{URL: "redis+ring://host:7"}, "unknown scheme"}, {Address{URL: "tcp+cluster://host:7"}, "unknown scheme"},
		{Address{URL: "redis+sentinel://host:7"}, "names no master"},
		{Address{URL: "redis://host:7?db=many"}, "cannot be read: "}, {Address{URL: "redis+cluster://host:7?max_retries=many"}, "cannot be read: "},
		{Address{URL: "redis+sentinel://host:7?master_name=m&db=many"}, "cannot be read: "},
		{Address{URL: "redis://u:hidden@host:7?db=many"}, "cannot be read"}, {Address{URL: "redis://host:7?db=hidden", Password: "hidden"}, "cannot be read"},
		{Address{URL: "redis://u:hidden@host:port"}, "the URL that was given cannot be read"}, {Address{URL: "redis+sentinel://host:7?password=hidden"}, "redis+sentinel://host:7 names"},
		{Address{URL: "redis+sentinel://host:port?master_name=m&password=hidden"}, "the URL that was given cannot be read"},
		{Address{CA: missing}, "missing.pem"}, {Address{CA: text}, "no certificate in PEM"}, {Address{Cert: missing}, "missing.pem"}, {Address{Key: missing}, "no such file"},
	} {
		rdb, err := c.a.client()
		if err == nil {
			t.Errorf("%+v: %T", c.a, rdb)
			continue
		}
		if !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%+v: %v, want %q in it", c.a, err, c.words)
		}
	}
}

// TestWhyNotConnected: an error says whether it is the password, an answer, or none.
func TestWhyNotConnected(t *testing.T) {
	a := Address{URL: "redis://u:hidden@host:7/0?read_timeout=1s"}
	for _, c := range []struct {
		err   error
		words string
	}{
		{replyError("NOAUTH who are you"), "needs another user or password: NOAUTH"}, {replyError("WRONGPASS no"), "needs another user or password: WRONGPASS"},
		{replyError("LOADING wait"), "rejects the connection: LOADING"}, {errors.New("refused"), "does not answer: refused"},
	} {
		if err := a.failed(c.err); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), "redis://u:xxxxx@host:7/0 ") {
			t.Errorf("%v", err)
		}
	}
}

// TestCertificates: files make a connection one of TLS, beside what the URL says of it.
func TestCertificates(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, kind string, of []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: of}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, private := file("ca.pem", "CERTIFICATE", cert), file("key.pem", "PRIVATE KEY", secret)
	for _, url := range []string{"redis://host:7", "rediss://host:7", "redis+cluster://host:7", "redis+sentinel://host:7?master_name=m"} {
		one := connectionOf(t, Address{URL: url, CA: ca}).config
		if one == nil || one.RootCAs == nil || len(one.Certificates) != 0 || one.ServerName != "host" || one.MinVersion != tls.VersionTLS12 {
			t.Errorf("%s, CA: %+v", url, one)
		}
		own := connectionOf(t, Address{URL: url, Cert: ca, Key: private}).config
		if own == nil || own.RootCAs != nil || len(own.Certificates) != 1 || own.InsecureSkipVerify {
			t.Errorf("%s, Cert and Key: %+v", url, own)
		}
	}
	if c := connectionOf(t, Address{URL: "rediss://host:7?skip_verify=true", CA: ca}).config; !c.InsecureSkipVerify || c.RootCAs == nil {
		t.Errorf("%+v", c)
	}
	for _, a := range []Address{{CA: ca, Cert: ca}, {CA: ca, Key: private}} {
		if _, err := a.client(); err == nil {
			t.Errorf("%+v: one of two files", a)
		}
	}
}
