package redisproc

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// Ports come from below every system's range for outgoing connections, which
// would otherwise take the port of a server that is down for a moment. The bus
// port of a cluster node is below that of Linux, too, and never above 65535.
const (
	firstPort = 10000
	countPort = 10000
	busOffset = 10000
)

// port is a number that is ours while no process listens on it, where the system
// allows that, and with bus the one of the cluster bus as well.
type port struct {
	number int
	holds  []hold
}

// reservePort takes any port that is free.
func reservePort(bus bool) (p *port, err error) {
	for range 200 {
		if p, err = tryPort(firstPort+rand.IntN(countPort), bus); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("redisproc: no free port: %w", err)
}

func tryPort(number int, bus bool) (*port, error) {
	p := &port{number: number}
	numbers := []int{number}
	if bus {
		numbers = append(numbers, number+busOffset)
	}
	for _, n := range numbers {
		h, err := holdPort(n)
		if err != nil {
			return nil, errors.Join(err, p.release())
		}
		p.holds = append(p.holds, h)
	}
	return p, nil
}

func (p *port) release() error {
	var errs []error
	for _, h := range p.holds {
		errs = append(errs, h.release())
	}
	p.holds = nil
	return errors.Join(errs...)
}
