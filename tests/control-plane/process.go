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

// lifelineVariable is the name of an environment variable. If the variable is set, file descriptor
// 3 of this process is the lifeline, a pipe from the launcher (see newLifeline).
const lifelineVariable = "CONTROL_PLANE_LIFELINE"

// dieWithLifeline kills this process when the launcher ends. It is needed on systems on which
// dieWithParent does nothing. The launcher has the only write end of the lifeline, and never writes
// to the lifeline. So an end of file means that the launcher has ended.
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
	stopping  bool          // true if stop or kill was called
}

// startProcess starts the component and returns its process. When the process has ended, a
// goroutine sends the process to the channel ended. startProcess must be called from the main
// goroutine (see runMain).
func startProcess(c *component, lifeline *os.File, ended chan<- *process) (*process, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()

	cmd := exec.Command(c.command[0], append(c.command[1:len(c.command):len(c.command)], c.flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lifeline}
	// Other environment variables of the caller are not passed to the component. Proxy settings, and
	// variables that etcd and client-go read, would change the behaviour under test.
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"TMPDIR=" + os.TempDir(),
		lifelineVariable + "=3",
	}
	// The component gets its own process group, so that Ctrl-C in a terminal reaches only the
	// launcher. Without its own group, the component could end before the launcher, and the launcher
	// would report a crash.
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

// alive returns true if the process still runs.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop sends SIGTERM and waits until the process has ended. If the process has not ended after
// stopTimeout, or when ctx ends, stop kills the process and returns an error.
func (p *process) stop(ctx context.Context) error {
	if !p.alive() {
		return p.notRunning()
	}
	p.stopping = true
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if the process has just ended
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		_ = p.kill()
		return fmt.Errorf("%s had to be killed: %w", p.component.name, ctx.Err())
	}
}

// kill sends SIGKILL and waits until the process has ended.
func (p *process) kill() error {
	if !p.alive() {
		return p.notRunning()
	}
	p.stopping = true
	_ = p.cmd.Process.Kill() // fails only if the process has just ended
	<-p.done
	return nil
}

func (p *process) notRunning() error {
	return fmt.Errorf("%s does not run", p.component.name)
}

// failure returns the error for a process that ended unexpectedly, without a call of stop or kill.
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
