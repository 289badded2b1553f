package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// witness is an event handler that believes what it is told, and remembers what it
// should not have been told.
type witness struct {
	mutex   sync.Mutex
	told    map[string]*unstructured.Unstructured
	deleted []string
	newest  map[string]string // the highest resourceVersion of each key, dead or alive
	broken  []string
}

func newWitness() *witness {
	return &witness{told: map[string]*unstructured.Unstructured{}, newest: map[string]string{}}
}

// OnAdd implements cache.ResourceEventHandler.
func (w *witness) OnAdd(object any, _ bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	key, added := w.see("added", object)
	if _, known := w.told[key]; known {
		w.blame("%s was added twice", key)
	}
	w.told[key] = added
}

// OnUpdate implements cache.ResourceEventHandler.
func (w *witness) OnUpdate(_, object any) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	key, updated := w.see("updated", object)
	if _, known := w.told[key]; !known {
		w.blame("%s was updated and never added", key)
	}
	w.told[key] = updated
}

// OnDelete implements cache.ResourceEventHandler.
func (w *witness) OnDelete(object any) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	// The end was missed and only the absence seen: the last known state.
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	key, gone := w.see("deleted", object)
	if _, known := w.told[key]; !known {
		w.blame("%s was deleted and never added", key)
	}
	delete(w.told, key)
	w.deleted = append(w.deleted, string(gone.GetUID()))
}

// testify writes down what the handlers saw.
func (w *witness) testify(answer *belief) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	answer.Told = maps.Clone(w.told)
	answer.Deleted = slices.Clone(w.deleted)
	answer.Broken = slices.Clone(w.broken)
}

// see checks that time does not run backwards: by client-go's own comparison, the
// resourceVersion of an object never falls, nor that of another of the same name.
func (w *witness) see(what string, object any) (string, *unstructured.Unstructured) {
	seen := object.(*unstructured.Unstructured)
	key := cache.MetaObjectToName(seen).String()
	version := seen.GetResourceVersion()
	if before, known := w.newest[key]; known {
		order, err := resourceversion.CompareResourceVersion(version, before)
		if err != nil {
			w.blame("%s was %s: %v", key, what, err)
		} else if order < 0 {
			w.blame("%s was %s at %s, after it had been at %s", key, what, version, before)
		}
	}
	w.newest[key] = version
	return key, seen
}

func (w *witness) blame(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}
