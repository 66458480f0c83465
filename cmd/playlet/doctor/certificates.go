package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"time"

	"k8s.io/client-go/util/cert"
)

// expirySoon is the remaining life of a certificate below which it is a warning.
const expirySoon = 7 * 24 * time.Hour

// checkCertificates reads the certificates that the configuration names: the serving one of port 10250, and the authorities of
// its clients. The agent does not start without them.
func checkCertificates(_ context.Context, m *Machine) (found []Finding) {
	now, _ := m.System.Clocks()
	if chain, key := m.Node.Kubelet.TLSCertFile, m.Node.Kubelet.TLSPrivateKeyFile; chain != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(chain, key)
		if err != nil {
			found = append(found, fail("correct the files; the agent does not start with them",
				"the serving certificate %s (tlsCertFile) and its key %s (tlsPrivateKeyFile) cannot be used: %v",
				chain, key, err)...)
		} else {
			found = append(found, life("tlsCertFile", chain, pair.Leaf, now)...)
		}
	}
	if path := m.Node.Kubelet.Authentication.X509.ClientCAFile; path != "" {
		authorities, err := cert.CertsFromFile(path)
		if err != nil {
			found = append(found, fail("correct the file; the agent does not start with it",
				"authentication.x509.clientCAFile: %s cannot be used: %v", path, err)...)
		}
		for _, c := range authorities {
			found = append(found, life("authentication.x509.clientCAFile", path, c, now)...)
		}
	}
	return or(found, ok("certificates that the configuration names are usable"))
}

// life returns a finding about a certificate that is not valid now, or not for long.
func life(setting, path string, c *x509.Certificate, now time.Time) []Finding {
	const do = "replace the certificate; the agent follows the file"
	switch left := c.NotAfter.Sub(now); {
	case left <= 0:
		return fail(do, "%s: %s expired on %s", setting, path, c.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fail(do, "%s: %s is not valid before %s", setting, path, c.NotBefore.UTC().Format(time.RFC3339))
	case left < expirySoon:
		return warn(do, "%s: %s expires on %s", setting, path, c.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
