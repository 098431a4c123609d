{{- define "gang-extender.name" -}}
{{- if eq .Values.deployment "second-scheduler" }}gang-scheduler{{ else }}gang-extender{{ end -}}
{{- end }}

{{- /* What selects our pods. */}}
{{- define "gang-extender.labels" -}}
app.kubernetes.io/name: gang-extender
app.kubernetes.io/component: {{ if eq .Values.deployment "second-scheduler" }}scheduler-pair{{ else }}extender{{ end }}
{{- end }}

{{- /* Whose pods are ours, as a JSON list. */}}
{{- define "gang-extender.scheduler-names" -}}
{{- $names := .Values.schedulerNames -}}
{{- if eq .Values.deployment "default-scheduler" -}}
{{- $names = prepend (without $names "default-scheduler") "default-scheduler" -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{- /* NAME@DIGEST or NAME:TAG of .image; its tag is .usual where it has none. */}}
{{- define "gang-extender.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .usual }}
{{- end -}}
{{- end }}
