{{/* Names and labels. Most templates here take a dictionary: root, and the other keys that they name. */}}

{{- define "dyorc.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "dyorc.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "dyorc.name" .) .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name (include "dyorc.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* What a component's pods are found by. root, component; group, for orchestrators. */}}
{{- define "dyorc.selector" -}}
app.kubernetes.io/name: {{ include "dyorc.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .group }}
dyorc/group: {{ . }}
{{- end }}
{{- end }}

{{- define "dyorc.labels" -}}
{{ include "dyorc.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The metadata of an object. root, component, name; namespace; labels, annotations: more of them. */}}
{{- define "dyorc.metadata" -}}
name: {{ .name }}
namespace: {{ .namespace | default .root.Release.Namespace }}
labels:
  {{- mergeOverwrite (include "dyorc.labels" . | fromYaml) (.root.Values.commonLabels | default dict) (.labels | default dict) | toYaml | nindent 2 }}
{{- with mergeOverwrite (dict) (.root.Values.commonAnnotations | default dict) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A component's image, over `image`: another repository or tag leaves the digest behind. root, image. */}}
{{- define "dyorc.imageValues" -}}
{{- $own := include "dyorc.onlySet" (.image | default dict) | fromJson }}
{{- $below := deepCopy .root.Values.image }}
{{- if or $own.repository $own.tag $own.registry }}{{ $_ := unset $below "digest" }}{{ end }}
{{- include "dyorc.overlay" (dict "under" $below "over" $own) }}
{{- end }}

{{/* Redis' image. Takes the root. */}}
{{- define "dyorc.redisImage" -}}
{{- $image := .Values.redis.image }}
{{- if kindIs "string" $image }}{{ $image = dict "name" $image }}{{ end }}
{{- $below := pick .Values.image "pullPolicy" "pullSecrets" }}
{{- include "dyorc.overlay" (dict "under" $below "over" $image) }}
{{- end }}

{{/* An image's name, below global.imageRegistry unless it begins with its own registry, as host.name/ or host:port/. root, image: all of it. */}}
{{- define "dyorc.imageName" -}}
{{- $image := .image }}
{{- $repository := $image.name | default $image.repository }}
{{- $registry := $image.registry | default (.root.Values.global | default dict).imageRegistry }}
{{- if and $registry (not (regexMatch "^([^/]*[.:][^/]*|localhost)/" $repository)) }}{{ trimSuffix "/" $registry }}/{{ end }}{{ $repository }}
{{- if $image.name }}
{{- else if $image.digest }}@{{ $image.digest }}
{{- else }}:{{ default .root.Chart.AppVersion $image.tag }}
{{- end }}
{{- end }}

{{/* Pull secrets of images and of global, which may be names or objects. root, secrets. */}}
{{- define "dyorc.pullSecrets" -}}
{{- $secrets := .secrets | default list }}
{{- range (.root.Values.global | default dict).imagePullSecrets }}
  {{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- uniq $secrets | toJson }}
{{- end }}

{{- define "dyorc.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "dyorc.fullname" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Names of the secrets, ours or existing ones. */}}
{{- define "dyorc.clusterSecret" -}}
{{ default (printf "%s-cluster" (include "dyorc.fullname" .)) .Values.cluster.existingSecret }}
{{- end }}
{{- define "dyorc.redisSecret" -}}
{{ default (printf "%s-redis" (include "dyorc.fullname" .)) .Values.redis.auth.existingSecret }}
{{- end }}
{{- define "dyorc.storeSecret" -}}
{{ default (printf "%s-store" (include "dyorc.fullname" .)) .Values.redis.external.existingSecret }}
{{- end }}
{{- define "dyorc.raySecret" -}}
{{ default (printf "%s-ray" (include "dyorc.fullname" .)) .Values.ray.auth.existingSecret }}
{{- end }}
{{- define "dyorc.tlsSecret" -}}
{{ default (printf "%s-tls" (include "dyorc.fullname" .)) .Values.gateway.tls.existingSecret }}
{{- end }}
{{- define "dyorc.tenantsSecret" -}}
{{ default (printf "%s-tenants" (include "dyorc.fullname" .)) .Values.gateway.tenants.existingSecret }}
{{- end }}

{{/* A value of a secret that was made at the first installation; else `made`. root, secret, key, made. */}}
{{- define "dyorc.kept" -}}
{{- $secret := lookup "v1" "Secret" .root.Release.Namespace .secret | default dict }}
{{- get ($secret.data | default dict) .key | default (b64enc .made) }}
{{- end }}
