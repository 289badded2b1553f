package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// state has the addresses and files of a control plane. The command run prints the state as one
// line of JSON. The file state.json has the same content.
type state struct {
	Kubeconfig string `json:"kubeconfig"` // for a member of system:masters; refers to no other file
	Server     string `json:"server"`
	Dir        string `json:"dir"`
	Kubectl    string `json:"kubectl"`  // always uses Kubeconfig
	AuditLog   string `json:"auditLog"` // empty without --audit

	ControllerManager bool `json:"controllerManager"` // true if a controller manager runs

	// The certificate of the front proxy, with which kube-apiserver authenticates to aggregated API
	// servers. With this certificate, tests can send the same requests to an aggregated API server as
	// kube-apiserver.
	RequestHeaderClientCertificate string `json:"requestHeaderClientCertificate"`
	RequestHeaderClientKey         string `json:"requestHeaderClientKey"`
	RequestHeaderCA                string `json:"requestHeaderCA"`

	// The CA for client certificates, with its key, so that tests can create users. The same CA
	// has signed the serving certificate of kube-apiserver.
	ClientCA    string `json:"clientCA"`
	ClientCAKey string `json:"clientCAKey"`

	PID int `json:"pid"` // process id of the launcher
}

func (s *state) port() string {
	server, err := url.Parse(s.Server)
	if err != nil {
		panic(err) // cannot happen: reservePorts made the URL
	}
	return server.Port()
}

// line returns the state as a line of JSON.
func (s *state) line() []byte {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err) // cannot happen: the fields are strings, a number and a boolean
	}
	return append(line, '\n')
}

// stateFile returns the path of the state file of the control plane in dir.
func stateFile(dir string) string {
	return filepath.Join(dir, "state.json")
}

// save writes the state file atomically.
func (s *state) save() error {
	path := stateFile(s.Dir)
	if err := os.WriteFile(path+".new", s.line(), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// kubeconfig returns a kubeconfig that contains the certificates and the key, so that the file can
// be copied to another place.
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
