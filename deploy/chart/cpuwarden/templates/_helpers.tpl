{{- define "cpuwarden.fullname" -}}
{{- $default := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) }}
{{- .Values.fullnameOverride | default $default | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "cpuwarden.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "cpuwarden.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "cpuwarden.selector" -}}
app.kubernetes.io/name: cpuwarden
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "cpuwarden.metadata" -}}
name: {{ include "cpuwarden.fullname" . }}
namespace: {{ .Release.Namespace | quote }}
labels: {{- include "cpuwarden.labels" . | nindent 2 }}
{{- end }}

{{- define "cpuwarden.labels" -}}
{{ include "cpuwarden.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cpuwarden.image" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is not set, and there is no public image: build one (docker build -t REGISTRY/cpuwarden:VERSION .), push it to a registry that the nodes can pull from, and add --set image.repository=REGISTRY/cpuwarden" }}
{{- end }}
{{- with .Values.image.registry }}{{ . }}/{{ end }}{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* A duration such as 1m 30s, in milliseconds. */}}
{{- define "cpuwarden.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "sec" 1000 "m" 60000 "min" 60000 "h" 3600000 "hr" 3600000 "d" 86400000 "day" 86400000 "days" 86400000 "w" 604800000 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+ ?[a-z]+" . -1 }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | int64) (get $units (regexFind "[a-z]+" .))) }}
{{- end }}
{{- $sum }}
{{- end }}

{{- /* The agent's configuration. To Helm an unquoted off or on is a boolean, and a fraction of --set a text. */}}
{{- define "cpuwarden.config" -}}
{{- $config := deepCopy .Values.config }}
{{- range $key := list "pinning" "schedTrace" "bpfCounters" "gc" "bestEffort" "burst" "log" }}
{{- if kindIs "bool" (get $config $key) }}{{ $_ := set $config $key (ternary "on" "off" (get $config $key)) }}{{ end }}
{{- end }}
{{- range $key := list "cpuBudget" "schedTraceBudget" "injectMemoryShare" "injectRequestFactor" }}
{{- if and (hasKey $config $key) (kindIs "string" (get $config $key)) }}{{ $_ := set $config $key (float64 (get $config $key)) }}{{ end }}
{{- end }}
{{- range $range := list (list "sampleInterval" "100ms" "1m") (list "reconcileInterval" "0s" "1h") (list "adviceAfter" "10s" "7days") (list "podPollInterval" "1s" "1h") }}
{{- $key := index $range 0 }}
{{- with get $config $key }}
{{- $span := include "cpuwarden.milliseconds" . | int64 }}
{{- if or (lt $span (include "cpuwarden.milliseconds" (index $range 1) | int64)) (gt $span (include "cpuwarden.milliseconds" (index $range 2) | int64)) }}
{{- fail (printf "config.%s: %s is out of range: expected %s to %s" $key . (index $range 1) (index $range 2)) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $key := list "bestEffort" "burst" }}
{{- if and (eq (get $config $key | toString) "enforce") (ne $.Values.profile "pin") }}
{{- fail (printf "config.%s=enforce writes cgroups, which only the profile pin may: set profile=pin (and config.pinning=off, if no pod is to have exclusive CPUs)" $key) }}
{{- end }}
{{- end }}
{{- $_ := set $config "metrics" .Values.metrics }}
{{- toYaml $config }}
{{- end }}

{{- /* The mode of pinning: off outside of the profile pin, which begins by observing. */}}
{{- define "cpuwarden.pinning" -}}
{{- $configured := (include "cpuwarden.config" . | fromYaml).pinning }}
{{- if eq .Values.profile "pin" }}{{ $configured | default "observe" }}{{ else }}{{ $configured | default "off" }}{{ end }}
{{- end }}

{{- /* Whether cgroups are written, if only as the pod ends: "true" or nothing. */}}
{{- define "cpuwarden.writes" -}}
{{- $config := include "cpuwarden.config" . | fromYaml }}
{{- if and (eq .Values.profile "pin") (or .Values.drainOnStop (eq (include "cpuwarden.pinning" .) "enforce") (has "enforce" (list $config.bestEffort $config.burst))) }}true{{ end }}
{{- end }}

{{- /* The port of a URL, or what its scheme implies. */}}
{{- define "cpuwarden.port" -}}
{{- trimSuffix "/" . | regexFind ":[0-9]+$" | trimPrefix ":" | default (ternary "80" "443" (hasPrefix "http:" .)) }}
{{- end }}

{{- /* Whether the agent makes Kubernetes Events: "true" or nothing. They need decisions or the trace. */}}
{{- define "cpuwarden.makesEvents" -}}
{{- if and .Values.events (has .Values.profile (list "trace" "pin")) }}true{{ end }}
{{- end }}

{{- /* Whether the agent sets the node's condition: "true" or nothing. It needs the trace. */}}
{{- define "cpuwarden.setsNodeCondition" -}}
{{- if and .Values.nodeCondition (include "cpuwarden.trace" .) }}true{{ end }}
{{- end }}

