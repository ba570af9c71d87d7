{{/* dyorc.toml: `settings` of the values, and what the chart sets. */}}

{{/* Settings that the chart sets, each with what to set instead. */}}
{{- define "dyorc.chartsOwn" -}}
workflows: set groups.NAME.workflows
in_process: set ray.kind
cells.num_cells: set gateway.processes
{{- if not (include "dyorc.hasCells" .) }}
store: set redis
{{- end }}
gateway.host: gateways listen on all addresses of their pods
gateway.port: set gateway.service.port
gateway.grpc_port: set gateway.service.grpcPort
gateway.keys_file: set gateway.tenants
gateway.allow_open: set gateway.allowOpen
gateway.tls_certificate_file: set gateway.tls
gateway.tls_key_file: set gateway.tls
gateway.tls_client_roots_file: set gateway.tls.clientRoots
cluster.group: set groups
cluster.groups: set groups
cluster.host: it is the pod's address
cluster.port: it is 8100
cluster.keys_file: set cluster.existingSecret
cluster.operations_port: it is 9100
link.host: it is the pod's address
link.port: it is 8101
deployment.ray_address: set ray.address
telemetry.metrics: set monitoring
telemetry.metrics_host: metrics have ports of their own, 9464 and 9100
telemetry.metrics_port: metrics have ports of their own, 9464 and 9100
transport.arena_folder: it is /dev/shm; set sharedMemory.sizeLimit of each component
{{- end }}

{{- define "dyorc.settings" -}}
{{- if not (include "dyorc.hasCells" .) -}}
cluster:
  groups: {{ include "dyorc.groups" . | fromYaml | keys | sortAlpha | toJson }}
  keys_file: /etc/dyorc/cluster/{{ .Values.cluster.key }}
  port: 8100
  operations_port: 9100
link:
  port: 8101
{{- end }}
gateway:
  host: 0.0.0.0
  port: 8000
  grpc_port: 8001
  {{- if include "dyorc.hasTenants" . }}
  keys_file: /etc/dyorc/tenants/{{ .Values.gateway.tenants.key }}
  {{- end }}
  {{- if include "dyorc.hasTls" . }}
  tls_certificate_file: /etc/dyorc/tls/tls.crt
  tls_key_file: /etc/dyorc/tls/tls.key
  {{- if .Values.gateway.tls.clientRoots }}
  tls_client_roots_file: /etc/dyorc/tls/ca.crt
  {{- end }}
  {{- end }}
  {{- if and (not (include "dyorc.hasTenants" .)) (not .Values.gateway.tls.clientRoots) }}
  allow_open: true
  {{- end }}
telemetry:
  metrics_host: 0.0.0.0
{{- if include "dyorc.hasRay" . }}
deployment:
  ray_address: {{ include "dyorc.rayAddress" . }}
{{- else }}
in_process: true
{{- end }}
{{- end }}

{{/* The whole file. */}}
{{- define "dyorc.config" -}}
{{- include "dyorc.toml" (dict "table" (mustMergeOverwrite (deepCopy .Values.settings) (fromYaml (include "dyorc.settings" .))) "path" "") | trim }}
{{- end }}

{{/* A table as TOML: its values, then its tables. table, path: with a dot at its end. (Helm's toToml makes fractions of all numbers.) */}}
{{- define "dyorc.toml" -}}
{{- range $key, $value := .table }}
  {{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "dyorc.tomlKey" $key }} = {{ include "dyorc.tomlValue" $value }}
  {{- end }}
{{- end }}
{{- range $key, $value := .table }}
  {{- if kindIs "map" $value }}
    {{- $path := printf "%s%s" $.path (include "dyorc.tomlKey" $key) }}

[{{ $path }}]
    {{- include "dyorc.toml" (dict "table" $value "path" (printf "%s." $path)) }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "dyorc.tomlKey" -}}
{{ if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toRawJson . }}{{ end }}
{{- end }}

{{- define "dyorc.tomlValue" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }},{{ end }} {{ include "dyorc.tomlKey" $key }} = {{ include "dyorc.tomlValue" (get $ $key) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{ range $i, $value := . }}{{ if $i }}, {{ end }}{{ include "dyorc.tomlValue" $value }}{{ end }}]
{{- else }}{{ toRawJson . }}
{{- end }}
{{- end }}
