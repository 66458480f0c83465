package agent

import (
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// unreachable is the path of a kubeconfig that leads to an API server which is not there.
func unreachable(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: "http://127.0.0.1:1"}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {}},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, path); err != nil {
		t.Fatal(err)
	}
	return path
}
