package podspec

import (
	"testing"
)

func TestValidateVolumes(t *testing.T) {
	const v = "spec.volumes[0]."
	checkWrong(t, []wrong{
		{"nameless", aPod("volumes: [{emptyDir: {}}]"), []string{v + "name: Required value"}},
		{"misnamed", aPod("volumes: [{name: a.b, emptyDir: {}}]"), []string{v + "name: Invalid value"}},
		{"two of one name", aPod("volumes: [{name: a}, {name: a}]"), []string{"spec.volumes[1].name: Duplicate value"}},
		{"two kinds", aVolume("emptyDir: {}\nhostPath: {path: /a}"), []string{v + "emptyDir: Forbidden"}},
		{"size", aVolume("emptyDir: {sizeLimit: -1, mode: 1024}"),
			[]string{v + "emptyDir.sizeLimit: Invalid value", v + "emptyDir.mode: Invalid value"}},
		{"no image", aVolume("image: {pullPolicy: Never}"), []string{v + "image.reference: Required value"}},
		{"a policy", aVolume("image: {reference: a, pullPolicy: Sometimes}"), []string{v + "image.pullPolicy: Unsupported value"}},
		{"no path", aVolume("hostPath: {path: ''}"), []string{v + "hostPath.path: Required value"}},
		{"steps back", aVolume("hostPath: {path: /a/../b}"), []string{v + "hostPath.path: Invalid value"}},
		{"kind of path", aVolume("hostPath: {path: /a, type: Pipe}"), []string{v + "hostPath.type: Unsupported value"}},
		{"config map",
			aVolume("configMap: {defaultMode: 512, items: [{key: '', path: ..a}, {key: b, path: /c, mode: -1}, {key: d, path: ''}]}"),
			[]string{v + "configMap.name: Required value", v + "configMap.defaultMode: Invalid value",
				v + "configMap.items[0].key: Required value", v + "configMap.items[0].path: Invalid value",
				v + "configMap.items[1].mode: Invalid value", v + "configMap.items[1].path: Invalid value",
				v + "configMap.items[2].path: Required value"}},
		{"secret", aVolume("secret: {defaultMode: -1, items: [{key: a, path: b/../c}]}"),
			[]string{v + "secret.secretName: Required value", v + "secret.defaultMode: Invalid value",
				v + "secret.items[0].path: Invalid value"}},
		{"downward",
			aVolume("downwardAPI: {defaultMode: 512, items: [{path: a}, {path: b, mode: 512, fieldRef: {fieldPath: spec.nodeName}}, " +
				"{path: c, resourceFieldRef: {resource: limits.cpu}}, {path: d, fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {containerName: a, resource: limits.cpu}}]}"),
			[]string{v + "downwardAPI.defaultMode: Invalid value", v + "downwardAPI.items[0]: Invalid value",
				v + "downwardAPI.items[1].mode: Invalid value", v + "downwardAPI.items[1].fieldRef.fieldPath: Unsupported value",
				v + "downwardAPI.items[2].resourceFieldRef.containerName: Required value", v +
					"downwardAPI.items[3]: Invalid value"}},
	})
	checkRight(t, map[string]string{
		"nothing said": aPod("volumes: [{name: a}]"),
		"image":        aVolume("image: {reference: a}"),
		"host path":    aVolume("hostPath: {path: a/..b, type: DirectoryOrCreate}"),
		"files":        aVolume("configMap: {name: a, defaultMode: 511, items: [{key: a, path: b/..c, mode: 0}]}"),
		"downward":     aVolume("downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.labels}}, {path: b, resourceFieldRef: {containerName: main, resource: limits.cpu}}]}"),
	})
}

func TestValidateProjectedVolumes(t *testing.T) {
	const p = "spec.volumes[0].projected."
	checkWrong(t, []wrong{
		{"mode", aVolume("projected: {defaultMode: 512}"), []string{p + "defaultMode: Invalid value"}},
		{"two kinds", aVolume("projected: {sources: [{secret: {name: a}, configMap: {}}]}"),
			[]string{p + "sources[0].configMap.name: Required value", p + "sources[0]: Forbidden"}},
		{"one file twice", aVolume("projected: {sources: [{secret: {name: a, items: [{key: a, path: f}]}}, " +
			"{downwardAPI: {items: [{path: f, fieldRef: {fieldPath: metadata.name}}]}}]}"),
			[]string{p + "sources[1].downwardAPI.items[0].path: Duplicate value"}},
	})
	checkRight(t, map[string]string{
		"all": aPod("serviceAccountName: a\nvolumes:\n- name: v\n  projected:\n    sources:\n" +
			"    - {serviceAccountToken: {path: token}}\n    - {clusterTrustBundle: {signerName: example.com/a, labelSelector: {}, path: ca}}\n" +
			"    - {podCertificate: {signerName: example.com/a, keyType: ED25519, keyPath: key, certificateChainPath: chain}}\n" +
			"    - {secret: {name: a, items: [{key: a, path: f}]}}"),
	})
}
