package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// pair is a certificate and its private key, both as PEM. Keys are P-256 keys in the format PKCS
// #8: such keys are fast to create, and every TLS library accepts them.
type pair struct {
	cert, key []byte
}

// write writes the certificate and the key to two files.
func (p pair) write(certFile, keyFile string) error {
	if err := os.WriteFile(certFile, p.cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(keyFile, p.key, 0o600)
}

// authority is a certificate authority (CA) that signs certificates.
type authority struct {
	pair
	cert   *x509.Certificate
	signer *ecdsa.PrivateKey
}

func newAuthority(commonName string) (*authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	template := certificateTemplate(commonName)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{pair{encodePEM("CERTIFICATE", der), keyPEM}, cert, key}, nil
}

// client issues a client certificate that authenticates its holder as this user in these groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	template := certificateTemplate(user, groups...)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// server issues a serving certificate for these names and addresses.
func (a *authority) server(commonName string, names []string, addresses []net.IP) (pair, error) {
	template := certificateTemplate(commonName)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = names
	template.IPAddresses = addresses
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.signer)
	if err != nil {
		return pair{}, fmt.Errorf("certificate of %s: %w", template.Subject.CommonName, err)
	}
	return pair{encodePEM("CERTIFICATE", der), keyPEM}, nil
}

func certificateTemplate(commonName string, organization ...string) *x509.Certificate {
	// The certificate is valid since an hour ago, because the clock may be set back while tests run.
	// It is valid for a year, because a detached control plane may run for months.
	now := time.Now()
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // rand.Reader never fails
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName, Organization: organization},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

// newKey creates a private key and returns it as a value and as PEM.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, encodePEM("PRIVATE KEY", der), nil
}

// newSigningKey creates a key pair for service account tokens and returns both keys as PEM.
func newSigningKey() (private, public []byte, err error) {
	key, private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, err
	}
	return private, encodePEM("PUBLIC KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
