{{- define "gang-extender.probe" -}}
path: {{ index . 1 }}
port: ops
{{- if (index . 0).Values.tls.operationsSecretName }}
scheme: HTTPS
{{- end }}
{{- end }}

{{- define "gang-extender.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
