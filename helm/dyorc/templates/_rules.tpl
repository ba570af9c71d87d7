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
{{- if or .Values.gateway.ingress.enabled .Values.gateway.routes.enabled (ne .Values.gateway.service.type "ClusterIP") }}true{{ end }}
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
{{- define "dyorc.workflowFiles" -}}
{{- if not .Values.groups }}{{ dict "example.py" (.Files.Get "files/example.py") | toYaml }}
{{- else if and (eq .Values.workflows.from "configMap") (not .Values.workflows.configMap.existing) }}{{ toYaml .Values.workflows.configMap.files }}
{{- end }}
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
{{- if and (not .Values.redis.enabled) (not .Values.redis.external.url) (not .Values.redis.external.existingSecret) }}
  {{- fail "there is no Redis: set redis.enabled, redis.external.url or redis.external.existingSecret" }}
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
{{- if and .Values.ray.faultTolerance.enabled (not .Values.redis.enabled) (not .Values.ray.faultTolerance.redisAddress) }}
  {{- fail "ray.faultTolerance needs ray.faultTolerance.redisAddress, host:port, if Redis is external" }}
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
