package cluster

import (
	"context"
	"os"
	"os/exec"

	"k8s.io/client-go/tools/clientcmd"
)

// Kubectl is kubectl as an administrator, with a home of its own that is gone when the test is; it is killed when ctx ends.
func (c *Cluster) Kubectl(ctx context.Context, t TB, args ...string) *exec.Cmd {
	t.Helper()
	home, err := os.MkdirTemp(c.Dir, "kubectl")
	if err != nil {
		t.Fatalf("kubectl: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Errorf("kubectl: %v", err)
		}
	})
	if err := clientcmd.WriteToFile(kubeconfig(c.Config), home+"/config"); err != nil {
		t.Fatalf("kubectl: %v", err)
	}
	cmd := exec.CommandContext(ctx, c.parts.Kubectl, args...)
	cmd.Dir, cmd.Env = home, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "KUBECONFIG=" + home + "/config"}
	return cmd
}
