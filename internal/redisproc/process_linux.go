package redisproc

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"
)

// childAttr makes the child die with its parent, however that ends. A group of
// its own keeps a Ctrl-C in the terminal for the parent, which then tidies up.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// awaitStop exists because SIGSTOP is only queued when kill returns: without
// waiting, one more request may be answered.
func (p *process) awaitStop() error {
	return poll(2*time.Second, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return permanent{err}
		}
		// The state follows the name, which may contain anything but ends with
		// the last parenthesis.
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return fmt.Errorf("redisproc: process %d does not stop", p.cmd.Process.Pid)
		}
		return nil
	})
}
