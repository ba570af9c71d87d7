{{/* What pods have in common. */}}

{{/* A component's options, laid over those of `pods`: lists are joined. root, options. */}}
{{- define "dyorc.options" -}}
{{- $all := deepCopy .root.Values.pods }}
{{- range $key, $value := .options }}
  {{- if and (kindIs "slice" $value) (hasKey $all $key) }}{{ $_ := set $all $key (concat (get $all $key) $value) }}
  {{- else if and (kindIs "map" $value) (hasKey $all $key) }}{{ $_ := set $all $key (merge (deepCopy $value) (get $all $key)) }}
  {{- else }}{{ $_ := set $all $key $value }}
  {{- end }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/* Metadata of a pod. root, component, options; group; checksums: what its processes read only once. */}}
{{- define "dyorc.podMetadata" -}}
labels:  # without versions: a new chart alone starts no pods again
  {{- include "dyorc.selector" . | nindent 2 }}
  {{- with .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .options.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.options.annotations | default dict) (.checksums | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where a pod runs, and as whom. root, component, options; group. */}}
{{- define "dyorc.placing" -}}
enableServiceLinks: false
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with include "dyorc.pullSecrets" .root | fromYamlArray }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" }}
{{- with get $.options $key }}
{{ $key }}:
  {{- if kindIs "string" . }} {{ . }}{{ else }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
{{- end }}
{{- if .options.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml .options.topologySpreadConstraints | nindent 2 }}
{{- else if not .options.affinity }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "dyorc.selector" . | nindent 8 }}
{{- end }}
{{- end }}

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

{{/* The environment of gateways and orchestrators. root, options, component. */}}
{{- define "dyorc.serviceEnvironment" -}}
{{ include "dyorc.environment" . }}
- name: DYORC_CLUSTER__HOST
  value: $(POD_IP)
# The image has its own values of these two, and the environment wins over the file.
- name: DYORC_TRANSPORT__ARENA_FOLDER
  value: /dev/shm
- name: DYORC_TELEMETRY__LOGS__FORMAT
  value: {{ dig "telemetry" "logs" "format" "json" .root.Values.settings }}
{{- if .root.Values.redis.enabled }}
- name: REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "dyorc.redisSecret" .root }}, key: {{ .root.Values.redis.auth.key }}}}
- name: DYORC_STORE
  value: redis://:$(REDIS_PASSWORD)@{{ include "dyorc.fullname" .root }}-redis.{{ .root.Release.Namespace }}.svc:6379/0
{{- else }}
- name: DYORC_STORE
  valueFrom: {secretKeyRef: {name: {{ include "dyorc.storeSecret" .root }}, key: {{ .root.Values.redis.external.key }}}}
{{- end }}
{{- if .root.Values.otlp.headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ .root.Values.otlp.headersSecret }}, key: {{ .root.Values.otlp.headersKey }}}}
{{- end }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name={{ .root.Release.Namespace }},k8s.pod.name=$(POD_NAME)
    {{- range $name, $value := .root.Values.otlp.resourceAttributes }},{{ $name }}={{ $value }}{{ end }}
{{- with .options.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Volumes of gateways and orchestrators. root, options. */}}
{{- define "dyorc.serviceVolumes" -}}
{{ include "dyorc.volumes" . }}
- name: config
  configMap: {name: {{ include "dyorc.fullname" .root }}-config}
- name: cluster
  secret: {secretName: {{ include "dyorc.clusterSecret" .root }}, defaultMode: 0440}
{{- end }}
{{- define "dyorc.serviceMounts" -}}
{{ include "dyorc.mounts" . }}
- {name: config, mountPath: /etc/dyorc/dyorc.toml, subPath: dyorc.toml, readOnly: true}
- {name: cluster, mountPath: /etc/dyorc/cluster, readOnly: true}
{{- end }}

{{/* Volumes of all pods. root, options: with sharedMemory. */}}
{{- define "dyorc.volumes" -}}
- name: tmp
  emptyDir: {}
- name: shared-mem
  emptyDir: {medium: Memory, sizeLimit: {{ .options.sharedMemory }}}
{{- with .options.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- define "dyorc.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: shared-mem, mountPath: /dev/shm}
{{- with .options.extraVolumeMounts }}
{{ toYaml . }}
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
  {{- toYaml $source.volume | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
{{- define "dyorc.mountsWorkflows" -}}
{{- if or (ne .Values.workflows.from "image") (not .Values.groups) }}true{{ end }}
{{- end }}
{{- define "dyorc.workflowMount" -}}
{{- if include "dyorc.mountsWorkflows" . }}
- {name: workflows, mountPath: {{ .Values.workflows.path }}, readOnly: true}
{{- end }}
{{- end }}

{{/* Sums of what processes read only once, so that a change starts new pods. */}}
{{- define "dyorc.checksums" -}}
checksum/config: {{ include "dyorc.config" . | sha256sum }}
{{- with include "dyorc.workflowFiles" . }}
checksum/workflows: {{ sha256sum . }}
{{- end }}
{{- end }}

{{/* How long a pod may take to end: before it stops listening, for what it has, and a reserve. root, before. */}}
{{- define "dyorc.graceSeconds" -}}
{{- $drain := dig "gateway" "drain_timeout_s" 10 .root.Values.settings }}
{{- add .before (ceil $drain) 15 }}
{{- end }}

{{/* A PodDisruptionBudget. root, component, name, budget; group. */}}
{{- define "dyorc.budget" -}}
{{- if .budget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "dyorc.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .budget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "dyorc.selector" . | nindent 6 }}
{{- end }}
{{- end }}
