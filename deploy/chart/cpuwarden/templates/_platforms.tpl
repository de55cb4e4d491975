{{- /*
What a platform needs beyond the defaults. docs/platforms.md has a row for each. A value that was set goes before.

  quota                  admission limits the system priority classes to kube-system, unless a ResourceQuota admits them
  scc                    admission by SecurityContextConstraints
  seLinuxType            the type under which a container may read hostPath volumes
  privilegedNamespace    Pod Security is enforced unless the namespace says otherwise
  propagation            mount propagation of the cgroup volume where it is not read-only through and through
  rootDir                the kubelet's directory
  hostCertificate        the file that the kubelet serves from
  excluded               nodes without a kubelet of their own: label and values
*/}}
{{- define "cpuwarden.platforms" -}}
"": {}
gke: {quota: true}
eks: {excluded: {eks.amazonaws.com/compute-type: [fargate]}}
aks: {excluded: {type: [virtual-kubelet], kubernetes.io/role: [virtual-node]}}
openshift: {scc: true, seLinuxType: spc_t, privilegedNamespace: true}
talos: {privilegedNamespace: true}
k3s: {propagation: None, hostCertificate: /var/lib/rancher/k3s/agent/serving-kubelet.crt}
rke2: {hostCertificate: /var/lib/rancher/rke2/agent/serving-kubelet.crt}
k0s: {rootDir: /var/lib/k0s/kubelet}
microk8s: {rootDir: /var/snap/microk8s/common/var/lib/kubelet, hostCertificate: /var/snap/microk8s/current/certs/kubelet.crt}
kind: {propagation: None}
{{- end }}

{{- define "cpuwarden.platform" -}}
{{- get (include "cpuwarden.platforms" . | fromYaml) .Values.platform | toYaml }}
{{- end }}

{{- /* The kubelet's directory on the node. */}}
{{- define "cpuwarden.rootDir" -}}
{{- $platform := include "cpuwarden.platform" . | fromYaml }}
{{- if eq .Values.kubelet.rootDir "auto" }}{{ $platform.rootDir | default "/var/lib/kubelet" }}{{ else }}{{ .Values.kubelet.rootDir }}{{ end }}
{{- end }}

{{- /* The file that the kubelet serves from, or nothing. */}}
{{- define "cpuwarden.hostCertificate" -}}
{{- $platform := include "cpuwarden.platform" . | fromYaml }}
{{- $path := .Values.kubelet.hostCertificate }}
{{- if eq $path "auto" }}{{ $path = $platform.hostCertificate | default (printf "%s/pki/kubelet.crt" (include "cpuwarden.rootDir" .)) }}{{ end }}
{{- if and .Values.kubelet.tlsVerify (not (has (.Values.config.podSource | default "auto") (list "apiserver" "none" "readonly" "pods-api"))) }}{{ $path }}{{ end }}
{{- end }}

{{- define "cpuwarden.hasQuota" -}}
{{- $platform := include "cpuwarden.platform" . | fromYaml }}
{{- $on := .Values.resourceQuota.enabled }}
{{- if eq (toString $on) "auto" }}{{ $on = $platform.quota }}{{ end }}
{{- if and $on (ne .Release.Namespace "kube-system") (has .Values.priorityClassName (list "system-node-critical" "system-cluster-critical")) }}true{{ end }}
{{- end }}

{{- define "cpuwarden.hasSCC" -}}
{{- $platform := include "cpuwarden.platform" . | fromYaml }}
{{- $on := .Values.securityContextConstraints.enabled }}
{{- if eq (toString $on) "auto" }}{{ $on = $platform.scc }}{{ end }}
{{- if $on }}true{{ end }}
{{- end }}

{{- /* Labels by which the namespace admits the pods. */}}
{{- define "cpuwarden.namespaceLabels" -}}
{{- range list "enforce" "audit" "warn" }}
pod-security.kubernetes.io/{{ . }}: privileged
{{- end }}
{{- if include "cpuwarden.hasSCC" . }}
# Else OpenShift computes the labels above again.
security.openshift.io/scc.podSecurityLabelSync: "false"
{{- end }}
{{- end }}

{{- define "cpuwarden.podSecurityContext" -}}
{{- $platform := include "cpuwarden.platform" . | fromYaml }}
{{- $context := dict "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- with $platform.seLinuxType }}{{ $_ := set $context "seLinuxOptions" (dict "type" .) }}{{ end }}
{{- toYaml (mergeOverwrite $context (deepCopy .Values.podSecurityContext)) }}
{{- end }}

{{- /* Affinity as it was set, else to nodes that run containers. */}}
{{- define "cpuwarden.affinity" -}}
{{- $platform := include "cpuwarden.platform" . | fromYaml }}
{{- if .Values.affinity }}
{{- toYaml .Values.affinity }}
{{- else if $platform.excluded }}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          {{- range $label, $values := $platform.excluded }}
          - {key: {{ $label }}, operator: NotIn, values: [{{ join ", " $values }}]}
          {{- end }}
{{- end }}
{{- end }}

{{- /*
How the cgroup volume is mounted. Read-only holds for mounts below it only where it is recursive, and v1 has one for each
controller; that is available since 1.31, and not together with mount propagation.
*/}}
{{- define "cpuwarden.cgroupMount" -}}
{{- $platform := include "cpuwarden.platform" . | fromYaml }}
name: cgroup
mountPath: /host/cgroup
{{- if include "cpuwarden.writes" . }}
readOnly: false
mountPropagation: {{ .Values.mountPropagation | default $platform.propagation | default "HostToContainer" }}
{{- else }}
readOnly: true
{{- if and (not .Values.mountPropagation) (not (include "cpuwarden.olderThan" (dict "root" . "version" "1.31"))) }}
recursiveReadOnly: IfPossible
{{- else }}
mountPropagation: {{ .Values.mountPropagation | default $platform.propagation | default "HostToContainer" }}
{{- end }}
{{- end }}
{{- end }}
