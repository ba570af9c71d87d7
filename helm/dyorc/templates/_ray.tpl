{{/* Ray's nodes. */}}

{{/* The Ray node next to an orchestrator, which is a driver and needs one in its pod. Nothing runs on it. Takes the root; a container, as JSON. */}}
{{- define "dyorc.raySidecar" -}}
{{- $all := include "dyorc.options" (dict "root" . "options" list) | fromJson }}
{{- $options := include "dyorc.overlay" (dict "under" (pick $all "containerSecurityContext") "over" .Values.ray.sidecar) | fromJson }}
{{- $image := include "dyorc.imageValues" (dict "root" . "image" .Values.ray.sidecar.image) | fromJson }}
{{- include "dyorc.container" (dict "root" . "options" $options "image" $image "own" (include "dyorc.rayNodeContainer" . | fromYaml)) }}
{{- end }}
{{- define "dyorc.rayNodeContainer" -}}
container:
  name: ray-node
  restartPolicy: Always
  args:
    - ray
    - start
    - --block
    - --address={{ include "dyorc.rayAddress" . }}
    - --node-ip-address=$(POD_IP)
    - --num-cpus=0
    - --num-gpus=0
    - --object-store-memory=83886080
  env:
    {{- include "dyorc.environment" (dict "root" .) | nindent 4 }}
  startupProbe: {httpGet: {path: /api/local_raylet_healthz, port: 52365}, periodSeconds: 2, timeoutSeconds: 5, failureThreshold: 150}
  livenessProbe: {httpGet: {path: /api/local_raylet_healthz, port: 52365}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 6}
  volumeMounts:
    {{- include "dyorc.workflowMount" . | nindent 4 }}
{{- end }}

{{/* The pod of the head or of a worker group, as JSON. root, component, options; group; isHead. */}}
{{- define "dyorc.rayPod" -}}
{{- $image := include "dyorc.imageValues" (dict "root" .root "image" .options.image) | fromJson }}
{{- $options := deepCopy .options }}
{{- $_ := set $options "resources" (include "dyorc.rayResources" .options | fromJson) }}
{{- include "dyorc.podTemplate" (merge (dict "options" $options "image" $image "own" (include "dyorc.rayNode" . | fromYaml)) .) }}
{{- end }}

{{/* What a node of Ray is, but for what values say of every pod. root, component, isHead. */}}
{{- define "dyorc.rayNode" }}
hasNoAccount: {{ and .isHead .root.Values.ray.autoscaler.enabled }}  # KubeRay makes one, which may change the cluster
pod:
  terminationGracePeriodSeconds: {{ include "dyorc.graceSeconds" (dict "root" .root "before" 0) }}
container:
  name: {{ .component }}
  env:
    {{- include "dyorc.environment" . | nindent 4 }}
    - name: PYTHONPATH
      value: {{ .root.Values.workflows.path }}
    {{- if .isHead }}
    {{- with .root.Values.ray.healthCheck }}
    - {name: RAY_health_check_period_ms, value: {{ .periodMs | quote }}}
    - {name: RAY_health_check_timeout_ms, value: {{ .timeoutMs | quote }}}
    - {name: RAY_health_check_failure_threshold, value: {{ .failureThreshold | quote }}}
    {{- end }}
    {{- end }}
  {{- if .isHead }}
  ports:
    - {name: gcs-server, containerPort: 6379}
    - {name: dashboard, containerPort: 8265}
    - {name: client, containerPort: 10001}
  {{- end }}
  livenessProbe: {httpGet: {path: /api/local_raylet_healthz, port: 52365}, initialDelaySeconds: 30, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 24}
  readinessProbe: {httpGet: {path: /api/local_raylet_healthz, port: 52365}, initialDelaySeconds: 5, periodSeconds: 5, timeoutSeconds: 5}
  volumeMounts:
    {{- include "dyorc.storeMount" .root | nindent 4 }}
    {{- include "dyorc.workflowMount" .root | nindent 4 }}
volumes:
  {{- include "dyorc.storeVolume" .root | nindent 2 }}
  {{- include "dyorc.workflowVolume" .root | nindent 2 }}
{{- end }}

{{/* What a Ray container gets, with as many devices as `gpus` says, as JSON. Takes options. */}}
{{- define "dyorc.rayResources" -}}
{{- $resources := deepCopy (.resources | default dict) }}
{{- if .gpus }}
{{- $gpus := dict "nvidia.com/gpu" .gpus }}
{{- $resources = mustMergeOverwrite $resources (dict "limits" $gpus "requests" $gpus) }}
{{- end }}
{{- toJson $resources }}
{{- end }}

{{/* The groups of workers by name, each with all that `ray.worker` says besides. Takes the root; JSON. */}}
{{- define "dyorc.workerGroups" -}}
{{- $groups := dict }}
{{- range $group, $values := .Values.ray.workerGroups | default (dict "cpu" (dict "minReplicas" 1)) }}
{{- $_ := set $groups $group (include "dyorc.options" (dict "root" $ "options" (list $.Values.ray.worker ($values | default dict))) | fromJson) }}
{{- end }}
{{- toJson $groups }}
{{- end }}

