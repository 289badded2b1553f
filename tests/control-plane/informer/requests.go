package main

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// requests counts what an informer asks of a server.
type requests struct {
	List int `json:"list"`
	// Watch has the watches that go on from a list or from another watch.
	Watch int `json:"watch"`
	// Stream has the watches that begin with the whole state.
	Stream int `json:"stream"`
}

// counter counts requests on their way.
type counter struct {
	mutex sync.Mutex
	so    requests
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
			c.so.List++
		case query.Get("sendInitialEvents") == "true":
			c.so.Stream++
		default:
			c.so.Watch++
		}
		c.mutex.Unlock()
		return next.RoundTrip(request)
	})
}

func (c *counter) count() requests {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.so
}

// complaints collects what the reflector says when something goes wrong.
type complaints struct {
	mutex sync.Mutex
	texts []string
}

// hear is a cache.WatchErrorHandlerWithContext.
func (c *complaints) hear(ctx context.Context, reflector *cache.Reflector, err error) {
	c.mutex.Lock()
	c.texts = append(c.texts, err.Error())
	c.mutex.Unlock()
	cache.DefaultWatchErrorHandler(ctx, reflector, err)
}

func (c *complaints) all() []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return slices.Clone(c.texts)
}
