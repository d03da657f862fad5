package limiter

import (
	"context"
	"net"
	"net/netip"
)

// PeersFromDNS counts the addresses of host, which has one per process: such as a headless
// service of Kubernetes, "name.namespace.svc.cluster.local". It is for WithPeerCount. Where
// processes have addresses of IPv4 and IPv6, the family with more of them counts. Without
// an address, and when the name cannot be resolved, it returns an error.
func PeersFromDNS(host string) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		return ofOneFamily(addrs), err
	}
}

// ofOneFamily is how many addresses the family has that has more of them.
func ofOneFamily(addrs []netip.Addr) int {
	v4 := 0
	for _, a := range addrs {
		if a.Unmap().Is4() {
			v4++
		}
	}
	return max(v4, len(addrs)-v4)
}
