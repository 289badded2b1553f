package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockName is the file in a control plane's folder that its launcher keeps
// locked and that has its process id. The kernel unlocks it when the launcher
// ends, however that happens, which makes the lock, not the id, the sign of life.
// The file also marks the folder as one that may be emptied.
const lockName = "launcher.lock"

// errClaimed says that a live control plane has the folder.
var errClaimed = errors.New("a control plane runs in this folder")

// dirLock is the lock on a control plane's folder.
type dirLock struct {
	*os.File
}

// defaultDir is the folder of the control plane that tests of one user share.
func defaultDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("ifo-test-control-plane-%d", os.Getuid()))
}

// claimDir makes dir absolute, and the folder exist, empty but for its lock,
// which this process then holds.
func claimDir(dir *string) (*dirLock, error) {
	absolute, err := filepath.Abs(*dir)
	if err != nil {
		return nil, err
	}
	*dir = absolute
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(absolute)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(absolute)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Name() == lockName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(absolute, entry.Name())); err != nil {
			return nil, err
		}
	}
	return lock, nil
}

// lockDir locks a folder that exists, or returns errClaimed.
func lockDir(dir string) (*dirLock, error) {
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	for {
		file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			file.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s: %w", dir, errClaimed)
			}
			return nil, err
		}
		// The folder may have been removed between the two calls, and the lock
		// then is one on a file that nobody else will find.
		locked, err := file.Stat()
		if err != nil {
			return nil, err
		}
		if found, err := os.Stat(file.Name()); err == nil && os.SameFile(locked, found) {
			return &dirLock{file}, nil
		}
		file.Close()
	}
}

// checkDir refuses folders that are not ours to empty. The default folder has a
// name that others can foresee, in a place where they may write.
func checkDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(owner.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a folder of this user", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, lockName)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not empty, and its content is not that of a control plane", dir)
	}
	return nil
}

// sign writes this process's id to the lock.
func (l *dirLock) sign() error {
	if err := l.Truncate(0); err != nil {
		return err
	}
	_, err := l.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// lockHolder returns the process that has signed the lock of dir.
func lockHolder(dir string) (pid int, err error) {
	data, err := os.ReadFile(filepath.Join(dir, lockName))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
