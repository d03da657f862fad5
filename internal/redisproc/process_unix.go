//go:build unix

package redisproc

import "syscall"

// terminate asks for an orderly end. The request is there before a frozen
// process goes on, so that it serves requests in between no longer than it must.
func (p *process) terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.thaw()
}

func (p *process) thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// freeze returns when the process has stopped, where that can be seen.
func (p *process) freeze() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.awaitStop()
}
