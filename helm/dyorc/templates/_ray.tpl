{{/* Ray's nodes. */}}

{{/* The Ray node next to an orchestrator, which is a driver and needs one in its pod. Nothing runs on it. root, options. */}}
{{- define "dyorc.raySidecar" -}}
- name: ray-node
  image: {{ include "dyorc.image" (dict "root" .root) }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  restartPolicy: Always
  args:
    - ray
    - start
    - --block
    - --address={{ include "dyorc.rayAddress" .root }}
    - --node-ip-address=$(POD_IP)
    - --num-cpus=0
    - --num-gpus=0
    - --object-store-memory=83886080
  env:
    {{- include "dyorc.environment" . | nindent 4 }}
  startupProbe: {httpGet: {path: /api/local_raylet_healthz, port: 52365}, periodSeconds: 2, timeoutSeconds: 5, failureThreshold: 150}
  livenessProbe: {httpGet: {path: /api/local_raylet_healthz, port: 52365}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 6}
  securityContext:
    {{- toYaml .root.Values.containerSecurityContext | nindent 4 }}
  resources:
    {{- toYaml .root.Values.ray.sidecar.resources | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    - {name: shared-mem, mountPath: /dev/shm}
    {{- with include "dyorc.workflowMount" .root | trim }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The pod of the head or of a worker group. root, component, container, options; head: whether it is the head. */}}
{{- define "dyorc.rayPod" -}}
metadata:
  {{- include "dyorc.podMetadata" . | nindent 2 }}
spec:
  {{- if not .head }}
  serviceAccountName: {{ include "dyorc.serviceAccount" .root }}
  automountServiceAccountToken: false
  {{- else if not .root.Values.ray.autoscaler.enabled }}
  serviceAccountName: {{ include "dyorc.serviceAccount" .root }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "dyorc.graceSeconds" (dict "root" .root "before" 0) }}
  {{- include "dyorc.placing" . | nindent 2 }}
  {{- with .options.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .container }}
      image: {{ include "dyorc.image" (dict "root" .root "image" .options.image) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      env:
        {{- include "dyorc.environment" . | nindent 8 }}
        - name: PYTHONPATH
          value: {{ .root.Values.workflows.path }}
        {{- if .head }}
        {{- with .root.Values.ray.healthCheck }}
        - {name: RAY_health_check_period_ms, value: {{ .periodMs | quote }}}
        - {name: RAY_health_check_timeout_ms, value: {{ .timeoutMs | quote }}}
        - {name: RAY_health_check_failure_threshold, value: {{ .failureThreshold | quote }}}
        {{- end }}
        {{- end }}
        {{- with .options.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .options.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .head }}
      ports:
        - {name: gcs-server, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        - {name: client, containerPort: 10001}
      {{- end }}
      livenessProbe: {httpGet: {path: /api/local_raylet_healthz, port: 52365}, initialDelaySeconds: 30, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 24}
      readinessProbe: {httpGet: {path: /api/local_raylet_healthz, port: 52365}, initialDelaySeconds: 5, periodSeconds: 5, timeoutSeconds: 5}
      securityContext:
        {{- toYaml .root.Values.containerSecurityContext | nindent 8 }}
      resources:
        {{- include "dyorc.rayResources" .options | nindent 8 }}
      volumeMounts:
        {{- include "dyorc.mounts" . | nindent 8 }}
        {{- with include "dyorc.workflowMount" .root | trim }}
        {{- . | nindent 8 }}
        {{- end }}
    {{- with .options.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "dyorc.volumes" . | nindent 4 }}
    {{- with include "dyorc.workflowVolume" .root | trim }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* What a Ray container gets, with as many devices as `gpus` says. Takes options. */}}
{{- define "dyorc.rayResources" -}}
{{- $resources := deepCopy .resources }}
{{- if .gpus }}
{{- $gpus := dict "nvidia.com/gpu" .gpus }}
{{- $resources = mustMergeOverwrite $resources (dict "limits" $gpus "requests" $gpus) }}
{{- end }}
{{- toYaml $resources }}
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
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  env:
    {{- include "dyorc.environment" (dict "root" .) | nindent 4 }}
    {{- with $ray.autoscaler.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  securityContext:
    {{- toYaml .Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
  resources:
    {{- toYaml $ray.autoscaler.resources | nindent 4 }}
{{- end }}
{{- if ne $ray.upgradeStrategy "None" }}
upgradeStrategy: {type: {{ $ray.upgradeStrategy }}}
{{- end }}
{{- if $ray.faultTolerance.enabled }}
gcsFaultToleranceOptions:
  {{- if .Values.redis.enabled }}
  redisAddress: {{ include "dyorc.fullname" . }}-redis:6379
  redisPassword:
    valueFrom: {secretKeyRef: {name: {{ include "dyorc.redisSecret" . }}, key: {{ .Values.redis.auth.key }}}}
  {{- else }}
  redisAddress: {{ $ray.faultTolerance.redisAddress }}
  {{- with $ray.faultTolerance.redisPassword }}
  redisPassword:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}
headGroupSpec:
  serviceType: ClusterIP
  rayStartParams:  # no replica runs on the node that keeps the cluster together
    num-cpus: "0"
    num-gpus: "0"
    object-store-memory: "83886080"
    {{- with $ray.head.rayStartParams }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  template:
    {{- $options := include "dyorc.options" (dict "root" . "options" $ray.head) | fromYaml }}
    {{- include "dyorc.rayPod" (dict "root" . "component" "ray-head" "container" "ray-head" "options" $options "head" true) | nindent 4 }}
workerGroupSpecs:
  {{- range $group, $values := $ray.workerGroups | default (dict "cpu" (dict "minReplicas" 1)) }}
  {{- $given := include "dyorc.workerDefaults" $ | fromYaml }}
  {{- range $key, $value := $values }}{{ $_ := set $given $key $value }}{{ end }}
  {{- $options := include "dyorc.options" (dict "root" $ "options" $given) | fromYaml }}
  - groupName: {{ $group }}
    replicas: {{ $options.replicas | default $options.minReplicas }}
    minReplicas: {{ $options.minReplicas }}
    maxReplicas: {{ $options.maxReplicas }}
    rayStartParams:
      object-store-memory: "83886080"
      {{- with $options.rayStartParams }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    template:
      {{- include "dyorc.rayPod" (dict "root" $ "component" "ray-worker" "container" "ray-worker" "group" $group "options" $options) | nindent 6 }}
  {{- end }}
{{- end }}

{{- define "dyorc.workerDefaults" -}}
minReplicas: 0
maxReplicas: 4
sharedMemory: 4Gi
resources:
  requests: {cpu: "4", memory: 8Gi}
  limits: {cpu: "4", memory: 12Gi}
{{- end }}
