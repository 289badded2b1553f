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

// isComponent returns true if this binary can run as the component with this name.
func isComponent(name string) bool {
	return name == "kubectl"
}

// runComponent replaces this process by the program of the component with this name.
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

// componentCommand returns the path of the program of this component. It returns nil if
// KUBEBUILDER_ASSETS has no such program. The build script creates links to the programs of
// KUBEBUILDER_ASSETS in the folder of this binary.
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
