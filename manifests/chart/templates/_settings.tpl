{{- /* A number in the notation of flags: integers without an exponent. */}}
{{- define "gang-extender.number" -}}
{{- if eq (floor .) (float64 .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{- /* The flags of .Values.settings as a JSON list, sorted by name. */}}
{{- define "gang-extender.settings" -}}
{{- $flags := list -}}
{{- range $name, $value := .Values.settings -}}
  {{- if kindIs "bool" $value -}}
    {{- if $value }}{{ $flags = append $flags (printf "--%s" $name) }}{{ end -}}
  {{- else if kindIs "slice" $value -}}
    {{- range $value }}{{ $flags = append $flags (printf "--%s=%s" $name .) }}{{ end -}}
  {{- else if kindIs "string" $value -}}
    {{- $flags = append $flags (printf "--%s=%s" $name $value) -}}
  {{- else -}}
    {{- $flags = append $flags (printf "--%s=%s" $name (include "gang-extender.number" $value)) -}}
  {{- end -}}
{{- end -}}
{{- toJson $flags -}}
{{- end }}

{{- /* All arguments of the extender, as a JSON list. */}}
{{- define "gang-extender.arguments" -}}
{{- $arguments := list "serve" -}}
{{- $default := eq .Values.deployment "default-scheduler" -}}
{{- if $default -}}
  {{- $arguments = concat $arguments (list
        "--listen=0.0.0.0:8888"
        "--tls-cert-file=/tls/tls.crt"
        "--tls-private-key-file=/tls/tls.key"
        "--client-ca-file=/tls/ca.crt") -}}
{{- else -}}
  {{- $arguments = append $arguments "--hook-secret-file=/run/gang-pair/hook-secret" -}}
{{- end -}}
{{- $arguments = append $arguments "--ops-listen=0.0.0.0:8889" -}}
{{- if .Values.tls.operationsSecretName -}}
  {{- $arguments = concat $arguments (list
        "--ops-tls-cert-file=/operations-tls/tls.crt"
        "--ops-tls-private-key-file=/operations-tls/tls.key") -}}
{{- end -}}
{{- if ne (default "none" .Values.operationsAuth) "none" -}}
  {{- if not .Values.tls.operationsSecretName -}}
    {{- fail "operationsAuth needs tls.operationsSecretName: without TLS, clients would send their tokens in clear text" -}}
  {{- end -}}
  {{- $arguments = append $arguments (printf "--ops-auth=%s" .Values.operationsAuth) -}}
{{- end -}}
{{- if $default -}}
  {{- $arguments = append $arguments "--lease=own" -}}
{{- else -}}
  {{- $arguments = concat $arguments (list
        "--lease=scheduler"
        (printf "--lease-name=%s" (first .Values.schedulerNames))) -}}
{{- end -}}
{{- $arguments = append $arguments (printf "--lease-namespace=%s" .Release.Namespace) -}}
{{- range include "gang-extender.scheduler-names" . | fromJsonArray -}}
  {{- $arguments = append $arguments (printf "--scheduler-name=%s" .) -}}
{{- end -}}
{{- range .Values.exemptNamespaces -}}
  {{- $arguments = append $arguments (printf "--exempt-namespace=%s" .) -}}
{{- end -}}
{{- if .Values.policy -}}
  {{- $arguments = append $arguments "--config=/etc/gang-extender/policy.yaml" -}}
{{- end -}}
{{- concat $arguments (include "gang-extender.settings" . | fromJsonArray) | toJson -}}
{{- end }}
