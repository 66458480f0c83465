package podspec

// verdict is the treatment of a field of a pod's spec.
type verdict string

const (
	// honoured: the field has its effect.
	honoured verdict = "honoured"
	// ignorable: the field has no effect on the node, for any value. It concerns a scheduler, or services and accounts that a pod
	// without an API server does not have.
	ignorable verdict = "ignorable"
	// refused: the field is not implemented yet, so that a pod that sets it is rejected.
	refused verdict = "refused"
)

// rule is the treatment of one field or, unless it is honoured, of one field and all below it.
//
// The path is as in manifests, below spec. [] stands for each item of a list; {a,b} for both spellings, so that fields with the
// same verdict need one line. Only, if given, lists the values covered by the verdict in addition to the default (for a map: its
// keys; a * stands for anything but a slash); all others are refused.
type rule struct {
	verdict verdict
	path    string
	only    []string
}

// Frequent prefixes in the table.
const (
	inContainer = "{containers,initContainers}[]."
	inProbe     = inContainer + "{livenessProbe,readinessProbe,startupProbe}."
	inHook      = inContainer + "lifecycle.{postStart,preStop}."
	inEnv       = inContainer + "env[].valueFrom."
	inVolume    = "volumes[].{,projected.sources[].}"
)

// fields covers the whole of a pod's spec, each field in exactly one line. To honour a refused field, move its name here. A test
// fails for a new field of the API without a line.
var fields = []rule{
	// Life and end of the pod.
	{honoured, "{restartPolicy,terminationGracePeriodSeconds,activeDeadlineSeconds}", nil},
	{honoured, "readinessGates[].conditionType", nil},

	// Namespaces, users, privileges.
	{honoured, "{hostNetwork,hostPID,hostIPC,shareProcessNamespace,hostUsers}", nil},
	{honoured, "os.name", []string{"linux"}},
	{honoured, "securityContext.{runAsUser,runAsGroup,runAsNonRoot,supplementalGroups[],supplementalGroupsPolicy}", nil},
	{honoured, "securityContext.{fsGroup,fsGroupChangePolicy,sysctls[].name,sysctls[].value}", nil},
	{honoured, "securityContext.{seccompProfile,appArmorProfile}.{type,localhostProfile}", nil},
	{honoured, "securityContext.seLinuxOptions.{user,role,type,level}", nil},
	// The runtime labels all volumes, as the kubelet has it do where a driver does not support the mount option.
	{honoured, "securityContext.seLinuxChangePolicy", []string{"Recursive", "MountOption"}},
	{ignorable, "securityContext.windowsOptions", nil}, // without effect on Linux

	// Names and name resolution.
	{honoured, "{hostname,subdomain,setHostnameAsFQDN,hostnameOverride,hostAliases[].ip,hostAliases[].hostnames[]}", nil},
	{honoured, "{dnsPolicy,dnsConfig.nameservers[],dnsConfig.searches[]}", nil},
	{honoured, "dnsConfig.options[].{name,value}", nil},

	// Fields for components other than the node.
	{ignorable, "nodeName", nil},
	{honoured, "{nodeSelector,priority,enableServiceLinks}", nil},
	{honoured, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[]." +
		"{matchExpressions,matchFields}[].{key,operator,values[]}", nil},
	{ignorable, "affinity.{nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution,podAffinity,podAntiAffinity}", nil},
	{honoured, "tolerations[].{key,operator,value,effect}", nil},
	{ignorable, "{tolerations[].tolerationSeconds,topologySpreadConstraints,schedulerName,schedulingGates,schedulingGroup}", nil},
	{ignorable, "{priorityClassName,preemptionPolicy,evictionResponders}", nil},
	{ignorable, "{serviceAccountName,serviceAccount,automountServiceAccountToken}", nil},

	// Fields that need the API server or a missing part.
	{honoured, "{imagePullSecrets[].name,runtimeClassName,ephemeralContainers[].targetContainerName}", nil},
	{honoured, "overhead", []string{"cpu", "memory", "ephemeral-storage", "hugepages-*", "*/*"}},
	{honoured, "resources.{limits,requests}", []string{"cpu", "memory", "hugepages-*"}},
	{honoured, "resourceClaims[].{name,resourceClaimName,resourceClaimTemplateName}", nil},
	{refused, "resources.claims", nil},

	// Containers: image and process.
	{honoured, inContainer + "{name,image,imagePullPolicy,command[],args[],workingDir,stdin,stdinOnce,tty}", nil},
	{honoured, inContainer + "{terminationMessagePath,terminationMessagePolicy,env[].name,env[].value,envFrom[].prefix}", nil},
	{honoured, inEnv + "{fieldRef.apiVersion,fieldRef.fieldPath}", nil},
	{honoured, inEnv + "resourceFieldRef.{containerName,resource,divisor}", nil},
	{honoured, inEnv + "{configMapKeyRef,secretKeyRef}.{name,key,optional}", nil},
	{honoured, inEnv + "fileKeyRef.{volumeName,path,key,optional}", nil},
	{honoured, inContainer + "envFrom[].{configMapRef,secretRef}.{name,optional}", nil},

	// Containers: ports and resources.
	{honoured, inContainer + "ports[].{name,containerPort,hostPort,hostIP,protocol}", nil},
	{honoured, inContainer + "resources.{limits,requests}", []string{"cpu", "memory", "hugepages-*", "*/*", "ephemeral-storage"}},
	{honoured, inContainer + "resources.claims[].{name,request}", nil},
	{honoured, inContainer + "resizePolicy[].{resourceName,restartPolicy}", nil},

	// Containers: volumes.
	{honoured, inContainer + "volumeMounts[].{name,mountPath,subPath,subPathExpr}", nil},
	{honoured, inContainer + "volumeMounts[].{readOnly,recursiveReadOnly,mountPropagation}", nil},
	{honoured, inContainer + "volumeDevices[].{name,devicePath}", nil},
	{refused, inContainer + "volumeMounts[].bindMountOptions", nil},

	// Containers: life.
	{honoured, inContainer + "{restartPolicy,lifecycle.stopSignal}", nil},
	{honoured, inContainer + "restartPolicyRules[].action", []string{"Restart", "RestartAllContainers"}},
	{honoured, inContainer + "restartPolicyRules[].exitCodes.{operator,values[]}", nil},
	{honoured, inHook + "{exec.command[],sleep.seconds}", nil},
	{honoured, inHook + "httpGet.{path,port,host,scheme,httpHeaders[].name,httpHeaders[].value}", nil},
	{honoured, inHook + "httpGet.protocol", []string{"HTTP1"}},
	{refused, inHook + "tcpSocket", nil},

	// Containers: probes.
	{honoured, inProbe + "{exec.command[],tcpSocket.port,tcpSocket.host,grpc.port,grpc.service,grpc.mode}", nil},
	{honoured, inProbe + "httpGet.{path,port,host,scheme,httpHeaders[].name,httpHeaders[].value}", nil},
	{honoured, inProbe + "httpGet.protocol", []string{"HTTP1"}},
	{honoured, inProbe + "{initialDelaySeconds,periodSeconds,timeoutSeconds,successThreshold,failureThreshold}", nil},
	{honoured, inContainer + "{livenessProbe,startupProbe}.terminationGracePeriodSeconds", nil},
	// A readiness probe ends nothing: this field is never honoured.
	{refused, inContainer + "readinessProbe.terminationGracePeriodSeconds", nil},

	// Containers: security.
	{honoured, inContainer + "securityContext.{privileged,allowPrivilegeEscalation,readOnlyRootFilesystem}", nil},
	{honoured, inContainer + "securityContext.procMount", nil},
	{honoured, inContainer + "securityContext.{capabilities.add[],capabilities.drop[],runAsUser,runAsGroup,runAsNonRoot}", nil},
	{honoured, inContainer + "securityContext.{seccompProfile,appArmorProfile}.{type,localhostProfile}", nil},
	{honoured, inContainer + "securityContext.seLinuxOptions.{user,role,type,level}", nil},
	{ignorable, inContainer + "securityContext.windowsOptions", nil},

	// Volumes. The limit of an emptyDir in memory is its size; on disk eviction enforces it, for static pods with
	// --evict-static-pods.
	{honoured, "volumes[].{name,emptyDir.sizeLimit,emptyDir.mode,hostPath.path,hostPath.type}", nil},
	{honoured, "volumes[].emptyDir.medium", []string{"Memory", "HugePages*"}},
	{honoured, "volumes[].{configMap,secret,downwardAPI,projected}.defaultMode", nil},
	{honoured, "volumes[].{configMap.name,configMap.optional,secret.secretName,secret.optional}", nil},
	{honoured, "volumes[].projected.sources[].{configMap,secret}.{name,optional}", nil},
	{honoured, inVolume + "{configMap,secret}.items[].{key,path,mode}", nil},
	{honoured, inVolume + "downwardAPI.items[].{path,mode,fieldRef.apiVersion,fieldRef.fieldPath}", nil},
	{honoured, inVolume + "downwardAPI.items[].resourceFieldRef.{containerName,resource,divisor}", nil},
	{honoured, "volumes[].projected.sources[].serviceAccountToken.{audience,expirationSeconds,path}", nil},
	// Alpha: AtomicWriteVolumeUserFields.
	{refused, "volumes[].{configMap,secret,downwardAPI,projected}.defaultUser", nil},
	{refused, inVolume + "{configMap,secret,downwardAPI}.items[].user", nil},
	{honoured, "volumes[].projected.sources[].clusterTrustBundle.{name,signerName,optional,path,labelSelector.matchLabels}", nil},
	{honoured, "volumes[].projected.sources[].clusterTrustBundle.labelSelector.matchExpressions[].{key,operator,values[]}", nil},
	{honoured, "volumes[].projected.sources[].podCertificate.{signerName,keyType,maxExpirationSeconds,userAnnotations}", nil},
	{honoured, "volumes[].projected.sources[].podCertificate.{credentialBundlePath,keyPath,certificateChainPath}", nil},
	{refused, "volumes[].projected.sources[].{serviceAccountToken,clusterTrustBundle,podCertificate}.user", nil},
	{honoured, "volumes[].image.{reference,pullPolicy}", nil},
	{honoured, "volumes[].persistentVolumeClaim.{claimName,readOnly}", nil},
	{ignorable, "volumes[].ephemeral.volumeClaimTemplate", nil}, // a controller creates the claim from it
	{honoured, "volumes[].csi.{driver,readOnly,fsType,volumeAttributes,nodePublishSecretRef.name}", nil},
	{honoured, "volumes[].nfs.{server,path,readOnly}", nil},
	{honoured, "volumes[].iscsi.{targetPortal,portals[],iqn,lun,iscsiInterface,initiatorName,fsType,readOnly}", nil},
	{honoured, "volumes[].iscsi.{chapAuthDiscovery,chapAuthSession,secretRef.name}", nil},
	{refused, "volumes[].fc", nil},
	{honoured, "volumes[].{awsElasticBlockStore,cinder,portworxVolume}.{volumeID,fsType,readOnly}", nil}, // by CSI drivers
	{honoured, "volumes[].{awsElasticBlockStore.partition,cinder.secretRef.name}", nil},
	{honoured, "volumes[].gcePersistentDisk.{pdName,fsType,partition,readOnly}", nil},
	{honoured, "volumes[].azureDisk.{diskName,diskURI,cachingMode,fsType,readOnly,kind}", nil},
	{honoured, "volumes[].azureFile.{secretName,shareName,readOnly}", nil},
	{honoured, "volumes[].vsphereVolume.{volumePath,fsType,storagePolicyName,storagePolicyID}", nil},
	{refused, "volumes[].{cephfs,flexVolume,flocker,gitRepo,glusterfs,photonPersistentDisk,quobyte,rbd,scaleIO,storageos}", nil},
}
