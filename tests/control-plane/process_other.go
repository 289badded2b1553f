//go:build !linux

package main

import "syscall"

// dieWithParent does nothing, because only Linux can kill a process when its parent ends. Embedded
// components still end with the launcher, because they watch the lifeline (see dieWithLifeline).
func dieWithParent(*syscall.SysProcAttr) {}
