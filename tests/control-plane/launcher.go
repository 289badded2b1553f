package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const (
	// readyTimeout limits the time until a component is ready. This limit is more than ten times the
	// time that a component needs on an idle machine.
	readyTimeout = 2 * time.Minute
	// readyInterval is the time between two checks of a component that is not ready yet, or of a
	// folder that another process has locked.
	readyInterval = 50 * time.Millisecond
	// stopTimeout limits the time between SIGTERM and the end of a component or of a launcher.
	stopTimeout = 30 * time.Second
)

// runForeground runs a control plane until standard input ends or the command quit arrives.
func runForeground(dir string, audit bool) error {
	ctx, cancel := untilSignal()
	defer cancel()
	// Standard input is read even while the control plane starts. If the parent process ends during
	// this time, standard input ends, and the control plane must stop.
	commands := readCommands(os.Stdin, cancel)

	lifeline, err := newLifeline()
	if err != nil {
		return err
	}
	remove := func() error { return nil }
	if dir == "" {
		if dir, remove, err = temporaryDir(lifeline); err != nil {
			return err
		}
	} else {
		lock, err := claimDir(&dir)
		if err != nil {
			return err
		}
		defer lock.Close()
		if err := lock.sign(); err != nil {
			return err
		}
	}
	quit, err := run(ctx, dir, audit, lifeline, commands)
	err = errors.Join(err, remove())
	if quit && err == nil {
		reply("quit", nil)
	}
	return err
}

// run starts a control plane in dir, prints its state (addresses and files) and executes commands.
// It returns when ctx ends, or when the command quit arrives. Only in the second case, quit is
// true. run returns an error if a component ends unexpectedly.
func run(ctx context.Context, dir string, audit bool, lifeline *os.File, commands <-chan string) (quit bool, err error) {
	s, components, err := configure(dir, audit)
	if err != nil {
		return false, err
	}
	l := &launcher{
		components: components,
		processes:  map[string]*process{},
		lifeline:   lifeline,
		ended:      make(chan *process),
	}
	defer l.killAll()
	for _, c := range components {
		if err := l.start(ctx, c); err != nil {
			if ctx.Err() != nil {
				return false, nil // a request to end during the start is not a failure
			}
			return false, err
		}
	}
	if err := s.save(); err != nil {
		return false, err
	}
	if _, err := os.Stdout.Write(s.line()); err != nil {
		return false, err
	}
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case p := <-l.ended:
			if !p.stopping {
				return false, p.failure()
			}
		case command := <-commands:
			if command == "quit" {
				return true, nil
			}
			err := l.execute(ctx, command)
			if ctx.Err() != nil {
				return false, nil
			}
			reply(command, err)
		}
	}
}

// launcher has the processes of a control plane. Only the main goroutine uses it.
type launcher struct {
	components []*component
	processes  map[string]*process // the latest process of each component, by the component's name
	lifeline   *os.File            // the read end of the lifeline, which the components inherit
	ended      chan *process       // receives each process that has ended
}

// start starts a component and waits until it is ready.
func (l *launcher) start(ctx context.Context, c *component) error {
	p, err := startProcess(c, l.lifeline, l.ended)
	if err != nil {
		return err
	}
	l.processes[c.name] = p

	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := c.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; its log ends with:\n%s", c.name, err, tail(c.log))
		case <-time.After(readyInterval):
		}
	}
}

// killAll kills all processes. A graceful stop would take longer, and would only save data that no
// process reads again.
func (l *launcher) killAll() {
	for _, p := range l.processes {
		_ = p.kill() // fails only if the process has already ended
	}
}

// untilSignal returns a context that ends when this process receives SIGTERM, SIGINT or SIGHUP.
func untilSignal() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
}

// newLifeline creates the lifeline and returns its read end. The lifeline is a pipe with which
// components notice that the launcher has ended. Only the launcher has the write end of the pipe.
// When the launcher ends, every reader of the pipe gets an end of file.
func newLifeline() (*os.File, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	keepOpen = writer
	return reader, nil
}

// keepOpen refers to the write end of the lifeline, so that the garbage collector does not close
// it.
var keepOpen *os.File

// temporaryDir creates a temporary folder. It returns the path, and a function that removes the
// folder. If this process is killed before it calls the function, a shell process removes the
// folder. The shell reads the lifeline, so it notices that this process has ended.
func temporaryDir(lifeline *os.File) (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp("", "ifo-control-plane-")
	if err != nil {
		return "", nil, err
	}
	// The components end at the same time as this process. A component may still create a file while
	// the shell removes the folder. Then the removal fails, and the shell tries again.
	janitor := exec.Command("/bin/sh", "-c",
		`cat; for i in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1" && exit; sleep 0.2; done`, "sh", dir)
	janitor.Stdin = lifeline
	janitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // so that Ctrl-C does not end the shell
	if err := janitor.Start(); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() error {
		err := os.RemoveAll(dir)
		_ = janitor.Process.Kill()
		_ = janitor.Wait()
		return err
	}, nil
}

// readCommands returns a channel with the lines of input. When input ends, readCommands calls end.
func readCommands(input io.Reader, end func()) <-chan string {
	// The channel is buffered. So the goroutine continues to read while a command runs, and notices
	// the end of input even during a long command.
	commands := make(chan string, 1000)
	go func() {
		lines := bufio.NewScanner(input)
		for lines.Scan() {
			commands <- lines.Text()
		}
		end()
	}()
	return commands
}
