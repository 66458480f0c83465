package cri

import (
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ours leaves out what another agent made.
func ours[T interface{ GetAnnotations() map[string]string }](c *Client, all []T) []T {
	return slices.DeleteFunc(all, func(one T) bool { return c.foreignRoot(one.GetAnnotations()) != "" })
}

// foreignRoot is the root folder of the other agent that made something; empty where it is ours.
func (c *Client) foreignRoot(annotations map[string]string) string {
	if root := annotations[AnnotationRootDir]; root != "" && c.opts.Foreign != nil && c.opts.Foreign(root) {
		return root
	}
	return ""
}

// noteForeign keeps which pods are another agent's, as a list of all sandboxes says it.
func (c *Client) noteForeign(all []*runtimeapi.PodSandbox) {
	found := map[string]string{}
	for _, one := range all {
		if root := c.foreignRoot(one.GetAnnotations()); root != "" {
			found[plainUID(one.GetLabels()[LabelPodUID])] = root
		}
	}
	c.foreign.Store(&found)
}

// ForeignPod says whether a pod is another agent's, as the last list of all sandboxes said it; before the first one, all may be.
// The UID may be as systemd's cgroups write it.
func (c *Client) ForeignPod(uid string) bool {
	found := c.foreign.Load()
	return found == nil || (*found)[plainUID(uid)] != ""
}

// ForeignRoot is the root folder of the agent whose pod it is; empty where it is no other agent's, as far as is known.
func (c *Client) ForeignRoot(uid string) string {
	if found := c.foreign.Load(); found != nil {
		return (*found)[plainUID(uid)]
	}
	return ""
}

func plainUID(uid string) string { return strings.ReplaceAll(uid, "_", "-") }
