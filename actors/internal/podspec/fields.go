package podspec

// verdict is what this agent does about a field of a pod's spec.
type verdict string

const (
	// honoured: what the field says happens.
	honoured verdict = "honoured"
	// ignorable: on the node the field changes nothing, whatever it says; it speaks to a scheduler, or of services
	// and accounts that a pod without an API server does not have.
	ignorable verdict = "ignorable"
	// refused: not honoured yet, so that a pod which sets the field is refused.
	refused verdict = "refused"
)

// rule says what is done about one field or, unless it is honoured, one field and all below it.
//
// The path is as in manifests, below spec. [] stands for each item of a list; {a,b} for both spellings, so that fields
// with the same verdict need one line. Only, where given, lists the values that the verdict is about besides the default
// (for a map: its keys; a * stands for anything but a slash); all others are refused.
type rule struct {
	verdict verdict
	path    string
	only    []string
}

// fields is the whole of a pod's spec, each field in exactly one line. To honour a field that was refused, move its
// name here. A field that the API gains fails a test until it has its line.
var fields = []rule{
	// How long the pod lives, and how it ends.
	{honoured, "restartPolicy", nil},
	{honoured, "terminationGracePeriodSeconds", nil},
	{honoured, "activeDeadlineSeconds", nil},
	{honoured, "readinessGates[].conditionType", nil},

	// Namespaces, users, privileges.
	{honoured, "hostNetwork", nil},
	{honoured, "hostPID", nil},
	{honoured, "hostIPC", nil},
	{honoured, "hostUsers", []string{"true"}},
	{honoured, "shareProcessNamespace", nil},
	{honoured, "os.name", []string{"linux"}},
	{honoured, "securityContext.{runAsUser,runAsGroup,runAsNonRoot}", nil},
	{honoured, "securityContext.{supplementalGroups[],supplementalGroupsPolicy,fsGroup}", nil},
	{honoured, "securityContext.fsGroupChangePolicy", nil},
	{honoured, "securityContext.sysctls[].{name,value}", nil},
	{honoured, "securityContext.{seccompProfile,appArmorProfile}.{type,localhostProfile}", nil},
	{honoured, "securityContext.seLinuxOptions.{user,role,type,level}", nil},
	{refused, "securityContext.{seLinuxChangePolicy,windowsOptions}", nil},

	// Names and name resolution.
	{honoured, "{hostname,subdomain,setHostnameAsFQDN,hostnameOverride}", nil},
	{honoured, "hostAliases[].{ip,hostnames[]}", nil},
	{honoured, "dnsPolicy", nil},
	{honoured, "dnsConfig.{nameservers[],searches[],options[].name,options[].value}", nil},

	// What speaks to others than the node.
	{ignorable, "nodeName", nil},
	{honoured, "nodeSelector", nil},
	{honoured, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[]." +
		"{matchExpressions,matchFields}[].{key,operator,values[]}", nil},
	{ignorable, "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", nil},
	{ignorable, "affinity.{podAffinity,podAntiAffinity}", nil},
	{honoured, "tolerations[].{key,operator,value,effect}", nil},
	{ignorable, "tolerations[].tolerationSeconds", nil},
	{ignorable, "{topologySpreadConstraints,schedulerName,schedulingGates,schedulingGroup}", nil},
	{honoured, "priority", nil},
	{ignorable, "{priorityClassName,preemptionPolicy,evictionResponders}", nil},
	{ignorable, "{serviceAccountName,serviceAccount,automountServiceAccountToken}", nil},
	{honoured, "enableServiceLinks", nil},

	// What needs the API server or a part that is not there yet.
	{honoured, "imagePullSecrets[].name", nil},
	{honoured, "runtimeClassName", nil},
	{honoured, "overhead", []string{"cpu", "memory", "ephemeral-storage", "hugepages-*", "*/*"}},
	{honoured, "resources.{limits,requests}", []string{"cpu", "memory", "hugepages-*"}},
	{refused, "{resources.claims,resourceClaims}", nil},
	{honoured, "ephemeralContainers[].targetContainerName", nil},

	// Containers: image and process.
	{honoured, "{containers,initContainers}[].{name,image,imagePullPolicy,command[],args[],workingDir,stdin,stdinOnce,tty}", nil},
	{honoured, "{containers,initContainers}[].env[].{name,value}", nil},
	{honoured, "{containers,initContainers}[].env[].valueFrom.fieldRef.{apiVersion,fieldPath}", nil},
	{honoured, "{containers,initContainers}[].env[].valueFrom.resourceFieldRef.{containerName,resource,divisor}", nil},
	{honoured, "{containers,initContainers}[].env[].valueFrom.{configMapKeyRef,secretKeyRef}.{name,key,optional}", nil},
	{honoured, "{containers,initContainers}[].env[].valueFrom.fileKeyRef.{volumeName,path,key,optional}", nil},
	{honoured, "{containers,initContainers}[].envFrom[].prefix", nil},
	{honoured, "{containers,initContainers}[].envFrom[].{configMapRef,secretRef}.{name,optional}", nil},
	{honoured, "{containers,initContainers}[].{terminationMessagePath,terminationMessagePolicy}", nil},

	// Containers: ports and resources.
	{honoured, "{containers,initContainers}[].ports[].{name,containerPort,hostPort,hostIP,protocol}", nil},
	{honoured, "{containers,initContainers}[].resources.{limits,requests}",
		[]string{"cpu", "memory", "hugepages-*", "*/*", "ephemeral-storage"}},
	{refused, "{containers,initContainers}[].resources.claims", nil},
	{honoured, "{containers,initContainers}[].resizePolicy[].{resourceName,restartPolicy}", nil},

	// Containers: volumes.
	{honoured, "{containers,initContainers}[].volumeMounts[].{name,mountPath,subPath,subPathExpr}", nil},
	{honoured, "{containers,initContainers}[].volumeMounts[].{readOnly,recursiveReadOnly,mountPropagation}", nil},
	{refused, "{containers,initContainers}[].{volumeMounts[].bindMountOptions,volumeDevices}", nil},

	// Containers: life.
	{honoured, "{containers,initContainers}[].restartPolicy", nil},
	{honoured, "{containers,initContainers}[].restartPolicyRules[].action", []string{"Restart", "RestartAllContainers"}},
	{honoured, "{containers,initContainers}[].restartPolicyRules[].exitCodes.{operator,values[]}", nil},
	{honoured, "{containers,initContainers}[].lifecycle.{postStart,preStop}.{exec.command[],sleep.seconds}", nil},
	{honoured, "{containers,initContainers}[].lifecycle.{postStart,preStop}.httpGet.{path,port,host,scheme}", nil},
	{honoured, "{containers,initContainers}[].lifecycle.{postStart,preStop}.httpGet.httpHeaders[].{name,value}", nil},
	{honoured, "{containers,initContainers}[].lifecycle.{postStart,preStop}.httpGet.protocol", []string{"HTTP1"}},
	{refused, "{containers,initContainers}[].lifecycle.{postStart,preStop}.tcpSocket", nil},
	{honoured, "{containers,initContainers}[].lifecycle.stopSignal", nil},

	// Containers: probes.
	{honoured, "{containers,initContainers}[].{livenessProbe,readinessProbe,startupProbe}.exec.command[]", nil},
	{honoured, "{containers,initContainers}[].{livenessProbe,readinessProbe,startupProbe}.httpGet.{path,port,host,scheme}", nil},
	{honoured, "{containers,initContainers}[].{livenessProbe,readinessProbe,startupProbe}.httpGet.httpHeaders[].{name,value}",
		nil},
	{honoured, "{containers,initContainers}[].{livenessProbe,readinessProbe,startupProbe}.httpGet.protocol", []string{"HTTP1"}},
	{honoured, "{containers,initContainers}[].{livenessProbe,readinessProbe,startupProbe}.tcpSocket.{port,host}", nil},
	{honoured, "{containers,initContainers}[].{livenessProbe,readinessProbe,startupProbe}.grpc.{port,service,mode}", nil},
	{honoured, "{containers,initContainers}[].{livenessProbe,readinessProbe,startupProbe}.{initialDelaySeconds,periodSeconds}",
		nil},
	{honoured, "{containers,initContainers}[].{livenessProbe,readinessProbe,startupProbe}.{timeoutSeconds,successThreshold}",
		nil},
	{honoured, "{containers,initContainers}[].{livenessProbe,readinessProbe,startupProbe}.failureThreshold", nil},
	{honoured, "{containers,initContainers}[].{livenessProbe,startupProbe}.terminationGracePeriodSeconds", nil},
	// A readiness probe ends nothing: this is never honoured.
	{refused, "{containers,initContainers}[].readinessProbe.terminationGracePeriodSeconds", nil},

	// Containers: security.
	{honoured, "{containers,initContainers}[].securityContext.{privileged,allowPrivilegeEscalation}", nil},
	{honoured, "{containers,initContainers}[].securityContext.{readOnlyRootFilesystem,procMount}", nil},
	{honoured, "{containers,initContainers}[].securityContext.capabilities.{add[],drop[]}", nil},
	{honoured, "{containers,initContainers}[].securityContext.{runAsUser,runAsGroup,runAsNonRoot}", nil},
	{honoured, "{containers,initContainers}[].securityContext.{seccompProfile,appArmorProfile}.{type,localhostProfile}", nil},
	{honoured, "{containers,initContainers}[].securityContext.seLinuxOptions.{user,role,type,level}", nil},
	{refused, "{containers,initContainers}[].securityContext.windowsOptions", nil},

	// Volumes.
	{honoured, "volumes[].name", nil},
	{honoured, "volumes[].emptyDir.medium", []string{"Memory", "HugePages*"}},
	// In memory by its size; on the disk by eviction, of static pods where --evict-static-pods says so.
	{honoured, "volumes[].emptyDir.sizeLimit", nil},
	{honoured, "volumes[].emptyDir.mode", nil},
	{honoured, "volumes[].hostPath.{path,type}", nil},
	{honoured, "volumes[].{configMap,secret,downwardAPI,projected}.defaultMode", nil},
	{honoured, "volumes[].{configMap.name,configMap.optional,secret.secretName,secret.optional}", nil},
	{honoured, "volumes[].projected.sources[].{configMap,secret}.{name,optional}", nil},
	{honoured, "volumes[].{,projected.sources[].}{configMap,secret}.items[].{key,path,mode}", nil},
	{honoured, "volumes[].{,projected.sources[].}downwardAPI.items[].{path,mode}", nil},
	{honoured, "volumes[].{,projected.sources[].}downwardAPI.items[].fieldRef.{apiVersion,fieldPath}", nil},
	{honoured, "volumes[].{,projected.sources[].}downwardAPI.items[].resourceFieldRef.{containerName,resource,divisor}", nil},
	{honoured, "volumes[].projected.sources[].serviceAccountToken.{audience,expirationSeconds,path}", nil},
	// Alpha: AtomicWriteVolumeUserFields.
	{refused, "volumes[].{configMap,secret,downwardAPI,projected}.defaultUser", nil},
	{refused, "volumes[].{,projected.sources[].}{configMap,secret,downwardAPI}.items[].user", nil},
	{refused, "volumes[].projected.sources[].{serviceAccountToken.user,clusterTrustBundle,podCertificate}", nil},
	{honoured, "volumes[].image.{reference,pullPolicy}", nil},
	{honoured, "volumes[].persistentVolumeClaim.{claimName,readOnly}", nil},
	{ignorable, "volumes[].ephemeral.volumeClaimTemplate", nil}, // a controller makes the claim by it
	{honoured, "volumes[].csi.{driver,readOnly,fsType,volumeAttributes,nodePublishSecretRef.name}", nil},
	{refused, "volumes[].{nfs,iscsi,fc}", nil},
	{honoured, "volumes[].{awsElasticBlockStore,cinder,portworxVolume}.{volumeID,fsType,readOnly}", nil}, // by CSI drivers
	{honoured, "volumes[].{awsElasticBlockStore.partition,cinder.secretRef.name}", nil},
	{honoured, "volumes[].gcePersistentDisk.{pdName,fsType,partition,readOnly}", nil},
	{honoured, "volumes[].azureDisk.{diskName,diskURI,cachingMode,fsType,readOnly,kind}", nil},
	{honoured, "volumes[].azureFile.{secretName,shareName,readOnly}", nil},
	{honoured, "volumes[].vsphereVolume.{volumePath,fsType,storagePolicyName,storagePolicyID}", nil},
	{refused, "volumes[].{cephfs,flexVolume,flocker,gitRepo,glusterfs,photonPersistentDisk,quobyte,rbd,scaleIO,storageos}", nil},
}
