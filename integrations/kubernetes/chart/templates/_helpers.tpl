{{- define "tailbound.labels" -}}
app.kubernetes.io/name: tailbound
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "tailbound.selector" -}}
app.kubernetes.io/name: tailbound
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tailbound.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "tailbound.url" -}}
{{ .Values.place.url | default (printf "https://%s-place.%s.svc:7070" .Release.Name .Release.Namespace) }}
{{- end }}

{{- /* The capacities of an uplink, as package tree makes them: room is the buffer without a frame. */ -}}
{{- define "tailbound.capacity" -}}
bandwidth:
  value: {{ .link.rate }}
  requestPolicy: {default: {{ .link.rate }}, validRange: {min: 1M, max: {{ .link.rate }}}}
{{- $up := sub (int64 .link.up) (int64 .frame) }}
burst:
  value: {{ $up | quote }}
  requestPolicy: {default: {{ $up | quote }}, validRange: {min: {{ min (int64 .frame) $up | quote }}, max: {{ $up | quote }}}}
{{- $down := sub (int64 .link.down) (int64 .frame) }}
burstIn:
  value: {{ $down | quote }}
  requestPolicy: {default: {{ $down | quote }}, validRange: {min: "0", max: {{ $down | quote }}}}
{{- end }}
