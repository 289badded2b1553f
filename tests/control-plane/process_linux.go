package main

import "syscall"

// dieWithParent makes the kernel kill the new process when the thread that started it ends. That
// thread is the main thread of the launcher. It does not end before the launcher ends (see
// runMain).
func dieWithParent(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGKILL
}
