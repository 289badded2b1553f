// Command informer runs a client-go informer for one resource in all namespaces. Most controllers
// and tools such as k9s read a cluster through such an informer. Tests compare the objects in this
// informer with the objects that the server has.
//
//	informer KUBECONFIG GROUP VERSION RESOURCE
//
// The program answers each line of standard input with a line of JSON (see [report]). It ends when
// standard input ends. If the environment variable KUBE_FEATURE_WatchListClient is true, the
// informer gets the initial state as events of a watch. If the variable is false, the informer gets
// the initial state with a list.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// report describes the state of the informer. The program prints one report for each line of its
// standard input.
type report struct {
	// Synced is true if the informer has received the initial state.
	Synced bool `json:"synced"`
	// Store has the objects in the informer's store, by namespace and name.
	Store map[string]*unstructured.Unstructured `json:"store"`
	// Told has the objects that exist according to the events of the event handler, by namespace and
	// name.
	Told map[string]*unstructured.Unstructured `json:"told"`
	// Deleted has the UIDs of the objects whose deletion the event handler has received.
	Deleted []string `json:"deleted"`
	// Broken describes the events that violated a guarantee of informers.
	Broken []string `json:"broken"`
	// Requests counts the requests that the informer sent.
	Requests requests `json:"requests"`
	// Errors has the errors of the informer's lists and watches.
	Errors []string `json:"errors"`
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: informer KUBECONFIG GROUP VERSION RESOURCE")
		os.Exit(2)
	}
	resource := schema.GroupVersionResource{Group: os.Args[2], Version: os.Args[3], Resource: os.Args[4]}
	if err := run(os.Args[1], resource); err != nil {
		fmt.Fprintln(os.Stderr, "informer:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, resource schema.GroupVersionResource) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	counter := &counter{}
	config.Wrap(counter.wrap)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(resource).Informer()
	recorder := newEventRecorder()
	if _, err := informer.AddEventHandler(recorder); err != nil {
		return err
	}
	watchErrors := &watchErrors{}
	if err := informer.SetWatchErrorHandlerWithContext(watchErrors.record); err != nil {
		return err
	}
	go informer.RunWithContext(context.Background())

	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer := report{
			Synced:   informer.HasSynced(),
			Store:    map[string]*unstructured.Unstructured{},
			Requests: counter.count(),
			Errors:   watchErrors.all(),
		}
		for _, object := range informer.GetStore().List() {
			key, err := cache.MetaNamespaceKeyFunc(object)
			if err != nil {
				return err
			}
			answer.Store[key] = object.(*unstructured.Unstructured)
		}
		recorder.addTo(&answer)
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}
