{{/* What follows from the values, "true" or empty. */}}

{{- define "dyorc.hasTls" -}}
{{- if or .Values.gateway.tls.existingSecret .Values.gateway.tls.certificate }}true{{ end }}
{{- end }}
{{- define "dyorc.scheme" -}}
{{ if include "dyorc.hasTls" . }}https{{ else }}http{{ end }}
{{- end }}
{{- define "dyorc.hasTenants" -}}
{{- if or .Values.gateway.tenants.existingSecret .Values.gateway.tenants.keysFile }}true{{ end }}
{{- end }}
{{- define "dyorc.isOutside" -}}
{{- if or .Values.gateway.ingress.enabled .Values.gateway.routes.enabled (ne ((include "dyorc.serviceOptions" (dict "root" . "service" .Values.gateway.service) | fromJson).type | default "ClusterIP") "ClusterIP") }}true{{ end }}
{{- end }}
{{- define "dyorc.hasCells" -}}
{{- if eq .Values.mode "cells" }}true{{ end }}
{{- end }}
{{- define "dyorc.makesRedis" -}}
{{- if and .Values.redis.enabled (not (include "dyorc.hasCells" .)) }}true{{ end }}
{{- end }}
{{- define "dyorc.hasExternalRedis" -}}
{{- if or .Values.redis.external.host .Values.redis.external.url .Values.redis.external.existingSecret }}true{{ end }}
{{- end }}
{{- define "dyorc.hasRedisRoots" -}}
{{- if and (not (include "dyorc.makesRedis" .)) .Values.redis.external.host .Values.redis.external.tls.enabled .Values.redis.external.tls.caSecret }}true{{ end }}
{{- end }}
{{- define "dyorc.hasRay" -}}
{{- if ne .Values.ray.kind "none" }}true{{ end }}
{{- end }}
{{- define "dyorc.makesRay" -}}
{{- if has .Values.ray.kind (list "RayCluster" "RayService") }}true{{ end }}
{{- end }}

{{- define "dyorc.rayAddress" -}}
{{- if include "dyorc.makesRay" . }}{{ printf "%s-ray-head-svc:6379" (include "dyorc.fullname" .) }}
{{- else if eq .Values.ray.kind "external" }}{{ .Values.ray.address }}
{{- end }}
{{- end }}

{{/* Groups of workflows; if none is named, the chart's own example is served, from a ConfigMap. */}}
{{- define "dyorc.groups" -}}
{{- if .Values.groups }}{{ toYaml .Values.groups }}
{{- else }}default: {workflows: ["example.py:classify"]}
{{- end }}
{{- end }}
{{- define "dyorc.mountsWorkflows" -}}
{{- if or (ne .Values.workflows.from "image") (not .Values.groups) }}true{{ end }}
{{- end }}
{{- define "dyorc.workflowFiles" -}}
{{- if not .Values.groups }}{{ dict "example.py" (.Files.Get "files/example.py") | toYaml }}
{{- else if and (eq .Values.workflows.from "configMap") (not .Values.workflows.configMap.existing) }}{{ toYaml .Values.workflows.configMap.files }}
{{- end }}
{{- end }}

{{/* The bytes of a quantity of Kubernetes, such as 1.5Gi or 2e9. */}}
{{- define "dyorc.bytes" -}}
{{- $text := toString . }}
{{- $suffix := regexFind "[numkMGTPE]i?$" $text }}
{{- $factors := dict "" 1.0 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 }}
{{- mulf (trimSuffix $suffix $text | float64) (get $factors $suffix) }}
{{- end }}

