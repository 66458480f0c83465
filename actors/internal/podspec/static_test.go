package podspec

import (
	"slices"
	"testing"
)

func TestValidateStatic(t *testing.T) {
	const sources = "spec.volumes[0].projected.sources"
	for _, test := range []struct {
		name, manifest string
		want           []string
	}{
		{"nothing", aContainer("env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"), []string{}},
		{"what lies on the node",
			aPod("volumes: [{name: a}, {name: b, hostPath: {path: /b}}, {name: c, nfs: {server: s, path: /p}}, " +
				"{name: d, downwardAPI: {}}, {name: e, image: {reference: i}}, {name: f, iscsi: {targetPortal: a, iqn: b, lun: 1}}]"),
			[]string{}},
		{"service account", aPod("serviceAccountName: a"), []string{"spec.serviceAccountName: Forbidden"}},
		{"service account by its old name", aPod("serviceAccount: a"), []string{"spec.serviceAccountName: Forbidden"}},
		{"claims and pull secrets", aPod("resourceClaims: [{name: a, resourceClaimName: b}]\nimagePullSecrets: [{name: a}]"),
			[]string{"spec.resourceClaims: Forbidden", "spec.imagePullSecrets: Forbidden"}},
		{"ephemeral container", aPod("ephemeralContainers: [{name: a, image: b, envFrom: [{secretRef: {name: c}}]}]"),
			[]string{"spec.ephemeralContainers[0].envFrom[0].secretRef: Forbidden", "spec.ephemeralContainers: Forbidden"}},
		{"scheduling gates", aPod("schedulingGates: [{name: a}]"), []string{"spec.schedulingGates: Forbidden"}},
		{"runtime class", aPod("runtimeClassName: a"), []string{"spec.runtimeClassName: Forbidden"}},
		{"environment", anInitContainer("envFrom: [{configMapRef: {name: a}}, {secretRef: {name: b}}]\nenv:\n" +
			"- {name: a, value: b}\n- {name: c, valueFrom: {configMapKeyRef: {name: d, key: e}}}\n- {name: f, valueFrom: {secretKeyRef: {name: g, key: h}}}"),
			[]string{"spec.initContainers[0].envFrom[0].configMapRef: Forbidden",
				"spec.initContainers[0].envFrom[1].secretRef: Forbidden",
				"spec.initContainers[0].env[1].valueFrom.configMapKeyRef: Forbidden",
				"spec.initContainers[0].env[2].valueFrom.secretKeyRef: Forbidden"}},
		{"projected",
			aVolume("projected: {sources: [{configMap: {name: a}}, {secret: {name: a}}, {serviceAccountToken: {path: a}}, " +
				"{clusterTrustBundle: {name: a, path: b}}, {podCertificate: {keyPath: a}}, {downwardAPI: {}}]}"),
			[]string{sources + "[0].configMap: Forbidden", sources + "[1].secret: Forbidden", sources +
				"[2].serviceAccountToken: Forbidden",
				sources + "[3].clusterTrustBundle: Forbidden", sources + "[4].podCertificate: Forbidden"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podFrom(t, test.manifest)
			Default(pod)
			if got := kinds(ValidateStatic(pod, ObjectSources{})); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestValidateStaticOfANodeWithObjects(t *testing.T) {
	pod := podFrom(t, aPod("imagePullSecrets: [{name: a}]"))
	if got := kinds(append(ValidateStatic(pod, ObjectSources{Objects: true}), Unsupported(pod)...)); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// A RuntimeClass comes from the folder or the API server; no other object of the API is available to a static pod.
func TestValidateStaticOfARuntimeClass(t *testing.T) {
	pod := podFrom(t, aPod("runtimeClassName: a\noverhead: {cpu: 1m}\nimagePullSecrets: [{name: a}]"))
	for has, want := range map[ObjectSources][]string{
		{}:                             {"spec.runtimeClassName: Forbidden", "spec.imagePullSecrets: Forbidden"},
		{Objects: true}:                {},
		{Cluster: true}:                {"spec.imagePullSecrets: Forbidden"},
		{Objects: true, Cluster: true}: {},
	} {
		if got := kinds(append(ValidateStatic(pod, has), Unsupported(pod)...)); !slices.Equal(got, want) {
			t.Errorf("%+v: got %v, want %v", has, got, want)
		}
	}
}

func TestValidateStaticRefusesVolumesOfTheAPI(t *testing.T) {
	for kind, source := range map[string]string{
		"configMap": "{name: a}", "secret": "{secretName: a}", "csi": "{driver: a}", "vsphereVolume": "{volumePath: a}",
		"persistentVolumeClaim": "{claimName: a}", "ephemeral": "{volumeClaimTemplate: {}}",
	} {
		pod := podFrom(t, aVolume(kind+": "+source))
		if got, want := kinds(ValidateStatic(pod, ObjectSources{})),
			"spec.volumes[0]."+kind+": Forbidden"; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %v, want %s", kind, got, want)
		}
	}
}

// The reason of a rejection must fit the node: a node in a cluster has an API server.
func TestValidateStatic_ReasonInCluster(t *testing.T) {
	pod := podFrom(t, aPod("serviceAccountName: a"))
	for has, want := range map[ObjectSources]string{
		{}: "a static pod cannot refer to service accounts: there is no API server to ask",
		{Cluster: true}: "a static pod cannot refer to service accounts: only a pod of the API server can, as its author's rights are " +
			"checked there",
	} {
		if got := ValidateStatic(pod, has); len(got) != 1 || got[0].Detail != want {
			t.Errorf("%+v: got %v, want %q", has, got, want)
		}
	}
}

// Volumes are relabelled recursively under both policies.
func TestUnsupported_SELinuxChangePolicy(t *testing.T) {
	for policy, refused := range map[string]bool{"Recursive": false, "MountOption": false, "Other": true} {
		pod := podFrom(t, aPod("securityContext: {seLinuxChangePolicy: "+policy+"}"))
		if got := Unsupported(pod); len(got) > 0 != refused {
			t.Errorf("%s: got %v, want a refusal: %v", policy, got, refused)
		}
	}
}
