//go:build !external

package main

import (
	"os"
	_ "time/tzdata" // for the time zones of CronJobs; the released controller manager has it, too

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// embedded has the main function of each component that is linked into this binary. These are the
// main functions of the released programs, which read the same flags from os.Args. So the launcher
// starts an embedded component in the same way as an external program.
var embedded = map[string]func(){
	etcd: func() {
		etcdmain.Main(os.Args)
	},
	kubeAPIServer: func() {
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	},
	kubeControllerManager: func() {
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	},
	"kubectl": func() {
		// kubectl reads files and looks for plugins before it parses its flags. The verbosity (-v) is set
		// before these steps, so that kubectl logs these steps, too. The main function of the released
		// kubectl does the same.
		_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
}

// isComponent returns true if this binary contains the component with this name.
func isComponent(name string) bool {
	return embedded[name] != nil
}

// runComponent runs the main function of the component with this name in this process.
func runComponent(name string, args []string) error {
	dieWithLifeline()
	os.Args = append([]string{name}, args...)
	embedded[name]()
	return nil
}

// componentCommand returns the command that runs the component with this name: this binary, with
// the name as the first argument.
func componentCommand(name string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []string{self, name}, nil
}
