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
	// Some ten times what a component takes on a machine with nothing else to do.
	readyTimeout = 2 * time.Minute
	// How often to ask whether a component is ready.
	readyInterval = 50 * time.Millisecond
	// How long a component may take to end when it is asked to.
	stopTimeout = 30 * time.Second
)

// runForeground runs a control plane until standard input ends.
func runForeground(dir string, audit bool) error {
	ctx, cancel := untilSignal()
	defer cancel()
	// Read from the start: the parent may die while the control plane starts.
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

// run starts a control plane in dir, announces it and obeys commands until ctx
// ends, a component ends by itself or the command is to quit.
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
				return false, nil // told to end while starting: no failure
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
			err := l.obey(ctx, command)
			if ctx.Err() != nil {
				return false, nil
			}
			reply(command, err)
		}
	}
}

// launcher keeps the processes of a control plane. Only the main goroutine uses
// it.
type launcher struct {
	components []*component
	processes  map[string]*process // the latest of each component, by its name
	lifeline   *os.File            // reading end, for the components
	ended      chan *process
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

// killAll ends all processes. There is nothing to be gained by a gentle end: it
// takes longer, and what it would save is not read again.
func (l *launcher) killAll() {
	for _, p := range l.processes {
		_ = p.kill() // fails only when it does not run
	}
}

// untilSignal returns a context that ends when this process is told to.
func untilSignal() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
}

// newLifeline returns the reading end of a pipe that ends with this process,
// which keeps the only writing end.
func newLifeline() (*os.File, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	keepOpen = writer
	return reader, nil
}

// keepOpen keeps the writing end of the lifeline from being collected, and so
// closed.
var keepOpen *os.File

// temporaryDir makes a temporary folder and returns it with a function that
// removes it. Should this process be killed before it can do that, a shell that
// waits for the end of the lifeline does it.
func temporaryDir(lifeline *os.File) (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp("", "ifo-control-plane-")
	if err != nil {
		return "", nil, err
	}
	// The components are killed at the same moment as this process, not before
	// the shell looks: what they still write may need a second attempt.
	janitor := exec.Command("/bin/sh", "-c",
		`cat; for i in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1" && exit; sleep 0.2; done`, "sh", dir)
	janitor.Stdin = lifeline
	janitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of the terminal
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

// readCommands returns the lines of input, and calls end when it ends.
func readCommands(input io.Reader, end func()) <-chan string {
	// The reader must get ahead of the commands to see the end of the input
	// while one of them takes its time.
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
