package main

import "syscall"

// dieWithParent has the kernel kill the process when the thread that starts it
// ends, which happens with the launcher however that ends (see runMain).
func dieWithParent(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGKILL
}
