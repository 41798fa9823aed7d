"""The HTTP contract between dispatch, the guests and the pool controller."""

from __future__ import annotations

# A guest requests a job; responses are 200 with a JIT config, 204 no job, 401 unauthenticated, 410 shut down.
BASE_PATH = "/api/internal/runners"
DISPATCH_PATH = "/api/internal/runners/dispatch"
DESIRED_REPLICAS_PATH = "/api/internal/runners/desired_replicas"
ROLL_SIGNALS_PATH = "/api/internal/runners/roll_signals"
POD_STOPPED_PATH = "/api/internal/runners/pods/stopped"
POD_METRICS_PATH = "/api/internal/runners/pods/{pod}/metrics"
VOLUME_HEAD_PATH = "/api/internal/runners/volume-head"
VOLUME_HEAD_UPLOAD_PATH = "/api/internal/runners/volume-head/upload-url"
SHELL_SESSIONS_PATH = "/api/internal/runners/interactive/shell/sessions"
SHELL_TUNNEL_PATH = "/api/internal/runners/interactive/shell/{session}/tunnel"
# Of people: the API that `bramley jobs` uses.
JOBS_PATH = "/api/v1/jobs"
WEBHOOK_PATH = "/webhooks/github"

# The only audience of the tokens of runner Pods.
TOKEN_AUDIENCE = "tuist-runners-dispatch"  # noqa: S105 - an audience, no token
TOKEN_SECONDS_MACOS = 28800
TOKEN_SECONDS_LINUX = 3600

# Headers.
SIGNATURE_HEADER = "X-Hub-Signature-256"
POD_NAME_HEADER = "X-Tuist-Runner-Pod-Name"
POD_UID_HEADER = "X-Tuist-Runner-Pod-Uid"
POOL_HEADER = "X-Tuist-Runner-Pool"

# The body of a 410.
DRAIN = "drain"
DRAIN_IMAGE_STALE = "image stale"
DRAIN_POD_COMMITTED = "pod already committed"

# Dispatch labels of catalogue pools, which customers do not use.
SHAPE_MACOS_PREFIX = "shape-macos-"
SHAPE_LINUX_PREFIX = "shape-linux-"

# The ConfigMap that publishes the address of dispatch in its namespace; its keys, the second one with a simulated GitHub only.
DISPATCH_CONFIG_MAP = "bramley-dispatch"
URL_KEY = "url"
GITHUB_URL_KEY = "github-url"
