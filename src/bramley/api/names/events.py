"""Reasons of events and of conditions; a reason has the same meaning in both."""

from __future__ import annotations

# Reporting components.
MACHINES_COMPONENT = "scalewayapplesiliconmachine-controller"
AGENT_COMPONENT = "tart-kubelet"
RUNNERS_COMPONENT = "runners-controller"

NORMAL = "Normal"
WARNING = "Warning"

# The agent, on Pods.
CREATING_VM = "CreatingVM"
PULLING_IMAGE = "PullingImage"
CLONED_VM = "ClonedVM"
STARTED_VM = "StartedVM"
STOPPING_VM = "StoppingVM"
ADOPTED_VM = "AdoptedVM"
CREATE_FAILED = "TartCreateFailed"
RUN_EXITED = "TartRunExited"
BOOT_TIMED_OUT = "VMBootTimedOut"
RUNS_ONCE = "RunsOnce"
GUEST_SILENT = "GuestNotAnswering"
GUEST_ANSWERS = "GuestAnswersAgain"
IDENTITY_REGEN_SKIPPED = "IdentityRegenSkipped"
CACHE_VOLUME_SKIPPED = "CacheVolumeSkipped"

# The pool controller, on RunnerPools.
POD_RETIRED_FOR_NODE_DRAIN = "RunnerPodRetiredForNodeDrain"
POD_START_TIMED_OUT = "RunnerPodStartTimedOut"
POD_UNSCHEDULABLE = "RunnerPodUnschedulable"
POD_DRAINED = "RunnerPodDrained"
POD_SCALED_DOWN = "RunnerPodScaledDown"
POD_NOT_RESPONDING = "RunnerPodNotResponding"
POD_OF_DELETED_POOL = "RunnerPodPoolDeleted"
ROLL_STARTED = "RollStarted"
ROLL_COMPLETED = "RollCompleted"
CANARY_GOOD = "CanaryGood"
IMAGE_REJECTED = "ImageRejected"
POOL_SCALED = "PoolScaled"

# The autoscaler, as reasons of its decisions in the status of RunnerPools.
QUEUED_JOBS = "QueuedJobs"
OCCUPIED_RUNNERS = "OccupiedRunners"
PERCENTILE = "Percentile"
WARM_FLOOR = "WarmFloor"
NO_DEMAND = "NoDemand"
AT_MAXIMUM = "AtMaximum"
FLEET_FULL = "FleetFull"
COOLING_DOWN = "CoolingDown"
SIGNALS_UNAVAILABLE = "SignalsUnavailable"

# The provider, on machines: successes.
ADOPTING = "Adopting"
ADOPTED = "Adopted"
PROVISIONED = "Provisioned"
CREDENTIALS_RECLAIMED = "CredentialsReclaimed"
BOOTSTRAPPING = "Bootstrapping"
BOOTSTRAPPED = "Bootstrapped"
AGENT_ROLLED = "AgentRolled"
AGENT_ROLL_RETRIED = "AgentRollRetried"
REBOOTING_FOR_RECOVERY = "RebootingForRecovery"
BOOTSTRAP_EXHAUSTED = "BootstrapExhausted"
RELEASING = "Releasing"
RELEASED = "Released"

# The provider, on machines: failures.
NO_ADOPT_POOL_PREFIX = "NoAdoptPoolPrefix"
INVALID_OS_PIN = "InvalidOSPin"
NO_AVAILABLE_HOST = "NoAvailableHost"
PROVISIONING_FAILED = "ProvisioningFailed"
CREDENTIALS_REFRESH_FAILED = "CredentialsRefreshFailed"
MISSING_SUDO_PASSWORD = "MissingSudoPassword"  # noqa: S105 - a reason
NODE_MISSING = "NodeMissing"
REGISTRATION_TOKEN_UNAVAILABLE = "GHRunnerRegistrationTokenUnavailable"  # noqa: S105 - a reason
BOOTSTRAP_FAILED = "BootstrapFailed"
REBOOT_FOR_RECOVERY_FAILED = "RebootForRecoveryFailed"
RELEASE_FAILED = "ReleaseFailed"
RELEASE_SKIPPED = "ReleaseSkipped"
OS_PIN_UNAVAILABLE = "OSPinUnavailable"
HOST_NAME_CHANGED = "HostNameChanged"
HOST_GONE = "HostGone"
BOOTSTRAP_SECRET_DELETE_FAILED = "BootstrapSecretDeleteFailed"  # noqa: S105 - a reason
AGENT_ROLL_FAILED = "AgentRollFailed"
UPDATE_EXCEEDED_RETRIES = "TartKubeletUpdateExceededRetries"
EGRESS_SERVICE_FAILED = "EgressServiceFailed"
DELETE_FAILED = "DeleteFailed"

# The provider, only as reasons of conditions.
ADOPT_FAILED = "ScalewayAdoptFailed"
CREDENTIALS_PERSIST_FAILED = "CredentialsPersistFailed"
HOST_RELEASED = "HostReleased"
SSH_KEY_UNAVAILABLE = "SSHKeyUnavailable"
NODE_IDENTITY_UNAVAILABLE = "NodeIdentityUnavailable"
KUBECONFIG_UNAVAILABLE = "KubeconfigUnavailable"
TAILSCALE_AUTH_KEY_UNAVAILABLE = "TailscaleAuthKeyUnavailable"
CACHE_PRIVATE_NETWORK_UNAVAILABLE = "CachePrivateNetworkUnavailable"
