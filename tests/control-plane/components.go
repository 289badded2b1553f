package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The components, by the names of their programs.
const (
	etcd                  = "etcd"
	kubeAPIServer         = "kube-apiserver"
	kubeControllerManager = "kube-controller-manager"
)

const (
	serviceRange   = "10.0.0.0/24"
	serviceAddress = "10.0.0.1" // of the Service kubernetes: the first of the range
	// The user that kube-apiserver is when it speaks for others to an
	// aggregated API server.
	frontProxyUser = "front-proxy-client"
	tokenIssuer    = "https://kubernetes.default.svc.cluster.local"
)

// component is a program of the control plane and what to tell it.
type component struct {
	name    string
	command []string // program and leading arguments
	flags   []string
	log     string                          // file
	ready   func(ctx context.Context) error // nil when it does its work now
}

// auditPolicy records who asks kube-apiserver to judge a token or an access, and
// with which result, who writes what, and what the server under test lists and
// watches. Skipping RequestReceived leaves one line for each request, when its
// answer begins or is complete.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create]
  resources:
  - group: authorization.k8s.io
    resources: [subjectaccessreviews]
  - group: authentication.k8s.io
    resources: [tokenreviews]
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
  users: [system:serviceaccount:ifo-system:ifo-apiserver]
  verbs: [list, watch]