{{- /* Whether the agent lists pods at the API server: "true" or nothing. */}}
{{- define "cpuwarden.listsPods" -}}
{{- if or .Values.config.apiserverFallback (eq (.Values.config.podSource | default "") "apiserver") }}true{{ end }}
{{- end }}

{{- /* Whether the agent talks to the API server: "true" or nothing. */}}
{{- define "cpuwarden.asksApiserver" -}}
{{- if or .Values.endpoint.auth (include "cpuwarden.makesEvents" .) (include "cpuwarden.setsNodeCondition" .) (include "cpuwarden.listsPods" .) }}true{{ end }}
{{- end }}

{{- /* An auto value: "true" or nothing. */}}
{{- define "cpuwarden.isOn" -}}
{{- if eq (toString .value) "auto" }}{{ if .root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}true{{ end }}{{ else if .value }}true{{ end }}
{{- end }}

{{- /* Whether a PodMonitor is made: "true" or nothing. With a ServiceMonitor each agent would be scraped twice. */}}
{{- define "cpuwarden.hasPodMonitor" -}}
{{- if and .Values.enabled (not .Values.serviceMonitor.enabled) }}{{ include "cpuwarden.isOn" (dict "value" .Values.podMonitor.enabled "root" .) }}{{ end }}
{{- end }}

{{- /* Whether the cluster is older than this: "true" or nothing. */}}
{{- define "cpuwarden.olderThan" -}}
{{- if semverCompare (printf "<%s-0" .version) .root.Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{- /* Whether waits are traced without a setting of its own, "true" or nothing: best-effort pods yield to measured waits. */}}
{{- define "cpuwarden.trace" -}}
{{- $config := include "cpuwarden.config" . | fromYaml }}
{{- $yields := and (eq .Values.profile "pin") (has $config.bestEffort (list "observe" "enforce")) (ne $config.schedTrace "off") }}
{{- if or (eq .Values.profile "trace") $yields }}true{{ end }}
{{- end }}

{{- /* For views, where waits are not traced: the value that turns the trace off, and the command that turns it on. */}}
{{- define "cpuwarden.traceHint" -}}
{{- $mode := (include "cpuwarden.config" . | fromYaml).schedTrace | default "" }}
{{- $isTraced := include "cpuwarden.trace" . }}
{{- if or (not $isTraced) (eq $mode "off") }}
{{- $value := printf "profile=%s" .Values.profile }}
{{- $set := ternary "config.bestEffort=observe" "profile=trace" (eq .Values.profile "pin") }}
{{- if $isTraced }}{{ $value = "config.schedTrace=off" }}{{ $set = "config.schedTrace=auto" }}
{{- else if eq $mode "off" }}{{ $set = printf "%s,config.schedTrace=auto" $set }}{{ end }}
{{- printf "%s. To see who waits for whom: helm upgrade %s CHART --namespace %s --reset-then-reuse-values --set %s" $value .Release.Name .Release.Namespace $set }}
{{- end }}
{{- end }}

{{- /* Requests and limits. With NRI the start of every container waits for the agent. */}}
{{- define "cpuwarden.resources" -}}
{{- $requests := dict "cpu" (ternary "100m" "20m" .Values.nri.enabled) }}
{{- $limits := dict }}
{{- if and (include "cpuwarden.records" .) (not .Values.recording.hostPath) }}
{{- $size := int .Values.recording.size }}
{{- $_ := set $requests "ephemeral-storage" (printf "%dMi" $size) }}
{{- /* The volume's limit, and the log. */}}
{{- $_ := set $limits "ephemeral-storage" (printf "%dMi" (add $size 150)) }}
{{- end }}
{{- toYaml (merge (deepCopy .Values.resources) (dict "requests" $requests "limits" $limits)) }}
{{- end }}

{{- /* Not empty if the agent records to a volume of this chart: config.record is one of extraVolumes. */}}
{{- define "cpuwarden.records" -}}
{{- if and .Values.ui .Values.recording.enabled (not .Values.config.record) }}true{{ end }}
{{- end }}

{{- /* Capabilities that are added. */}}
{{- define "cpuwarden.capabilities" -}}
{{- $trace := ternary (list "BPF" "PERFMON") list (eq (include "cpuwarden.trace" .) "true") }}
{{- concat $trace (ternary (list "SYS_PTRACE") list (or .Values.runtimes .Values.garbageCollection)) | join ", " }}
{{- end }}

{{- /* An IPv6 address in brackets. */}}
{{- define "cpuwarden.bracketed" -}}
{{- if and (contains ":" .) (not (hasPrefix "[" .)) }}[{{ . }}]{{ else }}{{ . }}{{ end }}
{{- end }}

{{- /* The kubelet's read-only port at the host of kubelet.url. */}}
{{- define "cpuwarden.readOnlyUrl" -}}
{{- $host := regexReplaceAll "^https://(.*?)(:[0-9]+)?/?$" .Values.kubelet.url "${1}" }}
{{- printf "http://%s:%v" $host .Values.kubelet.readOnlyPort }}
{{- end }}
