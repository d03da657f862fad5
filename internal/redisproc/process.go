package redisproc

import (
	"os/exec"
	"runtime"
	"time"
)

// process is a child; exited is closed once it has been reaped.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// startProcess forks on a thread that it keeps for as long as the child lives:
// on Linux the kernel sends the signal of Pdeathsig when that thread ends, and
// Go ends threads while the program goes on.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = childAttr()
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
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process, frozen or not, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// endsWithin reports whether the process is gone in time.
func (p *process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}
