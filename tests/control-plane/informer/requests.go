package main

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// requests has the numbers of requests that an informer sent, by type.
type requests struct {
	// List counts the lists.
	List int `json:"list"`
	// Watch counts the watches that continue from the resourceVersion of a list or of another watch.
	Watch int `json:"watch"`
	// Stream counts the watches that begin with the initial state (sendInitialEvents=true).
	Stream int `json:"stream"`
}

// counter counts the requests of the HTTP transports that it wraps.
type counter struct {
	mutex  sync.Mutex
	counts requests
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	return f(request)
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		c.mutex.Lock()
		switch query := request.URL.Query(); {
		case !query.Has("watch"):
			c.counts.List++
		case query.Get("sendInitialEvents") == "true":
			c.counts.Stream++
		default:
			c.counts.Watch++
		}
		c.mutex.Unlock()
		return next.RoundTrip(request)
	})
}

func (c *counter) count() requests {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.counts
}

// watchErrors collects the errors of lists and watches. The reflector, which lists and watches for
// the informer, reports these errors.
type watchErrors struct {
	mutex sync.Mutex
	texts []string
}

// record stores the error and calls the default handler. Its signature is that of a
// cache.WatchErrorHandlerWithContext.
func (e *watchErrors) record(ctx context.Context, reflector *cache.Reflector, err error) {
	e.mutex.Lock()
	e.texts = append(e.texts, err.Error())
	e.mutex.Unlock()
	cache.DefaultWatchErrorHandler(ctx, reflector, err)
}

func (e *watchErrors) all() []string {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return slices.Clone(e.texts)
}