- level: None
`

// configure makes certificates, keys and configuration files in dir and returns
// the components in the order in which they start.
func configure(dir string, audit bool) (*state, []*component, error) {
	server, etcdServer, err := reservePorts()
	if err != nil {
		return nil, nil, err
	}
	s, client, err := writeFiles(dir, server)
	if err != nil {
		return nil, nil, err
	}
	file := func(name string) string { return filepath.Join(dir, name) }

	apiServerFlags := []string{
		"--etcd-servers=" + etcdServer,
		"--bind-address=127.0.0.1",
		"--secure-port=" + s.port(),
		"--permit-port-sharing", // see reservePort
		// The default is the address of a network interface, and there may be none.
		"--advertise-address=127.0.0.1",
		// Endpoints of the Service kubernetes cannot be loopback addresses.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		// Watches, which do not end, would hold up a stop for a minute; in this
		// mode it is two seconds.
		"--shutdown-send-retry-after",
		"--cert-dir=" + dir,
		"--tls-cert-file=" + file("apiserver.crt"),
		"--tls-private-key-file=" + file("apiserver.key"),
		"--client-ca-file=" + s.ClientCA,
		"--authorization-mode=RBAC",
		"--service-account-issuer=" + tokenIssuer,
		"--service-account-key-file=" + file("service-account.pub"),
		"--service-account-signing-key-file=" + file("service-account.key"),
		// How it speaks to aggregated API servers. Without
		// --enable-aggregator-routing, as in most clusters; so an APIService
		// reaches a server on this machine by a Service of type ExternalName
		// for localhost.
		"--requestheader-client-ca-file=" + s.RequestHeaderCA,
		"--requestheader-allowed-names=" + frontProxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + s.RequestHeaderClientCertificate,
		"--proxy-client-key-file=" + s.RequestHeaderClientKey,
	}
	if audit {
		s.AuditLog = file("audit.log")
		if err := os.WriteFile(file("audit-policy.yaml"), []byte(auditPolicy), 0o600); err != nil {
			return nil, nil, err
		}
		apiServerFlags = append(apiServerFlags,
			"--audit-policy-file="+file("audit-policy.yaml"),
			"--audit-log-path="+s.AuditLog,
		)
	}

	components := []*component{
		{
			name: etcd,
			flags: []string{
				"--data-dir=" + file("etcd"),
				"--listen-client-urls=" + etcdServer,
				"--advertise-client-urls=" + etcdServer,
				// There are no peers, but there is no way not to listen.
				"--listen-peer-urls=http://127.0.0.1:0",
				"--socket-reuse-port", // see reservePort
				// Data have to survive an end of the process, not of the machine.
				"--unsafe-no-fsync",
			},
			ready: responds(http.DefaultClient, etcdServer+"/health"),
		},
		{
			name:  kubeAPIServer,
			flags: apiServerFlags,
			ready: responds(client, s.Server+"/readyz"),
		},
		{
			name: kubeControllerManager,
			flags: []string{
				"--kubeconfig=" + file("controller-manager.kubeconfig"),
				"--secure-port=0", // nobody asks it anything
				"--leader-elect=false",
				"--use-service-account-credentials",
				"--service-account-private-key-file=" + file("service-account.key"),
				"--root-ca-file=" + s.ClientCA,
				"--cluster-signing-cert-file=" + s.ClientCA,
				"--cluster-signing-key-file=" + s.ClientCAKey,
				"--service-cluster-ip-range=" + serviceRange,
				// It makes this folder, elsewhere by default.
				"--flex-volume-plugin-dir=" + file("flexvolume"),
				// The default of 20 requests a second is a good part of the
				// time that the controllers take to start.
				"--kube-api-qps=1000",
				"--kube-api-burst=1000",
			},
			// All controllers start at the same moment; this is the work of one
			// of them.
			ready: responds(client, s.Server+"/api/v1/namespaces/default/serviceaccounts/default"),
		},
	}

	// The API server packages for envtest come without a controller manager.
	var found []*component
	for _, c := range components {
		if c.command, err = componentCommand(c.name); err != nil {
			return nil, nil, err
		}
		if c.command == nil && c.name == kubeControllerManager {
			continue
		}
		if c.command == nil {
			return nil, nil, fmt.Errorf("there is no %s beside this program", c.name)
		}
		c.log = file(c.name + ".log")
		found = append(found, c)
		if c.name == kubeControllerManager {
			s.ControllerManager = true
		}
	}
	return s, found, nil
}

// reservePorts returns the URLs of kube-apiserver and etcd.
func reservePorts() (server, etcdServer string, err error) {
	serverPort, err := reservePort()
	if err != nil {
		return "", "", err
	}
	etcdPort, err := reservePort()
	if err != nil {
		return "", "", err
	}
	return fmt.Sprintf("https://127.0.0.1:%d", serverPort), fmt.Sprintf("http://127.0.0.1:%d", etcdPort), nil
}

// writeFiles makes all certificates, keys and kubeconfigs, and returns where
// they are, with an HTTP client that is an administrator.
//
// As kubeadm does, one authority signs the certificates of the API server and of
// its clients, and another one that of the front proxy: whoever has a
// certificate of the latter may name any user.
func writeFiles(dir, server string) (*state, *http.Client, error) {
	file := func(name string) string { return filepath.Join(dir, name) }
	s := &state{
		Kubeconfig:                     file("admin.kubeconfig"),
		Server:                         server,
		Dir:                            dir,
		Kubectl:                        file("kubectl"),
		RequestHeaderClientCertificate: file("front-proxy-client.crt"),
		RequestHeaderClientKey:         file("front-proxy-client.key"),
		ClientCA:                       file("ca.crt"),
		ClientCAKey:                    file("ca.key"),
		RequestHeaderCA:                file("front-proxy-ca.crt"),
		PID:                            os.Getpid(),
	}

	ca, err := newAuthority("kubernetes")
	if err != nil {
		return nil, nil, err
	}
	frontProxyCA, err := newAuthority("front-proxy-ca")
	if err != nil {
		return nil, nil, err
	}
	serving, err1 := ca.server(kubeAPIServer,
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		[]net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceAddress)})
	frontProxy, err2 := frontProxyCA.client(frontProxyUser)
	admin, err3 := ca.client("kubernetes-admin", "system:masters")
	controllerManager, err4 := ca.client("system:kube-controller-manager")
	signingKey, verifyingKey, err5 := newSigningKey()
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, nil, err
	}

	// The key of the front proxy's authority is not kept: nobody needs it.
	if err := errors.Join(
		ca.write(s.ClientCA, s.ClientCAKey),
		os.WriteFile(s.RequestHeaderCA, frontProxyCA.pair.cert, 0o600),
		serving.write(file("apiserver.crt"), file("apiserver.key")),
		frontProxy.write(s.RequestHeaderClientCertificate, s.RequestHeaderClientKey),
		os.WriteFile(file("service-account.key"), signingKey, 0o600),
		os.WriteFile(file("service-account.pub"), verifyingKey, 0o600),
		os.WriteFile(s.Kubeconfig, kubeconfig(server, ca, admin), 0o600),
		os.WriteFile(file("controller-manager.kubeconfig"), kubeconfig(server, ca, controllerManager), 0o600),
		writeKubectl(s),
	); err != nil {
		return nil, nil, err
	}

	client, err := newClient(ca, admin)
	return s, client, err
}

// newClient returns an HTTP client that trusts the authority and is the user of
// the certificate.
func newClient(ca *authority, user pair) (*http.Client, error) {
	certificate, err := tls.X509KeyPair(user.cert, user.key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
			// A connection kept open is one that a restart has to wait for.
			DisableKeepAlives: true,
		},
	}, nil
}

// responds returns a function that says whether a GET of url succeeds.
func responds(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", url, response.Status)
		}
		return nil
	}
}

// writeKubectl writes a kubectl that speaks to this control plane and no other,
// whatever KUBECONFIG says. Its cache is in the same folder, since kubectl files
// what it knows of a server under host and port: in the user's cache it would
// outlive the control plane, and mislead the next one on the same port.
func writeKubectl(s *state) error {
	command, err := componentCommand("kubectl")
	if err != nil {
		return err
	}
	if command == nil {
		s.Kubectl = ""
		return nil
	}
	for i := range command {
		command[i] = quote(command[i])
	}
	script := fmt.Sprintf("#!/bin/sh\nexport KUBECONFIG=%s KUBECACHEDIR=%s\nexec %s \"$@\"\n",
		quote(s.Kubeconfig), quote(filepath.Join(s.Dir, "kubectl-cache")), strings.Join(command, " "))
	return os.WriteFile(s.Kubectl, []byte(script), 0o700)
}

// quote quotes a word for the shell.
func quote(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
