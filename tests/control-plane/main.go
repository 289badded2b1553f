// Command control-plane runs a real Kubernetes control plane without nodes: etcd, kube-apiserver
// and kube-controller-manager, on ports of the loopback address. With this control plane, tests
// access an aggregated API server through a kube-apiserver, as in a cluster.
//
// By default, the components are linked into this binary, in the versions that go.mod names. So a
// checkout and a Go toolchain are enough to build everything. With the build tag external, the
// binary starts the programs of KUBEBUILDER_ASSETS instead.
//
// The launcher is the process that starts the components. It starts this binary again for each
// linked component. Two components cannot share a process, because each component has process-wide
// registries of feature gates, flags and metrics.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

const usage = `Usage:
  control-plane run [--dir DIR] [--detach] [--audit]
  control-plane stop [--dir DIR]
  control-plane kubectl ARGS...

Run starts a control plane, prints its addresses and files as one line of JSON,
and ends the control plane when standard input ends, or on SIGTERM, SIGINT or
SIGHUP. Meanwhile, run reads commands from standard input and answers each with
one line of JSON:

  stop kube-apiserver      send SIGTERM, and wait until kube-apiserver has ended
  start kube-apiserver     start it again: same port, data and certificates
  restart kube-apiserver   stop, then start
  kill kube-apiserver      SIGKILL it
  quit                     end everything

  --dir DIR   keep all files in DIR, and leave them there at the end, to be
              removed by stop; default: a temporary folder, removed at the end
              (with --detach and for stop: %s)
  --detach    return when ready, and leave the control plane running until stop
  --audit     log token reviews, access reviews, all other writes, and the reads
              of ifo-apiserver
`

func main() {
	// If this binary is started through a link whose name is that of a component, such as kubectl, it
	// runs this component.
	if name := filepath.Base(os.Args[0]); isComponent(name) {
		exit(runComponent(name, os.Args[1:]))
	}
	if len(os.Args) < 2 {
		fmt.Fprintf(os.Stderr, usage, defaultDir())
		os.Exit(2)
	}
	command, args := os.Args[1], os.Args[2:]
	switch {
	case command == "run":
		exit(runMain(args))
	case command == "stop":
		exit(stopMain(args))
	case isComponent(command):
		exit(runComponent(command, args))
	case command == "help" || command == "-h" || command == "--help":
		fmt.Printf(usage, defaultDir())
	default:
		fmt.Fprintf(os.Stderr, usage, defaultDir())
		os.Exit(2)
	}
}

func runMain(args []string) error {
	flags := newFlagSet("run")
	dir := flags.String("dir", "", "")
	detach := flags.Bool("detach", false, "")
	audit := flags.Bool("audit", false, "")
	// runDetached passes --background to the process that stays in the background.
	background := flags.Bool("background", false, "")
	if err := parse(flags, args); err != nil {
		return err
	}
	// On Linux, the kernel kills a component when the thread that started the component ends, even if
	// the launcher continues (see dieWithParent). Go may end an idle thread at any time. But Go does
	// not end a thread to which a goroutine is locked. So the main goroutine, which starts all
	// components, is locked to its thread until the launcher ends.
	runtime.LockOSThread()
	switch {
	case *detach:
		return runDetached(*dir, *audit)
	case *background:
		return runBackground(*dir, *audit)
	default:
		return runForeground(*dir, *audit)
	}
}

func stopMain(args []string) error {
	flags := newFlagSet("stop")
	dir := flags.String("dir", defaultDir(), "")
	if err := parse(flags, args); err != nil {
		return err
	}
	return stopDetached(*dir)
}

func newFlagSet(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if errors.Is(err, flag.ErrHelp) {
		fmt.Printf(usage, defaultDir())
		os.Exit(0)
	}
	return err
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "control-plane:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
