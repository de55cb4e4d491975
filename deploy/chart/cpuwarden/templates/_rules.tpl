{{- /* What each of prometheusRule.thresholds stands for in the rules: the number at the end is the one that is set. Alerts' texts
have the value measured, not the threshold. */}}
{{- define "cpuwarden.thresholds" -}}
harmfulThrottledRatio: "container:cpuwarden_throttled_time:ratio_rate5m > 0.25"
harmfulLimitUsedRatio: "container:cpuwarden_cpu_limit_used:ratio_rate5m >= 0.80"
burstyThrottledRatio: "container:cpuwarden_throttled_time:ratio_rate5m > 0.10"
burstyLimitUsedRatio: "container:cpuwarden_cpu_limit_used:ratio_rate5m >= 0.25"
ancestorThrottledRatio: "pod:cpuwarden_throttled_by_ancestor_seconds:rate5m > 0.10"
slowedRatio: '(pod:cpuwarden_slowed:ratio_rate10m{reason=~"neighbor|system"}) > 0.30'
noisyNeighborRatio: 'pod:cpuwarden_slowed_by:ratio_rate10m{beyond_request="true"} > 0.30'
contentionRatio: "node:cpuwarden_contention:ratio_rate5m > 0.30"
runtimeParallelismRatio: "container:cpuwarden_cpu_limit_cores:throttled > 2"
runtimeThrottledRatio: "container:cpuwarden_throttled_time:ratio_rate5m > 0.05"
exclusiveOverlapRatio: "rate(cpuwarden_exclusive_overlap_seconds_total[2m])) > 0.05"
samplingLateRatio: "rate(cpuwarden_sample_lateness_seconds_count[5m])) > 0.05"
suppressedSeconds: "increase(cpuwarden_best_effort_step_seconds_total[1h])) > 1800"
gcRatio: "(cpuwarden_container_gc_cpu_ratio) > 0.25"
stealRatio: "node:cpuwarden_steal:ratio_rate5m > 0.05"
{{- end }}

{{- /* Alerts about pods, whose namespaces prometheusRule.namespaces selects, and the rule that counts such pods. */}}
{{- define "cpuwarden.rulesOfPods" -}}
- CPUThrottlingHarmful
- CPUThrottlingBursty
- CPUThrottledByAncestor
- ServiceSlowed
- NoisyNeighbor
- RuntimeParallelismMismatch
- ExclusiveCPUOverlap
- node:cpuwarden_slowed_pods:count10m
{{- end }}

{{- /* Matchers of the namespaces; nothing for all. */}}
{{- define "cpuwarden.namespaceMatchers" -}}
{{- $matchers := list }}
{{- with .only }}{{ $matchers = append $matchers (printf "%s=~%q" $.label (join "|" . | replace "*" ".*")) }}{{ end }}
{{- with .except }}{{ $matchers = append $matchers (printf "%s!~%q" $.label (join "|" . | replace "*" ".*")) }}{{ end }}
{{- join "," $matchers }}
{{- end }}

{{- /* An expression whose selectors of pods have these matchers too. */}}
{{- define "cpuwarden.withMatchers" -}}
{{- $series := "((?:container|pod):cpuwarden_[a-z_]+:[a-z0-9_]+|cpuwarden_(?:container|pod|pinned|exclusive|best_effort_restricted)[a-z_]*)" }}
{{- $expr := regexReplaceAll (printf "%s([^{a-z0-9_:]|$)" $series) .expr "${1}{}${2}" }}
{{- regexReplaceAll (printf "%s\\{" $series) $expr (printf "${1}{%s," .matchers) | replace ",}" "}" }}
{{- end }}

{{- /* The groups of a file with the changes of the values prometheusRule.disabled, alerts, alertLabels and namespaces. */}}
{{- define "cpuwarden.changedRules" -}}
{{- $values := .values }}
{{- $ofPods := include "cpuwarden.rulesOfPods" . | fromYamlArray }}
groups:
  {{- range .rules.groups }}
  - name: {{ .name }}
    {{- with .interval }}
    interval: {{ . }}
    {{- end }}
    rules:
      {{- range .rules }}
      {{- $rule := . }}
      {{- if not (and .alert (get $values.disabled .alert)) }}
      {{- if has (.alert | default .record) $ofPods }}
      {{- $label := ternary "aggressor_namespace" "namespace" (eq (.alert | default "") "NoisyNeighbor") }}
      {{- with include "cpuwarden.namespaceMatchers" (merge (dict "label" $label) $values.namespaces) }}
      {{- $_ := set $rule "expr" (include "cpuwarden.withMatchers" (dict "expr" $rule.expr "matchers" .)) }}
      {{- end }}
      {{- end }}
      {{- if .alert }}
      {{- $change := get $values.alerts .alert | default dict }}
      {{- $own := merge (dict) ($change.labels | default dict) $values.alertLabels }}
      {{- with $change.severity }}{{ $_ := set $own "severity" . }}{{ end }}
      {{- $_ := set $rule "labels" (merge $own .labels) }}
      {{- $_ := set $rule "annotations" (merge (dict) ($change.annotations | default dict) .annotations) }}
      {{- with get $change "for" }}{{ $_ := set $rule "for" . }}{{ end }}
      {{- end }}
      - {{ toYaml $rule | nindent 8 | trim }}
      {{- end }}
      {{- end }}
  {{- end }}
{{- end }}
