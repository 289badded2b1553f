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

// The names of the components are the names of their programs.
const (
	etcd                  = "etcd"
	kubeAPIServer         = "kube-apiserver"
	kubeControllerManager = "kube-controller-manager"
)

const (
	serviceRange   = "10.0.0.0/24"
	serviceAddress = "10.0.0.1" // of the Service kubernetes: the first address of the range
	// frontProxyUser is the common name in the client certificate that kube-apiserver uses when it
	// forwards requests to an aggregated API server.
	frontProxyUser = "front-proxy-client"
	tokenIssuer    = "https://kubernetes.default.svc.cluster.local"
)

// component is a program of the control plane, with its flags and its readiness check.
type component struct {
	name    string
	command []string // program and leading arguments
	flags   []string
	log     string                          // path of the log file
	ready   func(ctx context.Context) error // returns nil when the component is ready
}

// auditPolicy makes kube-apiserver log three kinds of requests: token and access reviews with their
// results, all other writes, and the reads of ifo-apiserver, the server under test. The stage
// RequestReceived is omitted: otherwise, a request would have one more line, which is written
// before the request is answered.
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
  verbs: [get, list, watch]
- level: None
`

// configure creates certificates, keys and configuration files in dir. It returns the addresses and
// files of the control plane (see state), and the components in the order in which they must start.
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
		// By default, kube-apiserver advertises the address of a network interface. But the machine may
		// have no network interface except loopback, so the address is set.
		"--advertise-address=127.0.0.1",
		// Endpoints of the Service kubernetes must not be loopback addresses, so the Service has none.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		// By default, kube-apiserver waits up to a minute for open watches before it stops. With this
		// flag, it waits at most two seconds.
		"--shutdown-send-retry-after",
		"--cert-dir=" + dir,
		"--tls-cert-file=" + file("apiserver.crt"),
		"--tls-private-key-file=" + file("apiserver.key"),
		"--client-ca-file=" + s.ClientCA,
		"--authorization-mode=RBAC",
		// OpenShift enables this admission plugin, so the tests enable it, too. With this plugin, a user
		// who changes the owners of an object needs the right to delete the object.
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
		"--service-account-issuer=" + tokenIssuer,
		"--service-account-key-file=" + file("service-account.pub"),
		"--service-account-signing-key-file=" + file("service-account.key"),
		// The following flags configure requests to aggregated API servers. As in most clusters,
		// --enable-aggregator-routing is not set. So an APIService can reach a server on this
		// machine through a Service of type ExternalName for localhost.
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
			// The tests read all requests of the whole run, so the log must not be rotated.
			"--audit-log-maxsize=4096",
		)
	}

	components := []*component{
		{
			name: etcd,
			flags: []string{
				"--data-dir=" + file("etcd"),
				"--listen-client-urls=" + etcdServer,
				"--advertise-client-urls=" + etcdServer,
				// etcd always listens for other etcd processes, even if there are none.
				"--listen-peer-urls=http://127.0.0.1:0",
				"--socket-reuse-port", // see reservePort
				// etcd does not need to flush its data to the disk, because no test uses the data after a crash
				// of the machine.
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
				"--secure-port=0", // no test sends a request to the controller manager
				"--leader-elect=false",
				"--use-service-account-credentials",
				"--service-account-private-key-file=" + file("service-account.key"),
				"--root-ca-file=" + s.ClientCA,
				"--cluster-signing-cert-file=" + s.ClientCA,
				"--cluster-signing-key-file=" + s.ClientCAKey,
				"--service-cluster-ip-range=" + serviceRange,
				// The controller manager creates this folder. By default it is outside of dir.
				"--flex-volume-plugin-dir=" + file("flexvolume"),
				// The default limit of 20 requests per second makes the start of the controllers
				// noticeably slower.
				"--kube-api-qps=1000",
				"--kube-api-burst=1000",
			},
			// The service account controller creates this service account. All controllers start at the same
			// moment. So when the service account exists, the other controllers run, too.
			ready: responds(client, s.Server+"/api/v1/namespaces/default/serviceaccounts/default"),
		},
	}

	// The packages for envtest have no kube-controller-manager, so it is optional.
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

// reservePorts reserves a port for kube-apiserver and one for etcd, and returns their URLs.
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

// writeFiles creates all certificates, keys and kubeconfigs. It returns the state, which has the
// paths of these files, and an HTTP client that authenticates as an administrator.
//
// There are two CAs, as with kubeadm. The first CA signs the certificates of kube-apiserver and of
// its clients. The second CA signs only the certificate of the front proxy. The second CA is
// separate, because a client with the certificate of the front proxy can claim to be any user.
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

	// The key of the front proxy's CA is not written, because this CA issues no further certificate.
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

// newClient returns an HTTP client that trusts the CA and authenticates with the certificate of the
// user.
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
			// Without this setting, a restart of kube-apiserver would have to wait for the idle connections
			// of this client.
			DisableKeepAlives: true,
		},
	}, nil
}

// responds returns a function that sends a GET request for url. The function returns nil if the
// status of the answer is 200, and otherwise an error.
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

// writeKubectl writes a script that runs kubectl with the kubeconfig of this control plane. The
// script ignores the caller's KUBECONFIG. If there is no kubectl, writeKubectl writes no script and
// sets s.Kubectl to "".
//
// The script sets a cache folder for kubectl in the folder of the control plane, because kubectl
// caches discovery by host and port. In the user's cache, the entries would remain after the end of
// this control plane, and kubectl would use them for the next control plane with the same port.
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

// quote returns the word in quotes for the shell.
func quote(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
