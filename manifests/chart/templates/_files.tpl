{{- /* A file of the overlays as it is, but in the namespace of the release. */}}
{{- define "gang-extender.file" -}}
{{- $here := printf "namespace: %s" (.root.Release.Namespace | toJson) -}}
{{- .root.Files.Get .name | replace "namespace: gang-system" $here -}}
{{- end }}
