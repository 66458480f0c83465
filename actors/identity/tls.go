package identity

import (
	"crypto/tls"
	"crypto/x509"

	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// TLS is the configuration of a listener with this certificate, for HTTP/2 and HTTP/1.1. Clients are asked for a certificate, and
// connected whatever they show: it is verified request by request (package access). clientCAs are named to them, as they are at
// the time; nil: none. The error names the field.
func (s *Serving) TLS(k *kubeletconfig.KubeletConfiguration, clientCAs func() *x509.CertPool) (*tls.Config, error) {
	out := &tls.Config{
		ClientAuth: tls.RequestClientCert, GetCertificate: s.certificate, NextProtos: []string{"h2", "http/1.1"},
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
	if !http2(out) {
		out.NextProtos = []string{"http/1.1"}
	}
	plain := out.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := plain.Clone()
		c.ClientCAs = clientCAs()
		return c, nil
	}
	return out, nil
}

// http2 says whether HTTP/2 can be had: with TLS 1.2, RFC 9113 (9.2.2) wants one of these cipher suites.
func http2(c *tls.Config) bool {
	if c.MinVersion >= tls.VersionTLS13 || c.CipherSuites == nil {
		return true
	}
	for _, suite := range c.CipherSuites {
		if suite == tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 || suite == tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 {
			return true
		}
	}
	return false
}
