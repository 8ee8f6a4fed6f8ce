{{/* What the service's objects select by. */}}
{{- define "gpufair.selector" -}}
app.kubernetes.io/name: gpufair
app.kubernetes.io/component: service
{{- end -}}

{{- define "gpufair.labels" -}}
{{ include "gpufair.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "gpufair.claim" -}}
{{ .Values.state.existingClaim | default "gpufair-state" }}
{{- end -}}

{{/* Several services share one journal in a database only. */}}
{{- define "gpufair.replicas" -}}
{{- if .Values.postgresql.enabled -}}
{{ .Values.replicas }}
{{- else if gt (int .Values.replicas) 1 -}}
{{ fail "replicas: without PostgreSQL there can be one; set replicas=1, or postgresql.enabled=true" }}
{{- else -}}
1
{{- end -}}
{{- end -}}
