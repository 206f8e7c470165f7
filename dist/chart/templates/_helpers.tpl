{{/* manifest gives a file as it stands in config/, for the release's namespace. */}}
{{- define "manifest" -}}
{{ (index . 0).Files.Get (index . 1) | replace "kubelet-cert-auditor-system" (index . 0).Release.Namespace }}
{{- end }}
