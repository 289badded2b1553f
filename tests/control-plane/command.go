package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

var errUnknownCommand = errors.New("want stop, start, restart or kill with " + kubeAPIServer + ", or quit")

// execute runs one command from standard input. The caller handles the command quit.
func (l *launcher) execute(ctx context.Context, command string) error {
	verb, name, _ := strings.Cut(command, " ")
	if name != kubeAPIServer {
		return errUnknownCommand
	}
	switch p := l.processes[name]; verb {
	case "start":
		if p.alive() {
			return fmt.Errorf("%s runs already", name)
		}
		return l.start(ctx, p.component)
	case "stop":
		return p.stop(ctx)
	case "restart":
		if err := p.stop(ctx); err != nil {
			return err
		}
		return l.start(ctx, p.component)
	case "kill":
		return p.kill()
	default:
		return errUnknownCommand
	}
}

// reply prints the result of a command as a line of JSON.
func reply(command string, err error) {
	answer := struct {
		Command string `json:"command"`
		OK      bool   `json:"ok"`
		Error   string `json:"error,omitempty"`
	}{Command: command, OK: err == nil}
	if err != nil {
		answer.Error = err.Error()
	}
	// An error of Encode is ignored, because the parent process may have closed the pipe for the
	// answers, but may still use the control plane.
	_ = json.NewEncoder(os.Stdout).Encode(answer)
}
