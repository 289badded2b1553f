//go:build !external

package main

import (
	"os"
	_ "time/tzdata" // time zones of CronJobs, as in the released controller manager

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// embedded holds the main functions of the components. They are the ones of the
// released programs and take the same flags from os.Args, so the launcher does
// not need to know whether it starts one of these or an external program.
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
		// kubectl reads files and plugins before its flags are parsed, and
		// wants -v to hold for that too.
		_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
}

// isComponent says whether name is a component that this binary can be.
func isComponent(name string) bool {
	return embedded[name] != nil
}

// runComponent makes this process the named component.
func runComponent(name string, args []string) error {
	dieWithLifeline()
	os.Args = append([]string{name}, args...)
	embedded[name]()
	return nil
}

// componentCommand returns the program that is the named component, with its
// leading arguments, or nil when there is none.
func componentCommand(name string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []string{self, name}, nil
}
