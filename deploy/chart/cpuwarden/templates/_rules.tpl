{{- /* What each of prometheusRule.thresholds stands for in the rules: the number at the end is the one that is set. */}}
{{- define "cpuwarden.thresholds" -}}
harmfulThrottledRatio: "container:cpuwarden_throttled_time:ratio_rate5m > 0.25"
harmfulLimitUsedRatio: "container:cpuwarden_cpu_limit_used:ratio_rate5m >= 0.80"
burstyThrottledRatio: "container:cpuwarden_throttled_time:ratio_rate5m > 0.10"
burstyLimitUsedRatio: "container:cpuwarden_cpu_limit_used:ratio_rate5m >= 0.25"
slowedRatio: '(pod:cpuwarden_slowed:ratio_rate10m{reason=~"neighbor|system"}) > 0.30'
noisyNeighborRatio: 'pod:cpuwarden_slowed_by:ratio_rate10m{beyond_request="true"} > 0.30'
contentionRatio: "node:cpuwarden_contention:ratio_rate5m > 0.30"
runtimeParallelismRatio: "(last_over_time(cpuwarden_container_cpu_limit_cores[5m])) > 2"
stealRatio: "node:cpuwarden_steal:ratio_rate5m > 0.05"
{{- end }}

{{- /* The groups without the alerts that are switched off. */}}
{{- define "cpuwarden.enabledRules" -}}
{{- $disabled := .disabled }}
groups:
  {{- range .rules.groups }}
  - name: {{ .name }}
    {{- with .interval }}
    interval: {{ . }}
    {{- end }}
    rules:
      {{- range .rules }}
      {{- if not (and .alert (get $disabled .alert)) }}
      - {{ toYaml . | nindent 8 | trim }}
      {{- end }}
      {{- end }}
  {{- end }}
{{- end }}
