//go:build external

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// isComponent says whether name is a component that this binary can be.
func isComponent(name string) bool {
	return name == "kubectl"
}

// runComponent makes this process the named component.
func runComponent(name string, args []string) error {
	command, err := componentCommand(name)
	if err != nil {
		return err
	}
	if command == nil {
		return fmt.Errorf("there is no %s beside this program", name)
	}
	return syscall.Exec(command[0], append(command, args...), os.Environ())
}

// componentCommand returns the program that is the named component, or nil when
// there is none. The build script puts links to the programs of
// KUBEBUILDER_ASSETS beside this one.
func componentCommand(name string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return []string{path}, nil
}
