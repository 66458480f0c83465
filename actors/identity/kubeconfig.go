package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
)

// load reads a kubeconfig. Files that it names (certificates, tokens) are read again when they change.
func load(path string) (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", path) }

// explained returns an error about the kubeconfig of a flag, without the file's contents.
func explained(flag, path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %s is not there; it has to hold the API server's address and this node's credentials: %w",
			flag, path,
			err)
	}
	return fmt.Errorf("%s: %s cannot be used: %w", flag, path, err)
}

// hasCertificate reports whether the credentials include a client certificate.
func hasCertificate(c *rest.Config) bool { return c.CertFile != "" || len(c.CertData) > 0 }

// good returns an error if the client certificate is unreadable or has expired. Other credentials (token, exec plugin) pass,
// as only the API server can check them.
func good(c *rest.Config, now time.Time) error {
	if !hasCertificate(c) {
		return nil
	}
	pair, err := keyPair(c)
	if err != nil {
		return err
	}
	if end := pair.Leaf.NotAfter; now.After(end) {
		return fmt.Errorf("the client certificate expired on %s", end.UTC().Format(time.RFC3339))
	}
	return nil
}

// writeKubeconfig puts a kubeconfig for the same API server at path, with the certificate and key of one file, under the names
// that the kubelet gives.
func writeKubeconfig(path string, server *rest.Config, pair string) error {
	proxy := ""
	if server.Proxy != nil { // a kubeconfig's is one for all requests
		to, err := server.Proxy(&http.Request{})
		if err != nil {
			return err
		}
		proxy = to.String()
	}
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"default-cluster": {
			Server: server.Host, CertificateAuthority: server.CAFile, CertificateAuthorityData: server.CAData,
			InsecureSkipTLSVerify: server.Insecure, TLSServerName: server.ServerName,
			ProxyURL: proxy, DisableCompression: server.DisableCompression,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"default-auth": {ClientCertificate: pair, ClientKey: pair}},
		Contexts: map[string]*clientcmdapi.Context{"default-context": {Cluster: "default-cluster",
			AuthInfo: "default-auth"}},
		CurrentContext: "default-context",
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(path, data, 0o600)
}

// keyPair is the client certificate of a kubeconfig, with its key.
func keyPair(c *rest.Config) (*tls.Certificate, error) {
	c = rest.CopyConfig(c)
	if err := rest.LoadTLSFiles(c); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(c.CertData, c.KeyData)
	return &pair, err
}
