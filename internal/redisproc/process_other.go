//go:build !linux && !windows

package redisproc

import (
	"os/exec"
	"syscall"
)

// process is a child.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }
