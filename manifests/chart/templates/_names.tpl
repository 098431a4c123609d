{{- define "gang-extender.name" -}}
{{- if eq .Values.deployment "second-scheduler" }}gang-scheduler{{ else }}gang-extender{{ end -}}
{{- end }}

{{- /* The labels that select the extender's pods. */}}
{{- define "gang-extender.labels" -}}
app.kubernetes.io/name: gang-extender
app.kubernetes.io/component: {{ if eq .Values.deployment "second-scheduler" }}scheduler-pair{{ else }}extender{{ end }}
{{- end }}

{{- /* The schedulerNames of the pods that the extender serves, as a JSON list. */}}
{{- define "gang-extender.scheduler-names" -}}
{{- $names := .Values.schedulerNames -}}
{{- if eq .Values.deployment "default-scheduler" -}}
{{- $names = prepend (without $names "default-scheduler") "default-scheduler" -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{- /* NAME@DIGEST or NAME:TAG of .image; .usual is the default tag. */}}
{{- define "gang-extender.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .usual }}
{{- end -}}
{{- end }}
