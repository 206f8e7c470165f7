{{/* manifest gives a file as it stands in config/, for the release's namespace. */}}
{{- define "manifest" -}}
{{ (index . 0).Files.Get (index . 1) | replace "kubelet-cert-auditor-system" (index . 0).Release.Namespace }}
{{- end }}

{{/* labelled gives the manifest with more labels. */}}
{{- define "labelled" -}}
{{- $object := include "manifest" . | fromYaml }}
{{- $_ := set $object.metadata "labels" (merge (dict) (default dict (index . 2)) $object.metadata.labels) }}
{{- toYaml $object }}
{{- end }}
