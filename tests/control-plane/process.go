package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// lifelineVariable tells an embedded component that its file descriptor 3 is a
// pipe from the launcher.
const lifelineVariable = "CONTROL_PLANE_LIFELINE"

// dieWithLifeline ends this process when the launcher is gone: the launcher
// holds the only writing end of the pipe, and never writes. It is the second
// line of defence behind dieWithParent.
func dieWithLifeline() {
	if os.Getenv(lifelineVariable) == "" {
		return
	}
	os.Unsetenv(lifelineVariable)
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(3, "lifeline"))
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}()
}

// process is a running component.
type process struct {
	component *component
	cmd       *exec.Cmd
	done      chan struct{} // closed when the process has ended
	stopping  bool          // it was told to end
}

// startProcess starts the component and sends the process to ended when it has
// ended. It must be called from the main goroutine (see runMain).
func startProcess(c *component, lifeline *os.File, ended chan<- *process) (*process, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()

	cmd := exec.Command(c.command[0], append(c.command[1:len(c.command):len(c.command)], c.flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lifeline}
	// Nothing else of the caller's environment: proxies and the variables that
	// etcd and client-go read would change what is tested.
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"TMPDIR=" + os.TempDir(),
		lifelineVariable + "=3",
	}
	// A group of its own keeps an interrupt at the terminal from ending the
	// component before the launcher, which would take it for a crash.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	p := &process{component: c, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its result is in cmd.ProcessState
		close(p.done)
		ended <- p
	}()
	return p, nil
}

// alive says whether the process still runs.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop asks the process to end and waits until it has. It kills the process when
// that takes too long, or ctx ends.
func (p *process) stop(ctx context.Context) error {
	if !p.alive() {
		return p.notRunning()
	}
	p.stopping = true
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has just ended
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		_ = p.kill()
		return fmt.Errorf("%s had to be killed: %w", p.component.name, ctx.Err())
	}
}

// kill ends the process at once.
func (p *process) kill() error {
	if !p.alive() {
		return p.notRunning()
	}
	p.stopping = true
	_ = p.cmd.Process.Kill() // fails only when it has just ended
	<-p.done
	return nil
}

func (p *process) notRunning() error {
	return fmt.Errorf("%s does not run", p.component.name)
}

// failure describes the end of a process that should have lasted.
func (p *process) failure() error {
	return fmt.Errorf("%s ended by itself (%s); its log ends with:\n%s",
		p.component.name, p.cmd.ProcessState, tail(p.component.log))
}

// tail returns the last lines of a log file.
func tail(path string) string {
	const lines = 20
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
