{{/* Every Service of the chart is made here, so an option exists for every one. */}}

{{/* What `services` and a component's `service` say. root, service. */}}
{{- define "dyorc.serviceOptions" -}}
{{- include "dyorc.overlay" (dict "under" .root.Values.services "over" (.service | default dict)) }}
{{- end }}

{{/* The fields of a Service's spec that values choose, as JSON. options: as above; isHeadless: whether it has no address of its own. */}}
{{- define "dyorc.serviceFields" -}}
{{- $fields := include "dyorc.onlySet" (omit .options "labels" "annotations" "nodePorts" "extraPorts" "port" "grpcPort") | fromJson }}
{{- $isInside := eq ($fields.type | default "ClusterIP") "ClusterIP" }}
{{- if and .isHeadless $isInside (not $fields.clusterIP) }}{{ $_ := set $fields "clusterIP" "None" }}{{ end }}
{{- toJson $fields }}
{{- end }}

{{/* Stops where a Service has a port, a name or a node's port twice, or ports of nodes without being of a type that has them. of, type, ports. */}}
{{- define "dyorc.checkPorts" -}}
{{- $seen := dict }}
{{- range .ports }}
  {{- $protocol := .protocol | default "TCP" }}
  {{- range $use := compact (list (printf "port %v/%s" .port $protocol) (printf "name %v" .name) (ternary (printf "node port %v/%s" .nodePort $protocol) "" (hasKey . "nodePort"))) }}
    {{- if hasKey $seen $use }}
      {{- fail (printf "%s.service has %s twice. Each port needs its own; gateways have HTTP, gRPC and 9464 for metrics" $.of $use) }}
    {{- end }}
    {{- $_ := set $seen $use true }}
  {{- end }}
  {{- if and .nodePort (eq ($.type | default "ClusterIP") "ClusterIP") }}
    {{- fail (printf "%s.service.nodePorts.%s needs %s.service.type NodePort or LoadBalancer: a ClusterIP has no ports on nodes" $.of .name $.of) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A Service. root, component, name, service: the component's values, ports; isHeadless. */}}
{{- define "dyorc.service" -}}
{{- $options := include "dyorc.serviceOptions" . | fromJson }}
{{- $ports := list }}
{{- range .ports }}
  {{- $port := . }}
  {{- with get ($options.nodePorts | default dict) .name }}{{ $port = merge (dict "nodePort" .) $port }}{{ end }}
  {{- $ports = append $ports $port }}
{{- end }}
{{- include "dyorc.checkPorts" (dict "of" .component "type" $options.type "ports" (concat $ports ($options.extraPorts | default list))) }}
apiVersion: v1
kind: Service
metadata:
  {{- include "dyorc.metadata" (merge (dict "labels" $options.labels "annotations" $options.annotations) .) | nindent 2 }}
spec:
  {{- with include "dyorc.serviceFields" (dict "options" $options "isHeadless" .isHeadless) | fromJson }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  selector:
    {{- include "dyorc.selector" (pick . "root" "component") | nindent 4 }}
  ports:
    {{- toYaml (concat $ports ($options.extraPorts | default list)) | nindent 4 }}
{{- end }}
