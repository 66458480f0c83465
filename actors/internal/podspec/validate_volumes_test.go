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
		{"no path", aVolume("hostPath: {path: ''}"), []string{v + "hostPath.path: Required value"}},
		{"steps back", aVolume("hostPath: {path: /a/../b}"), []string{v + "hostPath.path: Invalid value"}},
		{"kind of path", aVolume("hostPath: {path: /a, type: Pipe}"), []string{v + "hostPath.type: Unsupported value"}},
		{"image", aVolume("image: {pullPolicy: Often}"),
			[]string{v + "image.reference: Required value", v + "image.pullPolicy: Unsupported value"}},
		{"git", aVolume("gitRepo: {directory: ../a}"),
			[]string{v + "gitRepo.repository: Required value", v + "gitRepo.directory: Invalid value"}},
		{"config map", aVolume("configMap: {defaultMode: 512, items: [{key: '', path: ..a}, {key: b, path: /c, mode: -1}, {key: d, path: ''}]}"),
			[]string{v + "configMap.name: Required value", v + "configMap.defaultMode: Invalid value",
				v + "configMap.items[0].key: Required value", v + "configMap.items[0].path: Invalid value",
				v + "configMap.items[1].mode: Invalid value", v + "configMap.items[1].path: Invalid value",
				v + "configMap.items[2].path: Required value"}},
		{"secret", aVolume("secret: {defaultMode: -1, items: [{key: a, path: b/../c}]}"),
			[]string{v + "secret.secretName: Required value", v + "secret.defaultMode: Invalid value",
				v + "secret.items[0].path: Invalid value"}},
		{"downward", aVolume("downwardAPI: {defaultMode: 512, items: [{path: a}, {path: b, mode: 512, fieldRef: {fieldPath: spec.nodeName}}, " +
			"{path: c, resourceFieldRef: {resource: limits.cpu}}, {path: d, fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {containerName: a, resource: limits.cpu}}]}"),
			[]string{v + "downwardAPI.defaultMode: Invalid value", v + "downwardAPI.items[0]: Invalid value",
				v + "downwardAPI.items[1].mode: Invalid value", v + "downwardAPI.items[1].fieldRef.fieldPath: Unsupported value",
				v + "downwardAPI.items[2].resourceFieldRef.containerName: Required value", v + "downwardAPI.items[3]: Invalid value"}},
		{"claim", aVolume("persistentVolumeClaim: {claimName: ''}"), []string{v + "persistentVolumeClaim.claimName: Required value"}},
		{"claim of an ephemeral volume", aPod("volumes: [{name: a, persistentVolumeClaim: {claimName: web-b}}, {name: b, ephemeral: " +
			"{volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}}]"),
			[]string{v + "persistentVolumeClaim.claimName: Invalid value"}},
		{"no template", aVolume("ephemeral: {}"), []string{v + "ephemeral.volumeClaimTemplate: Required value"}},
		{"template", aVolume("ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOncePod, Sometimes], volumeMode: Tape, storageClassName: 'A'}}}"),
			[]string{v + "ephemeral.volumeClaimTemplate.spec.accessModes[1]: Unsupported value",
				v + "ephemeral.volumeClaimTemplate.spec.accessModes: Forbidden",
				v + "ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: Required value",
				v + "ephemeral.volumeClaimTemplate.spec.storageClassName: Invalid value",
				v + "ephemeral.volumeClaimTemplate.spec.volumeMode: Unsupported value"}},
	})
	checkRight(t, map[string]string{
		"nothing said": aPod("volumes: [{name: a}]"),
		"host path":    aVolume("hostPath: {path: a/..b, type: DirectoryOrCreate}"),
		"files":        aVolume("configMap: {name: a, defaultMode: 511, items: [{key: a, path: b/..c, mode: 0}]}"),
		"iSCSI":        aVolume("iscsi: {targetPortal: a, iqn: 'iqn.2001-04.com.example:x', lun: 255}"),
		"downward":     aVolume("downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.labels}}, {path: b, resourceFieldRef: {containerName: main, resource: limits.cpu}}]}"),
	})
}

