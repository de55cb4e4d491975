{{- /* What each of prometheusRule.thresholds stands for in the rules: the number at the end is the one that is set. */}}
{{- define "cpuwarden.thresholds" -}}
harmfulThrottledRatio: "container:cpuwarden_throttled_time:ratio_rate5m > 0.25"
harmfulLimitUsedRatio: "container:cpuwarden_cpu_limit_used:ratio_rate5m >= 0.80"
burstyThrottledRatio: "container:cpuwarden_throttled_time:ratio_rate5m > 0.10"
neighborWaitRatio: "container:cpuwarden_cpu_usage_cores:rate5m > 0.10"
neighborUsedCores: "container:cpuwarden_cpu_usage_cores:rate5m > 0.25"
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
