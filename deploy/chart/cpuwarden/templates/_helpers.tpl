{{- define "cpuwarden.fullname" -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) | trunc 50 | trimSuffix "-" }}
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
{{- end }}

{{- /* The agent's configuration. To Helm an unquoted off or on is a boolean; to the agent it is a mode. */}}
{{- define "cpuwarden.config" -}}
{{- $config := deepCopy .Values.config }}
{{- range $key := list "pinning" "schedTrace" }}
{{- if kindIs "bool" (get $config $key) }}{{ $_ := set $config $key (ternary "on" "off" (get $config $key)) }}{{ end }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* The port of a URL, or what its scheme implies. */}}
{{- define "cpuwarden.port" -}}
{{- trimSuffix "/" . | regexFind ":[0-9]+$" | trimPrefix ":" | default (ternary "80" "443" (hasPrefix "http:" .)) }}
{{- end }}

{{- /* Whether the agent makes Kubernetes Events: "true" or nothing. */}}
{{- define "cpuwarden.makesEvents" -}}
{{- if and .Values.events (eq .Values.profile "pin") }}true{{ end }}
{{- end }}

{{- /* Whether the agent talks to the API server: "true" or nothing. */}}
{{- define "cpuwarden.asksApiserver" -}}
{{- if or .Values.endpoint.auth (include "cpuwarden.makesEvents" .) .Values.config.apiserverFallback (eq (.Values.config.podSource | default "") "apiserver") }}true{{ end }}
{{- end }}

{{- /* An auto value: "true" or nothing. */}}
{{- define "cpuwarden.isOn" -}}
{{- if eq (toString .value) "auto" }}{{ if .root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}true{{ end }}{{ else if .value }}true{{ end }}
{{- end }}