func TestValidateRemoteVolumes(t *testing.T) {
	const v = "spec.volumes[0]."
	checkWrong(t, []wrong{
		{"CSI", aVolume("csi: {driver: '-', nodePublishSecretRef: {}}"),
			[]string{v + "csi.driver: Invalid value", v + "csi.nodePublishSecretRef.name: Required value"}},
		{"NFS", aVolume("nfs: {server: '', path: a}"), []string{v + "nfs.server: Required value", v + "nfs.path: Invalid value"}},
		{"iSCSI", aVolume("iscsi: {targetPortal: '', iqn: x, lun: 256, chapAuthSession: true, initiatorName: z}"),
			[]string{v + "iscsi.targetPortal: Required value", v + "iscsi.iqn: Invalid value", v + "iscsi.initiatorName: Invalid value",
				v + "iscsi.lun: Invalid value", v + "iscsi.secretRef: Required value"}},
		{"fibre channel", aVolume("fc: {targetWWNs: [a], wwids: [b], lun: -1}"),
			[]string{v + "fc: Required value", v + "fc.lun: Invalid value"}},
		{"fibre channel without unit", aVolume("fc: {targetWWNs: [a]}"), []string{v + "fc.lun: Required value"}},
		{"Azure", aVolume("azureDisk: {diskName: a, diskURI: ftp, kind: Managed, cachingMode: Much}"),
			[]string{v + "azureDisk.cachingMode: Unsupported value", v + "azureDisk.diskURI: Invalid value"}},
		{"partitions", aPod("volumes: [{name: a, gcePersistentDisk: {pdName: '', partition: 256}}, {name: b, awsElasticBlockStore: {volumeID: '', partition: -1}}]"),
			[]string{v + "gcePersistentDisk.pdName: Required value", v + "gcePersistentDisk.partition: Invalid value",
				"spec.volumes[1].awsElasticBlockStore.volumeID: Required value",
				"spec.volumes[1].awsElasticBlockStore.partition: Invalid value"}},
	})
}

func TestValidateVolumesThatOnlyNeedANameOrTwo(t *testing.T) {
	for kind, missing := range map[string][]string{
		"rbd": {"image", "monitors"}, "cephfs": {"monitors"}, "glusterfs": {"endpoints", "path"},
		"quobyte": {"registry", "volume"}, "scaleIO": {"gateway", "system", "volumeName"}, "storageos": {"volumeName"},
		"flexVolume": {"driver"}, "cinder": {"volumeID"}, "azureFile": {"secretName", "shareName"},
		"vsphereVolume": {"volumePath"}, "photonPersistentDisk": {"pdID"}, "portworxVolume": {"volumeID"},
		"flocker": {""}, "nfs": {"server", "path"},
	} {
		var want []string
		for _, field := range missing {
			at := "spec.volumes[0]." + kind
			if field != "" {
				at += "." + field
			}
			want = append(want, at+": Required value")
		}
		checkWrong(t, []wrong{{kind, aVolume(kind + ": {}"), want}})
	}
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
		{"token", aVolume("projected: {sources: [{serviceAccountToken: {path: '', expirationSeconds: 599}}]}"),
			[]string{p + "sources[0].serviceAccountToken.expirationSeconds: Invalid value",
				p + "sources[0].serviceAccountToken.path: Required value", p + "sources[0].serviceAccountToken: Forbidden"}},
		{"trust", aVolume("projected: {sources: [{clusterTrustBundle: {path: a}}, {clusterTrustBundle: {name: a, signerName: b, path: b}}, " +
			"{clusterTrustBundle: {name: a, labelSelector: {}, path: ../c}}, {clusterTrustBundle: {signerName: a, path: a}}]}"),
			[]string{p + "sources[0].clusterTrustBundle: Required value",
				p + "sources[1].clusterTrustBundle.signerName: Invalid value",
				p + "sources[2].clusterTrustBundle.labelSelector: Forbidden", p + "sources[2].clusterTrustBundle.path: Invalid value",
				p + "sources[3].clusterTrustBundle.signerName: Invalid value", p + "sources[3].clusterTrustBundle.path: Duplicate value"}},
		{"certificate", aVolume("projected: {sources: [{podCertificate: {signerName: a, keyType: DSA, maxExpirationSeconds: 1}}]}"),
			[]string{p + "sources[0].podCertificate.signerName: Invalid value", p + "sources[0].podCertificate.keyType: Unsupported value",
				p + "sources[0].podCertificate.maxExpirationSeconds: Invalid value", p + "sources[0].podCertificate: Required value"}},
	})
	checkRight(t, map[string]string{
		"all": aPod("serviceAccountName: a\nvolumes:\n- name: v\n  projected:\n    sources:\n" +
			"    - {serviceAccountToken: {path: token}}\n    - {clusterTrustBundle: {signerName: example.com/a, labelSelector: {}, path: ca}}\n" +
			"    - {podCertificate: {signerName: example.com/a, keyType: ED25519, keyPath: key, certificateChainPath: chain}}\n" +
			"    - {secret: {name: a, items: [{key: a, path: f}]}}"),
	})
}
