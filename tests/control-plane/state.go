package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// state says where everything of a control plane is. As one line of JSON it is
// what run prints, and the content of state.json.
type state struct {
	Kubeconfig string `json:"kubeconfig"` // of a member of system:masters, self-contained
	Server     string `json:"server"`
	Dir        string `json:"dir"`
	Kubectl    string `json:"kubectl"`  // speaks to this control plane by default
	AuditLog   string `json:"auditLog"` // empty without --audit

	ControllerManager bool `json:"controllerManager"` // there is one

	// The certificate by which kube-apiserver is known to aggregated API
	// servers: tests may speak to these as kube-apiserver does.
	RequestHeaderClientCertificate string `json:"requestHeaderClientCertificate"`
	RequestHeaderClientKey         string `json:"requestHeaderClientKey"`
	RequestHeaderCA                string `json:"requestHeaderCA"`

	// The authority of users, with its key: tests may make users. It has
	// signed the API server's certificate too.
	ClientCA    string `json:"clientCA"`
	ClientCAKey string `json:"clientCAKey"`

	PID int `json:"pid"` // of the launcher
}

func (s *state) port() string {
	server, err := url.Parse(s.Server)
	if err != nil {
		panic(err) // we have made it
	}
	return server.Port()
}

// line returns the state as a line of JSON.
func (s *state) line() []byte {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings, a number and a boolean
	}
	return append(line, '\n')
}

// stateFile is where a control plane with this folder leaves its state.
func stateFile(dir string) string {
	return filepath.Join(dir, "state.json")
}

// save writes the state to its file, whole or not at all.
func (s *state) save() error {
	path := stateFile(s.Dir)
	if err := os.WriteFile(path+".new", s.line(), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// kubeconfig returns a kubeconfig with everything in it, so that it may be
// copied elsewhere.
func kubeconfig(server string, ca *authority, user pair) []byte {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: test
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: test
  context:
    cluster: test
    user: test
current-context: test
`, server, encode(ca.pair.cert), encode(user.cert), encode(user.key))
}
