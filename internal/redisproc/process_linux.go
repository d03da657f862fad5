package redisproc

import (
	"os/exec"
	"runtime"
	"syscall"
)

// process is a child that dies with its parent.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// startProcess keeps the thread that forks for as long as the child lives: the
// kernel sends the signal of Pdeathsig when that thread ends, not the program.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(p.exited)
		}
	}()
	return p, <-started
}

func (p *process) signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }
