{{- define "orbitlog.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "orbitlog.selector" -}}
app.kubernetes.io/name: orbitlog
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .group }}
orbitlog/group: {{ . }}
{{- end }}
{{- end }}

{{- define "orbitlog.labels" -}}
{{ include "orbitlog.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "orbitlog.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Addresses of all name servers, as brokers and clients take them. */}}
{{- define "orbitlog.nameServers" -}}
{{- $name := include "orbitlog.fullname" . -}}
{{- $addresses := list -}}
{{- range $ordinal := until (int .Values.nameServers.replicas) -}}
{{- $addresses = append $addresses (printf "%s-nameserver-%d.%s-nameserver.%s.svc:9876" $name $ordinal $name $.Release.Namespace) -}}
{{- end -}}
{{ join ";" $addresses }}
{{- end }}

{{- define "orbitlog.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "orbitlog.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What all pods share: identity, placement, and no token of the API server. */}}
{{- define "orbitlog.podStart" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
securityContext:
  {{- include "orbitlog.podSecurity" . | nindent 2 }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  podAntiAffinity:
    {{- if eq .root.Values.antiAffinity "required" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "orbitlog.selector" . | nindent 12 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "orbitlog.selector" . | nindent 14 }}
    {{- end }}
{{- end }}

{{/* Health over HTTP at the metrics port. A long log is recovered before the first answer: ten minutes for the start. */}}
{{- define "orbitlog.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  failureThreshold: 300
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}

{{/* Settings that name servers and brokers share: exposure, access control, TLS. */}}
{{- define "orbitlog.sharedSettings" -}}
metricsPromExporterHost=0.0.0.0
{{- if .Values.accessControl.enabled }}
authenticationEnabled=true
authorizationEnabled=true
accessFile=/etc/orbitlog/secrets/access.json
{{- end }}
{{- if .Values.tls.enabled }}
tls.server.mode={{ .Values.tls.mode }}
tls.server.certPath=/etc/orbitlog/secrets/tls.crt
tls.server.keyPath=/etc/orbitlog/secrets/tls.key
{{- end }}
{{- end }}

{{/* Mounts of the configuration and the secrets; they need the volumes of orbitlog.volumes. */}}
{{- define "orbitlog.mounts" -}}
- {name: config, mountPath: /etc/orbitlog/conf, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if or .Values.accessControl.enabled .Values.tls.enabled }}
- {name: secrets, mountPath: /etc/orbitlog/secrets, readOnly: true}
{{- end }}
{{- end }}

{{/* Copies the secrets to memory: mounted ones are readable by the group, and a server refuses such files. */}}
{{- define "orbitlog.initContainers" -}}
{{- $files := list -}}
{{- if .Values.accessControl.enabled }}{{ $files = append $files "/run/access/access.json" }}{{ end -}}
{{- if .Values.tls.enabled }}{{ $files = concat $files (list "/run/tls/tls.crt" "/run/tls/tls.key" "/run/tls/ca.crt") }}{{ end -}}
{{- if $files }}
initContainers:
  - name: secrets
    image: {{ include "orbitlog.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [/usr/bin/install, --mode=0400, --target-directory=/etc/orbitlog/secrets, {{ join ", " $files }}]
    securityContext:
      {{- include "orbitlog.containerSecurity" . | nindent 6 }}
    resources:
      requests: {cpu: 10m, memory: 16Mi}
      limits: {memory: 64Mi}
    volumeMounts:
      - {name: secrets, mountPath: /etc/orbitlog/secrets}
      {{- if .Values.accessControl.enabled }}
      - {name: access, mountPath: /run/access, readOnly: true}
      {{- end }}
      {{- if .Values.tls.enabled }}
      - {name: tls, mountPath: /run/tls, readOnly: true}
      {{- end }}
{{- end }}
{{- end }}

{{- define "orbitlog.volumes" -}}
- name: config
  configMap: {name: {{ include "orbitlog.fullname" . }}}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- if or .Values.accessControl.enabled .Values.tls.enabled }}
- name: secrets
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- end }}
{{- if .Values.accessControl.enabled }}
- name: access
  secret:
    secretName: {{ required "accessControl.enabled needs accessControl.secretName" .Values.accessControl.secretName }}
    defaultMode: 0440
    items: [{key: access.json, path: access.json}]
{{- end }}
{{- if .Values.tls.enabled }}
- name: tls
  secret: {secretName: {{ required "tls.enabled needs tls.secretName" .Values.tls.secretName }}, defaultMode: 0440}
{{- end }}
{{- end }}
