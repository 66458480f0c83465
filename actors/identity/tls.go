package identity

import (
	"crypto/tls"
	"crypto/x509"

	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// TLS is the configuration of a listener with this certificate. Clients are asked for a certificate, and connected whatever they
// show: it is verified request by request (package access). clientCAs are named to them, as they are at the time; nil: none. The
// error names the field.
//
// There is no HTTP/2: with one request at a time on a connection, a limit of connections is one of requests, too, and streams
// need HTTP/1.1 anyway.
func (s *ServingCertificate) TLS(k *kubeletconfig.KubeletConfiguration, clientCAs func() *x509.CertPool) (*tls.Config, error) {
	out := &tls.Config{
		ClientAuth: tls.RequestClientCert, GetCertificate: s.certificate, NextProtos: []string{"http/1.1"},
	}
	var err error
	if out.MinVersion, err = cliflag.TLSVersion(k.TLSMinVersion); err != nil {
		return nil, err
	}
	if out.CipherSuites, err = cliflag.TLSCipherSuites(k.TLSCipherSuites); err != nil {
		return nil, err
	}
	if out.CurvePreferences, err = cliflag.TLSCurvePreferences(k.TLSCurvePreferences); err != nil {
		return nil, err
	}
	plain := out.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := plain.Clone()
		c.ClientCAs = clientCAs()
		return c, nil
	}
	return out, nil
}
