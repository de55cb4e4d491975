{{- /* The endpoints of a PodMonitor or a ServiceMonitor. */}}
{{- define "cpuwarden.endpoints" -}}
{{- $monitor := ternary .Values.serviceMonitor .Values.podMonitor .Values.serviceMonitor.enabled }}
{{- $paths := ternary (list "/metrics" "/metrics/cadvisor") (list "/metrics") .Values.cadvisorMetrics }}
{{- range $path := $paths }}
- port: metrics
  path: {{ $path }}
  interval: {{ $monitor.interval }}
  {{- with $monitor.scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  scheme: {{ ternary "https" "http" (ne $.Values.endpoint.tls.secretName "") }}
  # namespace, pod and container of a series are those of the measured container, not the agent's.
  honorLabels: true
  relabelings:
    - {action: labeldrop, regex: container}
    - {action: replace, sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}
    {{- if eq $path "/metrics/cadvisor" }}
    # As the kubernetes-mixin selects them.
    - {action: replace, targetLabel: job, replacement: kubelet}
    - {action: replace, sourceLabels: [__metrics_path__], targetLabel: metrics_path}
    {{- end }}
  {{- with $monitor.metricRelabelings }}
  metricRelabelings: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $monitor.authorization }}
  authorization: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $monitor.tlsConfig }}
  tlsConfig: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
