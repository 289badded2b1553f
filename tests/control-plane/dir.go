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

// lockName is the name of the lock file in the folder of a control plane. The launcher (the process
// that starts the components) locks the file, and writes its own process id to the file. The kernel
// releases the lock when the launcher ends, even if the launcher is killed. So the lock shows
// whether the launcher runs. The process id does not show this, because it stays in the file until
// another process locks the file. The file also marks the folder as the folder of a control plane,
// so that the next launcher may empty the folder.
const lockName = "launcher.lock"

// errClaimed is the error for a folder that another process has locked. That process is a launcher,
// or the command stop.
var errClaimed = errors.New("another process uses this folder")

// dirLock is the locked file of a control plane's folder.
type dirLock struct {
	*os.File
}

// defaultDir returns the folder of the control plane that all tests of one user share.
func defaultDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("ifo-test-control-plane-%d", os.Getuid()))
}

// claimDir makes dir absolute, creates and locks the folder, and removes everything in the folder
// but the lock file. If a control plane runs in the folder, claimDir removes nothing and returns
// errClaimed.
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

// lockDir locks an existing folder. If another process has locked it, lockDir returns errClaimed.
// lockDir also removes the process id of the previous launcher from the lock file, so that no
// process sends a signal to this id.
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
		// Another process may have removed the folder between OpenFile and Flock. Then this process has
		// locked a deleted file, and the loop tries again.
		locked, err := file.Stat()
		if err != nil {
			return nil, err
		}
		if found, err := os.Stat(file.Name()); err == nil && os.SameFile(locked, found) {
			if err := file.Truncate(0); err != nil {
				file.Close()
				return nil, err
			}
			return &dirLock{file}, nil
		}
		file.Close()
	}
}

// checkDir returns an error if the folder must not be emptied. There are three cases: dir is not a
// folder (for example, dir is a link), the folder belongs to another user, or the folder has files
// but no lock file. The owner is checked because another user can guess the path of the default
// folder, and can create a folder with this path.
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

// sign writes the id of this process to the lock file.
func (l *dirLock) sign() error {
	if err := l.Truncate(0); err != nil {
		return err
	}
	_, err := l.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// lockHolder returns the process id that is in the lock file of dir.
func lockHolder(dir string) (pid int, err error) {
	data, err := os.ReadFile(filepath.Join(dir, lockName))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
