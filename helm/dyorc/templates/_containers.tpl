{{/* Variables, volumes and mounts that several components have. Lists of YAML. */}}

{{/* The environment of all containers that run DyOrc or Ray; only gateways have nothing to do with Ray. root; component. */}}
{{- define "dyorc.environment" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: HOME
  value: /tmp
- name: TINI_SUBREAPER  # the image's init collects what its processes leave behind, also where it is not the first process
  value: "1"
{{- if and (include "dyorc.hasRay" .root) (ne (.component | default "") "gateway") }}
- name: RAY_AUTH_MODE
  value: token
- name: RAY_AUTH_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "dyorc.raySecret" .root }}, key: {{ .root.Values.ray.auth.key }}}}
- name: RAY_USAGE_STATS_ENABLED
  value: "0"
{{- end }}
{{- end }}

{{/* The environment of gateways and orchestrators. root, component. */}}
{{- define "dyorc.serviceEnvironment" -}}
{{ include "dyorc.environment" . }}
{{- if not (include "dyorc.hasCells" .root) }}
- name: DYORC_CLUSTER__HOST
  value: $(POD_IP)
{{- end }}
# The image has its own values of these two, and the environment wins over the file.
- name: DYORC_TRANSPORT__ARENA_FOLDER
  value: /dev/shm
- name: DYORC_TELEMETRY__LOGS__FORMAT
  value: {{ dig "telemetry" "logs" "format" "json" .root.Values.settings }}
{{- include "dyorc.storeEnvironment" .root }}
{{- if .root.Values.otlp.headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ .root.Values.otlp.headersSecret }}, key: {{ .root.Values.otlp.headersKey }}}}
{{- end }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name={{ .root.Release.Namespace }},k8s.pod.name=$(POD_NAME)
    {{- range $name, $value := .root.Values.otlp.resourceAttributes }},{{ $name }}={{ $value }}{{ end }}
{{- end }}

{{/* A host as it stands in a URL: an address of IPv6 in brackets. Takes the host. */}}
{{- define "dyorc.urlHost" -}}
{{ if and (contains ":" .) (not (hasPrefix "[" .)) }}[{{ . }}]{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* Where jobs and leads are kept. Takes the root. */}}
{{- define "dyorc.storeEnvironment" -}}
{{- $external := .Values.redis.external }}
{{- if include "dyorc.makesRedis" . }}
- name: REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "dyorc.redisSecret" . }}, key: {{ .Values.redis.auth.key }}}}
- name: DYORC_STORE
  value: redis://:$(REDIS_PASSWORD)@{{ include "dyorc.fullname" . }}-redis.{{ .Release.Namespace }}.svc:6379/0
{{- else if $external.host }}
{{- $credentials := $external.username | default "" | urlquery | replace "+" "%20" }}
{{- if $external.existingPasswordSecret }}
{{- $credentials = printf "%s:$(REDIS_PASSWORD)" $credentials }}
- name: REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $external.existingPasswordSecret }}, key: {{ $external.passwordKey }}}}
{{- end }}
- name: DYORC_STORE
  value: redis{{ if $external.tls.enabled }}s{{ end }}://{{ with $credentials }}{{ . }}@{{ end }}{{ include "dyorc.urlHost" $external.host }}:{{ $external.port }}/{{ $external.database }}
    {{- if include "dyorc.hasRedisRoots" . }}?ssl_ca_certs=/etc/dyorc/redis/ca.crt{{ end }}
{{- else if include "dyorc.hasExternalRedis" . }}
- name: DYORC_STORE
  valueFrom: {secretKeyRef: {name: {{ include "dyorc.storeSecret" . }}, key: {{ $external.key }}}}
{{- end }}
{{- end }}

{{/* Volumes of gateways and orchestrators. Takes the root. */}}
{{- define "dyorc.serviceVolumes" -}}
- name: config
  configMap: {name: {{ include "dyorc.fullname" . }}-config}
{{- if not (include "dyorc.hasCells" .) }}
- name: cluster
  secret: {secretName: {{ include "dyorc.clusterSecret" . }}, defaultMode: 0440}
{{- end }}
{{- include "dyorc.storeVolume" . }}
{{- end }}
{{- define "dyorc.serviceMounts" -}}
- {name: config, mountPath: /etc/dyorc/dyorc.toml, subPath: dyorc.toml, readOnly: true}
{{- if not (include "dyorc.hasCells" .) }}
- {name: cluster, mountPath: /etc/dyorc/cluster, readOnly: true}
{{- end }}
{{- include "dyorc.storeMount" . }}
{{- end }}

{{/* The authority of an external Redis, for all who ask it: replicas too. Takes the root. */}}
{{- define "dyorc.storeVolume" -}}
{{- if include "dyorc.hasRedisRoots" . }}
- name: redis-roots
  secret: {secretName: {{ .Values.redis.external.tls.caSecret }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- define "dyorc.storeMount" -}}
{{- if include "dyorc.hasRedisRoots" . }}
- {name: redis-roots, mountPath: /etc/dyorc/redis, readOnly: true}
{{- end }}
{{- end }}

{{/* The workflows' code, where programs or workflows run; nothing if the image has it. Takes the root. */}}
{{- define "dyorc.workflowVolume" -}}
{{- $source := .Values.workflows }}
{{- if include "dyorc.mountsWorkflows" . }}
- name: workflows
  {{- if or (eq $source.from "configMap") (not .Values.groups) }}
  configMap: {name: {{ default (printf "%s-workflows" (include "dyorc.fullname" .)) $source.configMap.existing }}}
  {{- else if eq $source.from "persistentVolumeClaim" }}
  persistentVolumeClaim: {claimName: {{ $source.persistentVolumeClaim }}, readOnly: true}
  {{- else }}
  {{- with $source.volume }}{{ toYaml . | nindent 2 }}{{ end }}
  {{- end }}
{{- end }}
{{- end }}
{{- define "dyorc.workflowMount" -}}
{{- if include "dyorc.mountsWorkflows" . }}
- {name: workflows, mountPath: {{ .Values.workflows.path }}, readOnly: true}
{{- end }}
{{- end }}
