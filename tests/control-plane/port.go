package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reservePort finds a free port of 127.0.0.1 and reserves it until the launcher ends.
//
// The launcher binds a socket with SO_REUSEPORT to the port, but does not listen on the socket. The
// component can bind to the same port, because its flags make it set SO_REUSEPORT, too. No other
// program can get the port before the component starts, or while the component restarts. While the
// component does not run, the kernel refuses connections, as on an unused port.
func reservePort() (int, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, fmt.Errorf("reserving a port: %w", err)
	}
	unix.CloseOnExec(socket) // otherwise a component would keep the port reserved after the launcher ends
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
