//go:build !linux

package main

import "syscall"

// dieWithParent does nothing: only Linux ends a process with its parent.
// Embedded components still notice by their lifeline.
func dieWithParent(*syscall.SysProcAttr) {}
