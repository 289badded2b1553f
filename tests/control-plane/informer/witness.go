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

// eventRecorder is an event handler of an informer. It keeps the objects that exist according to
// its events. It also records each event that violates a guarantee of informers.
type eventRecorder struct {
	mutex sync.Mutex
	// objects has the objects that exist after all events so far, by namespace and name.
	objects map[string]*unstructured.Unstructured
	// deleted has the UIDs of the deleted objects.
	deleted []string
	// latestVersion has the resourceVersion of the last event, by namespace and name. Entries of
	// deleted objects are kept.
	latestVersion map[string]string
	// violations has one text for each guarantee that an event violated.
	violations []string
}

func newEventRecorder() *eventRecorder {
	return &eventRecorder{objects: map[string]*unstructured.Unstructured{}, latestVersion: map[string]string{}}
}

// OnAdd implements cache.ResourceEventHandler.
func (r *eventRecorder) OnAdd(object any, _ bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	key, added := r.checkVersion("added", object)
	if _, known := r.objects[key]; known {
		r.addViolation("%s was added twice", key)
	}
	r.objects[key] = added
}

// OnUpdate implements cache.ResourceEventHandler.
func (r *eventRecorder) OnUpdate(_, object any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	key, updated := r.checkVersion("updated", object)
	if _, known := r.objects[key]; !known {
		r.addViolation("%s was updated and never added", key)
	}
	r.objects[key] = updated
}

// OnDelete implements cache.ResourceEventHandler.
func (r *eventRecorder) OnDelete(object any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	// A DeletedFinalStateUnknown means that the informer missed the DELETED event. When the informer
	// read all objects again, the object was gone. Then the event contains the last state that the
	// informer knows.
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	key, deleted := r.checkVersion("deleted", object)
	if _, known := r.objects[key]; !known {
		r.addViolation("%s was deleted and never added", key)
	}
	delete(r.objects, key)
	r.deleted = append(r.deleted, string(deleted.GetUID()))
}

// addTo copies the recorded objects, deletions and violations to the report.
func (r *eventRecorder) addTo(answer *report) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	answer.Told = maps.Clone(r.objects)
	answer.Deleted = slices.Clone(r.deleted)
	answer.Broken = slices.Clone(r.violations)
}

// checkVersion records a violation if the resourceVersion of the object is lower than the
// resourceVersion of the last event with the same namespace and name, or cannot be compared with
// it. The resourceVersion must not decrease, even if the object was deleted and created again. A
// function of Kubernetes' module apimachinery compares the versions. checkVersion returns the key
// (namespace and name) and the object.
func (r *eventRecorder) checkVersion(what string, object any) (string, *unstructured.Unstructured) {
	typed := object.(*unstructured.Unstructured)
	key := cache.MetaObjectToName(typed).String()
	version := typed.GetResourceVersion()
	if before, known := r.latestVersion[key]; known {
		order, err := resourceversion.CompareResourceVersion(version, before)
		if err != nil {
			r.addViolation("%s was %s: %v", key, what, err)
		} else if order < 0 {
			r.addViolation("%s was %s at %s, after it had been at %s", key, what, version, before)
		}
	}
	r.latestVersion[key] = version
	return key, typed
}

func (r *eventRecorder) addViolation(format string, args ...any) {
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}
