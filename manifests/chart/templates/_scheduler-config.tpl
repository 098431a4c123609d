{{- /* The output of `gang-extender scheduler-config` for the same values; the tests compare the two. */}}
{{- define "gang-extender.scheduler-config" -}}
{{- $settings := .Values.settings -}}
# Two entries, because httpTimeout is per entry: filter and preempt run in the serial
# scheduling loop and must be quick; a bind may wait for the rest of its gang.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  qps: 1000
  burst: 2000
leaderElection:
  leaderElect: true
  resourceName: {{ first .Values.schedulerNames | toYaml }}
  resourceNamespace: {{ .Release.Namespace | toYaml }}
  retryPeriod: 500ms
percentageOfNodesToScore: 1
profiles:
{{- range .Values.schedulerNames }}
- schedulerName: {{ . | toYaml }}
{{- end }}
extenders:
- urlPrefix: http://127.0.0.1:8888
  nodeCacheCapable: true
  ignorable: false
  filterVerb: filter
  preemptVerb: preempt
  {{- if ne (index $settings "prefer" | default "nothing") "nothing" }}
  prioritizeVerb: prioritize
  weight: 1
  {{- end }}
  httpTimeout: {{ include "gang-extender.number" (index $settings "filter-timeout-s" | default 2) }}s
- urlPrefix: http://127.0.0.1:8888
  nodeCacheCapable: true
  ignorable: false
  bindVerb: bind
  httpTimeout: {{ include "gang-extender.number" (index $settings "bind-timeout-s" | default 45) }}s
{{ end }}
