//go:build !linux

package main

import "syscall"

// dieWithParent does nothing on this system. Only on Linux, this program makes the kernel kill a
// process when its parent ends. Embedded components still end together with the launcher, because
// they watch the lifeline, a pipe from the launcher (see dieWithLifeline).
func dieWithParent(*syscall.SysProcAttr) {}
