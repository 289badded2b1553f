//go:build !linux

package main

import "syscall"

// dieWithParent does nothing on this system, because only Linux can kill a process when its parent
// ends. Embedded components still end together with the launcher, because they watch the lifeline,
// a pipe from the launcher (see dieWithLifeline).
func dieWithParent(*syscall.SysProcAttr) {}
