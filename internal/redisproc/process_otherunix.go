//go:build unix && !linux

package redisproc

import "syscall"

func childAttr() *syscall.SysProcAttr { return nil }

func (p *process) awaitStop() error { return nil }