{{/* The spec of a RayCluster. Takes the root. */}}
{{- define "dyorc.rayCluster" -}}
{{- $ray := .Values.ray -}}
rayVersion: {{ $ray.version | quote }}
enableInTreeAutoscaling: {{ $ray.autoscaler.enabled }}
{{- if $ray.autoscaler.enabled }}
autoscalerOptions:
  version: v2
  idleTimeoutSeconds: {{ $ray.autoscaler.idleTimeoutSeconds }}
  upscalingMode: {{ $ray.autoscaler.upscalingMode }}
  {{- if $ray.autoscaler.image }}
  image: {{ include "dyorc.imageName" (dict "root" . "image" (include "dyorc.imageValues" (dict "root" . "image" $ray.autoscaler.image) | fromJson)) }}
  {{- end }}
  imagePullPolicy: {{ ($ray.autoscaler.image | default dict).pullPolicy | default .Values.image.pullPolicy }}
  env:
    {{- include "dyorc.environment" (dict "root" .) | nindent 4 }}
    {{- with $ray.autoscaler.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  securityContext:
    {{- (include "dyorc.options" (dict "root" . "options" (list $ray.head)) | fromJson).containerSecurityContext | toYaml | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
  resources:
    {{- toYaml $ray.autoscaler.resources | nindent 4 }}
{{- end }}
{{- if ne $ray.upgradeStrategy "None" }}
upgradeStrategy: {type: {{ $ray.upgradeStrategy }}}
{{- end }}
{{- if $ray.faultTolerance.enabled }}
{{- $external := .Values.redis.external }}
gcsFaultToleranceOptions:
  {{- if include "dyorc.makesRedis" . }}
  redisAddress: {{ include "dyorc.fullname" . }}-redis:6379
  redisPassword:
    valueFrom: {secretKeyRef: {name: {{ include "dyorc.redisSecret" . }}, key: {{ .Values.redis.auth.key }}}}
  {{- else }}
  redisAddress: {{ $ray.faultTolerance.redisAddress | default (printf "%s:%v" (include "dyorc.urlHost" ($external.host | default "")) $external.port) }}
  {{- if $ray.faultTolerance.redisPassword }}
  redisPassword:
    {{- toYaml $ray.faultTolerance.redisPassword | nindent 4 }}
  {{- else if $external.existingPasswordSecret }}
  redisPassword:
    valueFrom: {secretKeyRef: {name: {{ $external.existingPasswordSecret }}, key: {{ $external.passwordKey }}}}
  {{- end }}
  {{- end }}
{{- end }}
headGroupSpec:
  {{- $service := include "dyorc.serviceOptions" (dict "root" . "service" $ray.head.service) | fromJson }}
  serviceType: {{ $service.type | default "ClusterIP" }}
  {{- $fields := include "dyorc.serviceFields" (dict "options" $service "isHeadless" false) | fromJson }}
  {{- $metadata := include "dyorc.onlySet" (pick $service "labels" "annotations") | fromJson }}
  {{- $ports := list }}
  {{- $known := dict "gcs-server" 6379 "dashboard" 8265 "client" 10001 }}
  {{- range $port, $number := $service.nodePorts }}
    {{- with get $known $port }}{{ $ports = append $ports (dict "name" $port "port" . "nodePort" $number) }}{{ end }}
  {{- end }}
  {{- include "dyorc.checkPorts" (dict "of" "ray.head" "type" $service.type "ports" (concat $ports ($service.extraPorts | default list))) }}
  {{- if or (omit $fields "type") $metadata $ports $service.extraPorts }}
  headService:
    {{- with $metadata }}
    metadata:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    spec:
      {{- toYaml (include "dyorc.onlySet" (merge (dict "type" ($service.type | default "ClusterIP") "ports" (concat $ports ($service.extraPorts | default list))) $fields) | fromJson) | nindent 6 }}
  {{- end }}
  rayStartParams:  # no replica runs on the node that keeps the cluster together
    {{- toYaml (merge (dict) ($ray.head.rayStartParams | default dict) (dict "num-cpus" "0" "num-gpus" "0" "object-store-memory" "83886080")) | nindent 4 }}
  template:
    {{- $options := include "dyorc.options" (dict "root" . "options" (list $ray.head)) | fromJson }}
    {{- include "dyorc.rayPod" (dict "root" . "component" "ray-head" "options" (omit $options "extraArgs") "isHead" true) | fromJson | toYaml | nindent 4 }}
workerGroupSpecs:
  {{- range $group, $options := include "dyorc.workerGroups" . | fromJson }}
  - groupName: {{ $group }}
    replicas: {{ hasKey $options "replicas" | ternary $options.replicas $options.minReplicas }}
    minReplicas: {{ $options.minReplicas }}
    maxReplicas: {{ $options.maxReplicas }}
    rayStartParams:
      {{- toYaml (merge (dict) ($options.rayStartParams | default dict) (dict "object-store-memory" "83886080")) | nindent 6 }}
    template:
      {{- include "dyorc.rayPod" (dict "root" $ "component" "ray-worker" "group" $group "options" (omit $options "extraArgs") "isHead" false) | fromJson | toYaml | nindent 6 }}
  {{- end }}
{{- end }}
