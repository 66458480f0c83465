package cri

import (
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ours removes the objects of other agents.
func ours[T interface{ GetAnnotations() map[string]string }](c *Client, all []T) []T {
	return slices.DeleteFunc(all, func(one T) bool { return c.foreignRoot(one.GetAnnotations()) != "" })
}

// foreignRoot returns the root folder of the other agent that made an object, or "" if it is ours.
func (c *Client) foreignRoot(annotations map[string]string) string {
	if root := annotations[AnnotationRootDir]; root != "" && c.opts.Foreign != nil && c.opts.Foreign(root) {
		return root
	}
	return ""
}

// noteForeign records the pods of other agents from a list of all sandboxes.
func (c *Client) noteForeign(all []*runtimeapi.PodSandbox) {
	found := map[string]string{}
	for _, one := range all {
		if root := c.foreignRoot(one.GetAnnotations()); root != "" {
			found[plainUID(one.GetLabels()[LabelPodUID])] = root
		}
	}
	c.foreign.Store(&found)
}

// ForeignPod reports whether a pod belongs to another agent, according to the last list of all sandboxes. Before the first list
// it returns true for every pod. The UID may be in the form of systemd's cgroups.
func (c *Client) ForeignPod(uid string) bool {
	found := c.foreign.Load()
	return found == nil || (*found)[plainUID(uid)] != ""
}

// ForeignRoot returns the root folder of the other agent that the pod belongs to, or "" if none is known.
func (c *Client) ForeignRoot(uid string) string {
	if found := c.foreign.Load(); found != nil {
		return (*found)[plainUID(uid)]
	}
	return ""
}

func plainUID(uid string) string { return strings.ReplaceAll(uid, "_", "-") }
