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
		{"what lies on the node", aPod("volumes: [{name: a}, {name: b, hostPath: {path: /b}}, {name: c, nfs: {server: s, path: /p}}, " +
			"{name: d, downwardAPI: {}}, {name: e, image: {reference: i}}, {name: f, iscsi: {targetPortal: a, iqn: b, lun: 1}}]"), []string{}},
		{"service account", aPod("serviceAccountName: a"), []string{"spec.serviceAccountName: Forbidden"}},
		{"service account by its old name", aPod("serviceAccount: a"), []string{"spec.serviceAccountName: Forbidden"}},
		{"claims and pull secrets", aPod("resourceClaims: [{name: a, resourceClaimName: b}]\nimagePullSecrets: [{name: a}]"),
			[]string{"spec.resourceClaims: Forbidden", "spec.imagePullSecrets: Forbidden"}},
		{"ephemeral container", aPod("ephemeralContainers: [{name: a, image: b, envFrom: [{secretRef: {name: c}}]}]"),
			[]string{"spec.ephemeralContainers[0].envFrom[0].secretRef: Forbidden", "spec.ephemeralContainers: Forbidden"}},
		{"environment", anInitContainer("envFrom: [{configMapRef: {name: a}}, {secretRef: {name: b}}]\nenv:\n" +
			"- {name: a, value: b}\n- {name: c, valueFrom: {configMapKeyRef: {name: d, key: e}}}\n- {name: f, valueFrom: {secretKeyRef: {name: g, key: h}}}"),
			[]string{"spec.initContainers[0].envFrom[0].configMapRef: Forbidden", "spec.initContainers[0].envFrom[1].secretRef: Forbidden",
				"spec.initContainers[0].env[1].valueFrom.configMapKeyRef: Forbidden",
				"spec.initContainers[0].env[2].valueFrom.secretKeyRef: Forbidden"}},
		{"projected", aVolume("projected: {sources: [{configMap: {name: a}}, {secret: {name: a}}, {serviceAccountToken: {path: a}}, " +
			"{clusterTrustBundle: {name: a, path: b}}, {podCertificate: {keyPath: a}}, {downwardAPI: {}}]}"),
			[]string{sources + "[0].configMap: Forbidden", sources + "[1].secret: Forbidden", sources + "[2].serviceAccountToken: Forbidden",
				sources + "[3].clusterTrustBundle: Forbidden", sources + "[4].podCertificate: Forbidden"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podFrom(t, test.manifest)
			Default(pod)
			if got := kinds(ValidateStatic(pod, false)); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestValidateStaticOfANodeWithObjects(t *testing.T) {
	pod := podFrom(t, aPod("imagePullSecrets: [{name: a}]"))
	if got := kinds(append(ValidateStatic(pod, true), Unsupported(pod)...)); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

func TestValidateStaticRefusesVolumesOfTheAPI(t *testing.T) {
	for kind, source := range map[string]string{
		"configMap": "{name: a}", "secret": "{secretName: a}", "csi": "{driver: a}", "glusterfs": "{endpoints: a, path: b}",
		"persistentVolumeClaim": "{claimName: a}", "ephemeral": "{volumeClaimTemplate: {}}",
		"azureFile": "{secretName: a, shareName: b}",
	} {
		pod := podFrom(t, aVolume(kind+": "+source))
		if got, want := kinds(ValidateStatic(pod, false)), "spec.volumes[0]."+kind+": Forbidden"; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %v, want %s", kind, got, want)
		}
	}
	for kind, source := range map[string]string{
		"iscsi": "targetPortal: a, iqn: b, lun: 0", "rbd": "monitors: [a], image: b", "cephfs": "monitors: [a]",
		"cinder": "volumeID: a", "flexVolume": "driver: a", "scaleIO": "gateway: a, system: b", "storageos": "volumeName: a",
	} {
		pod := podFrom(t, aVolume(kind+": {secretRef: {name: s}, "+source+"}"))
		if got, want := kinds(ValidateStatic(pod, false)), "spec.volumes[0]."+kind+".secretRef: Forbidden"; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %v, want %s", kind, got, want)
		}
	}
}
