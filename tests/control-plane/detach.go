package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// runDetached starts a control plane that continues to run after this process has ended. When the
// control plane is ready, runDetached prints the state (addresses and files) and returns. If a
// control plane already runs in dir, runDetached starts nothing, and prints the state of this
// control plane.
func runDetached(dir string, audit bool) error {
	if dir == "" {
		dir = defaultDir()
	}
	deadline := time.Now().Add(readyTimeout)
	for {
		lock, err := claimDir(&dir)
		if err == nil {
			return startBackground(dir, audit, lock)
		}
		if !errors.Is(err, errClaimed) {
			return err
		}
		// Another process has locked the folder. If there is no state file, that process is a launcher
		// that is still starting, or the command stop, which removes the folder. Then the loop tries
		// again.
		if state, err := os.ReadFile(stateFile(dir)); err == nil {
			_, err = os.Stdout.Write(state)
			return err
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(readyInterval)
	}
}

// startBackground starts this program again, in a new session, and returns when the new process has
// printed the state. The new process inherits the lock on dir, so that no third process can lock
// dir in between.
func startBackground(dir string, audit bool, lock *dirLock) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	logPath := filepath.Join(dir, "launcher.log")
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "run", "--background", "--dir", dir, fmt.Sprintf("--audit=%t", audit))
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{lock.File}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lock.Close()
	state, err := bufio.NewReader(stdout).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		_ = cmd.Wait()
		return fmt.Errorf("the launcher ended (%s):\n%s", cmd.ProcessState, tail(logPath))
	}
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(state)
	return err
}

// runBackground runs the control plane in the process that startBackground started.
func runBackground(dir string, audit bool) error {
	lock := &dirLock{os.NewFile(3, lockName)}
	syscall.CloseOnExec(3) // so that the components do not inherit the lock
	defer lock.Close()
	if err := lock.sign(); err != nil {
		return err
	}
	lifeline, err := newLifeline()
	if err != nil {
		return err
	}
	ctx, cancel := untilSignal()
	defer cancel()
	_, err = run(ctx, dir, audit, lifeline, nil)
	return err
}

// stopDetached removes dir. If a control plane runs in dir, stopDetached stops it first.
func stopDetached(dir string) error {
	deadline := time.Now().Add(stopTimeout)
	for signalled := 0; ; time.Sleep(readyInterval) {
		lock, err := lockDir(dir)
		if err == nil {
			defer lock.Close()
			return os.RemoveAll(dir)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, errClaimed) || time.Now().After(deadline) {
			return err
		}
		// A launcher that has just started may not have written its process id to the lock file yet. Then
		// the loop tries again.
		if pid, err := lockHolder(dir); err == nil && pid != signalled {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
			signalled = pid
		}
	}
}
