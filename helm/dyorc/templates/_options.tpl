{{/* What a component's values say. Templates that return a structure return it as JSON. */}}

{{/* A map without what is not set: "", {} and []. Takes the map. */}}
{{- define "dyorc.onlySet" -}}
{{- $set := dict }}
{{- range $key, $value := . }}
  {{- if not (has (toJson $value) (list `""` `{}` `[]` `null`)) }}{{ $_ := set $set $key $value }}{{ end }}
{{- end }}
{{- toJson $set }}
{{- end }}

{{/* One component's options over others: what is not set leaves them; lists are joined; maps are merged, but for resources. over, under. */}}
{{- define "dyorc.overlay" -}}
{{- $sum := deepCopy .under }}
{{- range $key, $value := include "dyorc.onlySet" .over | fromJson }}
  {{- $below := get $sum $key }}
  {{- if and (kindIs "slice" $value) (kindIs "slice" $below) }}{{ $_ := set $sum $key (concat $below $value) }}
  {{- else if and (kindIs "map" $value) (kindIs "map" $below) (ne $key "resources") }}{{ $_ := set $sum $key (mustMergeOverwrite (deepCopy $below) $value) }}
  {{- else }}{{ $_ := set $sum $key $value }}
  {{- end }}
{{- end }}
{{- toJson $sum }}
{{- end }}

{{/* The names that options had before chart 0.2, with those they have now. */}}
{{- define "dyorc.renamedOptions" -}}
{"annotations": "podAnnotations", "labels": "podLabels", "extraContainers": "sidecars"}
{{- end }}

{{/* Options by the names they have now. Takes the map. */}}
{{- define "dyorc.renamed" -}}
{{- $options := deepCopy . }}
{{- range $old, $new := include "dyorc.renamedOptions" $ | fromJson }}
  {{- if hasKey $options $old }}
    {{- $both := include "dyorc.overlay" (dict "under" (dict $new (get $options $old)) "over" (dict $new (get $options $new))) | fromJson }}
    {{- $_ := set (unset $options $old) $new (get $both $new) }}
  {{- end }}
{{- end }}
{{- if and (hasKey $options "sharedMemory") (not (kindIs "map" $options.sharedMemory)) }}{{ $_ := set $options "sharedMemory" (dict "sizeLimit" (toString $options.sharedMemory)) }}{{ end }}
{{- toJson $options }}
{{- end }}

{{/* What is said for all pods and workloads, and over it what each of some maps says, the last one the most. root, options: a list. */}}
{{- define "dyorc.options" -}}
{{- $values := .root.Values }}
{{- $old := dict "podSecurityContext" ($values.podSecurityContext | default dict) "containerSecurityContext" ($values.containerSecurityContext | default dict) }}
{{- $sum := dict }}
{{- range concat (list $values.workloads $values.pods $old) .options }}
  {{- $sum = include "dyorc.overlay" (dict "under" $sum "over" (include "dyorc.renamed" . | fromJson)) | fromJson }}
{{- end }}
{{- toJson $sum }}
{{- end }}

{{/* Old names that are used, one in a line, each with the new one. Takes the root. */}}
{{- define "dyorc.oldNames" -}}
{{- $components := dict "pods." .Values.pods "gateway." .Values.gateway "orchestrator." .Values.orchestrator "redis." .Values.redis "ray.head." .Values.ray.head "ray.worker." .Values.ray.worker }}
{{- range $name, $values := .Values.ray.workerGroups }}{{ $_ := set $components (printf "ray.workerGroups.%s." $name) $values }}{{ end }}
{{- range $component, $values := $components }}
  {{- range $old, $new := include "dyorc.renamedOptions" $ | fromJson }}
    {{- if hasKey $values $old }}
{{ $component }}{{ $old }}: {{ $component }}{{ $new }}
    {{- end }}
  {{- end }}
  {{- if and (hasKey $values "sharedMemory") (not (kindIs "map" $values.sharedMemory)) }}
{{ $component }}sharedMemory as a text: {{ $component }}sharedMemory.sizeLimit
  {{- end }}
{{- end }}
{{- range list "podSecurityContext" "containerSecurityContext" }}
  {{- if hasKey $.Values . }}
{{ . }}: pods.{{ . }}
  {{- end }}
{{- end }}
{{- if kindIs "string" .Values.redis.image }}
redis.image as a text: redis.image.repository and redis.image.tag
{{- end }}
{{- range $ingress, $values := dict "gateway.ingress." .Values.gateway.ingress "gateway.ingress.grpc." .Values.gateway.ingress.grpc }}
  {{- range $old, $new := dict "host" "hosts" "path" "hosts" "tlsSecret" "tls" }}
    {{- if hasKey $values $old }}
{{ $ingress }}{{ $old }}: {{ $ingress }}{{ $new }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}
