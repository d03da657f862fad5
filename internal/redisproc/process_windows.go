package redisproc

import (
	"errors"
	"syscall"
)

var errNoSignals = errors.New("redisproc: Windows can't freeze a process")

func childAttr() *syscall.SysProcAttr { return nil }

// terminate kills: there is no signal to ask with.
func (p *process) terminate() error { return p.cmd.Process.Kill() }

func (p *process) freeze() error { return errNoSignals }

func (p *process) thaw() error { return errNoSignals }
