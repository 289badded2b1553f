package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reservePort finds a free port of 127.0.0.1 and keeps it for the components of
// this launcher until the launcher ends.
//
// The launcher stays bound to the port without listening on it, with
// SO_REUSEPORT, and the component, told to share its port, binds to it as well.
// So nobody else gets the port between its choice and the start of the
// component, nor while the component restarts; and while the component is down,
// connections are refused as on any unused port.
func reservePort() (int, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, fmt.Errorf("reserving a port: %w", err)
	}
	unix.CloseOnExec(socket) // a child must not keep the port any longer
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, fmt.Errorf("reserving a port: %w", err)
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, fmt.Errorf("reserving a port: %w", err)
	}
	name, err := unix.Getsockname(socket)
	if err != nil {
		return 0, fmt.Errorf("reserving a port: %w", err)
	}
	return name.(*unix.SockaddrInet4).Port, nil
}