{{/* Stops with the first combination of values that cannot work, and says what to set. */}}
{{- define "dyorc.check" -}}
{{- range $setting, $instead := fromYaml (include "dyorc.chartsOwn" .) }}
  {{- $section := $.Values.settings }}
  {{- $path := splitList "." $setting }}
  {{- range initial $path }}{{ $section = get ($section | default dict) . | default dict }}{{ end }}
  {{- if hasKey $section (last $path) }}
    {{- fail (printf "settings.%s is the chart's: %s" $setting $instead) }}
  {{- end }}
{{- end }}
{{- range $group, $values := .Values.groups }}
  {{- if not $values.workflows }}
    {{- fail (printf "groups.%s.workflows is empty: name what to serve, such as [\"app.py:classify\"], relative to workflows.path (%s)" $group $.Values.workflows.path) }}
  {{- end }}
{{- end }}
{{- if and (not .Values.groups) (ne .Values.workflows.from "image") }}
  {{- fail "groups is empty: name what to serve, such as groups.default.workflows=[\"app.py:classify\"]" }}
{{- end }}
{{- if include "dyorc.hasCells" . }}
  {{- if gt (len (.Values.groups | default dict)) 1 }}
    {{- fail "mode=cells has one group of workflows: name them all in one of groups" }}
  {{- end }}
  {{- if ne .Values.ray.kind "none" }}
    {{- fail (printf "mode=cells runs without Ray, and ray.kind is %s: set ray.kind=none, or mode=cluster" .Values.ray.kind) }}
  {{- end }}
{{- else }}
  {{- if and (not .Values.redis.enabled) (not (include "dyorc.hasExternalRedis" .)) }}
    {{- fail "there is no Redis: set redis.enabled, redis.external.host, redis.external.url or redis.external.existingSecret" }}
  {{- end }}
  {{- if and .Values.redis.enabled (include "dyorc.hasExternalRedis" .) }}
    {{- fail "redis.external names a Redis, and redis.enabled=true runs one here, which would be used instead: set redis.enabled=false, or leave redis.external out" }}
  {{- end }}
{{- end }}
{{- $waysToRedis := include "dyorc.onlySet" (pick .Values.redis.external "host" "url" "existingSecret") | fromJson | keys | sortAlpha }}
{{- if gt (len $waysToRedis) 1 }}
  {{- fail (printf "redis.external has %s: set only one of them" (join " and " $waysToRedis)) }}
{{- end }}
{{- if and .Values.gateway.autoscaling.enabled .Values.gateway.keda.enabled }}
  {{- fail "gateway.autoscaling and gateway.keda would both set the number of gateways: enable one of them" }}
{{- end }}
{{- with .Values.gateway.keda }}
  {{- if and .enabled (not .prometheus.serverAddress) (or .requestsInFlight .queuedCalls .forecast.requestsPerSecond) }}
    {{- fail "gateway.keda needs gateway.keda.prometheus.serverAddress, such as http://prometheus-operated.monitoring:9090" }}
  {{- end }}
  {{- if and .enabled (not (or .requestsInFlight .queuedCalls .forecast.requestsPerSecond .triggers)) }}
    {{- fail "gateway.keda has nothing to scale by: set gateway.keda.requestsInFlight, queuedCalls, forecast.requestsPerSecond or triggers" }}
  {{- end }}
{{- end }}
{{- range $name, $scaling := dict "gateway.autoscaling" .Values.gateway.autoscaling "gateway.keda" .Values.gateway.keda }}
  {{- if and $scaling.enabled (gt ($scaling.minReplicas | int) ($scaling.maxReplicas | int)) }}
    {{- fail (printf "%s.minReplicas is %v, more than %s.maxReplicas, %v" $name $scaling.minReplicas $name $scaling.maxReplicas) }}
  {{- end }}
{{- end }}
{{- with .Values.gateway.autoscaling }}
  {{- $resources := (include "dyorc.options" (dict "root" $ "options" (list $.Values.gateway)) | fromJson).resources | default dict }}
  {{- if and .enabled (not (or .targetCPU .targetMemory .metrics)) }}
    {{- fail "gateway.autoscaling has nothing to scale by: set gateway.autoscaling.targetCPU, targetMemory or metrics" }}
  {{- end }}
  {{- range $name, $resource := dict "targetCPU" "cpu" "targetMemory" "memory" }}
    {{- $asked := dig "requests" $resource "" $resources | default (dig "limits" $resource "" $resources) }}
    {{- if and $.Values.gateway.autoscaling.enabled (get $.Values.gateway.autoscaling $name) (not $asked) }}
      {{- fail (printf "gateway.autoscaling.%s is a share of what pods ask for: set gateway.resources.requests.%s, or %s=0" $name $resource $name) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if and .Values.gateway.routes.enabled (not .Values.gateway.routes.parentRefs) }}
  {{- fail "gateway.routes needs gateway.routes.parentRefs, the Gateways that it belongs to, such as [{name: public}]" }}
{{- end }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "dyorc.fullname" .)) }}
  {{- fail (printf "the objects' names would begin with %s, and names of Services have lower-case letters, digits and '-', a letter first: set fullnameOverride" (include "dyorc.fullname" .)) }}
{{- end }}
{{- $redis := .Values.redis.image }}
{{- if and (include "dyorc.makesRedis" .) (kindIs "map" $redis) (not $redis.tag) (not $redis.digest) }}
  {{- fail "redis.image.tag is empty: name Redis' version, or redis.image.digest" }}
{{- end }}
{{- $components := dict "gateway" (include "dyorc.options" (dict "root" . "options" (list .Values.gateway)) | fromJson) }}
{{- if not (include "dyorc.hasCells" .) }}
  {{- $_ := set $components "orchestrator" (include "dyorc.options" (dict "root" . "options" (list .Values.orchestrator)) | fromJson) }}
  {{- range $group, $values := .Values.groups }}
    {{- $_ := set $components (printf "groups.%s" $group) (include "dyorc.options" (dict "root" $ "options" (list $.Values.orchestrator (omit $values "workflows" "replicas"))) | fromJson) }}
  {{- end }}
{{- end }}
{{- if include "dyorc.makesRedis" . }}{{ $_ := set $components "redis" (include "dyorc.options" (dict "root" . "options" (list .Values.redis)) | fromJson) }}{{ end }}
{{- if include "dyorc.makesRay" . }}
  {{- $_ := set $components "ray.head" (include "dyorc.options" (dict "root" . "options" (list .Values.ray.head)) | fromJson) }}
  {{- range $group, $values := include "dyorc.workerGroups" . | fromJson }}
    {{- $_ := set $components (printf "ray.workerGroups.%s" $group) $values }}
    {{- $replicas := hasKey $values "replicas" | ternary $values.replicas $values.minReplicas }}
    {{- if gt ($values.minReplicas | int) ($values.maxReplicas | int) }}
      {{- fail (printf "ray.workerGroups.%s.minReplicas is %v, more than maxReplicas, %v (what a group does not say is said by ray.worker)" $group $values.minReplicas $values.maxReplicas) }}
    {{- else if or (lt ($replicas | int) ($values.minReplicas | int)) (gt ($replicas | int) ($values.maxReplicas | int)) }}
      {{- fail (printf "ray.workerGroups.%s.replicas is %v, and not between minReplicas, %v, and maxReplicas, %v" $group $replicas $values.minReplicas $values.maxReplicas) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range $name, $values := $components }}
  {{- $limit := dig "limits" "memory" "" ($values.resources | default dict) }}
  {{- $shared := ($values.sharedMemory | default dict).sizeLimit }}
  {{- $budget := $values.podDisruptionBudget | default dict }}
  {{- if and $budget.enabled (not (hasPrefix "ray." $name)) (eq (toString $budget.minAvailable) "") (eq (toString $budget.maxUnavailable) "") }}
    {{- fail (printf "%s.podDisruptionBudget is enabled, and says no number: set maxUnavailable or minAvailable" $name) }}
  {{- end }}
  {{- if and $limit $shared (gt (include "dyorc.bytes" $shared | float64) (include "dyorc.bytes" $limit | float64)) }}
    {{- fail (printf "%s.sharedMemory.sizeLimit is %v, more than %s.resources.limits.memory, %v, which includes it: a pod that fills it would be killed" $name $shared $name $limit) }}
  {{- end }}
{{- end }}
{{- range $file, $_ := .Values.workflows.configMap.files }}
  {{- if not (regexMatch "^[-._a-zA-Z0-9]+$" $file) }}
    {{- fail (printf "workflows.configMap.files has %q: a ConfigMap has no folders, and names of letters, digits, '-', '_' and '.'. Packages need workflows.from=image, persistentVolumeClaim or volume" $file) }}
  {{- end }}
{{- end }}
{{- if and (include "dyorc.isOutside" .) (not (include "dyorc.hasTenants" .)) (not .Values.gateway.tls.clientRoots) (not .Values.gateway.allowOpen) }}
  {{- fail "the gateways would be open to everybody outside of the cluster: set gateway.tenants or gateway.tls.clientRoots, or gateway.allowOpen=true" }}
{{- end }}
{{- if and .Values.gateway.tls.clientRoots (not (include "dyorc.hasTls" .)) }}
  {{- fail "gateway.tls.clientRoots needs gateway.tls.existingSecret or gateway.tls.certificate" }}
{{- end }}
{{- if and .Values.gateway.tls.certificate (not .Values.gateway.tls.key) }}
  {{- fail "gateway.tls.certificate needs gateway.tls.key" }}
{{- end }}
{{- if and (eq .Values.ray.kind "external") (not .Values.ray.address) }}
  {{- fail "ray.kind=external needs ray.address, host:port of the cluster's head" }}
{{- end }}
{{- if and (eq .Values.ray.kind "external") .Values.networkPolicy.enabled (not .Values.networkPolicy.rayNodes) }}
  {{- fail "networkPolicy.rayNodes is empty: the external cluster's nodes, where replicas run, could not reach gateways and orchestrators. Name them as peers of a NetworkPolicy" }}
{{- end }}
{{- if and (eq .Values.ray.kind "RayService") (not .Values.ray.serveConfigV2) }}
  {{- fail "ray.kind=RayService needs ray.serveConfigV2 with a Serve application of yours: without one, KubeRay never makes the head's service. For DyOrc alone, use RayCluster" }}
{{- end }}
{{- if and .Values.ray.faultTolerance.enabled (not .Values.redis.enabled) (not .Values.ray.faultTolerance.redisAddress) (not .Values.redis.external.host) }}
  {{- fail "ray.faultTolerance needs ray.faultTolerance.redisAddress, host:port, or redis.external.host, if Redis is external" }}
{{- end }}
{{- $source := .Values.workflows }}
{{- if and (eq $source.from "configMap") (not $source.configMap.existing) (not $source.configMap.files) }}
  {{- fail "workflows.from=configMap needs workflows.configMap.files or workflows.configMap.existing" }}
{{- end }}
{{- if and (eq $source.from "persistentVolumeClaim") (not $source.persistentVolumeClaim) }}
  {{- fail "workflows.from=persistentVolumeClaim needs workflows.persistentVolumeClaim, the claim's name" }}
{{- end }}
{{- if and (eq $source.from "volume") (not $source.volume) }}
  {{- fail "workflows.from=volume needs workflows.volume, such as {image: {reference: ...}}" }}
{{- end }}
{{- end }}
