{{/* Every pod of the chart is made here, of what its component is (`own`) and of what the values say (`options`). So an option exists for
every component. */}}

{{/* The template of a pod, as JSON. root, component, options, image; group; checksums: what its processes read only once. own:
container: its main container but for what options say; resources; pod: more of its spec; volumes; initContainers; hasNoAccount: whether
somebody else names its account. */}}
{{- define "dyorc.podTemplate" -}}
{{- $annotations := mergeOverwrite (dict) (.root.Values.commonAnnotations | default dict) (.checksums | default dict) (.options.podAnnotations | default dict) }}
{{- /* Without versions: a new chart alone starts no pods again. */}}
{{- $labels := mergeOverwrite (include "dyorc.selector" . | fromYaml) (.root.Values.commonLabels | default dict) (.options.podLabels | default dict) }}
{{- $metadata := include "dyorc.onlySet" (dict "labels" $labels "annotations" $annotations) | fromJson }}
{{- dict "metadata" $metadata "spec" (include "dyorc.podSpec" . | fromJson) | toJson }}
{{- end }}

{{/* Its spec; arguments as above. */}}
{{- define "dyorc.podSpec" -}}
{{- $options := .options }}
{{- $spec := dict "enableServiceLinks" false "securityContext" ($options.podSecurityContext | default dict) }}
{{- if not .own.hasNoAccount }}
  {{- $_ := set $spec "serviceAccountName" (include "dyorc.serviceAccount" .root) }}
  {{- $_ := set $spec "automountServiceAccountToken" false }}
{{- end }}
{{- $spec = mustMergeOverwrite $spec (.own.pod | default dict) }}
{{- if $options.hostNetwork }}{{ $_ := set $spec "dnsPolicy" "ClusterFirstWithHostNet" }}{{ end }}
{{- if not $options.affinity }}
  {{- $apart := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" (dict "matchLabels" (include "dyorc.selector" . | fromYaml)) }}
  {{- $_ := set $spec "topologySpreadConstraints" (list $apart) }}
{{- end }}
{{- $copied := pick $options "serviceAccountName" "automountServiceAccountToken" "terminationGracePeriodSeconds" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" "runtimeClassName" "schedulerName" "dnsPolicy" "dnsConfig" "hostAliases" }}
{{- range $key, $value := include "dyorc.onlySet" $copied | fromJson }}{{ $_ := set $spec $key $value }}{{ end }}
{{- if $options.hostNetwork }}{{ $_ := set $spec "hostNetwork" true }}{{ end }}
{{- $_ := set $spec "imagePullSecrets" (include "dyorc.pullSecrets" (dict "root" .root "secrets" .image.pullSecrets) | fromJsonArray) }}
{{- $_ := set $spec "initContainers" (concat ($options.initContainers | default list) (.own.initContainers | default list)) }}
{{- $_ := set $spec "containers" (concat (list (include "dyorc.container" . | fromJson)) ($options.sidecars | default list)) }}
{{- $volumes := list (dict "name" "tmp" "emptyDir" (include "dyorc.onlySet" ($options.tmp | default dict) | fromJson)) (dict "name" "shared-mem" "emptyDir" (include "dyorc.onlySet" $options.sharedMemory | fromJson)) }}
{{- $_ := set $spec "volumes" (concat $volumes (.own.volumes | default list) ($options.extraVolumes | default list)) }}
{{- include "dyorc.onlySet" $spec }}
{{- end }}

{{/* A container: own.container with what options say. root, options, image, own. */}}
{{- define "dyorc.container" -}}
{{- $options := .options }}
{{- $container := deepCopy .own.container }}
{{- $_ := set $container "image" (include "dyorc.imageName" .) }}
{{- $_ := set $container "imagePullPolicy" .image.pullPolicy }}
{{- $_ := set $container "args" (concat ($container.args | default list) ($options.extraArgs | default list)) }}
{{- $_ := set $container "env" (concat ($container.env | default list) ($options.extraEnv | default list)) }}
{{- $_ := set $container "envFrom" ($options.extraEnvFrom | default list) }}
{{- $_ := set $container "securityContext" ($options.containerSecurityContext | default dict) }}
{{- $_ := set $container "resources" ($options.resources | default dict) }}
{{- $hooks := $container.lifecycle | default dict }}
{{- range $hook, $value := $options.lifecycle }}{{ $_ := set $hooks $hook $value }}{{ end }}
{{- $_ := set $container "lifecycle" $hooks }}
{{- range list "startupProbe" "livenessProbe" "readinessProbe" }}
  {{- $_ := set $container . (include "dyorc.probe" (dict "own" (get $container . | default dict) "given" (get $options . | default dict)) | fromJson) }}
{{- end }}
{{- $mounts := list (dict "name" "tmp" "mountPath" "/tmp") (dict "name" "shared-mem" "mountPath" "/dev/shm") }}
{{- $_ := set $container "volumeMounts" (concat $mounts ($container.volumeMounts | default list) ($options.extraVolumeMounts | default list)) }}
{{- include "dyorc.onlySet" $container }}
{{- end }}

{{/* A probe: own, with the fields of given; another handler replaces the own one. */}}
{{- define "dyorc.probe" -}}
{{- $handlers := list "exec" "grpc" "httpGet" "tcpSocket" }}
{{- $probe := deepCopy .own }}
{{- range $handler := $handlers }}
  {{- if and (hasKey $.given $handler) (not (hasKey $.own $handler)) }}{{ range $handlers }}{{ $_ := unset $probe . }}{{ end }}{{ end }}
{{- end }}
{{- $probe = mustMergeOverwrite $probe (omit .given "enabled") }}
{{- $hasHandler := false }}
{{- range $handlers }}{{ if hasKey $probe . }}{{ $hasHandler = true }}{{ end }}{{ end }}
{{- if or (not $hasHandler) (eq (toJson .given.enabled) "false") }}{{ $probe = dict }}{{ end }}
{{- toJson $probe }}
{{- end }}

{{/* The fields of a Deployment's or StatefulSet's spec that values choose. options, own: {strategy, minReadySeconds}; isStateful. */}}
{{- define "dyorc.workload" -}}
{{- $spec := include "dyorc.onlySet" (pick .options "revisionHistoryLimit" "minReadySeconds") | fromJson }}
{{- if and .own.minReadySeconds (not (hasKey $spec "minReadySeconds")) }}{{ $_ := set $spec "minReadySeconds" .own.minReadySeconds }}{{ end }}
{{- $strategy := .options.strategy | default dict }}
{{- if has ($strategy.type | default "RollingUpdate") (list "RollingUpdate") }}{{ $strategy = mustMergeOverwrite (deepCopy (.own.strategy | default dict)) $strategy }}{{ end }}
{{- if $strategy }}{{ $_ := set $spec (.isStateful | ternary "updateStrategy" "strategy") $strategy }}{{ end }}
{{- with $spec }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* A PodDisruptionBudget. root, component, name, options; group. */}}
{{- define "dyorc.budget" -}}
{{- $budget := .options.podDisruptionBudget }}
{{- if $budget.enabled }}
{{- $limits := include "dyorc.onlySet" (omit $budget "enabled") | fromJson }}
{{- if hasKey $limits "minAvailable" }}{{ $_ := unset $limits "maxUnavailable" }}{{ end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "dyorc.metadata" . | nindent 2 }}
spec:
  {{- toYaml $limits | nindent 2 }}
  selector:
    matchLabels:
      {{- include "dyorc.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{/* How long a pod may take to end: before it stops listening, for what it has, and a reserve. root, before. */}}
{{- define "dyorc.graceSeconds" -}}
{{- $drain := dig "gateway" "drain_timeout_s" 10 .root.Values.settings }}
{{- add .before (ceil $drain) 15 }}
{{- end }}

{{/* Sums of what processes read only once, so that a change starts new pods. */}}
{{- define "dyorc.checksums" -}}
checksum/config: {{ include "dyorc.config" . | sha256sum }}
{{- with include "dyorc.workflowFiles" . }}
checksum/workflows: {{ sha256sum . }}
{{- end }}
{{- end }}
