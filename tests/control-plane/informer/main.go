// Command informer is an informer of client-go over one resource, in all namespaces:
// what most controllers, k9s and the like see a cluster through. Tests compare what
// it believes with what is there.
//
//	informer KUBECONFIG GROUP VERSION RESOURCE
//
// It answers each line of standard input with a line of JSON (see [belief]) and ends
// with its standard input. KUBE_FEATURE_WatchListClient says how it gets the initial
// state: true, as a stream of events; false, as a list.
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

// belief is what the informer holds for true.
type belief struct {
	// Synced says whether the initial state is there.
	Synced bool `json:"synced"`
	// Store has the informer's objects by namespace and name.
	Store map[string]*unstructured.Unstructured `json:"store"`
	// Told has the objects that a handler must believe in that knows no more than
	// what it was told.
	Told map[string]*unstructured.Unstructured `json:"told"`
	// Deleted has the uids of the objects that handlers were told the end of.
	Deleted []string `json:"deleted"`
	// Broken has the promises to handlers that were not kept.
	Broken []string `json:"broken"`
	// Requests counts what was asked of the server.
	Requests requests `json:"requests"`
	// Errors has what the reflector complained of.
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
	witness := newWitness()
	if _, err := informer.AddEventHandler(witness); err != nil {
		return err
	}
	complaints := &complaints{}
	if err := informer.SetWatchErrorHandlerWithContext(complaints.hear); err != nil {
		return err
	}
	go informer.RunWithContext(context.Background())

	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer := belief{
			Synced:   informer.HasSynced(),
			Store:    map[string]*unstructured.Unstructured{},
			Requests: counter.count(),
			Errors:   complaints.all(),
		}
		for _, object := range informer.GetStore().List() {
			key, err := cache.MetaNamespaceKeyFunc(object)
			if err != nil {
				return err
			}
			answer.Store[key] = object.(*unstructured.Unstructured)
		}
		witness.testify(&answer)
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}
